"""Trials at given widths, one after another onto devices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.groups import area_preserving, ideal, oversubscribed

from elastune.allocate.makespan import Placed, forecast, list_schedule, makespan, schedule
from elastune.spec import Width

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
WIDTHS = st.sampled_from([Fraction(1, 4), THIRD, HALF, 1, 2, 3])
TRIALS = st.lists(st.tuples(WIDTHS, st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1.0, 2.0]))), max_size=14)


def test_the_example_of_the_paper() -> None:
    times = [4.0, 4.0, 12.0, 30.0]
    widths: list[Width] = [HALF, HALF, 1, 3]
    assert forecast(times, widths, 5, ideal(2, 5)) == 12
    assert forecast(times, widths, 5, area_preserving(2, 5)) == 12
    assert forecast(times, [1, 1, 1, 1], 5, ideal(2, 5)) == 30, "first come, first served"
    assert forecast(times, [1, 1, 2, 3], 5, ideal(2, 5)) == 10, "the optimum that is drawn"


def test_the_schedule_of_the_example() -> None:
    first, second, third, fourth = schedule([4.0, 4.0, 12.0, 30.0], [HALF, HALF, 1, 3], 5, area_preserving(2, 5))
    assert (first.start_s, first.end_s) == (second.start_s, second.end_s) == (0, 8)
    assert first.devices == second.devices and len(first.devices) == 1
    assert (third.end_s, fourth.end_s) == (12, 10)
    assert sorted(first.devices + third.devices + fourth.devices) == [0, 1, 2, 3, 4]


def test_the_widest_begin_first_and_of_those_the_longest() -> None:
    placed = list_schedule([1.0, 5.0, 4.0, 2.0, 3.0], [1, 1, 1, 2, 2], 2)
    assert [each.start_s for each in placed] == [9, 5, 5, 3, 0]


def test_another_order_can_be_given() -> None:
    placed = list_schedule([1.0, 5.0, 2.0, 3.0], [1, 1, 2, 2], 2, order=[0, 1, 2, 3])
    assert [each.start_s for each in placed] == [0, 0, 5, 7]


def test_a_narrow_trial_does_not_wait_for_a_wide_one_that_it_does_not_hold_up() -> None:
    placed = list_schedule([4.0, 3.0, 1.0], [2, 2, 1], 3)
    assert placed[1:] == [Placed(4, 7, placed[0].devices), Placed(0, 1, (({0, 1, 2} - {*placed[0].devices}).pop(),))]


def test_parts_fill_a_device_before_they_open_another_and_the_lane_that_is_free_first_is_taken() -> None:
    placed = list_schedule([5.0, 4.0, 3.0, 2.0, 1.0], [HALF] * 5, 2)
    assert [each.start_s for each in placed] == [0, 0, 0, 0, 2]
    assert placed[0].devices == placed[1].devices != placed[2].devices == placed[3].devices == placed[4].devices


def test_a_device_is_shared_in_equal_parts() -> None:
    assert [each.start_s for each in list_schedule([2.0, 1.0], [HALF, THIRD], 1)] == [0, 2]


def test_a_whole_trial_waits_for_all_that_share_a_device_and_parts_for_it() -> None:
    placed = list_schedule([3.0, 1.0, 2.0, 1.0], [HALF, HALF, 1, HALF], 1, order=[0, 1, 2, 3])
    assert [each.start_s for each in placed] == [0, 0, 3, 5]


def test_what_is_wider_than_all_devices_never_begins_and_nobody_waits_for_it() -> None:
    assert list_schedule([1.0, 1.0], [3, 1], 2) == [Placed(inf, inf, ()), Placed(0, 1, (1,))]
    assert forecast([1.0], [HALF], 0, ideal(2, 1)) == forecast([1.0], [1], 0, ideal(2, 1)) == inf


def test_without_trials_all_are_done() -> None:
    assert forecast([], [], 4, ideal(2, 4)) == forecast([], [], 0, ideal(2, 4)) == 0
    assert forecast([0.0, 0.0], [1, HALF], 1, ideal(2, 1)) == 0


@given(TRIALS, st.integers(3, 6), st.randoms(use_true_random=False))
def test_each_begins_as_early_as_those_before_it_allow_and_no_device_is_oversubscribed(
    trials: list[tuple[Width, float]], n: int, random: Random
) -> None:
    widths, durations = [width for width, _ in trials], [seconds for _, seconds in trials]
    order = random.sample(range(len(trials)), len(trials))
    placed = list_schedule(durations, widths, n, order)
    assert oversubscribed(placed, widths, n) == []
    for at, trial in enumerate(order):
        before = [(placed[other], widths[other]) for other in order[:at]]
        moments = sorted({0.0, *(each.end_s for each, _ in before)})
        assert placed[trial].start_s == next(
            moment for moment in moments if _has_room(before, widths[trial], n, moment)
        )


def _has_room(before: Sequence[tuple[Placed, Width]], width: Width, n: int, from_s: float) -> bool:
    """From this moment on, for good."""
    free = 0
    for device in range(n):
        later = [(each, other) for each, other in before if device in each.devices and each.end_s > from_s]
        moments = {from_s, *(each.start_s for each, _ in later if each.start_s > from_s)}
        most = max(sum(each.start_s <= moment < each.end_s for each, _ in later) for moment in moments)
        free += not later or (width < 1 and {other for _, other in later} == {width} and (most + 1) * width <= 1)
    return free >= max(1, width)


@given(TRIALS, st.integers(3, 6))
def test_the_makespan_is_when_the_last_is_done(trials: list[tuple[Width, float]], n: int) -> None:
    widths, durations = [width for width, _ in trials], [seconds for _, seconds in trials]
    last_s = max((each.end_s for each in list_schedule(durations, widths, n)), default=0.0)
    assert makespan(durations, widths, n) == last_s
    area = sum(float(width) * seconds for width, seconds in trials)
    assert last_s >= area / n * (1 - 1e-9) and last_s >= max(durations, default=0.0)


def test_one_width_is_the_longest_first_rule() -> None:
    assert makespan([5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0], [1] * 7, 3) == pytest.approx(11), "4/3 - 1/9 of the best"
