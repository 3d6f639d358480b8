"""Starts the raylet of one machine, says its pid, and leaves it alone. Run by its path, see `machine`.

`ray start` will not do: it takes a head on the loopback address for one on the network.
"""

from __future__ import annotations

import fcntl
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

OBJECT_STORE_BYTES = 80_000_000


def main(address: str, devices: str, labels: str, turn: str, pid: str) -> None:
    parameters = RayParams(
        gcs_address=address,
        node_ip_address=address.rpartition(":")[0],
        num_cpus=int(devices),
        num_gpus=0,
        labels=dict(label.split("=", 1) for label in labels.split(",")),
        object_store_memory=OBJECT_STORE_BYTES,
        include_log_monitor=False,  # type: ignore[arg-type]
        node_manager_port=0,
        min_worker_port=0,
        max_worker_port=0,
    )
    with open(turn, "a") as file:
        # Several raylets that start at the same time are so slow that Ray gives them up.
        fcntl.flock(file, fcntl.LOCK_EX)
        node = Node(parameters, head=False, shutdown_at_exit=False, spawn_reaper=False)
    with open(pid, "w") as file:
        file.write(str(node.all_processes["raylet"][0].process.pid))


if __name__ == "__main__":
    main(*sys.argv[1:])
