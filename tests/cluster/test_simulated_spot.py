"""Spot machines of a simulated cluster come, cost and go as the market that is played back says."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from tests.market.test_cloud import priced

from elastune import messages as m
from elastune.cluster.simulated import SimulatedCluster
from elastune.cluster.workload import Synthetic
from elastune.errors import SpecError
from elastune.market.cloud import Capacity, Kind, PlayedCloud

IDS = count(1)
SPOT = m.Offer("a/z", "spot", 0.3)


def cluster(cloud: PlayedCloud | None) -> SimulatedCluster:
    return SimulatedCluster(Synthetic("loss", "min"), cloud=cloud)


def ask(world: SimulatedCluster, *nodes: str, offer: m.Offer = SPOT) -> None:
    world.submit([m.AddNode(next(IDS), node, offer) for node in nodes])


def events(world: SimulatedCluster, until_s: float) -> list[tuple[float, m.AnyEvent]]:
    found: list[tuple[float, m.AnyEvent]] = []
    while world.now_s < until_s:
        turn = world.poll(until_s)
        found += [(round(turn.at_s, 3), event) for event in turn.events]
    return found


def test_a_machine_is_billed_at_the_price_of_the_moment_and_taken_away_after_its_notice() -> None:
    world = cluster(priced([(0, 0.2), (500, 0.25), (1000, 0.5)], boot_s=60.0, refund_s=3600.0))
    ask(world, "n0")
    found = events(world, 2000.0)
    assert [(at_s, type(event)) for at_s, event in found] == [
        (0.0, m.NodeBilled),
        (60.0, m.NodeReady),
        (500.0, m.NodePriced),
        (1000.0, m.NodeNotice),
        (1000.0, m.NodePriced),
        (1120.0, m.NodeLost),
    ]
    billed, last, lost = found[0][1], found[4][1], found[-1][1]
    assert isinstance(billed, m.NodeBilled) and isinstance(last, m.NodePriced) and isinstance(lost, m.NodeLost)
    assert (billed.price_usd_per_hour, billed.refund_s, billed.minimum_s) == (0.2, 3600.0, 60.0)
    assert last.price_usd_per_hour == 0.3, "while it is being taken away it costs no more than was offered"
    assert lost.revoked


def test_a_request_below_the_price_waits() -> None:
    world = cluster(priced([(0, 0.5), (700, 0.2)]))
    ask(world, "n0")
    assert [(at_s, type(event)) for at_s, event in events(world, 1000.0)] == [(700.0, m.NodeReady)]


def test_a_machine_on_demand_stays() -> None:
    world = cluster(priced([(0, 0.2), (100, 5.0)]))
    ask(world, "n0", offer=m.Offer("a/z"))
    ((at_s, ready),) = events(world, 9000.0)
    assert at_s == 0.0 and isinstance(ready, m.NodeReady)
    assert (ready.price_usd_per_hour, ready.refund_s) == (1.0, 0.0)


def test_of_a_machine_that_was_given_back_nothing_is_heard() -> None:
    world = cluster(priced([(0, 0.2), (500, 0.25), (1000, 0.5)]))
    ask(world, "n0")
    assert len(events(world, 100.0)) == 1
    world.submit([m.ReleaseNode(next(IDS), "n0")])
    assert events(world, 3000.0) == []


def test_there_are_never_more_machines_than_could_be_had() -> None:
    trace = Capacity(100.0, np.array([2.0, 1.0, 0.0, 3.0]), 0.3)
    world = cluster(PlayedCloud({"a": Kind(1.0)}, capacity={"a": trace}, notice_s=0.0))
    offer = m.Offer("a", "spot", 1.0)
    ask(world, "n0", "n1", "n2", offer=offer)
    found = [(at_s, type(event).__name__, getattr(event, "node", "")) for at_s, event in events(world, 500.0)]
    assert found == [
        (0.0, "NodeReady", "n0"),
        (0.0, "NodeReady", "n1"),
        (100.0, "NodeLost", "n1"),
        (200.0, "NodeLost", "n0"),
        (300.0, "NodeReady", "n2"),
    ]


def test_a_place_that_becomes_free_goes_to_who_waits() -> None:
    world = cluster(PlayedCloud({"a": Kind(1.0)}, capacity={"a": Capacity(100.0, np.array([1.0]), 0.3)}))
    offer = m.Offer("a", "spot", 1.0)
    ask(world, "n0", "n1", offer=offer)
    assert len(events(world, 10.0)) == 1
    world.submit([m.ReleaseNode(next(IDS), "n0")])
    ((_, ready),) = events(world, 20.0)
    assert isinstance(ready, m.NodeReady) and ready.node == "n1"


def test_a_step_is_as_fast_as_its_machine() -> None:
    cloud = priced([(0, 0.2)])
    world = cluster(PlayedCloud({"a/z": Kind(1.0, speed=4.0)}, cloud.prices))
    ask(world, "n0")
    events(world, 1.0)
    world.submit([m.StartTrial(next(IDS), "t-0", 1, 0, {"x": 1.0}, 0, None, 4, True, (m.Slot("n0", 0),))])
    assert [at_s for at_s, event in events(world, 10.0) if isinstance(event, m.TrialReported)] == [
        1.25,
        1.5,
        1.75,
        2.0,
    ]


def test_an_offer_without_a_market_is_refused() -> None:
    with pytest.raises(SpecError, match="a/z"):
        ask(cluster(None), "n0")
