"""Prices are step functions of time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.market.prices import Prices, PriceSeries, market_name, sorted_series, spent_usd, split_market

SERIES = PriceSeries("a/z", np.array([0.0, 100.0, 160.0, 1000.0]), np.array([1.0, 3.0, 0.5, 2.0]))


@st.composite
def series(draw: st.DrawFn) -> PriceSeries:
    gaps = draw(st.lists(st.integers(1, 500), min_size=1, max_size=30))
    prices = draw(st.lists(st.floats(0.01, 10.0), min_size=len(gaps), max_size=len(gaps)))
    return PriceSeries("a/z", np.cumsum(np.array(gaps, dtype=float)), np.array(prices))


def test_a_price_holds_until_it_changes() -> None:
    assert [SERIES.at(t) for t in (-5.0, 0.0, 99.9, 100.0, 159.0, 160.0, 5000.0)] == [1.0, 1.0, 1.0, 3.0, 3.0, 0.5, 2.0]


def test_the_mean_weighs_prices_by_how_long_they_held() -> None:
    assert SERIES.mean(50.0, 170.0) == pytest.approx((50 * 1.0 + 60 * 3.0 + 10 * 0.5) / 120)
    assert SERIES.mean(20.0, 20.0) == 1.0
    assert spent_usd(SERIES, 0.0, 3600.0) == pytest.approx((100 * 1 + 60 * 3 + 840 * 0.5 + 2600 * 2) / 3600)


def test_when_a_price_is_crossed() -> None:
    assert SERIES.first_above(1.0, 0.0) == 100.0
    assert SERIES.first_above(2.5, 130.0) == 130.0
    assert SERIES.first_above(3.0, 0.0) == math.inf
    assert SERIES.first_at_most(0.6, 120.0) == 160.0
    assert SERIES.first_at_most(0.1, 0.0) == math.inf


def test_minutes_end_at_the_time_that_is_asked_for() -> None:
    assert SERIES.minutes(180.0, 4).tolist() == [1.0, 1.0, 3.0, 0.5]


@given(series(), st.floats(0.0, 9000.0), st.floats(0.0, 9000.0))
def test_the_mean_is_what_the_changes_add_up_to(prices: PriceSeries, one: float, other: float) -> None:
    begin, end = min(one, other), max(one, other)
    at, price, total = begin, prices.at(begin), 0.0
    for when, new in prices.changes(begin, end):
        total += (when - at) * price
        at, price = when, new
    total += (end - at) * price
    assert prices.mean(begin, end) * (end - begin) == pytest.approx(total, abs=1e-6)


@given(series(), st.floats(0.0, 9000.0), st.floats(0.01, 10.0))
def test_before_a_price_is_crossed_it_is_not_above(prices: PriceSeries, begin: float, amount: float) -> None:
    crossed = prices.first_above(amount, begin)
    before = [when for when in np.linspace(begin, min(crossed, 2e4), 50) if when < crossed]
    assert all(prices.at(when) <= amount for when in before)
    assert crossed == math.inf or prices.at(crossed) > amount


@pytest.mark.parametrize(
    ("times", "prices", "said"),
    [
        ([], [], "not 0"),
        ([0.0, 0.0], [1.0, 1.0], "increase"),
        ([2.0, 1.0], [1.0, 1.0], "increase"),
        ([0.0, math.nan], [1.0, 1.0], "increase"),
        ([0.0, 1.0], [1.0, -0.5], "-0.5"),
        ([0.0, 1.0], [1.0, 0.0], "greater than 0"),
        ([0.0, 1.0], [1.0, math.nan], "greater than 0"),
    ],
)
def test_prices_that_cannot_be_are_refused(times: list[float], prices: list[float], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        PriceSeries("a/z", np.array(times), np.array(prices))


def test_an_unknown_market_is_named_with_those_that_are_known() -> None:
    with pytest.raises(SpecError, match=r"'a/y'.*did you mean 'a/z'"):
        Prices({"a/z": SERIES})["a/y"]


def test_a_market_is_a_type_in_a_zone() -> None:
    assert split_market("m4.4xlarge/us-east-1a") == ("m4.4xlarge", "us-east-1a")
    assert split_market("m4.4xlarge") == ("m4.4xlarge", "")
    for market in ("m4.4xlarge/us-east-1a", "m4.4xlarge"):
        assert market_name(*split_market(market)) == market


@given(series(), st.lists(st.tuples(st.floats(-10.0, 9000.0), st.floats(0.0, 2000.0)), min_size=1, max_size=20))
def test_the_highest_price_of_a_stretch_is_that_of_its_begin_or_of_a_change_in_it(
    prices: PriceSeries, stretches: list[tuple[float, float]]
) -> None:
    begins = np.array([begin for begin, _ in stretches])
    ends = begins + np.array([length for _, length in stretches])
    expected = [
        max([prices.at(begin), *(price for _, price in prices.changes(begin, end))])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    assert prices.highest(begins, ends).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=40))
def test_of_records_in_any_order_the_last_at_each_time_counts(records: list[tuple[int, int]]) -> None:
    times, usd = np.array(records, dtype=float).T
    found, replaced = sorted_series("a/z", times, usd)
    last = dict(records)
    assert dict(zip(found.changed_unix_s.tolist(), found.usd_per_hour.tolist(), strict=True)) == last
    assert replaced == sum(last[time] != price for time, price in records)
