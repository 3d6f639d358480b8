"""Starts the raylet of one machine, says its pid, and leaves it alone. Run by its path, see `machine`.

`ray start` will not do: it takes a head on the loopback address for one on the network.
"""

from __future__ import annotations

import fcntl
import os
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

OBJECT_STORE_BYTES = 80_000_000


class MachineNode(Node):
    """Says the pid of the raylet before it is known to Ray, so that its keeper never misses its death."""

    def __init__(self, parameters: RayParams, pid_path: str) -> None:
        self._pid_path = pid_path
        super().__init__(parameters, head=False, shutdown_at_exit=False, spawn_reaper=False)

    def start_raylet(self, *arguments: object, **named: object) -> None:
        super().start_raylet(*arguments, **named)  # type: ignore[arg-type]
        draft = f"{self._pid_path}.draft"
        with open(draft, "w") as file:
            file.write(str(self.all_processes["raylet"][0].process.pid))
        os.replace(draft, self._pid_path)


def main(address: str, devices: str, labels: str, turn_path: str, pid_path: str) -> None:
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
    with open(turn_path, "a") as turn:
        # Several raylets that start at the same time are so slow that Ray gives them up.
        fcntl.flock(turn, fcntl.LOCK_EX)
        MachineNode(parameters, pid_path)


if __name__ == "__main__":
    main(*sys.argv[1:])
