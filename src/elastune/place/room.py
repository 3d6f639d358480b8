"""How many devices of each machine are free, and who would have to go so that more of them are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush

from elastune.messages import Slot

Spot = frozenset[str]
"""The machines of a trial: one that it has a part of, or all; or several that it has to itself."""
Device = tuple[str, int]
_Price = tuple[float, int, str]
"""Trials that must go, what they have, and who is the first of them: so that machines of one gang come together."""


def spot_of(slots: Iterable[Slot]) -> Spot:
    return frozenset(slot.node for slot in slots)


class Room:
    """Machines and the trials on them while places are looked for. Ties go to the newest machine.

    `blocked` devices do not exist for it. Only trials that were put there to `give_way` can be asked to go.
    """

    def __init__(self, machines: Mapping[str, int], blocked: Collection[Device]) -> None:
        self._machines = machines
        self._order = {node: number for number, node in enumerate(reversed(list(machines)))}
        self._free = free_devices(machines, blocked)
        self._giving_way: dict[str, dict[str, int]] = {node: {} for node in machines}
        """By machine: the trials that can be asked to go, and their widths."""
        self._spots: dict[str, Spot] = {}
        self._by_free: list[list[tuple[int, str]]] = [[] for _ in range(max(machines.values(), default=0) + 1)]
        """Machines by the number of their free devices; an entry that is no longer right is skipped."""
        self._part, self._whole = _Offers(self._price_of_a_part), _Offers(self._price_of_all)
        for node in machines:
            self._changed(node)

    def put(self, trial: str, width: int, spot: Spot, *, give_way: bool) -> None:
        self._spots[trial] = spot
        for node in spot:
            self._free[node] -= width if len(spot) == 1 else self._machines[node]
            if give_way:
                self._giving_way[node][trial] = width
            self._changed(node)

    def remove(self, trial: str) -> None:
        spot = self._spots.pop(trial)
        for node in spot:
            width = self._giving_way[node].pop(trial)
            self._free[node] += width if len(spot) == 1 else self._machines[node]
            self._changed(node)

    def best_fit(self, width: int, home: Spot) -> Spot | None:
        """The machine on which the trial is already, or the fullest one that has room for it."""
        for node in self._newest_first(home):
            if self._free[node] >= width:
                return frozenset((node,))
        for free in range(width, len(self._by_free)):
            machines = self._by_free[free]
            while machines:
                node = machines[0][1]
                if self._free[node] == free:
                    return frozenset((node,))
                heappop(machines)
        return None

    def make_space(self, width: int, home: Spot) -> tuple[Spot, list[str]] | None:
        """A machine on which the trial has room when as few narrower ones as possible go, and who they are. That it
        leaves its own machine counts as a move too.
        """
        self._part.price_for(width, self._order)
        found = self._part.pop()
        if found is None:
            return None
        self._part.offer(found, self._order[found])
        covers = {node: self._cover(node, width) for node in (*self._newest_first(home), found)}
        moves = {node: len(cover) + (node not in home) for node, cover in covers.items() if cover is not None}
        node = min(moves, key=moves.__getitem__)
        return frozenset((node,)), covers[node] or []

    def make_whole(self, width: int, home: Spot) -> tuple[Spot, list[str]] | None:
        """Machines that have as many devices together and are free when narrower trials go, and who they are: first
        those that it has already, then those with the fewest.
        """
        self._whole.price_for(width, self._order)
        chosen: dict[str, None] = {}
        seen: list[str] = []
        at_home = iter([node for node in self._newest_first(home) if self._free[node] == self._machines[node] > 0])
        while width and (node := next(at_home, None) or self._whole.pop()) is not None:
            seen.append(node)
            if self._machines[node] <= width and node not in chosen:
                chosen[node] = None
                width -= self._machines[node]
        for node in seen:
            self._whole.offer(node, self._order[node])
        if width or not chosen:
            return None
        return frozenset(chosen), list(dict.fromkeys(trial for node in chosen for trial in self._giving_way[node]))

    def _cover(self, node: str, width: int) -> list[str] | None:
        """As few trials of a machine as free so many devices: the widest, and as the last the one that is just enough.
        None if those that can go are not enough.
        """
        missing = width - self._free[node]
        narrower = sorted((other, trial) for trial, other in self._giving_way[node].items() if other < width)
        found = []
        while missing > 0:
            if not narrower:
                return None
            other, trial = narrower.pop(min(bisect_left(narrower, (missing, "")), len(narrower) - 1))
            found.append(trial)
            missing -= other
        return found

    def _price_of_a_part(self, node: str, width: int) -> _Price | None:
        found = self._cover(node, width)
        if found is None:
            return None
        return len(found), sum(self._giving_way[node][trial] for trial in found), ""

    def _price_of_all(self, node: str, width: int) -> _Price | None:
        """A gang on several machines counts on each of them for a part."""
        widths, size = self._giving_way[node], self._machines[node]
        gang = next((trial for trial in widths if len(self._spots[trial]) > 1), "")
        used = size if gang else sum(widths.values())
        if not 0 < size <= width or self._free[node] + used < size or any(other >= width for other in widths.values()):
            return None
        return sum(1 / len(self._spots[trial]) for trial in widths), used, gang

    def _newest_first(self, spot: Spot) -> list[str]:
        return sorted(spot & self._order.keys(), key=self._order.__getitem__)

    def _changed(self, node: str) -> None:
        order = self._order[node]
        heappush(self._by_free[self._free[node]], (order, node))
        self._part.offer(node, order)
        self._whole.offer(node, order)


class _Offers:
    """Machines by what a place there costs a trial of one width, cheapest first; those where it cannot be are left
    out. A machine that changes is offered again; what it was offered for before no longer counts.
    """

    def __init__(self, price: Callable[[str, int], _Price | None]) -> None:
        self._price = price
        self._width = 0
        self._heap: list[tuple[_Price, int, str]] = []

    def price_for(self, width: int, machines: Mapping[str, int]) -> None:
        if width != self._width:
            self._width = width
            self._heap = []
            for node, order in machines.items():
                self.offer(node, order)

    def offer(self, node: str, order: int) -> None:
        if self._width and (price := self._price(node, self._width)) is not None:
            heappush(self._heap, (price, order, node))

    def pop(self) -> str | None:
        while self._heap:
            price, _, node = heappop(self._heap)
            if price == self._price(node, self._width):
                return node
        return None


def free_devices(machines: Mapping[str, int], blocked: Iterable[Device]) -> dict[str, int]:
    """By machine, the newest first."""
    free = dict(reversed(list(machines.items())))
    for node, _ in blocked:
        if node in free:
            free[node] -= 1
    return free
