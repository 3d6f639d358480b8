"""What packing and spreading cost is told from the steps of trials, although trials differ."""

from __future__ import annotations

import pickle
import random
from fractions import Fraction

import pytest

from elastune.allocate.base import Steps
from elastune.allocate.pace import Pace
from elastune.spec import Width


def steps(pace: Pace, trial: str, step_s: float, count: int, width: int = 1, sharing: int = 1) -> list[bool]:
    """The first of them has a beginning of 0.5 s in it."""
    part = Fraction(1, sharing) if sharing > 1 else width
    return [
        pace.stepped(Steps(trial, part, 1, step_s + (0.5 if k == 0 else 0.0), k == 0, sharing)) for k in range(count)
    ]


def made(most: int = 4, widest: int = 8, **more: object) -> Pace:
    pace = Pace(most, widest, **more)  # type: ignore[arg-type]
    for k in range(9):
        pace.meet(f"t{k}", {"x": k})
    return pace


def test_until_it_is_measured_nothing_is_packed_and_one_more_device_is_tried() -> None:
    overheads = made().overheads
    assert overheads.c == 1 and overheads.d == 2
    assert made().to_try == Fraction(1, 2)


def test_packing_is_told_from_a_trial_that_was_alone_before() -> None:
    pace = made()
    steps(pace, "t0", 1.0, 5)
    steps(pace, "t1", 7.0, 5)
    steps(pace, "t0", 1.3, 5, sharing=2)
    assert pace.overheads.c == 2
    assert pace.overheads.slowdowns[1] == pytest.approx(1.3, rel=0.1)
    assert pace.to_try == Fraction(1, 3)


def test_packing_that_does_not_pay_is_not_done_and_not_tried_again() -> None:
    pace = made()
    steps(pace, "t0", 1.0, 5)
    steps(pace, "t0", 1.98, 5, sharing=2)
    assert pace.overheads.c == 1 and pace.to_try is None


def test_what_is_known_stays_known_when_the_trials_have_left() -> None:
    pace = made()
    steps(pace, "t0", 1.0, 5)
    steps(pace, "t0", 1.3, 5, sharing=2)
    pace.leave("t0")
    assert pace.overheads.c == 2


def test_spreading_goes_on_while_it_pays() -> None:
    pace = made()
    steps(pace, "t0", 8.0, 4)
    assert pace.overheads.d == 2
    steps(pace, "t0", 4.4, 4, width=2)
    assert pace.overheads.d == 4
    steps(pace, "t0", 4.3, 4, width=4)
    assert pace.overheads.d == 2, "twice the devices for two percent"
    assert pace.overheads.factor(2) == pytest.approx(0.55, rel=0.1)


def test_what_was_known_before_the_run_counts_until_it_is_measured() -> None:
    pace = made(before={-2: 0.8, 2: 1.9, 4: 3.6})
    assert pace.overheads.c == 2 and pace.overheads.slowdowns[1] == pytest.approx(1.25)
    assert pace.overheads.factor(4) == pytest.approx(1 / 3.6)
    for k in range(6):
        steps(pace, f"t{k}", 1.0, 8)
        steps(pace, f"t{k}", 2.0, 8, sharing=2)
    assert pace.overheads.c == 1, "it was wrong"


def test_a_drift_is_news_and_changes_what_is_expected() -> None:
    pace = made()
    assert any(steps(pace, "t0", 1.0, 5)), "it is known now"
    assert not any(steps(pace, "t0", 1.02, 5)[1:])
    assert any(steps(pace, "t0", 2.0, 10)[1:])
    assert pace.step_s("t0") > 1.5


def test_steps_in_the_middle_of_which_others_came_or_went_do_not_count() -> None:
    pace = made()
    steps(pace, "t0", 1.0, 5)
    for _ in range(5):
        for sharing in (2, 1):
            pace.stepped(Steps("t0", Fraction(1, 2), 1, 1.15, False, sharing))
    assert pace.to_try is not None
    assert pace.step_s("t0") == pytest.approx(1.0, rel=0.05)


def test_a_trial_that_was_not_measured_takes_as_long_as_its_configuration_tells() -> None:
    pace = Pace(1, 1)
    for k in range(1, 21):
        pace.meet(f"t{k}", {"units": 16 * k})
        steps(pace, f"t{k}", 0.1 * k, 4)
    pace.meet("new", {"units": 16 * 30})
    assert pace.step_s("new") == pytest.approx(3.0, rel=0.3)
    plain = Pace(1, 1, by_config=False)
    for k in range(1, 21):
        plain.meet(f"t{k}", {"units": 16 * k})
        steps(plain, f"t{k}", 0.1 * k, 4)
    plain.meet("new", {"units": 16 * 30})
    assert plain.step_s("new") < 1.2


def test_what_being_resized_takes_is_learnt() -> None:
    pace = made()
    before = pace.resize_s
    for _ in range(40):
        steps(pace, "t0", 1.0, 3)
    assert pace.resize_s == pytest.approx(0.5, abs=0.05) and before == 0.1


def began(pace: Pace, extra_s: float, *step_s: float, width: int = 1) -> None:
    """Steps of a trial from when it was started or resized: that took so much more."""
    for k, each_s in enumerate(step_s):
        pace.stepped(Steps("t0", width, 1, each_s + (0.0 if k else extra_s), k == 0))


