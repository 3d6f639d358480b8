"""Machines that can stand in for one another: asked for, ready, being taken away; which of their slots are free, and
which trials would fall with a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elastune.allocate.base import MachineView
from elastune.control.state import Node
from elastune.messages import NodeReady, Slot
from elastune.place import FreeSlots, to_give_up
from elastune.spec import Width, share_of


class Pool:
    def __init__(self, apart: bool = False) -> None:
        self.nodes: dict[str, Node] = {}
        self._going: dict[str, Node] = {}
        """Those that are draining or closing."""
        self.free = FreeSlots(apart)

    # ----------------------------------------------------------------------------------------------------- machines

    def surplus(self, wanted: int) -> int:
        """How many machines there are more than are wanted, besides those that are given up or being taken away."""
        return len(self.nodes) - len(self._going) - wanted

    def give_up(self, number: int, wanted: Mapping[str, Width], placed: Mapping[str, tuple[Slot, ...]]) -> None:
        """Choose so many machines that are not kept. Nothing of them is handed out any more.

        What still boots can be done without best, and of that what was asked for last. Then it depends on the trials:
        what is `wanted` for them, and where they are `placed`.
        """
        still_boot = [node.id for node in self.nodes.values() if not node.devices and node.id not in self._going]
        chosen = still_boot[::-1][:number]
        if len(chosen) < number:
            chosen.extend(to_give_up(number - len(chosen), wanted, placed, self.free.machines))
        for node_id in chosen:
            self.nodes[node_id].closing = True
            self._going[node_id] = self.nodes[node_id]
            self.free.close_node(node_id)

    def keep_again(self, number: int) -> bool:
        """When more are wanted, those that were to be given up are kept before others are asked for: the ones that are
        used most, and of those the last that was chosen. Says whether there is more to hand out than before.
        """
        last_first = [node for node in reversed(self._going.values()) if not node.draining]
        again = sorted(last_first, key=lambda node: self.free.in_use(node.id), reverse=True)[:number]
        for node in again:
            node.closing = False
            del self._going[node.id]
            self.free.open_node(node.id)
        return bool(again)

    @property
    def to_leave(self) -> list[str]:
        """The trials that are on machines which are given up, or about to come there."""
        return sorted({trial for node in self._going.values() if not node.draining for trial in node.trials})

    @property
    def to_release(self) -> list[str]:
        """The machines that are given up and empty."""
        return [node.id for node in self._going.values() if not node.trials and not node.free_of_charge]

    def ready(self, event: NodeReady) -> None:
        node = self.nodes[event.node]
        node.devices = event.devices
        if not node.draining:
            self.free.add_node(node.id, event.devices)

    def ready_machines(self) -> list[MachineView]:
        """Those that can be used and are not given up, the oldest first."""
        return [
            MachineView(node.billed_from_s, node.trials, node.devices, node.offer)
            for node in self.nodes.values()
            if node.devices and node.id not in self._going
        ]

    def awaited(self) -> list[float]:
        """When those were asked for that are not there yet."""
        return [node.asked_s for node in self.nodes.values() if not node.devices and node.id not in self._going]

    def unserved(self) -> list[float]:
        """The same of those among them that do not even boot."""
        return [node.asked_s for node in self.nodes.values() if not node.billed and node.id not in self._going]

    def drain(self, node_id: str, gone_at_s: float) -> None:
        """Hand out none of its devices any more."""
        node = self.nodes[node_id]
        node.draining, node.gone_at_s = True, gone_at_s
        node.free_of_charge = gone_at_s - node.billed_from_s < node.refund_s
        self._going[node_id] = node
        self.free.remove_node(node_id)

    def drop(self, node_id: str) -> None:
        self.free.remove_node(node_id)
        self._going.pop(node_id, None)
        del self.nodes[node_id]

    # -------------------------------------------------------------------------------------------------------- slots

    def take(self, trial: str, width: Width) -> tuple[Slot, ...] | None:
        return self._hold(trial, self.free.take(width))

    def resize(self, trial: str, held: tuple[Slot, ...], width: Width) -> tuple[Slot, ...] | None:
        return self._hold(trial, self.free.resize(held, width))

    def move(self, trial: str, held: tuple[Slot, ...], slots: tuple[Slot, ...]) -> bool:
        """Whether the trial can have these slots in exchange for those that it holds; if so, it has them too."""
        if not self.free.claim([slot for slot in slots if slot not in held]):
            return False
        self._hold(trial, slots)
        return True

    def settle(self, trial: str, slots: tuple[Slot, ...], width: Width, given_up: Iterable[Slot]) -> None:
        """A trial is on these slots with this width, and needs others that it had, or was to have, no longer."""
        for slot in slots:
            self.free.keep(slot, share_of(width))
        self.give(trial, (slot for slot in given_up if slot not in slots), slots)

    def give(self, trial: str, slots: Iterable[Slot], kept: tuple[Slot, ...] = ()) -> None:
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
