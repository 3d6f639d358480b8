"""What every allocator must keep to."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.allocate import Allocator, FirstComeFirstServed, Target, View
from elastune.errors import SpecError

ALLOCATORS: dict[str, Callable[[], Allocator]] = {
    "first come, first served": lambda: FirstComeFirstServed(2),
    "first come, first served, with two devices each": lambda: FirstComeFirstServed(2, 2),
    "first come, first served, with a third of a device each": lambda: FirstComeFirstServed(2, Fraction(1, 3)),
}
every_allocator = pytest.mark.parametrize("name", ALLOCATORS)
views = st.builds(
    lambda free, widths, waiting: View(
        free, {f"r{k}": width for k, width in enumerate(widths)}, [f"w{k}" for k in range(waiting)]
    ),
    st.integers(0, 9) | st.integers(0, 36).map(lambda quarters: Fraction(quarters, 4)),
    st.lists(st.integers(1, 4) | st.integers(2, 8).map(lambda k: Fraction(1, k)), max_size=6),
    st.integers(0, 12),
)
few = settings(max_examples=100, deadline=None, derandomize=True)


@every_allocator
@few
@given(st.lists(views, min_size=1, max_size=8))
def test_no_more_is_given_than_there_is_and_only_to_those_who_are_there(name: str, seen: list[View]) -> None:
    allocator = ALLOCATORS[name]()
    for view in seen:
        target = allocator.allocate(view, 0.0)
        assert target.machines >= 0 and all(width > 0 for width in target.widths.values())
        assert set(target.widths) <= {*view.widths, *view.waiting}
        new = sum(width for trial, width in target.widths.items() if trial not in view.widths)
        assert new <= view.free


@every_allocator
@few
@given(st.lists(views, min_size=1, max_size=8))
def test_pickling_after_any_call_changes_nothing(name: str, seen: list[View]) -> None:
    straight, pickled = ALLOCATORS[name](), ALLOCATORS[name]()
    for at_s, view in enumerate(seen):
        assert straight.allocate(view, at_s) == pickled.allocate(view, at_s)
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
