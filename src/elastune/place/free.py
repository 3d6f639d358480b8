"""Free devices, and which of them a trial gets.

A trial that is narrower than a machine never straddles two; a wider one gets whole machines. Ties go to the machine
that came first and to its lowest device, so that the same history always gives the same places.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

from elastune.messages import Slot


@dataclass(slots=True)
class _Machine:
    order: int
    devices: int
    free: list[int] = field(default_factory=list)


class FreeSlots:
    """The devices of all usable machines that no trial holds. One costs O(log machines), several O(machines)."""

    def __init__(self) -> None:
        self._machines: dict[str, _Machine] = {}
        self._open: list[tuple[int, str]] = []
        """Machines that may have something free, first come first; who has not, or is gone, is skipped."""
        self._count = 0
        self._joined = 0

    def __len__(self) -> int:
        return self._count

    def add_node(self, node: str, devices: int) -> None:
        self._machines[node] = _Machine(self._joined, devices, list(range(devices)))
        heappush(self._open, (self._joined, node))
        self._joined += 1
        self._count += devices

    def remove_node(self, node: str) -> None:
        """Take a machine out: its free devices at once, the others as they come back."""
        if (machine := self._machines.pop(node, None)) is not None:
            self._count -= len(machine.free)

    def give(self, slot: Slot) -> None:
        """A slot comes back; that of a machine that was taken out is forgotten."""
        machine = self._machines.get(slot.node)
        if machine is not None:
            if not machine.free:
                heappush(self._open, (machine.order, slot.node))
            insort(machine.free, slot.device)
            self._count += 1

    def take(self, width: int = 1) -> tuple[Slot, ...] | None:
        """The slots for a trial of this width; None if there is no place for it now."""
        if width == 1:
            return self._take_first()
        fitting = [m for m in self._machines.items() if len(m[1].free) >= width]
        if fitting:
            return self._take_from(min(fitting, key=lambda m: (len(m[1].free), m[1].order))[0], width)
        return self._take_whole(width)

    def resize(self, held: tuple[Slot, ...], width: int) -> tuple[Slot, ...] | None:
        """Slots for a trial that holds some and shall be wider or narrower; it keeps what it can. Only those that it
        does not hold yet are taken; None if there is no place for it.
        """
        if width < len(held):
            return self._narrower(held, width)
        home = self._machines.get(held[0].node)
        missing = width - len(held)
        if home is not None and width <= home.devices and len(home.free) >= missing:
            return held + self._take_from(held[0].node, missing)
        if home is not None and len(held) % home.devices == 0 and (more := self._take_whole(missing)) is not None:
            return held + more
        return self.take(width)

    def _narrower(self, held: tuple[Slot, ...], width: int) -> tuple[Slot, ...] | None:
        """Its first slots, unless they would straddle: then a place of its own."""
        kept = held[:width]
        nodes = {slot.node for slot in kept}
        whole = all(sum(slot.node == node for slot in kept) == self._size(node) for node in nodes)
        return kept if len(nodes) == 1 or whole else self.take(width)

    def _size(self, node: str) -> int:
        machine = self._machines.get(node)
        return 0 if machine is None else machine.devices

    def _take_first(self) -> tuple[Slot, ...] | None:
        while self._open:
            order, node = self._open[0]
            machine = self._machines.get(node)
            if machine is not None and machine.order == order and machine.free:
                return self._take_from(node, 1)
            heappop(self._open)
        return None

    def _take_whole(self, width: int) -> tuple[Slot, ...] | None:
        """Machines that are all free, as many as make up the width."""
        whole: list[str] = []
        for node, machine in sorted(self._machines.items(), key=lambda m: m[1].order):
            if width >= machine.devices == len(machine.free) and machine.devices > 0:
                whole.append(node)
                width -= machine.devices
        if width or not whole:
            return None
        return tuple(slot for node in whole for slot in self._take_from(node, self._machines[node].devices))

    def _take_from(self, node: str, count: int) -> tuple[Slot, ...]:
        machine = self._machines[node]
        taken, machine.free = machine.free[:count], machine.free[count:]
        self._count -= count
        return tuple(Slot(node, device) for device in taken)
