"""Machines on this computer: each is a real raylet with processes of its own, that boots, is billed and can die.

See `machine` for what plays a machine, and for the files that say what there is. A driver that comes after a crash
finds the machines of the one before, and has them join its own Ray.

Ray and the workers start while a machine boots: how many boot at once then makes no difference to when they are ready,
as long as this computer keeps up, and a rehearsal takes the time that was ordered.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elastune.errors import SpecError
from elastune.messages import Offer
from elastune.provider import machine as m
from elastune.provider import nodes
from elastune.provider.base import Machine
from elastune.provider.owner import OwnerLock

OVERDUE_S = 3.0
"""A keeper that has not ended its machine by then is killed with it."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The machines that were ended, or else those that belong to a driver that is running."""

    released: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()


class Local:
    """The machines of one folder. They belong to this process until it ends or `close` is called."""

    def __init__(
        self,
        folder: Path,
        devices: int,
        price_usd_per_device_hour: float,
        boot_s: float = 0.0,
        linger_s: float = 60.0,
    ) -> None:
        if not Path("/proc/self/environ").exists():
            raise SpecError(f"machines on this computer: they need Linux (/proc), this is {sys.platform}")
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._devices = devices
        self._price_usd_per_device_hour = price_usd_per_device_hour
        self._boot_s, self._linger_s = boot_s, linger_s
        self._lock = OwnerLock(self._folder / "owner.lock")
        self._head = m.Head(None, os.getcwd())
        m.write(self._folder / "head.json", self._head)
        self._there = {order.name: order for order in _orders(self._folder)}
        self._leaving: dict[str, tuple[m.Order, float]] = {}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    # ----------------------------------------------------------------------------------------------- the Provider seam

    def request(self, name: str, offer: Offer | None = None) -> None:
        self._look()
        if name in self._there:
            return
        folder = self._folder / name
        if name in self._leaving:
            self._finish([name])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        order = m.Order(name, self._devices, self._boot_s, self._linger_s, time.time(), f"{name}-{uuid.uuid4().hex}")
        m.write(folder / "order.json", order)
        with (folder / "log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                [sys.executable, "-P", m.__file__, str(folder)],
                env={"RAY_USAGE_STATS_ENABLED": "0", **os.environ, m.MARK: order.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._there[name] = order

    def list(self) -> list[Machine]:
        self._look()
        ray_nodes, notices = nodes.labelled(m.JOIN_LABEL), nodes.notices()
        machines = []
        for name, order in self._there.items():
            keeper = m.read(self._folder / name / "keeper.json", m.Keeper)
            ray_node = ray_nodes.get(keeper.join) if keeper is not None and keeper.join is not None else None
            gone_at_unix_s = self._gone_at(name, notices.get(ray_node) if ray_node is not None else None)
            since_unix_s, ready_unix_s = order.requested_unix_s, order.requested_unix_s + order.boot_s
            machines.append(Machine(name, order.devices, ray_node, since_unix_s, gone_at_unix_s, ready_unix_s))
        return machines

    def release(self, name: str) -> None:
        if name in self._there:
            self._lose(name, m.RELEASED)

    def price(self) -> float:
        return self._devices * self._price_usd_per_device_hour

    # ------------------------------------------------------------------------------------------ what a cloud also does

    def revoke(self, name: str, notice_s: float) -> None:
        """Take the machine away in `notice_s` seconds, whatever becomes of the driver. With 0 there is no notice."""
        there = {machine.name: machine for machine in self.list()}
        if name not in there:
            raise SpecError(f"revoke {name!r}: it is not there; allowed: {', '.join(sorted(there)) or 'nothing'}")
        gone_at_unix_s = math.floor(1000 * (time.time() + notice_s)) / 1000  # Ray counts in milliseconds
        m.write(self._folder / name / "notice.json", m.Notice(gone_at_unix_s))
        ray_node = there[name].ray_node
        if ray_node is not None and notice_s > 0:
            nodes.give_notice(ray_node, gone_at_unix_s)

    def raylet_pid(self, name: str) -> int | None:
        """The process without which the machine is dead; None while there is none."""
        order = self._there.get(name)
        running = m.processes({order.mark}) if order is not None else ()
        return next((pid for pid in running if m.program(pid) == "raylet"), None)

    def why_gone(self, name: str) -> str:
        self._look()
        if name in self._there:
            return "it is there"
        gone = m.read(self._folder / name / "gone.json", m.Gone)
        return gone.reason if gone is not None else "it was never requested"

    def run_began(self, unix_s: float) -> None:
        """It makes no difference."""

    def was_taken(self, name: str) -> bool:
        return self.why_gone(name) == m.TAKEN

    def close(self) -> None:
        """Leave without the machines that are there: they wait for another driver, as after a crash."""
        give_up_s = time.monotonic() + 2 * OVERDUE_S
        while self._leaving and time.monotonic() < give_up_s:
            self._chase()
            time.sleep(0.02)
        self._lock.close()

    # ---------------------------------------------------------------------------------------------------------- looking

    def _look(self) -> None:
        """Tell the machines of a new head, and take note of those that are gone."""
        address = nodes.address()
        if address is not None and address != self._head.address:
            self._head = m.Head(address, os.getcwd())
            m.write(self._folder / "head.json", self._head)
        for name in list(self._there):
            if m.is_taken(self._folder / name):
                self._lose(name, m.TAKEN)
            elif not _is_there(self._folder / name, self._started.get(name)):
                self._lose(name, f"its keeper was killed\n{m.last_lines(self._folder / name / 'log')}".strip())
        self._chase()

    def _gone_at(self, name: str, noticed_unix_s: float | None) -> float | None:
        """When it will be taken away; if it is Ray that was told, the keeper must know as well."""
        notice = m.read(self._folder / name / "notice.json", m.Notice)
        if noticed_unix_s is not None and (notice is None or noticed_unix_s < notice.gone_at_unix_s):
            notice = m.Notice(noticed_unix_s)
            m.write(self._folder / name / "notice.json", notice)
        return notice.gone_at_unix_s if notice is not None else None

    def _lose(self, name: str, reason: str) -> None:
        """Its keeper ends it when it sees the reason, unless it was the keeper who gave one."""
        m.write_why_gone(self._folder / name, reason)
        self._leaving[name] = (self._there.pop(name), time.monotonic() + OVERDUE_S)

    def _chase(self) -> None:
        """A machine that is gone must not leave anything behind."""
        ended = [
            name
            for name, (_, limit_s) in self._leaving.items()
            if not _is_kept(self._folder / name, self._started.get(name)) or time.monotonic() > limit_s
        ]
        if ended:
            self._finish(ended)

    def _finish(self, names: Sequence[str]) -> None:
        m.kill({self._leaving.pop(name)[0].mark for name in names})
        for name in names:
            if name in self._started:
                self._started.pop(name).wait()


def release_all(folder: Path) -> Swept:
    """End the machines that a driver left behind; those of a driver that is running are left alone."""
    orders = _orders(folder)
    there = tuple(order.name for order in orders if _is_there(folder / order.name))
    if not orders:
        return Swept()
    try:
        lock = OwnerLock(folder / "owner.lock")
    except SpecError:
        return Swept(owned=there)
    for name in there:
        m.write_why_gone(folder / name, m.RELEASED)
    m.kill({order.mark for order in orders})
    lock.close()
    return Swept(released=there)


def _orders(folder: Path) -> list[m.Order]:
    orders = (m.read(path, m.Order) for path in folder.glob("*/order.json"))
    return sorted((order for order in orders if order is not None), key=lambda order: order.requested_unix_s)


def _is_there(folder: Path, started: subprocess.Popen[bytes] | None = None) -> bool:
    return not (folder / "gone.json").exists() and _is_kept(folder, started)


def _is_kept(folder: Path, started: subprocess.Popen[bytes] | None = None) -> bool:
    """Whether the keeper lives; one that was just started has not told its pid yet."""
    keeper = m.read(folder / "keeper.json", m.Keeper)
    if keeper is not None:
        return keeper.lives()
    return started is not None and started.poll() is None
