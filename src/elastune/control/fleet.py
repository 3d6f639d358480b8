"""The machines: asked for, ready, being taken away; which slots are free, and which trials would fall with a
machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from elastune.control.spending import Spending
from elastune.control.state import Node
from elastune.messages import NodeReady, Slot
from elastune.place import FreeSlots


class Fleet:
    def __init__(self, spending: Spending) -> None:
        self.spending = spending
        self.nodes: dict[str, Node] = {}
        self.free = FreeSlots()
        self._asked_for = 0

    def change(self, wanted: int) -> tuple[list[str], list[str]]:
        """The machines to ask for and to give back, so that `wanted` are held besides those that are being taken
        away.
        """
        held = [node for node in self.nodes.values() if not node.draining]
        add: list[str] = []
        for _ in range(wanted - len(held)):
            node = Node(f"n{self._asked_for}")
            self._asked_for += 1
            self.nodes[node.id] = node
            add.append(node.id)
        idle = [node.id for node in reversed(held) if not node.trials][: max(len(held) - wanted, 0)]
        drained = [node.id for node in self.nodes.values() if node.draining and not node.trials]
        return add, idle + drained

    def ready(self, event: NodeReady) -> None:
        node = self.nodes[event.node]
        node.devices = event.devices
        self.spending.begin(node.id, event.devices, event.billed_from_s)
        if not node.draining:
            self.free.add_node(node.id, event.devices)

    def drain(self, node_id: str) -> None:
        """Hand out none of its devices any more."""
        self.nodes[node_id].draining = True
        self.free.remove_node(node_id)

    def drop(self, node_id: str, at_s: float) -> Node:
        """The machine was given back or lost: it is paid for until now."""
        self.free.remove_node(node_id)
        self.spending.end(node_id, at_s)
        return self.nodes.pop(node_id)

    def take(self, trial: str, width: int) -> tuple[Slot, ...] | None:
        return self._hold(trial, self.free.take(width))

    def resize(self, trial: str, held: tuple[Slot, ...], width: int) -> tuple[Slot, ...] | None:
        return self._hold(trial, self.free.resize(held, width))

    def give(self, trial: str, slots: Iterable[Slot], kept: tuple[Slot, ...]) -> None:
        """Slots of a trial come back; on the machines where it keeps some it stays."""
        stays = {slot.node for slot in kept}
        for slot in slots:
            self.free.give(slot)
            if slot.node not in stays and (node := self.nodes.get(slot.node)) is not None:
                node.trials.discard(trial)

    def _hold(self, trial: str, slots: tuple[Slot, ...] | None) -> tuple[Slot, ...] | None:
        for slot in slots or ():
            self.nodes[slot.node].trials.add(trial)
        return slots
