"""A Ray for the tests of a file, and machines that are gone when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from elastune.cluster.ray.session import start_ray
from elastune.market.cloud import PlayedCloud
from elastune.provider.local import Local, release_all
from elastune.provider.played import Played


@pytest.fixture(scope="module")
def head() -> Iterator[None]:
    ray.shutdown()  # that of other tests may still be there
    start_ray(0)
    yield
    ray.shutdown()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Callable[..., Local]]:
    """Makes the provider of the machines in `tmp_path`."""
    made: list[Local] = []

    def make(devices: int = 2, boot_s: float = 0.0, linger_s: float = 60.0) -> Local:
        made.append(Local(tmp_path, devices, 0.1, boot_s=boot_s, linger_s=linger_s))
        return made[-1]

    yield make
    for provider in made:
        provider.close()
    release_all(tmp_path)


@pytest.fixture
def played(tmp_path: Path, local: Callable[..., Local]) -> Callable[..., Played]:
    """Plays a market on the machines in `tmp_path`."""

    def make(cloud: PlayedCloud, boot_s: float = 0.0) -> Played:
        return Played(local(boot_s=boot_s), cloud, tmp_path)

    return make
