"""Whether another step fits into the time that a run has left."""

from __future__ import annotations

import time

import pytest

from elastune.worker.hourglass import Hourglass


class Clock:
    """Both clocks of the computer; the one of the day began much earlier."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "time", lambda: 1_000_000.0 + self.now_s)

    def step(self, glass: Hourglass, seconds: float) -> None:
        """The user's code trains, and reports."""
        self.now_s += seconds
        glass.step_ends()

    def save(self, glass: Hourglass, seconds: float) -> None:
        self.now_s += seconds
        glass.saves_in(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def until(at_s: float) -> float:
    return 1_000_000.0 + at_s


def test_without_an_end_it_never_runs_out(clock: Clock) -> None:
    glass = Hourglass(None)
    for _ in range(3):
        clock.step(glass, 1e6)
        assert not glass.is_over and not glass.is_low
        glass.step_begins()


def test_the_next_step_is_taken_to_last_as_long_as_the_one_before(clock: Clock) -> None:
    glass = Hourglass(until(10.0))
    seen = []
    for seconds in (1.0, 3.0, 3.0, 2.0):
        clock.step(glass, seconds)
        seen.append((clock.now_s, glass.is_low, glass.is_over))
        glass.step_begins()
    assert seen == [(1.0, True, False), (4.0, False, False), (7.0, True, False), (9.0, True, True)]


def test_the_first_step_has_imports_and_data_in_it_and_tells_nothing(clock: Clock) -> None:
    glass = Hourglass(until(10.0))
    clock.step(glass, 9.0)
    assert not glass.is_over
    assert glass.is_low, "nobody knows, so what there is is worth saving"


def test_a_step_that_ends_exactly_in_time_is_begun(clock: Clock) -> None:
    glass = Hourglass(until(6.0))
    clock.step(glass, 2.0)
    glass.step_begins()
    clock.step(glass, 2.0)
    assert not glass.is_over


def test_saving_what_was_learnt_takes_its_part_of_the_time(clock: Clock) -> None:
    glass = Hourglass(until(10.0))
    clock.step(glass, 1.0)
    clock.save(glass, 2.0)
    glass.step_begins()
    clock.step(glass, 3.0)
    assert glass.is_over, "four seconds are left for a step of three and two to save it"
    glass.turn(until(11.0))
    assert not glass.is_over


def test_waiting_for_the_next_run_is_no_part_of_a_step(clock: Clock) -> None:
    glass = Hourglass(until(10.0))
    clock.step(glass, 1.0)
    glass.step_begins()
    clock.step(glass, 2.0)
    clock.now_s = 100.0
    glass.turn(until(110.0))
    glass.step_begins()
    clock.step(glass, 2.0)
    assert not glass.is_over and not glass.is_low
    clock.now_s = 109.0
    assert glass.is_over
