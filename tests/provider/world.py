"""A look at the machines of a provider and at their processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from elastune.provider import Machine, Provider
from elastune.provider import machine as m

NOTICED_S = 2.0
"""Within a tick of a keeper, were the computer not busy."""
READY_S = 120.0


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    give_up_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.02)
    return True


def names(provider: Provider) -> list[str]:
    return [machine.name for machine in provider.list()]


def ready(provider: Provider, name: str) -> tuple[Machine, str]:
    """The machine once workers can be placed there, and where that is."""
    give_up_s = time.monotonic() + READY_S
    while time.monotonic() < give_up_s:
        machine = next(machine for machine in provider.list() if machine.name == name)
        if machine.ray_node is not None:
            return machine, machine.ray_node
        time.sleep(0.02)
    raise AssertionError(f"{name} is not ready within {READY_S:g} s")


def running(folder: Path, name: str) -> set[int]:
    """All processes of a machine."""
    order = m.read(folder / name / "order.json", m.Order)
    assert order is not None
    return m.processes({order.mark})


def have_ended(pids: set[int]) -> bool:
    return all(m.started_ticks(pid) is None for pid in pids)


def keeper_pid(folder: Path, name: str) -> int:
    """Of the process that plays the machine, once it says so."""
    assert wait_until(lambda: (folder / name / "keeper.json").exists(), 30)
    keeper = m.read(folder / name / "keeper.json", m.Keeper)
    assert keeper is not None and keeper.lives()
    return keeper.pid
