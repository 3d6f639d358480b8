"""Free devices, handed out lowest first, so that the same history always gives the same places."""

from __future__ import annotations

from heapq import heappop, heappush

from elastune.messages import Slot


class FreeSlots:
    """The devices of all usable machines that no trial holds. Costs O(log devices) a call."""

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._heap: list[tuple[int, Slot]] = []
        self._count = 0
        self._joined = 0

    def __len__(self) -> int:
        return self._count

    def add_node(self, node: str, devices: int) -> None:
        self._order[node] = self._joined
        self._joined += 1
        for device in range(devices):
            self.give(Slot(node, device))

    def remove_node(self, node: str) -> None:
        """Take a machine out: its free devices at once, the others as they come back."""
        if self._order.pop(node, None) is not None:
            self._heap = [entry for entry in self._heap if entry[1].node != node]
            self._heap.sort()
            self._count = len(self._heap)

    def take(self) -> Slot:
        self._count -= 1
        return heappop(self._heap)[1]

    def give(self, slot: Slot) -> None:
        """A slot comes back; that of a machine that was taken out is forgotten."""
        order = self._order.get(slot.node)
        if order is not None:
            heappush(self._heap, (order, slot))
            self._count += 1
