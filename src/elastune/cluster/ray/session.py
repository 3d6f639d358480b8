"""Ray itself: a head of our own in this process, unless the user has connected to one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import services, worker
from ray._private.ray_constants import PROCESS_TYPE_GCS_SERVER, PROCESS_TYPE_RAYLET

from elastune.errors import RunFailed, SpecError, StorageError

SYSTEM = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
    "process_group_cleanup_enabled": True,
}
"""A machine whose raylet is gone is noticed in some two seconds instead of fifteen; what a worker had started
ends with it, also when it is killed.
"""
OBJECT_STORE_BYTES = 100_000_000


def start_ray(cpus: int) -> bool:
    """Returns whether it is ours to shut down."""
    if ray.is_initialized():
        _check_connected(cpus)
        return False
    with _groups_of_their_own():
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            _system_config=SYSTEM,
        )
    # What Ray prints when a worker or a machine dies, pages of it: we tell of that ourselves, and its logs have it.
    worker._worker_logs_enabled = False
    return True


def join_ray(address: str, environment: dict[str, Any]) -> None:
    """Connect to a Ray that others have started, which must also run on this computer. Its workers get the
    environment: code, and what that needs.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise StorageError(f"Ray at {address!r} cannot be used from this computer: {reason}") from error
    worker._worker_logs_enabled = False


def stop_ray() -> None:
    """Of the Ray that is ours. One that the user starts later prints as it likes."""
    ray.shutdown()
    worker._worker_logs_enabled = True


@contextmanager
def _groups_of_their_own() -> Iterator[None]:
    """A signal to the driver's process group is for the driver alone: a batch system sends SIGTERM to all of it, and
    without Ray there is no orderly end. Ray's processes still end with the driver: the kernel sees to that. They stay
    in its session, because Linux shares its cores by session first: each of them would get as much as the driver.
    """
    popen = services.ConsolePopen
    services.ConsolePopen = partial(popen, process_group=0)  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        services.ConsolePopen = popen  # type: ignore[misc]


def check_ray(run: Path) -> None:
    """Without one of these every call to Ray waits for a minute, and then ends the driver without a word."""
    node = worker._global_node
    dead: list[tuple[str, Any]] = node.dead_processes() if node is not None else []
    for kind, process in dead:
        if kind in (PROCESS_TYPE_GCS_SERVER, PROCESS_TYPE_RAYLET):
            raise RunFailed(
                f"Ray has died: its {kind} (process {process.pid}) is gone. To go on: elastune resume {run}"
            )


def _check_connected(cpus: int) -> None:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    if resources.get("CPU", 0) < cpus:
        raise SpecError(
            f"machines x devices = {cpus}: the Ray cluster you connected to has {resources.get('CPU', 0):g} CPUs"
        )
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    if cpus and sum(node["Alive"] for node in nodes) > 1:
        raise SpecError("the Ray cluster you connected to has several machines: use one that has only this one")
