"""Machines with real raylets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.provider.world import (
    NOTICED_S,
    READY_S,
    have_ended,
    keeper_pid,
    names,
    ready,
    running,
    wait_until,
)

from elastune.cluster.ray.session import start_ray
from elastune.provider import machine as m
from elastune.provider import nodes
from elastune.provider.local import Local

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("head")]


class Guest:
    """Lives on a machine, with a child that leaves its session as daemons do."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def pids(self) -> set[int]:
        return {os.getpid(), self.child.pid}


def guest_on(ray_node: str) -> tuple[Any, set[int]]:
    there: Any = NodeAffinitySchedulingStrategy(ray_node, soft=False)
    guest_class: Any = ray.remote(num_cpus=1, max_restarts=0)(Guest)
    guest = guest_class.options(scheduling_strategy=there).remote()
    return guest, ray.get(guest.pids.remote())


def living_nodes() -> dict[str, dict[str, Any]]:
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node for node in known if node["Alive"]}


def test_a_machine_has_the_devices_and_the_label_it_was_told_to_have(local: Callable[..., Local]) -> None:
    provider = local(devices=3)
    for name in ("n0", "n1"):
        provider.request(name)
    for name in ("n0", "n1"):
        machine, ray_node = ready(provider, name)
        node = living_nodes()[ray_node]
        assert machine.devices == node["Resources"]["CPU"] == 3
        assert node["Labels"]["elastune-machine"] == name


def test_ray_starts_while_a_machine_boots_and_it_is_ready_when_it_has_booted(local: Callable[..., Local]) -> None:
    provider = local(boot_s=600.0)
    provider.request("n0")
    machine, _ = ready(provider, "n0")
    assert time.time() < machine.ready_from_unix_s == machine.billed_from_unix_s + 600.0


def test_release_leaves_no_process_and_ray_knows_at_once(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local()
    provider.request("n0")
    _, ray_node = ready(provider, "n0")
    _, guests = guest_on(ray_node)
    pids = running(tmp_path, "n0")
    assert guests < pids and provider.raylet_pid("n0") in pids
    provider.release("n0")
    assert names(provider) == []
    assert wait_until(lambda: have_ended(pids), NOTICED_S)
    assert wait_until(lambda: ray_node not in living_nodes(), 1.0)


def test_a_machine_whose_raylet_is_killed_is_gone(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local()
    provider.request("n0")
    _, ray_node = ready(provider, "n0")
    guest_on(ray_node)
    pids, raylet = running(tmp_path, "n0"), provider.raylet_pid("n0")
    assert raylet is not None
    os.kill(raylet, signal.SIGKILL)
    assert wait_until(lambda: names(provider) == [], NOTICED_S)
    assert wait_until(lambda: have_ended(pids), NOTICED_S)
    assert provider.why_gone("n0") == f"its raylet (process {raylet}) died"
    assert provider.raylet_pid("n0") is None


def test_a_name_that_is_used_again_is_not_taken_for_the_node_that_died(local: Callable[..., Local]) -> None:
    provider = local()
    provider.request("n0")
    _, first = ready(provider, "n0")
    raylet = provider.raylet_pid("n0")
    assert raylet is not None
    os.kill(raylet, signal.SIGKILL)
    assert wait_until(lambda: names(provider) == [], NOTICED_S)
    provider.request("n0")
    _, second = ready(provider, "n0")
    assert second != first


def test_the_processes_of_a_machine_whose_keeper_is_killed_end(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local()
    provider.request("n0")
    _, ray_node = ready(provider, "n0")
    guest_on(ray_node)
    pids = running(tmp_path, "n0")
    os.kill(keeper_pid(tmp_path, "n0"), signal.SIGKILL)
    assert wait_until(lambda: names(provider) == [], NOTICED_S)
    assert wait_until(lambda: have_ended(pids), NOTICED_S)


@pytest.mark.parametrize("who", ["the provider", "somebody else"])
def test_a_revoked_machine_is_there_until_the_end_of_its_notice(
    who: str, local: Callable[..., Local], tmp_path: Path
) -> None:
    provider = local()
    provider.request("n0")
    _, ray_node = ready(provider, "n0")
    guest, _ = guest_on(ray_node)
    pids = running(tmp_path, "n0")
    gone_at_unix_s = time.time() + 4.0
    if who == "the provider":
        provider.revoke("n0", notice_s=4.0)
        assert ray_node in nodes.notices()
    else:
        nodes.give_notice(ray_node, gone_at_unix_s)
    [machine] = provider.list()
    assert machine.gone_at_unix_s is not None
    assert machine.gone_at_unix_s == pytest.approx(gone_at_unix_s, abs=0.5)
    ray.get(guest.pids.remote())
    assert wait_until(lambda: names(provider) == [], 4.0 + NOTICED_S)
    assert time.time() >= machine.gone_at_unix_s
    assert wait_until(lambda: have_ended(pids), NOTICED_S)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(guest.pids.remote())


def test_a_revoked_machine_with_nothing_on_it_is_there_as_long(local: Callable[..., Local]) -> None:
    provider = local()
    provider.request("n0")
    _, ray_node = ready(provider, "n0")
    revoked_s = time.monotonic()
    provider.revoke("n0", notice_s=4.0)
    assert wait_until(lambda: ray_node not in living_nodes(), 3.0), "Ray ends an empty node that is being drained"
    assert wait_until(lambda: names(provider) == [], 4.0 + NOTICED_S)
    assert time.monotonic() - revoked_s >= 4.0
    assert provider.why_gone("n0") == "it was taken away at the end of its notice"


def test_machines_join_the_next_ray_of_the_same_driver(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local()
    provider.request("n0")
    [machine] = provider.list()
    ready(provider, "n0")
    keeper = keeper_pid(tmp_path, "n0")
    ray.shutdown()
    try:
        assert provider.list() == [machine]
    finally:
        start_ray(0)
    ready(provider, "n0")
    assert keeper_pid(tmp_path, "n0") == keeper


def test_a_machine_on_which_ray_cannot_start_is_gone_and_says_why(local: Callable[..., Local]) -> None:
    provider = local(devices=-1)
    provider.request("n0")
    assert wait_until(lambda: names(provider) == [], READY_S)
    assert "Ray could not be started on it" in provider.why_gone("n0")
    assert "-1" in provider.why_gone("n0")


def test_machines_of_a_killed_driver_join_the_next_one_without_booting_again(
    local: Callable[..., Local], tmp_path: Path
) -> None:
    boot_s = 1.0
    arguments = [str(tmp_path), "ready", str(boot_s), "60", "n0"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.provider.driver", *arguments], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert driver.stdout is not None and driver.stdout.readline() == b"there\n"
    keeper = keeper_pid(tmp_path, "n0")
    order = m.read(tmp_path / "n0" / "order.json", m.Order)
    assert order is not None
    raylet = running(tmp_path, "n0") - {keeper}
    driver.kill()
    driver.communicate()
    assert wait_until(lambda: have_ended(raylet), 1.0 + NOTICED_S)

    provider = local(boot_s=boot_s)
    machine, ray_node = ready(provider, "n0")
    assert machine.billed_from_unix_s == order.requested_unix_s, "it was not requested again"
    assert machine.ready_from_unix_s == order.requested_unix_s + boot_s
    assert keeper_pid(tmp_path, "n0") == keeper
    _, guests = guest_on(ray_node)
    assert guests < running(tmp_path, "n0")
