"""Ray itself: a head of our own in this process, unless the user has connected to one."""

from __future__ import annotations

import logging
from typing import Any

import ray

from elastune.errors import SpecError

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
    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=OBJECT_STORE_BYTES,
        _system_config=SYSTEM,
    )
    return True


def _check_connected(cpus: int) -> None:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    if resources.get("CPU", 0) < cpus:
        raise SpecError(
            f"machines x devices = {cpus}: the Ray cluster you connected to has {resources.get('CPU', 0):g} CPUs"
        )
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    if cpus and sum(node["Alive"] for node in nodes) > 1:
        raise SpecError("the Ray cluster you connected to has several machines: use one that has only this one")
