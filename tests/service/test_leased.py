"""Machines of a job as its lease changes: they come, are told to leave, and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NoReturn

import pytest

from elastune.errors import StorageError
from elastune.provider import nodes
from elastune.service.leased import NOTICE_S, Leased
from elastune.service.limiter import Grant


class Lease:
    """What the service grants, and what it was told."""

    def __init__(self, *grants: Grant) -> None:
        self.grants, self.let_go, self.wanted = list(grants), list[int](), 0
        self.granted: Callable[[], list[Grant]] = lambda: self.grants
        self.release: Callable[[Iterable[int]], None] = self._release
        self.want: Callable[[int], None] = self._want

    def machines(self, devices: int) -> Leased:
        return Leased(
            devices,
            0.5,
            granted=lambda: self.granted(),
            let_go=lambda devices: self.release(devices),
            want=lambda devices: self.want(devices),
        )

    def _release(self, devices: Iterable[int]) -> None:
        gone = set(devices)
        self.let_go += sorted(gone)
        self.grants = [grant for grant in self.grants if grant.device not in gone]

    def _want(self, devices: int) -> None:
        self.wanted = devices


@pytest.fixture(autouse=True)
def ray_nodes(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    alive = {"a", "b"}
    monkeypatch.setattr(nodes, "living", lambda: alive)
    monkeypatch.setattr(nodes, "here", lambda: "here")
    return alive


def test_a_machine_is_there_once_all_its_devices_are_granted() -> None:
    lease = Lease(Grant(0, None))
    leased = lease.machines(2)
    leased.request("m0")
    assert [machine.served for machine in leased.list()] == [False]
    assert lease.wanted == 2
    lease.grants.append(Grant(1, None))
    (machine,) = leased.list()
    assert machine.served and machine.ray_node == "here" and leased.price() == 1.0


def test_devices_that_are_asked_back_are_a_notice_and_then_gone() -> None:
    now = time.time()
    lease = Lease(Grant(0, None), Grant(1, None))
    leased = lease.machines(1)
    for name in ("m0", "m1"):
        leased.request(name)
    assert len(leased.list()) == 2
    lease.grants[1] = Grant(1, now)
    told = {machine.name: machine.gone_at_unix_s for machine in leased.list()}
    assert told == {"m0": None, "m1": now + NOTICE_S}
    lease.grants[1] = Grant(1, now - NOTICE_S)
    assert [machine.name for machine in leased.list()] == ["m0"]
    assert leased.was_taken("m1") and lease.let_go == []  # its workers must end first
    leased.release("m1")
    assert lease.let_go == [1]
    leased.list()
    assert lease.wanted == 1


def test_devices_that_somebody_else_has_taken_are_gone_at_once() -> None:
    lease = Lease(Grant(0, None))
    leased = lease.machines(1)
    leased.request("m0")
    assert len(leased.list()) == 1
    lease.grants.clear()
    assert leased.list() == [] and leased.was_taken("m0")


def test_a_machine_of_a_ray_cluster_lies_on_one_of_its_computers() -> None:
    lease = Lease(Grant(0, None, "a"), Grant(1, None, "b"), Grant(2, None, "b"))
    leased = lease.machines(2)
    for name in ("m0", "m1"):
        leased.request(name)
    assert [(machine.served, machine.ray_node) for machine in leased.list()] == [(True, "b"), (False, None)]


def test_a_computer_that_left_the_cluster_takes_its_machines_along_and_no_blame(ray_nodes: set[str]) -> None:
    lease = Lease(Grant(0, None, "a"), Grant(1, None, "b"))
    leased = lease.machines(1)
    for name in ("m0", "m1"):
        leased.request(name)
    assert len(leased.list()) == 2
    ray_nodes.discard("b")
    assert [machine.name for machine in leased.list()] == ["m0"]
    leased.release("m1")
    assert not leased.was_taken("m1") and lease.let_go == [1]
    assert leased.why_gone("m1") == "its computer has left the Ray cluster"
    leased.request("m2")
    lease.grants.append(Grant(2, None, "b"))  # granted before anybody knew
    assert [machine.served for machine in leased.list()] == [True, False]
    assert lease.let_go == [1, 2]


def test_what_is_asked_back_before_a_machine_has_it_is_let_go_at_once() -> None:
    lease = Lease(Grant(0, None), Grant(1, time.time()))
    leased = lease.machines(1)
    leased.request("m0")
    assert [machine.served for machine in leased.list()] == [True]
    assert lease.let_go == [1]


def test_while_the_database_does_not_answer_nothing_changes() -> None:
    lease = Lease(Grant(0, None))
    leased = lease.machines(1)
    leased.request("m0")
    assert len(leased.list()) == 1

    def fails(*_: object) -> NoReturn:
        raise StorageError("it is gone")

    lease.granted = lease.want = lease.release = fails
    assert [machine.name for machine in leased.list()] == ["m0"]
    leased.release("m0")