def test_what_being_resized_takes_is_learnt_from_widths_that_are_new() -> None:
    pace = made()
    began(pace, 0.0, 4.0, 4.0, 4.0)
    began(pace, 10.0, 2.2, 2.2, width=2)
    assert pace.resize_s == pytest.approx(10.0), "one is better than none"
    began(pace, 12.0, 1.2, 1.2, width=4)
    assert pace.resize_s == pytest.approx(11.0)


def test_a_start_tells_nothing_of_resizes() -> None:
    pace = made()
    for _ in range(3):
        pace.meet("t0", {"x": 0}, waits=True)
        began(pace, 20.0, 1.0, 1.0, 1.0, 1.0)
    assert pace.resize_s == 0.1
    began(pace, 0.5, 1.0, 1.0)
    assert pace.resize_s == pytest.approx(0.5)


def test_where_steps_vary_resizes_that_take_nothing_are_not_dear() -> None:
    rng, pace = random.Random(0), made()
    for k in range(60):
        began(pace, 0.0, *(10.0 * rng.lognormvariate(0.0, 0.1) for _ in range(4)), width=2 - k % 2)
        assert 0.0 <= pace.resize_s < 3.0
    assert pace.resize_s < 0.6


def test_who_is_among_the_first_to_be_resized_tries_it_until_its_steps_tell_what_it_took() -> None:
    pace = made()
    assert not pace.tries_resize("t0", 1), "it was only started"
    began(pace, 0.0, 4.0, 4.0, 4.0)
    assert not pace.tries_resize("t0", 1) and pace.tries_resize("t0", 2)
    began(pace, 10.0, 2.2, width=2)
    assert pace.tries_resize("t0", 2)
    assert pace.stepped(Steps("t0", 2, 1, 2.2, False)), "that is news"
    assert not pace.tries_resize("t0", 2) and not pace.tries_resize("t0", 4)


def test_pickling_changes_nothing() -> None:
    pace = made()
    for k in range(4):
        steps(pace, f"t{k}", 1.0 + k, 4)
        pace = pickle.loads(pickle.dumps(pace))
        steps(pace, f"t{k}", 1.4 * (1.0 + k), 4, sharing=2)
    assert pace.overheads.slowdowns[1] == pytest.approx(1.4, rel=0.1)


def test_what_was_known_before_the_run_stays_known_when_steps_vary_more_than_was_thought() -> None:
    pace = made(before={-2: 0.5})
    steps(pace, "t0", 1.0, 5)
    assert pace.to_try is None
    for k in range(8):
        pace.stepped(Steps("t0", 1, 1, 1.0 + 0.19 * (-1) ** k, False))
        assert pace.to_try is None


def test_nobody_is_taken_to_be_more_times_as_fast_as_it_has_devices() -> None:
    """The first steps of a trial happened to be slow ones: two devices would seem to make it four times as fast."""
    pace = made()
    steps(pace, "t0", 4.0, 4)
    steps(pace, "t0", 1.0, 4, width=2)
    assert pace.overheads.speedups(2) <= 2


def test_where_steps_vary_much_a_few_of_them_do_not_outweigh_the_guess() -> None:
    def speed(varying: float) -> float:
        pace = made()
        for k in range(30):
            pace.stepped(Steps("t0", 1, 1, 1.0 * varying ** (-1) ** k, False))
        for k in range(4):
            pace.stepped(Steps("t0", 2, 1, 1.0, k == 0))
        return pace.hoped(2, 1.9)

    assert 1.0 < speed(1.01) < 1.25 < 1.4 < speed(2.0)


@pytest.mark.parametrize(("varying", "count", "tried"), [(1.01, 3, 4), (1.2, 3, 2), (1.2, 20, 4)])
def test_where_steps_vary_it_takes_more_of_them_to_know_a_width(varying: float, count: int, tried: int) -> None:
    pace = made()
    for width, number in ((1, 100), (2, count)):
        for k in range(number):
            pace.stepped(Steps("t0", width, 1, varying ** (-1) ** k / width, False))
    assert pace.next_wider == tried


def test_the_more_was_seen_of_a_width_that_is_not_known_yet_the_less_hope_counts() -> None:
    pace = made()
    steps(pace, "t0", 1.0, 3)
    assert pace.hoped(2, 1.9) == pytest.approx(1.9)
    steps(pace, "t0", 1.0, 4, width=2)
    assert 1.0 < pace.hoped(2, 1.9) < 1.6


def test_a_width_that_was_only_said_to_work_is_given_up_when_it_fails() -> None:
    pace = Pace(4, 8, {-2: 0.7, 2: 1.9})
    assert pace.overheads
    assert "no more than 1 from now on" in pace.failed("t0", Fraction(1, 2))
    assert "no more than 1 from now on" in pace.failed("t1", 2)


@pytest.mark.parametrize("width", [Fraction(1, 2), 2])
def test_a_width_is_not_given_up_for_a_trial_that_also_fails_on_one_device(width: Width) -> None:
    pace = made()
    limits = pace.most, pace.widest
    assert pace.failed("t0", width)
    assert (pace.most, pace.widest) != limits
    assert pace.failed("t0", 1) == "", "it is to blame itself"
    assert (pace.most, pace.widest) == limits


def test_a_width_stays_given_up_when_the_trial_that_failed_there_trains_on_one_device() -> None:
    pace = made()
    assert pace.failed("t0", 2)
    steps(pace, "t0", 1.0, 3)
    assert pace.failed("t0", 1) == ""
    assert pace.widest == 1
