"""The devices of a fixed cluster are shared out among the trials that are left, the best first."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.allocate import View
from elastune.allocate.base import Steps
from elastune.allocate.hypersched import STEPS, SharedOut, Standing
from elastune.place import machines_needed
from elastune.profile.scaling import Scaling
from elastune.spec import Width

LINEAR = Scaling({1: 1, 64: 64})


def shared_out(
    machines: int,
    devices: int,
    widths: dict[str, Width],
    *,
    scaling: Scaling = LINEAR,
    start_s: float = 0.0,
    at_s: float = 0.0,
) -> dict[str, Width]:
    """Of trials that run, named so that the first letters are the best."""
    standing = Standing({trial: float(ord(trial)) for trial in widths})
    allocator = SharedOut(machines, devices, 100.0, start_s, scaling, standing)
    free = machines * devices - sum(map(int, widths.values()))
    return dict(allocator.allocate(View(free, widths, []), at_s).widths)


@pytest.mark.parametrize(
    ("machines", "devices", "trials", "expected"),
    [
        (4, 4, "A", [16]),
        (4, 4, "AB", [8, 8]),
        (4, 4, "ABC", [8, 4, 4]),
        (4, 4, "ABCD", [4, 4, 4, 4]),
        (4, 4, "ABCDE", [4, 4, 4, 2, 2]),
        (2, 3, "AB", [3, 3]),
        (2, 3, "ABC", [3, 2, 1]),
        (1, 8, "ABC", [3, 3, 2]),
        (3, 1, "AB", [2, 1]),
    ],
)
def test_all_get_the_same_as_far_as_machines_allow_and_the_best_get_what_is_left(
    machines: int, devices: int, trials: str, expected: list[int]
) -> None:
    assert shared_out(machines, devices, dict.fromkeys(trials, 1)) == dict(zip(trials, expected, strict=True))


def test_a_trial_that_is_not_the_best_any_more_gives_back_what_it_had_more() -> None:
    assert shared_out(3, 4, {"B": 8, "A": 4}) == {"A": 8, "B": 4}


def test_nobody_is_made_wider_than_makes_it_faster() -> None:
    saturated = Scaling({1: 1, 2: 1.8, 3: 1.8})
    assert shared_out(4, 4, {"A": 1, "B": 1}, scaling=saturated) == {"A": 2, "B": 2}


def test_a_little_faster_is_not_worth_a_resize() -> None:
    assert shared_out(1, 4, {"A": 1}, scaling=Scaling({1: 1, 4: 1.09})) == {"A": 1}
    assert shared_out(1, 4, {"A": 1}, scaling=Scaling({1: 1, 4: 1.11})) == {"A": 4}


def test_shortly_before_the_end_what_a_resize_takes_is_not_worth_it() -> None:
    assert shared_out(1, 2, {"A": 1}, start_s=5.0, at_s=85.0) == {"A": 2}
    assert shared_out(1, 2, {"A": 1}, start_s=5.0, at_s=95.0) == {"A": 1}


def test_who_goes_on_after_a_rung_takes_at_once_what_it_had() -> None:
    allocator = SharedOut(2, 4, 100.0, 0.0, LINEAR, Standing({"A": 1.0, "B": 2.0}))
    allocator.allocate(View(0, {"A": 4, "B": 4}, []), 0.0)
    target = allocator.allocate(View(4, {"B": 4}, ["A"]), 1.0)
    assert target.widths == {"A": 4, "B": 4}


def test_a_new_trial_begins_with_what_some_machine_surely_has() -> None:
    """Four devices are free on two machines, perhaps two on each."""
    allocator = SharedOut(2, 4, 100.0, 0.0, LINEAR, Standing({"A": 1.0}))
    target = allocator.allocate(View(4, {"A": 4}, ["new"]), 0.0)
    assert target.widths == {"A": 4, "new": 2} and target.again, "asked again, it gets its share"


def test_the_median_step_is_that_on_one_device_without_beginning() -> None:
    standing = Standing()
    allocator = SharedOut(1, 4, 100.0, 2.0, LINEAR, standing)
    for width, steps, seconds, first in ((1, 1, 5.0, True), (1, 2, 8.0, False), (2, 1, 1.0, False), (1, 1, 9.0, False)):
        allocator.stepped(Steps("t", width, steps, seconds, first))
    assert standing.median_step_s == 4.0


def test_the_median_step_is_that_of_the_last_steps_and_no_more_are_kept() -> None:
    standing, draw = Standing(), random.Random(0)
    steps = [draw.choice([1.0, 2.0, draw.random() * number]) for number in range(3 * STEPS)]
    for number, seconds in enumerate(steps, 1):
        standing.stepped(seconds)
        if number % 50 == 0 or number < 20:
            last = sorted(steps[max(0, number - STEPS) : number])
            assert standing.median_step_s == last[len(last) // 2]
    assert len(pickle.dumps(standing)) < 3 * 9 * STEPS


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 30), st.floats(0.2, 1.0))
def test_shares_have_a_place_together_and_differ_no_more_than_machines_make_them(
    machines: int, devices: int, trials: int, power: float
) -> None:
    trials = min(trials, machines * devices)
    scaling = Scaling({width: width**power for width in range(1, 26)})
    standing = Standing({f"{number:02d}": float(number) for number in range(trials)})
    allocator = SharedOut(machines, devices, 100.0, 0.0, scaling, standing)
    shares = list(allocator._shares(list(standing.losses)).values())
    assert machines_needed({width: shares.count(width) for width in shares}, devices) <= machines
    assert all(width <= devices or width % devices == 0 for width in shares)
    assert shares == sorted(shares, reverse=True), "the better has as many at least"
    narrower = shares[-1] + 1 if shares[-1] < devices else shares[-1] + devices
    one_more = [*shares[:-1], narrower]
    assert machines_needed({width: one_more.count(width) for width in one_more}, devices) > machines, "nothing is left"
