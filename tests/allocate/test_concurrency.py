"""How many trials at a time: by what found the best so far."""

from __future__ import annotations

from fractions import Fraction

from elastune.allocate.base import Steps
from elastune.allocate.concurrency import MOST, Concurrency
from elastune.allocate.overheads import Overheads
from elastune.allocate.pace import Pace
from elastune.profile.scaling import Scaling

SCALES = Overheads((1.0, 1.7), Scaling({1: 1, 2: 1.9, 4: 3.4}), 4)
USABLE = [1, 2, 3, 4]


def chosen(trained_s: float, at_s: float, n: int = 8, overheads: Overheads = SCALES) -> object:
    concurrency = Concurrency()
    concurrency.improved(trained_s, overheads)
    concurrency.choose(at_s, n, overheads, USABLE)
    return concurrency.width


def test_where_finding_takes_nearly_all_the_time_trials_are_packed() -> None:
    assert chosen(trained_s=1.0, at_s=1000.0) == Fraction(1, 2)


def test_where_training_takes_much_of_the_time_trials_are_spread() -> None:
    assert chosen(trained_s=500.0, at_s=1000.0) in (2, 4)


def test_as_time_goes_by_without_a_better_one_trials_become_narrower_again() -> None:
    concurrency = Concurrency()
    concurrency.improved(100.0, SCALES)
    concurrency.choose(200.0, 8, SCALES, USABLE)
    assert concurrency.width > 1
    concurrency.choose(5000.0, 8, SCALES, USABLE)
    assert concurrency.width == Fraction(1, 2)


def test_where_nothing_pays_every_trial_has_one_device() -> None:
    poor = Overheads((1.0,), Scaling({1: 1, 2: 1.05}), 1)
    assert chosen(1.0, 1000.0, overheads=poor) == 1 == chosen(900.0, 1000.0, overheads=poor)


def test_devices_that_would_be_left_over_count() -> None:
    """Three devices for each of two trials leave two of eight unused; it scales well, but not that well."""
    scales = Overheads((1.0,), Scaling({1: 1, 3: 2.8}), 3)
    concurrency = Concurrency()
    concurrency.improved(1000.0, scales)
    concurrency.choose(1000.0, 8, scales, [1, 3])
    assert concurrency.width == 1
    concurrency.choose(1000.0, 9, scales, [1, 3])
    assert concurrency.width == 3 and MOST < 0.5


def test_a_width_for_which_there_are_no_longer_enough_devices_is_given_up() -> None:
    concurrency = Concurrency(width=4, trained_s=500.0)
    assert not concurrency.may_help(4, 2, Pace(4, 4))
    concurrency.choose(1000.0, 2, SCALES, USABLE)
    assert concurrency.width <= 2


def test_a_width_that_has_disappointed_is_not_tried_for_ever_where_steps_vary() -> None:
    concurrency, pace = Concurrency(trained_s=500.0), Pace(1, 8)
    concurrency.choose(1000.0, 8, pace.overheads, USABLE)
    assert concurrency.may_help(2, 8, pace)
    pace.meet("t", {})
    for width in (1, 2):
        for k in range(6):
            pace.stepped(Steps("t", width, 1, 2.0 ** (-1) ** k, False))
    assert pace.next_wider == 2, "it is not known for certain"
    assert not concurrency.may_help(2, 8, pace)
