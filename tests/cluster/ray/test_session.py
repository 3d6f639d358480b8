"""How the processes of Ray stand to the driver that has started them."""

from __future__ import annotations

import os

from ray._private import worker


def test_processes_of_ray_have_groups_of_their_own_in_the_session_of_the_driver(ray_here: None) -> None:
    node = worker._global_node
    assert node is not None
    pids = [each.process.pid for infos in node.all_processes.values() for each in infos]
    assert pids
    assert all(os.getpgid(pid) != os.getpgrp() and os.getsid(pid) == os.getsid(0) for pid in pids)
