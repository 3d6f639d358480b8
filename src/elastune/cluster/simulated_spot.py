"""Spot machines of a simulated cluster: when requests are served, what machines cost, and when they are taken away."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastune import messages as m

if TYPE_CHECKING:
    from elastune.cluster.simulated import SimulatedCluster
    from elastune.market.cloud import PlayedCloud


@dataclass(slots=True)
class SpotMachines:
    """Acts on a cluster as the cloud that it plays says. Of a market with a capacity as many machines are there as the
    trace has at most: requests wait for a place, and who came last goes first when there are too many.
    """

    cloud: PlayedCloud
    cluster: SimulatedCluster
    offers: dict[str, m.Offer] = field(default_factory=dict)
    """Of all machines that were asked for and are not gone."""
    _waiting: dict[str, None] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)
    _watched: set[str] = field(default_factory=set)
    """The markets whose next change of capacity is awaited."""

    def ask(self, node: str, offer: m.Offer) -> None:
        self.offers[node] = offer
        self.cloud.kind(offer.type)
        if offer.market == "spot" and offer.type in self.cloud.capacity:
            self._waiting[node] = None
            self._watch(offer.type)
            self._serve(offer.type)
            return
        served_s = self.cloud.served_s(offer, self.cluster.now_s)
        if served_s < math.inf:
            self.cluster.at(served_s, self._served, node)

    def forget(self, node: str) -> None:
        """It was given back, or is gone."""
        offer = self.offers.pop(node, None)
        self._waiting.pop(node, None)
        self._noticed.discard(node)
        if offer is not None and offer.market == "spot" and offer.type in self.cloud.capacity:
            self._serve(offer.type)

    def paid(self, node: str, billed_from_s: float) -> tuple[int, float, float, float, float, float]:
        cloud, offer = self.cloud, self.offers[node]
        price = cloud.price(offer, self.cluster.now_s)
        refund_s = cloud.refund_s / cloud.pace if offer.market == "spot" else 0.0
        return cloud.kind(offer.type).devices, billed_from_s, price, cloud.minimum_s / cloud.pace, 0.0, refund_s

    def speed(self, node: str) -> float:
        return self.cloud.kind(self.offers[node].type).speed

    # ------------------------------------------------------------------------------------------------- what happens

    def _served(self, node: str) -> None:
        if node not in self.offers:
            return
        now_s, offer = self.cluster.now_s, self.offers[node]
        self.cluster.boot(node, self.cloud.boot_s / self.cloud.pace)
        self._await_price(node)
        taken_s = self.cloud.taken_s(offer, now_s)
        if taken_s < math.inf:
            self.cluster.at(taken_s, self._take, node)

    def _await_price(self, node: str) -> None:
        next_s = self.cloud.next_price_s(self.offers[node], self.cluster.now_s)
        if next_s < math.inf:
            self.cluster.at(next_s, self._reprice, node)

    def _reprice(self, node: str) -> None:
        if node in self.offers:
            self.cluster.happened(m.NodePriced(node, self.cloud.price(self.offers[node], self.cluster.now_s)))
            self._await_price(node)

    def _take(self, node: str) -> None:
        if node in self.offers and node not in self._noticed:
            self._noticed.add(node)
            self.cluster.take_away(node, self.cloud.notice_s / self.cloud.pace)

    # ----------------------------------------------------------------------------------------------------- capacity

    def _watch(self, market: str) -> None:
        next_s = self.cloud.next_capacity_s(market, self.cluster.now_s)
        if market not in self._watched and next_s < math.inf:
            self._watched.add(market)
            self.cluster.at(next_s, self._capacity_changed, market)

    def _capacity_changed(self, market: str) -> None:
        self._watched.discard(market)
        held = self._held(market)
        surplus = len(held) - self.cloud.available(market, self.cluster.now_s)
        for node in held[::-1][: max(0, surplus)]:
            self._take(node)
        self._serve(market)
        if any(offer.type == market and offer.market == "spot" for offer in self.offers.values()):
            self._watch(market)

    def _held(self, market: str) -> list[str]:
        """The spot machines of a market that stay for now, in the order in which they were asked for."""
        return [
            node
            for node, offer in self.offers.items()
            if (offer.type, offer.market) == (market, "spot")
            and node not in self._waiting
            and node not in self._noticed
        ]

    def _serve(self, market: str) -> None:
        free = self.cloud.available(market, self.cluster.now_s) - len(self._held(market))
        ours = [node for node in self._waiting if self.offers[node].type == market]
        for node in ours[: max(0, free)]:
            del self._waiting[node]
            self.cluster.at(self.cluster.now_s, self._served, node)
