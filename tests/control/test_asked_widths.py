"""An algorithm of the user's own asks for the devices of a run: it gets them, or is told that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from tests.worlds import Session, assert_sound, world

from elastune import messages as m
from elastune.algorithm import Actions, Algorithm, Ended
from elastune.algorithm.base import AlgorithmEvent
from elastune.allocate import Allocator, FirstComeFirstServed, Target, View
from elastune.errors import SpecError
from elastune.spec import Run, TrialGroup


class Asking(Algorithm):
    """A trial for each of these widths; once it has made a step, it goes on with `later`, if given."""

    def __init__(self, *widths: Any, later: Any = None, steps: int = 3) -> None:
        self.widths, self.later, self.steps = list(widths), later, steps

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        asked, self.widths = self.widths, []
        until = self.steps if self.later is None else 1
        return [(Run(*self._new(), until, final=self.later is None, width=width),) for width in asked]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if not isinstance(event, Ended) or event.iteration > 1 or self.later is None:
            return Actions()
        return Actions(((Run(event.trial, {"lr": 0.1}, self.steps, final=True, width=self.later),),))

    def _new(self) -> tuple[str, m.Config]:
        new = self.new_trial()
        assert new is not None
        return new


class Ones(Allocator):
    """One device for everybody, whatever the algorithm asks for."""

    def allocate(self, view: View, at_s: float) -> Target:
        return Target(1, dict.fromkeys([*view.widths, *view.waiting], 1))


class Growing(Allocator):
    """What is asked for, and one device more when there is nothing else to do."""

    def allocate(self, view: View, at_s: float) -> Target:
        return Target(1, {trial: 2 if trial in view.widths else 1 for trial in [*view.widths, *view.waiting]}, at_s + 1)


def started(session: Session) -> list[tuple[float, str, int]]:
    """When, which trial, and on how many devices."""
    found = ((record.at_s, command) for record in session.records for command in record.commands)
    return [(at_s, c.trial, len(c.slots)) for at_s, c in found if isinstance(c, m.StartTrial)]


def test_first_come_first_served_gives_what_is_asked_for_and_its_own_width_where_nothing_is() -> None:
    allocator = FirstComeFirstServed(1, width=2)
    session = world(Asking(3, None, 1), allocator=allocator, devices=6).run()
    assert started(session) == [(0.0, "t-00000", 3), (0.0, "t-00001", 2), (0.0, "t-00002", 1)]
    assert_sound(session)


def test_nobody_overtakes_a_wide_trial_that_waits_for_its_devices() -> None:
    session = world(Asking(1, 4, 1), devices=4).run()
    assert started(session) == [(0.0, "t-00000", 1), (3.0, "t-00001", 4), (3.75, "t-00002", 1)]
    assert_sound(session)


def test_a_trial_may_be_wider_when_it_goes_on() -> None:
    session = world(Asking(1, 1, later=2), devices=2).run()
    assert [(trial, devices) for _, trial, devices in started(session)] == [
        ("t-00000", 1),
        ("t-00001", 1),
        ("t-00000", 2),
        ("t-00001", 2),
    ]
    assert_sound(session)


@pytest.mark.parametrize("half", [0.5, Fraction(1, 2), "1/2"])
def test_a_part_of_a_device_may_be_asked_for_as_users_write_it(half: object) -> None:
    session = world(Asking(half, half, half), devices=1).run()
    assert [at_s for at_s, _, _ in started(session)] == [0.0, 0.0, 6.0]
    assert {c.share for c in session.commands if isinstance(c, m.StartTrial)} == {0.5}
    assert_sound(session)


def test_a_width_that_no_machine_has_ends_the_run_with_a_reason() -> None:
    session = world(Asking(8), machines=2, devices=2).run()
    assert (session.view.status, session.view.reason) == (
        "failed",
        "trial t-00000 waits for 8 devices that no set of machines here can offer",
    )


@pytest.mark.parametrize("width", [0, -1, 1.5, "wide"])
def test_a_width_that_is_none_is_refused(width: object) -> None:
    with pytest.raises(SpecError, match=f"the width of a run of t-00000={width!r}: must be a whole number of devices"):
        world(Asking(width), devices=4).run()


@pytest.mark.parametrize(("allocator", "asked", "given"), [(Ones(), 4, 1), (Growing(), 1, 2)])
def test_an_allocator_that_gives_or_makes_it_another_width_is_refused(
    allocator: Allocator, asked: int, given: int
) -> None:
    with pytest.raises(SpecError) as error:
        world(Asking(asked), allocator=allocator, devices=4).run()
    assert str(error.value) == (
        f"trial t-00000: the algorithm asks for a width of {asked} (Run.width), and the allocator gives it {given}: "
        "take an allocator that goes by View.width, or ask for none"
    )
