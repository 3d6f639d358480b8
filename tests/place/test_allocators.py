"""What every allocator must keep to."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.allocate import Allocator, FirstComeFirstServed, Fluid, Target, View
from elastune.allocate.base import MachineView, Steps
from elastune.allocate.hypersched import SharedOut, Standing
from elastune.allocate.planned import Planned
from elastune.allocate.stepwise import Stepwise
from elastune.errors import SpecError
from elastune.plan.goal import Goal
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.spec import Limits, Stage, Terms

PROFILE, CLOUD = JobProfile(constant(1.0), Scaling({1: 1, 2: 1.8, 4: 3})), Cloud("m", 2, 1.0, boot=constant(2.0))
ALLOCATORS: dict[str, Callable[[], Allocator]] = {
    "first come, first served": lambda: FirstComeFirstServed(2),
    "first come, first served, with two devices each": lambda: FirstComeFirstServed(2, 2),
    "first come, first served, with a third of a device each": lambda: FirstComeFirstServed(2, Fraction(1, 3)),
    "shared out": lambda: SharedOut(2, 3, 9.0, 0.5, PROFILE.scaling, Standing({"r0": 3.0, "r2": 1.0, "w1": 2.0})),
}


def fluid(**options: Any) -> Fluid:
    made = Fluid(**options)
    made.setup(Terms(Limits(), 9, 1))
    return made


STAGES = (Stage(18, 0, 2), Stage(4, 2, 8), Stage(1, 8, 30))
WITH_MACHINES: dict[str, Callable[[], Allocator]] = {
    **ALLOCATORS,
    "planned": lambda: Planned(STAGES, PROFILE, CLOUD, 9, Goal(40.0)),
    "planned once": lambda: Planned(STAGES, PROFILE, CLOUD, 9, Goal(), replan=False),
    "width by width": lambda: Stepwise(2, 2, 3.0, (1, 2, 4)),
    "fluid": lambda: fluid(),
    "fluid, as published": lambda: fluid(as_published=True, scaling={0.5: 0.7, 1: 1, 4: 3}),
}
"""All of them: some ask for trials before there is a place for them, and the controller lets these wait."""
every_allocator = pytest.mark.parametrize("name", ALLOCATORS)
views = st.builds(
    lambda free, widths, waiting: View(
        free, {f"r{k}": width for k, width in enumerate(widths)}, [f"w{k}" for k in range(waiting)]
    ),
    st.integers(0, 9) | st.integers(0, 36).map(lambda quarters: Fraction(quarters, 4)),
    st.lists(st.integers(1, 4) | st.integers(2, 8).map(lambda k: Fraction(1, k)), max_size=6),
    st.integers(0, 12),
)
moments = st.builds(
    lambda view, stage, billed, steps: (
        View(
            view.free,
            view.widths,
            view.waiting,
            stage=lambda trial: stage,
            machines=lambda pool: [MachineView(from_s, [f"r{k}"]) for k, from_s in enumerate(sorted(billed))],
            awaited=lambda pool: [1.0],
            spent_usd=lambda: sum(billed),
            left=lambda trial: 3 + int(trial[1:]),
            config=lambda trial: {"x": trial},
            idle=lambda: int(view.free),
        ),
        steps,
    ),
    views,
    st.integers(0, 2),
    st.lists(st.floats(-9, 0), max_size=9),
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.1, 3.0)), max_size=5),
)
"""What an allocator sees, and the steps that it was told of before."""
few = settings(max_examples=100, deadline=None, derandomize=True)


@every_allocator
@few
@given(st.lists(views, min_size=1, max_size=8))
def test_no_more_is_given_than_there_is_and_only_to_those_who_are_there(name: str, seen: list[View]) -> None:
    allocator = ALLOCATORS[name]()
    for view in seen:
        target = allocator.allocate(view, 0.0)
        assert min(target.by_pool.values()) >= 0 and all(width > 0 for width in target.widths.values())
        assert set(target.widths) <= {*view.widths, *view.waiting}
        new = sum(width for trial, width in target.widths.items() if trial not in view.widths)
        assert new <= view.free


@pytest.mark.parametrize("name", WITH_MACHINES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(moments, min_size=1, max_size=8))
def test_pickling_after_any_call_changes_nothing(name: str, seen: list[tuple[View, list[tuple[int, float]]]]) -> None:
    straight, pickled = WITH_MACHINES[name](), WITH_MACHINES[name]()
    for at_s, (view, steps) in enumerate(seen):
        for width, seconds in steps:
            for allocator in (straight, pickled):
                allocator.stepped(Steps("r0", width, 1, seconds, first=False))
        pickled = pickle.loads(pickle.dumps(pickled))
        target = straight.allocate(view, at_s)
        assert target == pickled.allocate(view, at_s)
        assert min(target.by_pool.values()) >= 0 and set(target.widths) <= {*view.widths, *view.waiting}
        pickled = pickle.loads(pickle.dumps(pickled))


def test_first_come_is_first_served_with_one_device_each() -> None:
    target = FirstComeFirstServed(3).allocate(View(2, {"a": 1}, ["d", "c", "b"]), 0.0)
    assert target == Target(3, {"a": 1, "d": 1, "c": 1})


def test_every_trial_gets_the_width_that_was_asked_for() -> None:
    view = View(Fraction(5, 2), {"a": 1}, ["d", "c", "b"])
    assert FirstComeFirstServed(1, 2).allocate(view, 0.0).widths == {"a": 1, "d": 2}
    half = Fraction(1, 2)
    assert FirstComeFirstServed(1, half).allocate(view, 0.0).widths == {"a": 1, "d": half, "c": half, "b": half}


def test_no_machine_at_all_is_an_error() -> None:
    with pytest.raises(SpecError, match="machines=0"):
        FirstComeFirstServed(0)
