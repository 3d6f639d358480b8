"""All machines, pool by pool, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from elastune.control.pool import Pool
from elastune.control.spending import Spending
from elastune.control.state import Node
from elastune.messages import NodeReady, Slot
from elastune.spec import Width


class Fleet:
    def __init__(self, spending: Spending) -> None:
        self.spending = spending
        self.nodes: dict[str, Node] = {}
        self.pools: defaultdict[int, Pool] = defaultdict(Pool)
        self._pool_of: dict[str, Pool] = {}
        self._asked_for = 0

    @property
    def free(self) -> Width:
        """What nobody holds: whole devices, and what is left of those that trials share."""
        return sum(pool.free.capacity for pool in self.pools.values())

    def room(self, width: Width) -> int:
        return sum(pool.free.room(width) for pool in self.pools.values())

    def change(self, wanted: Mapping[int, int], at_s: float) -> tuple[list[str], list[str]]:
        """The machines to ask for and to give back, so that so many are `wanted` of each pool besides those that are
        being taken away.
        """
        release = [node_id for pool in self.pools.values() for node_id in pool.to_release]
        add = []
        for number, machines in wanted.items():
            pool = self.pools[number]
            for _ in range(-pool.surplus(machines)):
                node = Node(f"n{self._asked_for}", at_s)
                self._asked_for += 1
                self.nodes[node.id] = pool.nodes[node.id] = node
                self._pool_of[node.id] = pool
                add.append(node.id)
        return add, release

    def never_again(self, node_id: str) -> None:
        """The name of a machine that another driver asked for is not used for a new one."""
        number = node_id.removeprefix("n")
        if number.isdecimal():
            self._asked_for = max(self._asked_for, int(number) + 1)

    def ready(self, event: NodeReady) -> None:
        self.spending.begin(event)
        self._pool_of[event.node].ready(event)

    def spent_usd(self, at_s: float) -> float:
        """On all machines but those that still boot."""
        return self.spending.spent_usd(at_s, without={node.id for node in self.nodes.values() if not node.devices})

    def drain(self, node_id: str) -> None:
        """Hand out none of its devices any more."""
        self._pool_of[node_id].drain(node_id)

    def is_draining(self, slots: Iterable[Slot]) -> bool:
        """Whether any of them is on a machine that is being taken away."""
        return any(self.nodes[slot.node].draining for slot in slots)

    def drop(self, node_id: str, at_s: float) -> Node:
        """The machine was given back or lost: it is paid for until now."""
        self.spending.end(node_id, at_s)
        self._pool_of.pop(node_id).drop(node_id)
        return self.nodes.pop(node_id)
