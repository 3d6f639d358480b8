"""Free devices, and which of them a trial gets.

A trial that is narrower than a machine never straddles two; a wider one gets whole machines. Trials with a part of a
device are packed: the fullest device that still has room is used first, so that whole ones stay free for whole trials,
and each has a lane of its own there. Ties go to the machine that came last, to its lowest device and to its lowest
lane, so that the same history always gives the same places, and the oldest machines, which have been paid for longest,
have the least to lose when there are to be fewer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count

from elastune.messages import Slot
from elastune.spec import Width

_Place = tuple[int, str, int]
"""A device: the number of its machine, which is the lower the later it came, the machine, the device."""


@dataclass(slots=True)
class _Machine:
    order: int
    devices: int
    free: list[int] = field(default_factory=list)
    """Devices that nobody is on."""
    lanes: dict[int, dict[int, Fraction]] = field(default_factory=dict)
    """Devices that trials share, with the part that each lane has."""
    closed: bool = False
    queued: bool = True


class FreeSlots:
    """What no trial holds of the devices of all usable machines. A whole device costs O(log machines), several
    O(machines), a part of one O(devices that are shared and have room). With `apart` trials with a part of a device are
    put where the fewest are: on a device of their own as long as there is one.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._machines: dict[str, _Machine] = {}
        self._queue: list[tuple[int, str]] = []
        """Machines that may have a free device, the newest first; who has not, or is gone, is skipped."""
        self._count = 0
        self._room: dict[_Place, Fraction] = {}
        """What is left of the devices that are shared, where that is anything."""
        self._joined = 0

    def __len__(self) -> int:
        """Whole devices."""
        return self._count

    @property
    def capacity(self) -> Width:
        """Whole devices, and what is left of those that are shared."""
        return self._count + sum(self._room.values()) if self._room else self._count

    def room(self, width: Width) -> int:
        """How many more trials of this width there is a place for; of those wider than a machine there may be fewer if
        machines differ in size.
        """
        if width == 1:
            return self._count
        if isinstance(width, Fraction):
            return self._count * width.denominator + sum(room // width for room in self._room.values())
        usable = [machine for machine in self._machines.values() if not machine.closed]
        whole = sum(m.devices for m in usable if m.devices < width and len(m.free) == m.devices)
        return whole // width + sum(len(m.free) // width for m in usable if m.devices >= width)

    # ------------------------------------------------------------------------------------------------------- machines

    def add_node(self, node: str, devices: int) -> None:
        self._joined += 1
        self._machines[node] = _Machine(-self._joined, devices, list(range(devices)))
        heappush(self._queue, (-self._joined, node))
        self._count += devices

    def remove_node(self, node: str) -> None:
        """Take a machine out for good: its free devices at once, the others as they come back."""
        self.close_node(node)
        self._machines.pop(node, None)

    def close_node(self, node: str) -> None:
        """Hand out nothing of a machine any more, until it is opened again."""
        machine = self._machines.get(node)
        if machine is not None and not machine.closed:
            machine.closed = True
            self._count -= len(machine.free)
            for device in machine.lanes:
                self._room.pop((machine.order, node, device), None)

    def open_node(self, node: str) -> None:
        machine = self._machines.get(node)
        if machine is not None and machine.closed:
            machine.closed = False
            self._count += len(machine.free)
            self._enqueue(machine, node)
            for device in machine.lanes:
                self._count_room(machine, node, device)

    @property
    def machines(self) -> dict[str, int]:
        """The devices of the machines of which something can be handed out, in the order in which they came."""
        return {node: machine.devices for node, machine in self._machines.items() if not machine.closed}

    def trials_on(self, slot: Slot) -> int:
        """How many trials are on the device of a slot that somebody holds."""
        machine = self._machines.get(slot.node)
        return len(machine.lanes.get(slot.device, (slot,))) if machine is not None else 1

    def in_use(self, node: str) -> int:
        """Devices of a machine that somebody is on."""
        machine = self._machines.get(node)
        return 0 if machine is None else machine.devices - len(machine.free)

    # ---------------------------------------------------------------------------------------------------------- slots

    def give(self, slot: Slot) -> None:
        """A slot comes back; that of a machine that was taken out is forgotten."""
        machine = self._machines.get(slot.node)
        if machine is None:
            return
        lanes = machine.lanes.get(slot.device)
        if lanes is not None:
            del lanes[slot.lane]
            self._count_room(machine, slot.node, slot.device)
            if lanes:
                return
            del machine.lanes[slot.device]
        insort(machine.free, slot.device)
        if not machine.closed:
            self._count += 1
            self._enqueue(machine, slot.node)

    def keep(self, slot: Slot, share: Width) -> None:
        """Who holds the slot has from now on this part of its device, or all of it."""
        machine = self._machines.get(slot.node)
        if machine is None:
            return
        if isinstance(share, Fraction):
            machine.lanes.setdefault(slot.device, {})[slot.lane] = share
            self._count_room(machine, slot.node, slot.device)
        elif machine.lanes.pop(slot.device, None) is not None:
            self._room.pop((machine.order, slot.node, slot.device), None)

    def take(self, width: Width = 1) -> tuple[Slot, ...] | None:
        """The slots for a trial of this width; None if there is no place for it now."""
        if width == 1:
            return self._take_first()
        if isinstance(width, Fraction):
            return self._take_part(width)
        fitting = [m for m in self._machines.items() if len(m[1].free) >= width and not m[1].closed]
        if fitting:
            return self._take_from(min(fitting, key=lambda m: (len(m[1].free), m[1].order))[0], width)
        return self._take_whole(width)

    def claim(self, slots: Collection[Slot]) -> bool:
        """Take these whole devices, if nobody is on any of them."""
        for slot in slots:
            if self._is_closed(slot.node) or slot.device not in self._machines[slot.node].free:
                return False
        for slot in slots:
            self._machines[slot.node].free.remove(slot.device)
        self._count -= len(slots)
        return True

    def resize(self, held: tuple[Slot, ...], width: Width) -> tuple[Slot, ...] | None:
        """Slots for a trial that holds some and shall be wider or narrower, or leave a machine that is closed; it keeps
        what it can. What it needs more is taken, what it needs no longer is its own until `give` and `keep` say
        otherwise; None if there is no place for it.
        """
        kept = tuple(slot for slot in held if not self._is_closed(slot.node))
        if not kept:
            return self.take(width)
        if isinstance(width, Fraction):
            return self._to_part(kept[0], width)
        return self._narrower(kept, width) if width < len(kept) else self._wider(kept, width)

    def _to_part(self, slot: Slot, share: Fraction) -> tuple[Slot, ...] | None:
        lanes = self._machines[slot.node].lanes.get(slot.device)
        if lanes is not None and share > lanes[slot.lane]:
            if sum(lanes.values()) - lanes[slot.lane] + share > 1:
                return self._take_part(share)
            self.keep(slot, share)
        return (slot,)

    def _narrower(self, kept: tuple[Slot, ...], width: int) -> tuple[Slot, ...] | None:
        """Its first slots, unless they would straddle: then a place of its own."""
        first = kept[:width]
        nodes = {slot.node for slot in first}
        whole = all(sum(slot.node == node for slot in first) == self._machines[node].devices for node in nodes)
        return first if len(nodes) == 1 or whole else self.take(width)

    def _wider(self, kept: tuple[Slot, ...], width: int) -> tuple[Slot, ...] | None:
        home, missing = self._machines[kept[0].node], width - len(kept)
        if len(home.lanes.get(kept[0].device, ())) > 1:  # it shares its device with others
            return self.take(width)
        more: tuple[Slot, ...] | None = None
        if not missing:
            more = ()
        elif width <= home.devices and len(home.free) >= missing:
            more = self._take_from(kept[0].node, missing)
        elif len(kept) % home.devices == 0:
            more = self._take_whole(missing)
        if more is None:
            return self.take(width)
        self.keep(kept[0], 1)
        return kept + more

    def _take_part(self, share: Fraction) -> tuple[Slot, ...] | None:
        fitting = [(room, place) for place, room in self._room.items() if room >= share]
        if fitting and not (self._apart and self._count):
            _, (_, node, device) = min(fitting, key=lambda fit: (-fit[0] if self._apart else fit[0], fit[1]))
        elif (whole := self._take_first()) is not None:
            node, device = whole[0].node, whole[0].device
        else:
            return None
        lanes = self._machines[node].lanes.get(device, {})
        slot = Slot(node, device, next(lane for lane in count() if lane not in lanes))
        self.keep(slot, share)
        return (slot,)

    def _take_first(self) -> tuple[Slot, ...] | None:
        while self._queue:
            order, node = self._queue[0]
            machine = self._machines.get(node)
            if machine is not None and machine.order == order:
                if machine.free and not machine.closed:
                    return self._take_from(node, 1)
                machine.queued = False
            heappop(self._queue)
        return None

    def _take_whole(self, width: int) -> tuple[Slot, ...] | None:
        """Machines that are all free, as many as make up the width."""
        whole: list[str] = []
        for node, machine in sorted(self._machines.items(), key=lambda m: m[1].order):
            if width >= machine.devices == len(machine.free) and machine.devices > 0 and not machine.closed:
                whole.append(node)
                width -= machine.devices
        if width or not whole:
            return None
        return tuple(slot for node in whole for slot in self._take_from(node, self._machines[node].devices))

    def _take_from(self, node: str, number: int) -> tuple[Slot, ...]:
        machine = self._machines[node]
        taken, machine.free = machine.free[:number], machine.free[number:]
        self._count -= number
        return tuple(Slot(node, device) for device in taken)

    # ----------------------------------------------------------------------------------------------------- the books

    def _is_closed(self, node: str) -> bool:
        machine = self._machines.get(node)
        return machine is None or machine.closed

    def _enqueue(self, machine: _Machine, node: str) -> None:
        if not machine.queued:
            machine.queued = True
            heappush(self._queue, (machine.order, node))

    def _count_room(self, machine: _Machine, node: str, device: int) -> None:
        place, lanes = (machine.order, node, device), machine.lanes[device]
        room = Fraction(1) - sum(lanes.values())
        if lanes and room > 0 and not machine.closed:
            self._room[place] = room
        else:
            self._room.pop(place, None)
