"""Fewer machines are wanted: only what must move moves, and what is empty is given back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.scripts import Script, ended, paused, ready, reported
from tests.control.test_recovery import faults
from tests.worlds import World, assert_sound, world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, SuccessiveHalving
from elastune.allocate import Allocator, Target, View
from elastune.control.answer import Answer
from elastune.control.controller import Step
from elastune.control.fleet import Fleet
from elastune.errors import SpecError
from elastune.spec import Limits, Width


class Tides(Allocator):
    """First come, first served, on as many machines as are wanted from each time on."""

    def __init__(self, *tides: tuple[float, int], width: Width = 1) -> None:
        self.tides, self.width = tides, width

    def allocate(self, view: View, at_s: float) -> Target:
        machines = [wanted for from_s, wanted in self.tides if from_s <= at_s][-1]
        waiting = list(view.waiting)[: view.free // self.width]
        return Target(machines, dict(view.widths) | dict.fromkeys(waiting, self.width))


class Restless(Tides):
    """Wants another number of machines at every turn, and now and then another width for somebody."""

    def __init__(self, most: int, widths: Sequence[Width], seed: int) -> None:
        super().__init__((0.0, most))
        self.most, self.widths, self._rng = most, widths, random.Random(seed)
        self.width = min(widths)

    def allocate(self, view: View, at_s: float) -> Target:
        target = super().allocate(view, at_s)
        widths = dict(target.widths)
        for trial in widths:
            if self._rng.random() < 0.3:
                widths[trial] = self._rng.choice(self.widths)
        return Target(self._rng.randint(1, self.most), widths)


def moved(step: Step) -> dict[str, tuple[m.Slot, ...]]:
    return {command.trial: command.slots for command in step.commands if isinstance(command, m.ResizeTrial)}


def released(step: Step) -> list[str]:
    return [command.node for command in step.commands if isinstance(command, m.ReleaseNode)]


def added(step: Step) -> list[str]:
    return [command.node for command in step.commands if isinstance(command, m.AddNode)]


def resized(script: Script, trial: str) -> m.TrialResized:
    state = script.controller.trials[trial]
    return m.TrialResized(trial, state.attempt, state.next_slots, state.iteration, None)


def left(*trials: str) -> list[m.AnyEvent]:
    """Each has come to the end of its run."""
    return [event for trial in trials for event in (reported(trial, 1, 0.5), paused(trial, 1, keep=False))]


def test_a_scale_down_moves_only_the_trials_of_the_machines_that_go() -> None:
    """Eight machines of four devices; on them 0, 1, 1, 1, 2, 3, 4 and 4 trials: sixteen on half of the devices."""
    script = Script(FIFO(32, R=1), allocator=Tides((0.0, 8), (2.0, 4)), machines=8, devices=4)
    script.at(0.0, *(ready(f"n{k}", 4) for k in range(8)))
    on = {k: [f"t-{4 * (7 - k) + device:05d}" for device in range(4)] for k in range(8)}
    leaving = [trial for k, stay in enumerate((0, 1, 1, 1, 2, 3, 4, 4)) for trial in on[k][stay:]]
    step = script.at(2.0, *left(*leaving))
    expected = {on[1][0]: "n4", on[2][0]: "n4", on[3][0]: "n5"}
    assert released(step) == ["n0"], "nobody is on it"
    assert {trial: slots[0].node for trial, slots in moved(step).items()} == expected
    assert not added(step) and not [c for c in step.commands if isinstance(c, m.PauseTrial | m.StopTrial)]
    assert released(script.at(3.0, resized(script, on[2][0]), resized(script, on[1][0]))) == ["n1", "n2"]
    assert released(script.at(4.0, resized(script, on[3][0]))) == ["n3"]
    assert sorted(script.controller.fleet.nodes) == ["n4", "n5", "n6", "n7"]


def test_of_machines_that_are_used_equally_the_oldest_is_given_up_and_the_newest_kept_again() -> None:
    script = Script(FIFO(9, R=9), allocator=Tides((0.0, 3), (1.0, 1), (2.0, 2)), devices=2)
    script.at(0.0, ready("n1", 2), ready("n0", 2), ready("n2", 2))
    script.at(1.0, m.RunResumed())
    assert [node.id for node in script.controller.fleet.nodes.values() if node.closing] == ["n0", "n1"]
    script.at(2.0, m.RunResumed())
    assert [node.id for node in script.controller.fleet.nodes.values() if node.closing] == ["n1"], "it was ready first"


def test_machines_that_are_used_most_are_kept_again_first_and_of_those_the_last_that_was_chosen() -> None:
    script = Script(FIFO(12, R=9), allocator=Tides((0.0, 4), (1.0, 1), (3.0, 2), (4.0, 3)), devices=2)
    script.at(0.0, *(ready(f"n{k}", 2) for k in range(4)))

    def given_up() -> list[str]:
        return [node.id for node in script.controller.fleet.nodes.values() if node.closing]

    script.at(1.0, m.RunResumed())
    assert given_up() == ["n0", "n1", "n2"], "the oldest first"
    on_n2 = min(script.controller.fleet.nodes["n2"].trials)
    script.at(2.0, reported(on_n2, 9, 0.5), paused(on_n2, 9))
    script.at(3.0, m.RunResumed())
    assert given_up() == ["n0", "n2"], "n2 was chosen last, but only half of it is used"
    script.at(4.0, m.RunResumed())
    assert given_up() == ["n2"]


def test_who_must_move_waits_for_a_place_and_goes_before_those_that_wait_for_a_start() -> None:
    script = Script(FIFO(9, R=9), allocator=Tides((0.0, 2), (1.0, 1)), devices=1)
    script.at(0.0, ready("n0"), ready("n1"))
    full = script.at(1.0, m.TrialWarned("t-00000", 1, "x"), m.NodeNotice("n9", 2.0), m.RunResumed())
    assert not moved(full) and not released(full), "there is no place, and nobody is driven off"
    step = script.at(2.0, reported("t-00000", 9, 0.5), paused("t-00000", 9))
    assert moved(step) == {"t-00001": (m.Slot("n1", 0),)}
    assert not [c for c in step.commands if isinstance(c, m.StartTrial)]
    assert released(script.at(3.0, resized(script, "t-00001"))) == ["n0"]


def test_machines_that_still_boot_are_given_up_first_and_at_once() -> None:
    script = Script(FIFO(9, R=9), allocator=Tides((0.0, 4), (1.0, 2), (2.0, 1)))
    script.at(0.0, ready("n3"))
    assert released(script.at(1.0, m.RunResumed())) == ["n2", "n1"]
    assert released(script.at(2.0, m.RunResumed())) == ["n0"], "the one with a trial on it stays"


def test_machines_that_were_to_be_given_up_are_kept_before_new_ones_are_asked_for() -> None:
    script = Script(FIFO(9, R=9), allocator=Tides((0.0, 2), (1.0, 1), (2.0, 3)), devices=2)
    script.at(0.0, ready("n0", 2), ready("n1", 2))
    script.at(1.0, reported("t-00003", 9, 0.5), paused("t-00003", 9))
    assert script.controller.fleet.nodes["n0"].closing
    step = script.at(2.0, m.RunResumed())
    assert added(step) == ["n2"] and not released(step)
    assert [c.slots for c in step.commands if isinstance(c, m.StartTrial)] == [(m.Slot("n0", 1),)]


def test_a_machine_that_is_given_up_and_then_taken_away_is_treated_like_any_other() -> None:
    script = Script(FIFO(9, R=9), allocator=Tides((0.0, 2), (1.0, 1)))
    script.at(0.0, ready("n0"), ready("n1"))
    script.at(1.0, m.RunResumed())
    notice = script.at(2.0, m.NodeNotice("n0", 5.0))
    assert notice.commands == (m.PauseTrial(notice.commands[0].id, "t-00001", 1, 3.0),)
    assert released(script.at(3.0, reported("t-00001", 1, 0.5), paused("t-00001", 1))) == ["n0"]


def test_a_machine_lost_while_its_trial_moves_off_costs_that_trial_only() -> None:
    script = Script(FIFO(3, R=9), allocator=Tides((0.0, 2), (1.0, 1)), devices=2)
    script.at(0.0, ready("n0", 2), ready("n1", 2))
    step = script.at(1.0, reported("t-00001", 9, 0.5), paused("t-00001", 9))
    assert moved(step) == {"t-00002": (m.Slot("n1", 1),)}
    lost = script.at(2.0, m.NodeLost("n0", "revoked"))
    assert [(c.trial, c.slots) for c in lost.commands if isinstance(c, m.StartTrial)] == [
        ("t-00002", (m.Slot("n1", 1),))
    ]


def test_trials_that_share_devices_move_too() -> None:
    half = Fraction(1, 2)
    script = Script(FIFO(6, R=9), allocator=Tides((0.0, 2), (1.0, 1), width=half), devices=2)
    script.at(0.0, ready("n0", 2), ready("n1", 2))
    step = script.at(
        1.0, reported("t-00000", 9, 0.5), paused("t-00000", 9), reported("t-00002", 9, 0.5), paused("t-00002", 9)
    )
    assert moved(step) == {"t-00004": (m.Slot("n1", 0, 0),), "t-00005": (m.Slot("n1", 1, 0),)}
    script.at(2.0, resized(script, "t-00004"))
    assert released(script.at(3.0, resized(script, "t-00005"))) == ["n0"]


def test_an_allocator_that_wants_no_machine_for_what_waits_ends_the_run_with_a_message() -> None:
    script = Script(FIFO(1, R=1), allocator=Tides((0.0, 0)))
    assert ended(script.first) == (
        "failed", "trial t-00000 waits, nothing else runs, and the allocator gives it no devices",
    )  # fmt: skip


@pytest.mark.parametrize("machines", [-1, 1.5, None])
def test_a_number_of_machines_that_cannot_be_is_named(machines: int) -> None:
    with pytest.raises(SpecError, match=f"the allocator's machines={machines}"):
        Script(FIFO(1, R=1), allocator=Tides((0.0, machines)))


@st.composite
def restless_worlds(draw: st.DrawFn) -> World:
    most, devices = draw(st.integers(2, 5)), draw(st.sampled_from([1, 2, 4]))
    widths: list[Width] = draw(
        st.sampled_from([[1], [1, devices], [Fraction(1, 2), 1], [Fraction(1, 3), 1, 2 * devices]])
    )
    n = draw(st.integers(1, 12))
    return world(
        draw(st.sampled_from([FIFO(n, R=6), ASHA(n, 1, 9, 3), SuccessiveHalving(n, 1, 9, 2)])),
        allocator=Restless(most, widths, draw(st.integers(0, 99))),
        machines=most,
        devices=devices,
        boot_s=draw(st.sampled_from([0.0, 2.5])),
        stragglers=draw(st.sampled_from([0.0, 0.3])),
        checkpoint_every_s=draw(st.sampled_from([0.0, 3.0, 60.0])),
        faults=draw(faults),
        max_retries=20,
        seed=draw(st.integers(0, 99)),
    )


def assert_only_those_on_machines_that_go_are_moved(records: Sequence[m.Record]) -> None:
    """With one width for all, a trial is told to move only from a machine that is then given back, lost or kept."""
    at: dict[str, tuple[m.Slot, ...]] = {}
    for record in records:
        for event in record.events:
            if isinstance(event, m.TrialResized):
                at[event.trial] = event.slots
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                at[command.trial] = command.slots
            elif isinstance(command, m.ResizeTrial) and command.slots != at[command.trial]:
                assert {slot.node for slot in command.slots}.isdisjoint(slot.node for slot in at[command.trial])


@settings(max_examples=120, deadline=None)
@given(restless_worlds(), st.integers(1, 40))
def test_however_the_number_of_machines_changes_nothing_is_shared_lost_or_counted_twice(
    place: World, crash_at: int
) -> None:
    session = place.run()
    assert_sound(session)
    allocator = place.experiment.allocator
    if isinstance(allocator, Restless) and allocator.widths == [1]:
        assert_only_those_on_machines_that_go_are_moved(session.records)
    crashed = place.start().turns(crash_at)
    if not crashed.controller.done:
        assert_sound(place.resume(crashed.journal).run())


def test_of_idle_machines_the_oldest_goes_first_because_its_minimum_is_paid_and_of_those_that_boot_the_newest() -> None:
    answer = Answer()
    fleet = Fleet(Limits(), answer)
    for at_s in (0.0, 10.0, 20.0, 30.0):
        answer.begin(at_s)
        fleet.hold({0: len(fleet.nodes) + 1}, {})
    for node, from_s in (("n0", 0.0), ("n1", 10.0)):
        fleet.ready(ready(node, 1, from_s))
    pool = fleet.pools[0]
    assert pool.awaited() == [20.0, 30.0]
    answer.begin(40.0)
    for wanted in (3, 2, 1, 0):
        pool.give_up(pool.surplus(wanted), {}, {})
        fleet.hold({0: wanted}, {})
    assert [c.node for c in answer.commands if isinstance(c, m.ReleaseNode)] == ["n3", "n2", "n0", "n1"]
