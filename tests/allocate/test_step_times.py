"""How long a step takes where it was never seen, by what is known of the trial, of others, and of the types."""

from __future__ import annotations

import pytest

from elastune.allocate.step_times import ENOUGH, StepTimes


def test_before_anything_is_measured_more_processors_are_faster() -> None:
    times = StepTimes({"small": 2.0, "large": 16.0})
    assert (times.step_s("t", "small"), times.step_s("t", "large")) == (1 / 2, 1 / 16)


def test_what_was_measured_is_carried_over_by_speed_and_then_by_how_types_compare() -> None:
    times = StepTimes({"small": 1.0, "large": 4.0})
    times.add("t", "small", 80.0)
    assert times.step_s("t", "large") == pytest.approx(20.0)
    for trial in ("u", "v", "w"):  # it gains nothing by the other processors
        times.add(trial, "small", 10.0)
        times.add(trial, "large", 10.0)
    assert times.step_s("t", "large") == pytest.approx(80.0)
    assert times.step_s("t", "small") == 80.0


def test_of_a_trial_that_never_ran_what_others_take_is_thought_at_once() -> None:
    times = StepTimes({"a": 1.0})
    times.add("t", "a", 10.0)
    assert times.step_s("new", "a") == 10.0
    times.add("u", "a", 30.0)
    times.add("v", "a", 40.0)
    assert times.step_s("new", "a") == 30.0


def test_of_very_many_trials_the_last_ones_count() -> None:
    times = StepTimes({"a": 1.0})
    for number in range(10 * ENOUGH):
        times.add(f"t-{number}", "a", 10.0 if number < 9 * ENOUGH else 20.0)
    assert times.step_s("new", "a") == 20.0
