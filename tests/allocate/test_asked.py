"""Machines and widths as the algorithm asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.allocate.asked import AsAsked
from elastune.allocate.base import MachineView, Target, View
from elastune.place import FreeSlots, machines_needed
from elastune.spec import Width

PLAN = [4, 2, 1]


def asked(
    stage: int,
    wanted: Mapping[str, int],
    running: Sequence[Sequence[str]] = (),
    failed: Sequence[str] = (),
    leaving: Sequence[str] = (),
    devices: int = 2,
) -> Target:
    """`running` has the trials of each machine; all others in `wanted` wait, unless they have failed."""
    on = {trial: wanted[trial] for machine in running for trial in machine}
    waiting = [trial for trial in wanted if trial not in on and trial not in failed]
    view = View(
        0,
        on,
        waiting,
        stage=lambda trial: stage,
        machines=lambda pool: [MachineView(0.0, set(machine)) for machine in running],
        failed=lambda: failed,
        width=lambda trial: wanted[trial],
        leaving=lambda: leaving,
    )
    return AsAsked(devices, PLAN).allocate(view, 0.0)


def test_every_trial_gets_what_the_algorithm_wants_and_the_widest_are_placed_first() -> None:
    target = asked(0, {"a": 1, "b": 4, "c": 2, "d": 1})
    assert list(target.widths.items()) == [("b", 4), ("c", 2), ("a", 1), ("d", 1)]
    assert target.machines == 4


def test_machines_that_the_next_stage_needs_are_kept_and_the_others_go_when_they_are_empty() -> None:
    assert asked(0, {"a": 1, "b": 1, "c": 1}, [["a"], ["b"], ["c"], []]).machines == 3
    assert asked(0, {"a": 1}, [["a"], [], [], []]).machines == 2
    assert asked(1, {"a": 1}, [["a"], []]).machines == 1
    assert asked(2, {"a": 2}, [["a"], []]).machines == 1


def test_nobody_moves_because_others_have_left() -> None:
    assert asked(0, {"a": 1, "b": 1}, [["a"], ["b"], [], []]).machines == 2
    assert asked(0, {"a": 1, "b": 1, "c": 1}, [["a"], ["b"]]).machines == 2, "there is a place beside them"


def test_the_place_of_a_trial_that_will_be_tried_again_is_kept_and_that_of_one_that_leaves_is_handed_on() -> None:
    assert asked(1, {"a": 2, "b": 2}, [["a"], []], failed=["b"]).machines == 2
    assert asked(0, {"a": 2, "b": 2, "c": 2}, [["a"], ["b"]], leaving=["a"]).machines == 2


def test_no_more_machines_are_held_than_were_planned() -> None:
    wanted = {f"t{k}": 2 for k in range(9)}
    assert [asked(stage, wanted).machines for stage in range(3)] == PLAN


def test_the_stage_is_that_of_the_trials_that_are_behind() -> None:
    view = View(0, {"old": 2, "new": 2}, [], stage=lambda trial: trial == "new", width=lambda trial: 2)
    assert AsAsked(2, [5, 3, 1]).allocate(view, 0.0).machines == 3


def test_when_nobody_is_left_nothing_is_held() -> None:
    assert asked(0, {}).machines == 0


# ------------------------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize(
    ("trials", "devices", "machines"),
    [
        ({}, 4, 0),
        ({1: 9}, 4, 3),
        ({8: 1, 1: 4}, 4, 3),
        ({3: 2, 1: 2}, 4, 2),
        ({3: 2, 1: 3}, 4, 3),
        ({2: 3, 3: 1}, 4, 3),
        ({5: 2, 3: 2}, 8, 2),
        ({1: 5}, 1, 5),
        ({4: 2}, 1, 8),
    ],
)
def test_how_many_machines_some_trials_take(trials: dict[Width, int], devices: int, machines: int) -> None:
    assert machines_needed(trials, devices) == machines


@given(
    devices=st.integers(1, 8),
    narrow=st.lists(st.integers(1, 8), max_size=12),
    whole=st.lists(st.integers(1, 3), max_size=3),
)
def test_trials_find_their_places_on_as_many_machines_as_they_are_said_to_need(
    devices: int, narrow: list[int], whole: list[int]
) -> None:
    widths = [min(width, devices) for width in narrow] + [devices * number for number in whole]
    machines = machines_needed(Counter(widths), devices)
    assert machines * devices >= sum(widths)
    free = FreeSlots()
    for number in range(machines):
        free.add_node(f"n{number}", devices)
    assert all(free.take(width) is not None for width in sorted(widths, reverse=True))
    assert machines <= sum(-(-width // devices) for width in widths)
