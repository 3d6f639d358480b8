"""What Ray knows of its nodes. Whatever is not Ray's public interface is used in this file only."""

from __future__ import annotations

from typing import Any

import ray
from ray._private.state import state
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated.autoscaler_pb2 import DrainNodeReason  # type: ignore[attr-defined]
from ray.core.generated.gcs_pb2 import GcsNodeInfo  # type: ignore[attr-defined]

ANSWER_S = 10.0


def address() -> str | None:
    """Where machines can join the Ray that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else None


def here() -> str | None:
    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else None


def labelled(label: str) -> dict[str, str]:
    """The ids of the living nodes with that label, by its value."""
    if not ray.is_initialized():
        return {}
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["Labels"][label]: node["NodeID"] for node in known if node["Alive"] and label in node["Labels"]}


def living() -> set[str]:
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"] for node in known if node["Alive"]}


def cpus_at(address: str) -> dict[str, int]:
    """The whole CPUs of the living nodes of a Ray that this process is not connected to, by their ids."""
    found = GcsClient(address=address).get_all_node_info(timeout=ANSWER_S)
    alive = {node.hex(): info for node, info in found.items() if info.state == GcsNodeInfo.ALIVE}
    return {node: int(cpus) for node, info in alive.items() if (cpus := info.resources_total.get("CPU", 0)) >= 1}


def notices() -> dict[str, float]:
    """When which node will be taken away. A drain without a deadline names no time, and is none."""
    if not ray.is_initialized():
        return {}
    draining: dict[str, int] = state.get_draining_nodes()
    return {node: deadline_ms / 1000 for node, deadline_ms in draining.items() if deadline_ms > 0}


def give_notice(node: str, gone_at_unix_s: float) -> None:
    """Ray places nothing new on the node and tells its workers; to end it at that time is up to the caller."""
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    GcsClient(address=address()).drain_node(node, reason, "revoked", int(gone_at_unix_s * 1000))
