"""Machines that are devices of the service, as many as it grants. A change of the lease reaches the controller as
machines that come, or that will be taken away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from elastune.errors import StorageError
from elastune.messages import Offer
from elastune.provider import nodes
from elastune.provider.base import Machine
from elastune.service.limiter import Grant

NOTICE_S = 30.0
"""So long a trial has to leave a device that is asked back."""


class Leased:
    """`granted` says which devices the job may use, `let_go` which it needs no longer, and `want` how many it could
    use. A machine has `devices` of them. One that there are no devices for yet is not there, and costs nothing.
    """

    def __init__(
        self,
        devices: int,
        price_usd_per_device_hour: float,
        granted: Callable[[], Sequence[Grant]],
        let_go: Callable[[Iterable[int]], None],
        want: Callable[[int], None],
    ) -> None:
        self._devices, self._price = devices, devices * price_usd_per_device_hour
        self._granted, self._let_go, self._want = granted, let_go, want
        self._asked: dict[str, tuple[int, ...]] = {}
        """By name, in the order in which they were asked for: the devices that it has, if it has any yet."""
        self._since: dict[str, float] = {}
        self._grants: Sequence[Grant] = ()
        self._wanted = 0
        self._taken: set[str] = set()
        self._broken: set[str] = set()

    def request(self, name: str, offer: Offer | None = None) -> None:
        self._asked.setdefault(name, ())

    def list(self) -> list[Machine]:
        now, grants = time.time(), self._look()
        leaving = {grant.device: grant.leaving_at for grant in grants if grant.leaving_at is not None}
        node_of = {grant.device: grant.node for grant in grants}
        broken = set(node_of.values()) - {""} - nodes.living() if any(node_of.values()) else set()
        self._hand_out([each for each in grants if not self._is_over(each, broken)])
        used = {device for has in self._asked.values() for device in has}
        if idle := [grant.device for grant in grants if grant.device not in used and self._is_over(grant, broken)]:
            self._give_back(idle)
        machines = []
        for name, has in list(self._asked.items()):
            gone_at = min((at + NOTICE_S for device in has if (at := leaving.get(device)) is not None), default=None)
            is_broken = any(node_of.get(device) in broken for device in has)
            if is_broken or not node_of.keys() >= set(has) or (gone_at is not None and gone_at <= now):
                # Its devices are let go when its workers have ended: `release`.
                (self._broken if is_broken else self._taken).add(name)
                continue
            since = self._since.get(name, now)
            node = (node_of[has[0]] or nodes.here()) if has else None
            machines.append(Machine(name, self._devices, node, since, gone_at, served=bool(has)))
        return machines

    def _look(self) -> Sequence[Grant]:
        """What is granted. While the database cannot be asked it is as it was: when that takes long the driver ends."""
        with suppress(StorageError):
            if (wanted := self._devices * len(self._asked)) != self._wanted:
                self._want(wanted)  # once for many machines, or those that come first would be asked back
                self._wanted = wanted
            self._grants = self._granted()
        return self._grants

    def _hand_out(self, grants: Sequence[Grant]) -> None:
        """Every machine gets its devices on one computer."""
        used = {device for has in self._asked.values() for device in has}
        free: dict[str, list[int]] = {}
        for grant in grants:
            if grant.device not in used:
                free.setdefault(grant.node, []).append(grant.device)
        whole = [
            tuple(devices[at : at + self._devices])
            for devices in free.values()
            for at in range(0, len(devices) - self._devices + 1, self._devices)
        ]
        for name, has in self._asked.items():
            if not has and whole:
                self._asked[name] = whole.pop(0)
                self._since[name] = time.time()

    @staticmethod
    def _is_over(grant: Grant, broken: Collection[str]) -> bool:
        return grant.leaving_at is not None or grant.node in broken

    def release(self, name: str) -> None:
        if has := self._asked.pop(name, ()):
            self._give_back(has)

    def _give_back(self, devices: Sequence[int]) -> None:
        with suppress(StorageError):  # then it is asked for them again
            self._let_go(devices)

    def price(self) -> float:
        return self._price

    def why_gone(self, name: str) -> str:
        if name in self._broken:
            return "its computer has left the Ray cluster"
        return "the service has given its devices to another job" if name in self._taken else "it was released"

    def was_taken(self, name: str) -> bool:
        return name in self._taken

    def run_began(self, unix_s: float) -> None:
        """It makes no difference."""

    def close(self) -> None:
        """What is still granted is given back when the job is completed."""
