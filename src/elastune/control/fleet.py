"""All machines, pool by pool, what they cost, and the commands that ask for them and give them back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from elastune.control.answer import Answer
from elastune.control.pool import Pool
from elastune.control.spending import Spending
from elastune.control.state import Node
from elastune.messages import AddNode, NodeBilled, NodePriced, NodeReady, Offer, ReleaseNode, Slot
from elastune.spec import Limits, Width


class Fleet:
    """A machine is held from when it is asked for until it is given back or lost. No name is used twice."""

    def __init__(self, limits: Limits, answer: Answer, apart: bool = False) -> None:
        self.spending = Spending(limits)
        self.limit = self.spending.limit(0.0)
        """When the first limit is reached with the machines that are held now, which it is, and how to say it."""
        self.nodes: dict[str, Node] = {}
        self.pools: defaultdict[int, Pool] = defaultdict(partial(Pool, apart))
        self._answer = answer
        self._pool_of: dict[str, Pool] = {}
        self._asked_for = 0

    @property
    def free(self) -> Width:
        """What nobody holds: whole devices, and what is left of those that trials share."""
        return sum(pool.free.capacity for pool in self.pools.values())

    @property
    def idle(self) -> int:
        """Devices that nobody is on."""
        return sum(len(pool.free) for pool in self.pools.values())

    def room(self, width: Width) -> int:
        return sum(pool.free.room(width) for pool in self.pools.values())

    def hold(self, wanted: Mapping[int, int], offers: Mapping[int, Offer]) -> None:
        """Give back what is given up and empty, and ask for machines, so that so many are `wanted` of each pool besides
        those that are being taken away. A pool that nothing is wanted of any more is closed when it is empty.
        """
        for node_id in [node_id for pool in self.pools.values() for node_id in pool.to_release]:
            self.release(node_id)
        for number, machines in wanted.items():
            pool = self.pools[number]
            for _ in range(-pool.surplus(machines)):
                self._ask_for(pool, offers.get(number))
        for number in [number for number, pool in self.pools.items() if number not in wanted and not pool.nodes]:
            del self.pools[number]

    def _ask_for(self, pool: Pool, offer: Offer | None) -> None:
        node = Node(f"n{self._asked_for}", self._answer.at_s, offer)
        self._asked_for += 1
        self.nodes[node.id] = pool.nodes[node.id] = node
        self._pool_of[node.id] = pool
        self._answer.order(AddNode, node.id, *([] if offer is None else [offer]))

    def release(self, node_id: str) -> None:
        self.drop(node_id, self._answer.at_s)
        self._answer.order(ReleaseNode, node_id)

    def release_stray(self, node_id: str) -> None:
        """The name of a machine that another driver asked for is not used for a new one."""
        number = node_id.removeprefix("n")
        if number.isdecimal():
            self._asked_for = max(self._asked_for, int(number) + 1)
        self._answer.order(ReleaseNode, node_id)

    def billed(self, event: NodeBilled) -> None:
        node = self.nodes[event.node]
        node.billed, node.billed_from_s, node.refund_s = True, event.billed_from_s, event.refund_s
        self.spending.begin(event)
        self.limit = self.spending.limit(self._answer.at_s)

    def ready(self, event: NodeReady) -> None:
        self.billed(event)
        self._pool_of[event.node].ready(event)

    def priced(self, event: NodePriced) -> None:
        self.spending.reprice(event.node, self._answer.at_s, event.price_usd_per_hour)
        self.limit = self.spending.limit(self._answer.at_s)

    def spent_usd(self, at_s: float) -> float:
        """On all machines but those that still boot."""
        return self.spending.spent_usd(at_s, without={node.id for node in self.nodes.values() if not node.devices})

    def drain(self, node_id: str, gone_at_s: float) -> None:
        """Hand out none of its devices any more."""
        self._pool_of[node_id].drain(node_id, gone_at_s)

    def is_draining(self, slots: Iterable[Slot]) -> bool:
        """Whether any of them is on a machine that is being taken away."""
        return any(self.nodes[slot.node].draining for slot in slots)

    def drop(self, node_id: str, paid_until_s: float, revoked: bool = False) -> Node:
        """The machine was given back or lost."""
        self.spending.end(node_id, paid_until_s, revoked)
        self.limit = self.spending.limit(self._answer.at_s)
        self._pool_of.pop(node_id).drop(node_id)
        return self.nodes.pop(node_id)
