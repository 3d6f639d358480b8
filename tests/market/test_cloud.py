"""A cloud that is played back tells when machines come, what they cost and when they go."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from elastune.errors import SpecError
from elastune.market.cloud import Capacity, Kind, PlayedCloud
from elastune.market.prices import Prices, PriceSeries
from elastune.messages import Offer


def priced(changes: Sequence[tuple[float, float]], market: str = "a/z", **more: float) -> PlayedCloud:
    times, prices = zip(*changes, strict=True)
    series = PriceSeries(market, np.array(times, dtype=float), np.array(prices, dtype=float))
    return PlayedCloud({market: Kind(1.0)}, Prices({market: series}), **more)  # type: ignore[arg-type]


CLOUD = priced([(0, 0.2), (1000, 0.5), (1600, 0.1)])


def test_a_spot_machine_is_taken_when_its_price_is_above_what_is_offered() -> None:
    assert CLOUD.taken_s(Offer("a/z", "spot", 0.3), 0.0) == pytest.approx(1000.0)
    assert CLOUD.taken_s(Offer("a/z", "spot", 0.5), 0.0) == math.inf
    assert CLOUD.taken_s(Offer("a/z"), 0.0) == math.inf


def test_a_request_waits_for_its_price() -> None:
    assert CLOUD.served_s(Offer("a/z", "spot", 0.3), 1200.0) == pytest.approx(1600.0)
    assert CLOUD.served_s(Offer("a/z", "spot", 0.3), 40.0) == 40.0
    assert CLOUD.served_s(Offer("a/z", "spot", 0.05), 0.0) == math.inf
    assert CLOUD.served_s(Offer("a/z"), 7.0) == 7.0


def test_on_demand_machines_cost_what_they_always_do() -> None:
    assert CLOUD.price(Offer("a/z"), 1200.0) == 1.0
    assert CLOUD.price(Offer("a/z", "spot"), 1200.0) == 0.5


@pytest.mark.parametrize("begin_unix_s", [0.0, 1.46e9])
@pytest.mark.parametrize("pace", [1.0, 7.0, 60.0])
def test_every_change_of_a_price_is_seen_once(begin_unix_s: float, pace: float) -> None:
    changes = [(begin_unix_s + 37.0 * i, 0.1 + 0.01 * (i % 3)) for i in range(40)]
    cloud = priced(changes, begin_unix_s=begin_unix_s, pace=pace)
    offer, at_s, seen = Offer("a/z", "spot"), 0.0, [cloud.price(Offer("a/z", "spot"), 0.0) / pace]
    while (next_s := cloud.next_price_s(offer, at_s)) < math.inf:
        assert next_s > at_s
        at_s = next_s
        seen.append(cloud.price(offer, at_s) / pace)
    assert seen == pytest.approx([price for _, price in changes])
    assert at_s * pace == pytest.approx(37.0 * 39)


def test_played_faster_an_hour_is_shorter_and_costs_as_much() -> None:
    fast = priced([(0, 0.2), (1000, 0.5)], pace=10.0)
    assert fast.taken_s(Offer("a/z", "spot", 0.3), 0.0) == pytest.approx(100.0)
    assert fast.price(Offer("a/z", "spot"), 0.0) == pytest.approx(2.0)


def test_capacity_is_how_many_could_be_had() -> None:
    trace = Capacity(60.0, np.array([1.0, 1.0, 0.0, 3.0]), 0.3)
    cloud = PlayedCloud({"a": Kind(1.0)}, capacity={"a": trace})
    assert [cloud.available("a", at_s) for at_s in (0.0, 119.0, 120.0, 180.0, 1e6)] == [1, 1, 0, 3, 3]
    assert cloud.next_capacity_s("a", 0.0) == pytest.approx(120.0)
    assert cloud.next_capacity_s("a", 200.0) == math.inf
    assert cloud.price(Offer("a", "spot"), 0.0) == 0.3


@pytest.mark.parametrize("counts", [[], [-1.0], [math.nan]])
def test_a_capacity_that_cannot_be_is_refused(counts: list[float]) -> None:
    with pytest.raises(SpecError, match="capacity"):
        Capacity(60.0, np.array(counts), 0.3)


def test_a_market_without_prices_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'b/z'.*did you mean 'a/z'"):
        PlayedCloud({"b/z": Kind(1.0)}, CLOUD.prices)
    with pytest.raises(SpecError, match="'c/z'"):
        CLOUD.kind("c/z")


def test_how_long_machines_lasted_is_told_from_the_past_only() -> None:
    changes = [(1000.0 * i, 0.1 * 1.3**i) for i in range(200)]  # every step is above what was offered before it
    past = priced(changes, begin_unix_s=100_000.0)
    assert past.mean_life_s() == pytest.approx(1000.0)  # it is asked at the changes themselves
    later = [(at_s, price if at_s <= 100_000.0 else 9.0) for at_s, price in changes]
    assert priced(later, begin_unix_s=100_000.0).mean_life_s() == past.mean_life_s()
    assert priced([(0, 0.2)], begin_unix_s=1000.0).mean_life_s() == math.inf
