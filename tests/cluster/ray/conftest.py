"""One Ray for all tests of this folder: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from tests.cluster.ray.drivers import Driver

from elastune.cluster.ray.session import start_ray


@pytest.fixture(scope="package")
def ray_here() -> Iterator[None]:
    start_ray(4)
    yield
    ray.shutdown()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def make(trainable: object, **options: object) -> Driver:
        drivers.append(Driver(trainable, tmp_path, **options))  # type: ignore[arg-type]
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.cluster.close()
