"""What is known of a market at a time is what a plain loop over its records finds, and nothing of the future."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.market.markets import BEGIN_UNIX_S, HOUR_S, spiky

from elastune.market.exceedance import DAY, GRID_S, WEEK, Exceedance
from elastune.market.features import (
    History,
    border_bids,
    encoded,
    past,
    present,
    random_bids,
    rises_above,
)
from elastune.market.prices import PriceSeries

MINUTE_S = 60.0
Changes = list[tuple[int, float]]

changes = st.lists(
    st.tuples(st.integers(1, 4000), st.sampled_from([0.05, 0.1, 0.2, 0.3, 1.0, 7.5])), min_size=1, max_size=40
)


def series(found: Changes) -> PriceSeries:
    gaps, prices = zip(*found, strict=True)
    return PriceSeries("a/z", BEGIN_UNIX_S + np.cumsum(np.array(gaps, dtype=float)), np.array(prices))


def naive(found: PriceSeries, at: float) -> list[float]:
    """The six features, second by second where it must be."""
    known = [(t, p) for t, p in zip(found.changed_unix_s.tolist(), found.usd_per_hour.tolist(), strict=True) if t <= at]
    known = known or [(at, found.usd_per_hour[0])]
    moves = [(t, p) for i, (t, p) in enumerate(known) if i == 0 or p != known[i - 1][1]]
    moment = datetime.fromtimestamp(at, UTC)
    return [
        found.at(at),
        found.mean(at - HOUR_S, at),
        float(sum(1 for t, _ in moves[1:] if at - HOUR_S < t <= at)),
        at - moves[-1][0],
        float(moment.weekday() < 5),
        float(moment.hour),
    ]


@given(changes, st.lists(st.integers(0, 700_000), min_size=1, max_size=8))
def test_the_six_features_are_what_a_loop_over_the_records_finds(found: Changes, after: list[int]) -> None:
    market = series(found)
    at = BEGIN_UNIX_S + np.array(after, dtype=float)
    assert present(History(market), at) == pytest.approx(np.array([naive(market, t) for t in at]), abs=1e-6)


def test_the_past_is_that_of_the_59_minutes_before_the_oldest_first() -> None:
    history = History(spiky("a/z", 2, seed=1))
    at = BEGIN_UNIX_S + np.array([30_000.0, 77_777.0])
    for row, time in zip(past(history, at), at, strict=True):
        minutes = [time - MINUTE_S * minute for minute in range(59, 0, -1)]
        assert row.tolist() == [present(history, np.array([minute]))[0].tolist() for minute in minutes]


def test_a_record_that_repeats_the_price_is_no_change() -> None:
    history = History(PriceSeries("a/z", np.array([0.0, 5000.0, 6000.0]), np.array([1.0, 2.0, 2.0])))
    assert present(history, np.array([7000.0]))[0, 2:4].tolist() == [1.0, 2000.0]


@given(changes, st.integers(0, 100_000), st.integers(0, 20_000))
def test_the_highest_price_of_some_time_is_the_highest_record_in_it(found: Changes, begin: int, length: int) -> None:
    market, first = series(found), BEGIN_UNIX_S + begin
    expected = max([market.at(first), *(price for _, price in market.changes(first, first + length))])
    assert History(market).highest(np.array([first]), np.array([first + length])).tolist() == [expected]


def test_volatility_adds_up_the_squared_steps_of_the_past() -> None:
    history = History(PriceSeries("a/z", np.array([0.0, 1000.0, 5000.0, 6000.0]), np.array([1.0, 9.0, 2.0, 4.0])))
    found = history.volatility(np.array([6000.0, 4000.0]), HOUR_S)
    assert found == pytest.approx([np.hypot(np.log(2 / 9), np.log(2.0)), np.log(9.0)])


def minute_series(moves: int) -> PriceSeries:
    """For two hours 0.50, then in so many of the last minutes a cent up and down in turn; the present is 7200 s."""
    minutes = [120 - moves + i for i in range(moves)]
    times = [0.0, *(MINUTE_S * minute for minute in minutes)]
    return PriceSeries("a/z", np.array(times), np.array([0.50, *(0.51 if i % 2 == 0 else 0.50 for i in range(moves))]))


def border_bid(market: PriceSeries, at: float) -> float:
    return float(border_bids(History(market), np.array([at]))[0])


def test_the_border_bid_is_that_of_algorithm_2_by_hand() -> None:
    # The 59 changes before 7200 s: 39 are 0 and 20 a cent. Of the sorted ones 12 to 47 count: 27 zeros and 9 cents.
    assert border_bid(minute_series(20), 7200.0) == pytest.approx(0.50 + 0.09 / (0.6 * 59))


def test_of_59_changes_that_all_differ_the_13th_smallest_to_the_48th_count() -> None:
    cents = [7 * k % 60 for k in range(1, 60)]  # 1 to 59, and in no order
    steps = np.array([cent if k % 2 else -cent for k, cent in enumerate(cents)]) / 100
    prices = 50.0 + np.concatenate([[0.0], np.cumsum(steps)])
    market = PriceSeries("a/z", MINUTE_S * np.array([0, *range(61, 120)]), prices)
    assert border_bid(market, 7200.0) == pytest.approx(prices[-1] + sum(range(13, 49)) / 100 / (0.6 * 59))


def test_the_border_is_the_price_where_it_changes_in_less_than_a_fifth_of_the_minutes() -> None:
    assert border_bid(minute_series(11), 7200.0) == 0.51
    assert border_bid(minute_series(12), 7200.0) > 0.50


def test_random_bids_are_above_the_price_by_up_to_as_much_again() -> None:
    history, at = History(spiky("a/z", 3, seed=2)), BEGIN_UNIX_S + np.arange(8000.0, 200_000.0, 60.0)
    ratios = random_bids(history, at, np.random.default_rng(0)) / history.price(at)
    assert 1.00004 < ratios.min() < 1.01 and 1.99 < ratios.max() <= 2.0
    assert ratios.mean() == pytest.approx(1.5, abs=0.02)


@given(changes, st.integers(0, 100_000), st.sampled_from([0.05, 0.15, 0.3, 2.0]))
def test_the_label_says_whether_the_price_passes_the_bid_in_the_hour(found: Changes, after: int, bid: float) -> None:
    market, at = series(found), BEGIN_UNIX_S + after
    expected = market.first_above(bid, at) <= at + HOUR_S
    assert rises_above(History(market), np.array([bid]), np.array([at])).tolist() == [expected]


@given(changes, changes, st.sampled_from([0.06, 0.15, 0.3, 2.0]))
def test_no_feature_knows_what_comes_after(known: Changes, later: Changes, bid: float) -> None:
    one = series(known)
    at = np.array([one.end_unix_s + 3 * HOUR_S])
    after = at[0] + np.cumsum(np.array([gap for gap, _ in later], dtype=float))
    other = PriceSeries(
        "a/z",
        np.concatenate([one.changed_unix_s, after]),
        np.concatenate([one.usd_per_hour, np.array([price for _, price in later])]),
    )
    seen = []
    for history in (History(one), History(other)):
        bids = np.array([bid])
        exceeded = Exceedance(history).of(bids, at)
        seen.append([past(history, at), present(history, at), border_bids(history, at), exceeded])
    for first, second in zip(*seen, strict=True):
        assert np.array_equal(first, second)


def test_encoded_features_are_logarithms_of_prices_and_times_and_leave_the_rest() -> None:
    record = np.array([[2.0, 3.0, 4.0, 5.0, 1.0, 7.0]])
    assert encoded(record)[0] == pytest.approx([np.log(2.0), np.log(3.0), 4.0, np.log(6.0), 1.0, 7.0])


def test_exceedance_counts_hours_that_are_over_and_times_above_the_bid() -> None:
    market = spiky("a/z", 9, seed=3)
    history, at = History(market), market.begin_unix_s + 8.3 * 24 * HOUR_S
    ratio, price = 1.4, market.at(at)
    starts = np.arange(market.begin_unix_s, at, GRID_S)
    hours = [start for start in starts if start + HOUR_S <= at]
    passed = [market.first_above(ratio * market.at(start), start) <= start + HOUR_S for start in hours]
    cells = [market.first_above(ratio * price, start) <= start + GRID_S for start in starts if start + GRID_S <= at]
    since = cells[::-1].index(True) * GRID_S / HOUR_S
    expected = [np.mean(passed[-DAY:]), np.mean(passed[-WEEK:]), np.mean(cells[-DAY:]), np.mean(cells[-WEEK:]), since]
    found = Exceedance(history).of(np.array([ratio * price]), np.array([at]))
    assert found[0] == pytest.approx(expected)


def test_a_price_that_no_longer_changes_is_remembered_for_a_week_and_then_forgotten() -> None:
    market = PriceSeries("a/z", np.array([0.0, 100.0 * HOUR_S, 101.0 * HOUR_S]), np.array([1.0, 5.0, 1.0]))
    found = Exceedance(History(market)).of(np.array([2.0, 2.0]), HOUR_S * np.array([110.0, 400.0]))
    assert found[0, 3] > 0 and found[0, 4] < 24
    assert found[1].tolist() == [0.0, 0.0, 0.0, 0.0, 168.0]
