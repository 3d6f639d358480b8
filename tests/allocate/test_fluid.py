"""Fluid on whole runs: small trials are packed, long ones are spread, and no device is idle that could help."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocate.group_runs import (
    ByMomentum,
    FixedWidth,
    Group,
    OneByOne,
    TwoGroups,
    devices_over_time,
    resizes,
    starts,
)
from tests.control.scripts import Script, ready
from tests.worlds import Session, assert_sound, winner, world

import elastune as et
from elastune import messages as m
from elastune.algorithm import ASHA, Algorithm, Hyperband, SuccessiveHalving
from elastune.allocate import Allocator, FirstComeFirstServed, Fluid
from elastune.cluster.simulated import Fault
from elastune.control.controller import Step
from elastune.errors import SpecError

FREE: dict[float, float] = {0.5: 1, 1: 1, 5: 5}
"""Neither packing two trials nor spreading one costs anything."""
USUAL = {0.25: 0.32, 1 / 3: 0.45, 0.5: 0.7, 1: 1, 2: 1.8, 4: 3.1, 8: 4.8}
"""Two on a device pay, a third hardly does."""
TAKING_TURNS = {0.5: 0.49, 1: 1, 2: 1.02}
"""Nothing helps."""


def run(
    algorithm: Algorithm, allocator: Allocator, scaling: Mapping[float, float], machines: int = 8, **more: Any
) -> Session:
    session = world(algorithm, allocator=allocator, scaling=scaling, machines=machines, **more).run()
    assert_sound(session)
    return session


def speedup(make: Algorithm, allocator: Allocator, scaling: Mapping[float, float], **more: Any) -> float:
    default = run(make, FirstComeFirstServed(8), scaling, **more)
    return default.view.at_s / run(make, allocator, scaling, **more).view.at_s


def test_the_worked_example_of_the_paper() -> None:
    fluid = Fluid(most_packed=2, widest=5, scaling=FREE, as_published=True)
    session = run(Group([4, 4, 12, 30]), fluid, FREE, machines=5, resize_s=100.0)
    assert starts(session) == {
        "t-00000": (1, 0.5),
        "t-00001": (1, 0.5),
        "t-00002": (1, 1.0),
        "t-00003": (3, 1.0),
    }
    assert run(Group([4, 4, 12, 30]), FirstComeFirstServed(5), FREE, machines=5).view.at_s == 30.0


def test_the_search_is_better_in_the_worked_example() -> None:
    """Ten seconds are the best without changing widths on the way, if two on a device take twice as long."""
    session = run(Group([4, 4, 12, 30]), Fluid(2, scaling=FREE), FREE, machines=5)
    assert session.view.at_s < 10.0


def test_without_knowing_anything_it_comes_close_to_the_best() -> None:
    assert run(Group([4, 4, 12, 30]), Fluid(), FREE, machines=5).view.at_s < 11.0


@pytest.mark.parametrize("as_published", [False, True])
def test_what_packing_costs_is_tried_on_one_device_before_all_do_it(as_published: bool) -> None:
    session = run(Group([20] * 40), Fluid(as_published=as_published), USUAL)
    assert all(share == 1.0 for _, share in list(starts(session).values())[:8]), "nobody knows yet"
    narrowed = [trial for trial, _, share in resizes(session) if share < 1]
    assert len(narrowed) >= 8
    parts = {share for _, share in starts(session).values()}
    assert parts <= {1.0, 0.5, 1 / 3}
    assert sum(share == 1 / 3 for _, share in starts(session).values()) <= 3, "three do not pay: soon known"
    assert 40 * 20 / 8 / session.view.at_s > 1.25, "two on each device train 1.4 times as much"


@pytest.mark.parametrize("as_published", [False, True])
def test_where_neither_packing_nor_spreading_pays_it_is_no_slower_than_the_default(as_published: bool) -> None:
    for lengths in ([20] * 40, [30, 10, 20]):
        assert speedup(Group(lengths), Fluid(as_published=as_published), TAKING_TURNS) > 0.9


def test_the_last_long_trials_are_spread() -> None:
    session = run(Group([10, 10, 10, 80]), Fluid(), USUAL)
    assert max(slots for trial, slots, _ in resizes(session) if trial == "t-00003") == 8
    assert session.view.at_s < 80 / 3


def test_spreading_stops_where_it_does_not_pay() -> None:
    flat = {0.5: 0.5, 1: 1, 2: 1.7, 4: 1.75, 8: 1.8}
    session = run(Group([40, 60]), Fluid(), flat)
    assert max(slots for _, slots, _ in resizes(session)) == 4, "tried once"


def test_limits_of_the_user_are_kept() -> None:
    session = run(Group([20] * 20), Fluid(most_packed=1, widest=2), USUAL)
    assert all(share == 1.0 and slots <= 2 for slots, share in starts(session).values())
    assert all(share == 1.0 and slots <= 2 for _, slots, share in resizes(session))


@pytest.mark.parametrize(
    ("algorithm", "least"),
    [
        (SuccessiveHalving(81, 1, 81, 3), 1.6),
        (Hyperband(81, 1, 3), 1.15),
        (ASHA(81, 1, 81, 3), 1.3),
        (Group([20, 30, 40]), 2.0),
        (OneByOne([20] * 60), 1.05),
    ],
)
def test_algorithms_are_faster_than_with_the_default(algorithm: Algorithm, least: float) -> None:
    for fluid in (Fluid(), Fluid(scaling=USUAL), Fluid(as_published=True)):
        assert speedup(algorithm, fluid, USUAL, resize_s=0.1) > least


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("scaling", [None, USUAL])
@pytest.mark.parametrize("algorithm", [Group([40, 30, 20, 10]), SuccessiveHalving(27, 1, 27, 3), Hyperband(27, 1, 3)])
def test_where_a_resize_takes_as_long_as_ten_steps_it_is_tried_and_then_let_be(
    algorithm: Algorithm, scaling: Mapping[float, float] | None, as_published: bool
) -> None:
    assert speedup(algorithm, Fluid(scaling=scaling, as_published=as_published), USUAL, resize_s=10.0) > 0.9


def test_a_synchronous_algorithm_finds_the_same() -> None:
    plain, fluid = (
        run(SuccessiveHalving(27, 1, 27, 3), allocator, USUAL) for allocator in (FirstComeFirstServed(8), Fluid())
    )
    assert winner(plain.view) == winner(fluid.view)


def test_how_long_a_trial_takes_is_told_from_its_configuration() -> None:
    """The first of many trials teach it; then the long ones begin before the short ones."""
    session = run(Group([10] * 60), Fluid(widest=1, most_packed=1), USUAL, machines=4, workload=ByMomentum())
    trials = session.view.trials.values()
    later = sorted(trials, key=lambda trial: trial.start_s or 0.0)[20:]
    half = len(later) // 2
    early, late = ([10 ** trial.config["momentum"] for trial in part] for part in (later[:half], later[half:]))
    assert min(early) > max(late) * 0.8
    assert speedup(Group([10] * 60), Fluid(widest=1, most_packed=1), USUAL, workload=ByMomentum()) > 1.0


def test_a_machine_goes_another_comes_and_widths_are_filled_again() -> None:
    faults = [Fault(10.0, "lose", "n0"), Fault(14.0, "lose", "n1", notice_s=1.5)]
    session = run(Group([60, 60]), Fluid(), USUAL, machines=4, boot_s=5.0, faults=faults, checkpoint_every_s=1.0)
    assert session.view.status == "succeeded" and len(session.view.ready_s) == 6
    came_s, step_s = max(session.view.ready_s), 1.0
    both = [count["t"] for at_s, count in devices_over_time(session) if came_s + step_s <= at_s < came_s + 10.0]
    assert both and set(both) == {4}, "what came is used as soon as the next step is done"
    assert all(trial.iteration == 60 for trial in session.view.trials.values())
    undisturbed = run(Group([60, 60]), Fluid(), USUAL, machines=4)
    assert session.view.at_s < undisturbed.view.at_s + 25.0


def test_who_has_a_device_to_itself_shares_it_once_packing_pays() -> None:
    """The algorithm is asked for eight trials at first, and for others when it is known that more pay."""
    session = run(OneByOne([40] * 30), Fluid(scaling=USUAL), USUAL)
    assert sum(trial.start_s is not None and trial.start_s < 10.0 for trial in session.view.trials.values()) == 16


def test_a_wide_trial_makes_room_for_those_that_wait_where_it_makes_little_of_its_devices() -> None:
    """Three devices are not much faster than one. In the paper widths change only when nobody waits."""
    poor: dict[float, float] = {1: 1, 2: 1.7, 4: 2.4}
    ours, published = (
        run(TwoGroups([20, 80], [5] * 12), Fluid(1, scaling=poor, as_published=published), poor, machines=4)
        for published in (False, True)
    )
    assert starts(ours)["t-00001"] == (3, 1.0) and resizes(ours)[0] == ("t-00001", 1, 1.0)
    assert not resizes(published)
    assert ours.view.at_s < 0.97 * published.view.at_s


def test_trials_that_come_one_by_one_are_packed_or_spread_by_what_found_the_best_so_far() -> None:
    """The best has trained for much of the time: that speaks for fast trials, if spreading costs as little as here."""
    near = {0.5: 0.5, 1: 1, 2: 1.98, 4: 3.9}
    packed, spread = (starts(run(OneByOne([40] * 30), Fluid(scaling=known), known)) for known in (USUAL, near))
    assert sum(share == 0.5 for _, share in packed.values()) > 20
    assert sum(slots == 4 for slots, _ in spread.values()) > 15


def test_trials_that_wait_are_let_in_when_machines_go() -> None:
    """Four trials are spread over eight devices; of these only two are left."""
    faults = [Fault(110.0, "lose", f"n{k}") for k in range(6)]
    session = run(Group([50] * 4), Fluid(), USUAL, boot_s=100.0, faults=faults, checkpoint_every_s=1.0)
    waited = [trial for trial in session.view.trials.values() if trial.attempts > 1]
    assert waited and session.view.status == "succeeded"


def test_trials_that_come_one_by_one_go_on_where_a_machine_has_gone() -> None:
    """Of two machines one is left: there is none to try spreading with."""
    faults = [Fault(40.0, "lose", "n1")]
    session = run(OneByOne([20] * 20), Fluid(), FREE, machines=2, boot_s=30.0, faults=faults, checkpoint_every_s=1.0)
    assert session.view.status == "succeeded"


def test_no_device_is_kept_for_a_try_and_none_begins_wide_before_there_is_anything_to_compare_with() -> None:
    session = run(ASHA(81, 1, 81, 3), Fluid(most_packed=1), USUAL, workload=ByMomentum())
    begun = list(starts(session).values())
    assert {slots for slots, _ in begun[:16]} == {1}
    assert any(slots > 1 for _, slots, _ in resizes(session)), "who has steps to compare with is tried"


@pytest.mark.parametrize("lengths", [[10, 20, 30], [10] * 30])
@pytest.mark.parametrize("as_published", [False, True])
def test_a_width_that_the_algorithm_asks_for_is_given(lengths: list[int], as_published: bool) -> None:
    session = run(FixedWidth(lengths), Fluid(scaling=USUAL, as_published=as_published), USUAL)
    assert set(starts(session).values()) == {(2, 1.0)} and not resizes(session)


def test_what_is_learnt_is_the_same_in_every_process() -> None:
    """Sums depend on the order of what is added, and that of a set of names differs from process to process."""
    code = (
        "from tests.allocate.test_fluid import *; from elastune.algorithm import Hyperband\n"
        "session = run(Hyperband(27, 1, 3), Fluid(), USUAL, stragglers=0.3, workload=ByMomentum())\n"
        "print(session.controller._allocation._allocator._paces)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_groups_end_and_no_device_is_oversubscribed(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 9999)))
    machines, devices = rng.randint(1, 4), rng.randint(1, 4)
    lengths = [rng.randint(1, 30) for _ in range(rng.randint(1, 30))]
    kind = rng.choice([Group, OneByOne])
    fluid = Fluid(rng.choice([None, 1, 2]), rng.choice([None, 1, 3]), rng.choice([None, USUAL]), rng.random() < 0.5)
    scaling: Mapping[float, float] = rng.choice([USUAL, TAKING_TURNS, FREE])
    session = run(kind(lengths), fluid, scaling, machines, devices=devices, stragglers=0.2, resize_s=0.1)
    assert session.view.status == "succeeded"


@pytest.mark.parametrize(("name", "value"), [("most_packed", 0), ("widest", 0), ("widest", 1.5)])
def test_limits_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SpecError, match=f"{name}={value}"):
        Fluid(**{name: value})


def test_a_scaling_that_cannot_be_is_refused() -> None:
    with pytest.raises(SpecError, match="width 1"):
        et.Fluid(scaling={0.5: 0.7})
    with pytest.raises(SpecError, match=r"scaling\[1\]=100: must be 1, .* divide all by 100"):
        et.Fluid(scaling={0.5: 70, 1: 100, 2: 190})


def test_code_that_fails_at_a_width_goes_on_with_fewer_devices_and_the_user_is_told() -> None:
    made = Script(Group([30]), allocator=Fluid(), machines=1, devices=2)
    assert [len(slots) for slots in begun(made.at(0.0, ready("n0", devices=2)))] == [2]
    step = made.at(1.0, m.TrialFailed("t-00000", 1, "ValueError: no", ""))
    assert [len(slots) for slots in begun(step)] == [1]
    (said,) = [decision.text for decision in step.decisions if isinstance(decision, m.Note)]
    assert "ValueError: no" in said and "widest=1" in said
    step = made.at(2.0, m.TrialFailed("t-00000", 2, "ValueError: no", ""))
    changed = [decision.status for decision in step.decisions if isinstance(decision, m.StatusChanged)]
    assert changed == ["failed"], "now the code itself is at fault"


def begun(step: Step) -> list[tuple[m.Slot, ...]]:
    return [command.slots for command in step.commands if isinstance(command, m.StartTrial)]
