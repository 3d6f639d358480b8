"""Trials that change their width while they run."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import Session, World, assert_sound, winner, world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, SuccessiveHalving
from elastune.allocate import Allocator, Target, View
from elastune.cluster.simulated import FAULTS, Fault
from elastune.spec import Width


class Even(Allocator):
    """Few trials get more devices each: all that the machines have, in equal powers of two."""

    def __init__(self, machines: int, devices: int) -> None:
        self.machines, self.devices = machines, machines * devices

    def allocate(self, view: View, at_s: float) -> Target:
        trials = [*view.widths, *view.waiting][: self.devices]
        width = 1
        while trials and 2 * width * len(trials) <= self.devices:
            width *= 2
        return Target(self.machines, dict.fromkeys(trials, width))


class Restless(Allocator):
    """Wants another width for everybody at every turn, and now and then somebody off the machines."""

    widths: tuple[Width, ...] = (1, 1, 2, 3, 4, 8)

    def __init__(self, machines: int, devices: int, seed: int) -> None:
        self.machines, self.devices, self._rng = machines, devices, random.Random(seed)

    def allocate(self, view: View, at_s: float) -> Target:
        running = {trial: self._rng.choice(self.widths) for trial in view.widths if self._rng.random() < 0.9}
        return Target(self.machines, running | {trial: self._new() for trial in view.waiting})

    def _new(self) -> Width:
        return self._rng.randint(1, self.devices)


class RestlessWithParts(Restless):
    width = Fraction(1, 3)
    widths = (Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), 1, 2, 4)

    def _new(self) -> Width:
        return self._rng.choice(self.widths[1:4])


def resizes(session: Session) -> list[m.ResizeTrial]:
    return [command for command in session.commands if isinstance(command, m.ResizeTrial)]


def test_a_trial_takes_the_devices_that_others_leave_and_is_faster() -> None:
    narrow = world(SuccessiveHalving(4, 1, 27, 3), machines=1, devices=4).run()
    elastic = world(SuccessiveHalving(4, 1, 27, 3), allocator=Even(1, 4), machines=1, devices=4).run()
    assert winner(elastic.view) == winner(narrow.view)
    assert elastic.view.at_s < narrow.view.at_s / 2
    assert_sound(elastic)


def test_a_running_trial_is_resized_at_its_next_report_and_goes_on_in_the_same_attempt() -> None:
    session = world(
        FIFO(2, R=20), allocator=Even(1, 2), devices=2, faults=[Fault(5.5, "kill", "t-00001")], max_retries=0
    ).run()
    (wider,) = resizes(session)
    assert wider.trial == "t-00000" and len(wider.slots) == 2
    resized = [(r.at_s, e) for r in session.records for e in r.events if isinstance(e, m.TrialResized)]
    assert [(at_s, e.slots, e.iteration) for at_s, e in resized] == [(6.0, wider.slots, 6)]
    trial = session.view.trials["t-00000"]
    assert trial.attempts == 1 and trial.iteration == 20
    assert [report.at_s for report in trial.reports][5:9] == [6.0, 6.5, 7.0, 7.5]
    assert {len([b for b in trial.segments if b.from_s == from_s]) for from_s in (0.0, 6.0)} == {1, 2}


class Widths(Allocator):
    """The width of every trial by the time."""

    def __init__(self, machines: int, width: Width, later: Width, from_s: float) -> None:
        self.machines, self.width, self.later, self.from_s = machines, width, later, from_s

    def allocate(self, view: View, at_s: float) -> Target:
        width = self.width if at_s < self.from_s else self.later
        return Target(self.machines, dict.fromkeys([*view.widths, *view.waiting], width))


def test_two_trials_that_share_a_device_train_half_as_fast_and_are_told_their_share() -> None:
    session = world(FIFO(3, R=4), allocator=Widths(1, Fraction(1, 2), 1, math.inf), devices=2).run()
    starts = [command for command in session.commands if isinstance(command, m.StartTrial)]
    assert [(s.slots, s.share) for s in starts] == [
        ((m.Slot("n0", 0, 0),), 0.5),
        ((m.Slot("n0", 0, 1),), 0.5),
        ((m.Slot("n0", 1, 0),), 0.5),
    ]
    assert session.view.at_s == 8.0
    assert_sound(session)


@pytest.mark.parametrize(
    ("before", "after", "first", "then"),
    [(Fraction(1, 2), 1, [2.0], [3.0, 4.0, 5.0, 6.0, 7.0]), (2, Fraction(1, 2), [0.5, 1.0, 1.5, 2.0], [3.0, 4.0])],
)
def test_a_trial_keeps_its_device_when_it_ceases_or_begins_to_share_it(
    before: Width, after: Width, first: list[float], then: list[float]
) -> None:
    session = world(
        FIFO(2, R=6), allocator=Widths(1, before, after, 1.6), devices=4, max_retries=0,
        faults=[Fault(1.6, "kill", "t-00001")],
    ).run()  # fmt: skip
    (told,) = resizes(session)
    assert (told.slots, told.share) == ((m.Slot("n0", 0),), min(1.0, float(after)))
    trial = session.view.trials["t-00000"]
    assert trial.attempts == 1 and [report.at_s for report in trial.reports] == first + then
    assert_sound(session)


def test_a_trial_that_was_about_to_move_to_a_machine_that_is_lost_stays() -> None:
    place = world(
        FIFO(2, R=30), allocator=Even(2, 1), machines=2, devices=1, max_retries=0,
        faults=[Fault(5.2, "kill", "t-00001"), Fault(5.7, "lose", "n0")],
    )  # fmt: skip
    session = place.run()
    orders = [command.slots for command in resizes(session) if command.trial == "t-00000"]
    assert orders[:2] == [(m.Slot("n1", 0), m.Slot("n0", 0)), (m.Slot("n1", 0),)]
    assert session.view.trials["t-00000"].attempts == 1
    assert_sound(session)


def fault(kind: Any, number: int, at_s: float) -> Fault:
    return Fault(at_s, kind, f"n{number}" if kind == "lose" else f"t-0000{number}", 1.5 if number % 2 else 0.0)


def test_a_width_that_no_machine_can_offer_ends_the_run_with_a_message() -> None:
    class Greedy(Allocator):
        def allocate(self, view: View, at_s: float) -> Target:
            return Target(1, dict.fromkeys(view.waiting, 8))

    session = world(FIFO(1, R=1), allocator=Greedy(), machines=1, devices=4).run()
    assert session.view.status == "failed"
    assert "t-00000 waits for 8 devices that no set of machines here can offer" in session.view.reason


@st.composite
def restless_worlds(draw: st.DrawFn) -> World:
    machines, devices = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    n, restless = draw(st.integers(1, 8)), draw(st.sampled_from([Restless, RestlessWithParts]))
    algorithm = draw(st.sampled_from([FIFO(n, R=6), ASHA(n, 1, 9, 3), SuccessiveHalving(n, 1, 9, 2)]))
    faults = draw(st.lists(st.builds(fault, st.sampled_from(FAULTS), st.integers(0, 4), st.floats(0, 20)), max_size=4))
    return world(
        algorithm,
        allocator=restless(machines, devices, draw(st.integers(0, 99))),
        machines=machines,
        devices=devices,
        stragglers=draw(st.sampled_from([0.0, 0.3])),
        checkpoint_every_s=draw(st.sampled_from([0.0, 3.0, 60.0])),
        faults=faults,
        seed=draw(st.integers(0, 99)),
    )


@settings(max_examples=120)
@given(restless_worlds(), st.integers(1, 40))
def test_whatever_is_resized_when_nothing_is_shared_lost_or_counted_twice(place: World, crash_at: int) -> None:
    undisturbed = place.run()
    assert_sound(undisturbed)
    crashed = place.start().turns(crash_at)
    if not crashed.controller.done:
        assert_sound(place.resume(crashed.journal).run())
