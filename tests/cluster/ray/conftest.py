"""One Ray for all tests of this folder: starting it takes seconds."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="package")
def ray_here() -> Iterator[None]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100_000_000,
    )
    yield
    ray.shutdown()
