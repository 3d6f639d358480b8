"""When all trials of a group are done, if each has the width it was given (Fluid, sections 4.1 and 4.2).

The paper packs rectangles, as wide as the trial's devices and as high as its time, into strips of width one, the
devices. They are started in non-increasing order of width, the longest first where that is equal. A wide one takes
whole devices as soon as enough are free; a part of a device is taken where there is room for it first. Nobody is put
into a gap that one before it has left, so a later trial never delays an earlier one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf

from elastune.allocate.overheads import Overheads
from elastune.spec import Width


@dataclass(frozen=True, slots=True)
class Placed:
    """When a trial runs, and on which devices; never, if it is wider than all of them."""

    start_s: float
    end_s: float
    devices: tuple[int, ...]


def forecast(times: Sequence[float], widths: Sequence[Width], n: int, overheads: Overheads) -> float:
    """When the last of the trials is done. `times` are those on one device that are left."""
    return makespan(durations(times, widths, overheads), widths, n)


def schedule(times: Sequence[float], widths: Sequence[Width], n: int, overheads: Overheads) -> list[Placed]:
    """The same, trial by trial."""
    return list_schedule(durations(times, widths, overheads), widths, n)


def durations(times: Sequence[float], widths: Sequence[Width], overheads: Overheads) -> list[float]:
    """h_{i,w}."""
    return [time * overheads.factor(width) for time, width in zip(times, widths, strict=True)]


def makespan(durations: Sequence[float], widths: Sequence[Width], n: int) -> float:
    """When the last is done of trials that take so long at these widths."""
    return max((placed.end_s for placed in list_schedule(durations, widths, n)), default=0.0)


def list_schedule(
    durations: Sequence[float], widths: Sequence[Width], n: int, order: Iterable[int] | None = None
) -> list[Placed]:
    """The same in any order; None: that of the paper."""
    devices, placed = Devices(n), dict[int, Placed]()
    for trial in widest_first(durations, widths) if order is None else order:
        start_s, taken = devices.take(widths[trial], durations[trial])
        placed[trial] = Placed(start_s, start_s + durations[trial], tuple(taken))
    return [placed[trial] for trial in range(len(widths))]


def widest_first(durations: Sequence[float], widths: Sequence[Width] | Sequence[float]) -> list[int]:
    """The order of the paper."""
    keys = [(-float(width), -duration) for width, duration in zip(widths, durations, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__)


class Devices:
    """From when on each of n devices is free; trials take them one after another.

    A device is shared in equal parts: the slowdown of 1/k is that of k trials on it. Of the devices that are free in
    time a trial gets those that became so last, and a part of one that is shared rather than of a new one: others may
    need more. A trial costs O(log n), and moving a part of a list.
    """

    def __init__(self, n: int) -> None:
        self._free_s = [0.0] * n
        """When each device is free as a whole, ascending; `_order` has the devices to it."""
        self._order = list(range(n))
        self._lanes: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
        """By the number of parts: when one is free, of which device, and the how many-th division of it that was. It
        counts only as long as that is the last.
        """
        self._divisions = [0] * n
        self._shared_until_s: dict[int, float] = {}

    def take(self, width: Width, seconds: float) -> tuple[float, Sequence[int]]:
        """When a trial of this width can begin, and on which devices: from then on they are its own for so long."""
        parts, devices = width.denominator, width.numerator
        if devices > len(self._order):
            return inf, ()
        return self._take_whole(devices, seconds) if parts == 1 else self._take_part(parts, seconds)

    def _take_whole(self, devices: int, seconds: float) -> tuple[float, list[int]]:
        free_s, order = self._free_s, self._order
        start_s = free_s[devices - 1]
        end = bisect_right(free_s, start_s)
        taken = order[end - devices : end]
        del free_s[end - devices : end], order[end - devices : end]
        if self._shared_until_s:
            for device in taken:
                if self._shared_until_s.pop(device, None) is not None:
                    self._divisions[device] += 1
        end_s = start_s + seconds
        at = bisect_left(free_s, end_s)
        free_s[at:at] = [end_s] * devices
        order[at:at] = taken
        return start_s, taken

    def _take_part(self, parts: int, seconds: float) -> tuple[float, list[int]]:
        lanes = self._lanes[parts]
        while lanes and lanes[0][2] != self._divisions[lanes[0][1]]:
            heappop(lanes)
        if not lanes or lanes[0][0] > self._free_s[0]:
            start_s, (device,) = self._take_whole(1, seconds)
            self._shared_until_s[device] = start_s + seconds
            for free_s in (start_s + seconds, *[start_s] * (parts - 1)):
                heappush(lanes, (free_s, device, self._divisions[device]))
            return start_s, [device]
        start_s, device, division = lanes[0]
        end_s, until_s = start_s + seconds, self._shared_until_s[device]
        heapreplace(lanes, (end_s, device, division))
        if end_s > until_s:
            self._shared_until_s[device] = end_s
            at = self._order.index(device, bisect_left(self._free_s, until_s))
            del self._free_s[at], self._order[at]
            at = bisect_left(self._free_s, end_s)
            self._free_s.insert(at, end_s)
            self._order.insert(at, device)
        return start_s, [device]
