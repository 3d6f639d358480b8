"""A trial has no place although enough devices are free: others move together, and nobody more than that."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from tests.control.scripts import Script, paused, ready, reported
from tests.control.test_scale_down import moved, released, resized
from tests.worlds import Session, World, assert_no_slot_is_shared, assert_sound, world

from elastune import messages as m
from elastune.algorithm import FIFO
from elastune.allocate import Allocator, Target, View
from elastune.cluster.simulated import Fault
from elastune.control.controller import Step
from elastune.control.run import recover
from elastune.messages import Slot

T = [f"t-{number:05d}" for number in range(14)]
A, B, C, D, E, F, G = T[:7]


class Orders(Allocator):
    """From each time on, so many machines, and widths for some trials: 0 is off, all others get one device."""

    def __init__(self, *orders: tuple[float, int, Mapping[str, int]]) -> None:
        self.orders = orders

    def allocate(self, view: View, at_s: float) -> Target:
        machines, widths = [order[1:] for order in self.orders if order[0] <= at_s][-1]
        trials = [*view.widths, *view.waiting]
        return Target(machines, {trial: width for trial in trials if (width := widths.get(trial, 1))})


def over(*trials: str) -> list[m.AnyEvent]:
    return [event for trial in trials for event in (reported(trial, 9, 0.5), paused(trial, 9, keep=False))]


def started(step: Step) -> dict[str, tuple[Slot, ...]]:
    return {command.trial: command.slots for command in step.commands if isinstance(command, m.StartTrial)}


def places(script: Script) -> dict[str, tuple[Slot, ...]]:
    return {trial.id: trial.slots for trial in script.controller.trials.values() if trial.slots}


def script_on(machines: int, devices: int, n: int, *orders: tuple[float, int, Mapping[str, int]]) -> Script:
    script = Script(FIFO(n, R=9), allocator=Orders(*orders), machines=machines, devices=devices)
    script.at(0.0, *(ready(f"n{number}", devices) for number in range(machines)))
    return script


def half_empty(*later: tuple[float, int, Mapping[str, int]]) -> Script:
    """A is on n1 and C on n0, each on the first of two devices; B and D are over, and E and F want two devices."""
    script = script_on(2, 2, 6, (0.0, 2, {E: 2, F: 2}), *later)
    assert not script.at(1.0, *over(B)).commands, "one device is free: it would not be enough"
    return script


def test_a_wide_trial_beside_two_half_empty_machines_gets_its_place_after_one_move() -> None:
    script = half_empty()
    step = script.at(2.0, *over(D))
    assert moved(step) == {A: (Slot("n0", 1),)} and not started(step)
    settled = script.at(4.0, resized(script, A))
    assert started(settled) == {E: (Slot("n1", 0), Slot("n1", 1))} and not moved(settled)


def test_nobody_else_is_displaced_while_a_move_is_under_way() -> None:
    script = half_empty()
    assert moved(script.at(2.0, *over(D))).keys() == {A}
    for at_s in (2.5, 3.0, 3.5):
        assert not script.at(at_s, m.RunResumed()).commands
    assert not script.at(4.0, reported(C, 1, 0.5), m.RunResumed()).commands


@pytest.mark.parametrize(("leaves", "moves"), [(A, C), (C, A)])
def test_who_was_told_to_leave_is_not_displaced(leaves: str, moves: str) -> None:
    script = half_empty((1.5, 2, {leaves: 0, E: 2, F: 2}))
    assert moved(script.at(2.0, *over(D))).keys() == {moves}


def test_where_all_were_told_to_leave_nobody_is_displaced() -> None:
    script = half_empty((1.5, 2, {A: 0, C: 0, E: 2, F: 2}))
    assert not moved(script.at(2.0, *over(D)))


def test_who_was_told_to_move_is_not_displaced() -> None:
    """A shall have both devices of n2, and before it has, G wants two: A has one of them, and will have both."""
    script = script_on(3, 2, 7, (0.0, 3, {G: 0}), (1.5, 3, {A: 2, G: 0}), (2.0, 3, {A: 2, G: 2}))
    script.at(1.0, *over(B, D, F))
    assert moved(script.at(1.5, m.RunResumed())) == {A: (Slot("n2", 0), Slot("n2", 1))}
    assert moved(script.at(2.0, m.RunResumed())) == {C: (Slot("n0", 1),)}
    assert started(script.at(3.0, resized(script, C))) == {G: (Slot("n1", 0), Slot("n1", 1))}


def test_who_is_started_in_the_same_turn_is_not_displaced() -> None:
    script = script_on(2, 2, 6, (0.0, 2, {E: 0, F: 0}), (2.0, 2, {E: 1, F: 2}))
    script.at(1.0, *over(B))
    step = script.at(2.0, *over(D), *over(C))
    assert started(step) == {E: (Slot("n1", 1),), F: (Slot("n0", 0), Slot("n0", 1))} and not moved(step)


def test_when_the_new_place_is_lost_before_the_move_the_trial_stays() -> None:
    script = half_empty()
    script.at(2.0, *over(D))
    lost = script.at(3.0, m.NodeLost("n0", "revoked"))
    assert moved(lost) == {A: (Slot("n1", 0),)}
    assert started(lost) == {C: (Slot("n1", 1),)}, "it was on the machine that is gone"
    assert started(script.at(4.0, ready("n2", 2))) == {E: (Slot("n2", 0), Slot("n2", 1))}


def test_when_a_trial_is_over_before_it_moves_its_place_is_free_too() -> None:
    script = half_empty()
    script.at(2.0, *over(D))
    assert started(script.at(3.0, *over(A))) == {E: (Slot("n1", 0), Slot("n1", 1))}


def test_a_trial_that_shall_grow_gets_the_place_of_its_neighbour() -> None:
    script = script_on(2, 2, 4, (0.0, 2, {}), (2.0, 2, {A: 2}))
    script.at(1.0, *over(C))
    assert moved(script.at(2.0, m.RunResumed())) == {B: (Slot("n0", 0),)}
    assert moved(script.at(3.0, resized(script, B))) == {A: (Slot("n1", 0), Slot("n1", 1))}


def test_who_makes_room_for_one_that_makes_room_moves_first() -> None:
    """The last one wants a machine of four. Where the fewest make room for it is B with two devices, and for B there is
    a place only when another goes.
    """
    script = script_on(3, 4, 11, (0.0, 3, {A: 2, B: 2, T[10]: 0}), (2.0, 3, {B: 2, T[10]: 4}))
    script.at(1.0, *over(A, T[2], T[6]))
    on = {trial: slots[0].node for trial, slots in places(script).items()}
    assert on == {B: "n2"} | dict.fromkeys(T[3:6], "n1") | dict.fromkeys(T[7:10], "n0")
    assert moved(script.at(2.0, m.RunResumed())) == {T[3]: (Slot("n0", 0),)}
    assert moved(script.at(3.0, resized(script, T[3]))) == {B: (Slot("n1", 0), Slot("n1", 1))}
    last = script.at(4.0, resized(script, B))
    assert started(last) == {T[10]: tuple(Slot("n2", device) for device in range(4))} and not moved(last)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_wanted_they_come_to_rest(seed: int) -> None:
    """Trials of many widths come and go; after each that goes, whoever is told to move does, sooner or later."""
    rng = random.Random(seed)
    devices, machines = rng.choice([2, 4, 8]), rng.randint(2, 6)
    possible = [1, 1, 2, *range(3, devices), devices, 2 * devices]
    widths = {f"t-{number:05d}": rng.choice(possible) for number in range(40)}
    script = script_on(machines, devices, 40, (0.0, machines, widths))
    while not script.controller.done:
        script.at(script.records[-1].at_s + 1.0, *over(rng.choice(list(places(script)))))
        for rounds in count():
            going = [trial.id for trial in script.controller.trials.values() if trial.next_slots]
            if not going:
                break
            assert rounds < 10, "they move on and on"
            arrived = rng.sample(going, rng.randint(1, len(going)))
            script.at(script.records[-1].at_s, *(resized(script, trial) for trial in arrived))
    assert_no_slot_is_shared(script.records)
    assert all(trial.status == "completed" and trial.attempt == 1 for trial in script.controller.trials.values())


# ------------------------------------------------------------------------------------------- on the simulated cluster


def fragmented(**options: Any) -> World:
    return world(
        FIFO(6, R=20), allocator=Orders((0.0, 2, {E: 2, F: 2})), machines=2, devices=2, max_retries=0,
        faults=[Fault(2.5, "kill", B), Fault(4.5, "kill", D)], **options,
    )  # fmt: skip


def migrations(session: Session) -> list[str]:
    return [command.trial for command in session.commands if isinstance(command, m.ResizeTrial)]


def test_on_the_simulated_cluster_one_trial_moves_and_loses_nothing() -> None:
    session = fragmented().run()
    assert_sound(session)
    assert migrations(session) == [A]
    resizes = [(r.at_s, e.trial) for r in session.records for e in r.events if isinstance(e, m.TrialResized)]
    starts = {c.trial: (r.at_s, c.slots) for r in session.records for c in r.commands if isinstance(c, m.StartTrial)}
    assert resizes == [(5.0, A)] and starts[E] == (5.0, (Slot("n1", 0), Slot("n1", 1)))
    trial = session.view.trials[A]
    assert trial.attempts == 1 and [report.at_s for report in trial.reports] == [float(k) for k in range(1, 21)]
    assert {session.view.trials[other].iteration for other in (A, C, E, F)} == {20}


def test_the_journal_of_a_run_with_moves_can_be_replayed_and_taken_up_anywhere() -> None:
    place = fragmented(stragglers=0.3)
    session = place.run()
    assert migrations(session)
    controller, turns = recover(session.journal, place.experiment.controller(), None, lambda record: None)
    assert controller.done
    for crash_at in range(1, turns, 3):
        crashed = place.start().turns(crash_at)
        if not crashed.controller.done:
            assert_sound(place.resume(crashed.journal).run())


# --------------------------------------------------------------------------------------------------- fewer machines


def test_from_three_machines_to_two_the_one_with_a_single_wide_trial_goes() -> None:
    """Two devices of each machine are in use: by one trial on n1, by two on the others."""
    script = script_on(3, 4, 10, (0.0, 3, {E: 2, F: 2}), (2.0, 2, {E: 2}))
    script.at(1.0, *over(A, B, F, T[6], T[7]))
    assert {trial: slots[0].node for trial, slots in places(script).items()} == {
        C: "n2", D: "n2", E: "n1", T[8]: "n0", T[9]: "n0",
    }  # fmt: skip
    step = script.at(2.0, m.RunResumed())
    assert moved(step) == {E: (Slot("n2", 0), Slot("n2", 1))}
    assert released(script.at(3.0, resized(script, E))) == ["n1"]


def test_from_three_machines_to_two_one_makes_room_for_the_wide_trial_that_must_leave() -> None:
    """n0 has one trial of two devices, the others have three of one: two moves, where another machine would cost
    three.
    """
    script = script_on(3, 4, 9, (0.0, 3, {T[8]: 2}), (2.0, 2, {T[8]: 2}))
    script.at(1.0, *over(A, E))
    assert moved(script.at(2.0, m.RunResumed())) == {B: (Slot("n1", 0),)}
    assert moved(script.at(3.0, resized(script, B))) == {T[8]: (Slot("n2", 0), Slot("n2", 1))}
    assert released(script.at(4.0, resized(script, T[8]))) == ["n0"]


def test_the_widest_leaves_first_so_that_all_find_a_place() -> None:
    """n0 has trials of one and two devices; two are free on n2 and one on n1."""
    script = script_on(3, 6, 14, (0.0, 3, {T[13]: 2}), (2.0, 2, {T[13]: 2}))
    script.at(1.0, *over(A, B, G))
    assert moved(script.at(2.0, m.RunResumed())) == {T[13]: (Slot("n2", 0), Slot("n2", 1)), T[12]: (Slot("n1", 0),)}
