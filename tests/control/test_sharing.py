"""Several experiments in one run: each gets its part of the devices and its own end, and none harms another."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.test_recovery import examples, ignore, recovered, state
from tests.worlds import KEY, World, assert_sound, had_s, shared_world, winner, world

from elastune import messages as m
from elastune.algorithm import ASHA, BOHB, FIFO, Actions, Algorithm, Hyperband, SuccessiveHalving, Woken
from elastune.algorithm.base import NOTHING, AlgorithmEvent, Ended
from elastune.allocate import Allocator, FirstComeFirstServed, Fluid
from elastune.allocate.base import Target, View
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Curve, Synthetic
from elastune.control.run import recover
from elastune.messages import Config, experiment_of
from elastune.record.projection import RunView
from elastune.simulation import Simulation
from elastune.spec import Retention, TrialGroup

ALONE: dict[str, World] = {
    "halving": world(SuccessiveHalving(9, 1, 9, 3), name="halving", devices=3),
    "by-tpe": world(
        SuccessiveHalving(8, 1, 8, 2), name="by-tpe", metric="accuracy", mode="max", searcher="tpe", seed=5, devices=3
    ),
    "brackets": world(Hyperband(9), name="brackets", metric="error", seed=1, devices=3),
    "random": world(FIFO(6, R=4), name="random", metric="error", seed=2, devices=3),
}
SYNCHRONOUS = list(ALONE.values())


class Broken(Synthetic):
    """Reports no number."""

    def curve(self, config: Config) -> Curve:
        return lambda iteration: {"loss": math.nan}


def only(view: RunView, name: str) -> dict[str, Any]:
    """What was learnt of one experiment, whenever that was."""
    trials = view.only(name).trials.values()
    return {trial.id: (trial.config, [report[1:] for report in trial.reports]) for trial in trials}


def starts(records: Sequence[m.Record]) -> list[str]:
    return [experiment_of(c.trial) for record in records for c in record.commands if isinstance(c, m.StartTrial)]


# ------------------------------------------------------------------------------------------------- each as if it alone


@pytest.mark.parametrize("devices", [1, 4, 30])
def test_each_has_the_winner_and_the_trials_that_it_has_alone(devices: int) -> None:
    session = shared_world(*SYNCHRONOUS, devices=devices).run()
    assert_sound(session)
    for name, place in ALONE.items():
        alone = place.run().view
        assert winner(session.view.only(name)) == winner(alone)
        assert only(session.view, name) == only(alone, name)
    assert session.view.best is None, "what is measured differently cannot be compared"


def test_the_same_algorithm_object_may_be_given_to_several() -> None:
    algorithm = ASHA(10, 1, 9, 3)
    places = [world(algorithm, name=name, devices=2) for name in ("a", "b")]
    session = shared_world(*places, devices=4).run()
    assert only(session.view, "a").keys() == {f"a-{k:05d}" for k in range(10)}
    assert len(only(session.view, "b")) == 10
    assert_sound(session)


def test_one_that_is_done_is_over_and_the_others_go_on() -> None:
    session = shared_world(
        world(FIFO(2, R=2), name="short"), world(FIFO(2, R=20), name="long", mode="max"), devices=4
    ).run()
    ended = [(r.at_s, d) for r in session.records for d in r.decisions if isinstance(d, m.ExperimentEnded)]
    assert [(at_s, d.experiment, d.status) for at_s, d in ended] == [
        (2.0, "short", "succeeded"),
        (20.0, "long", "succeeded"),
    ]
    assert session.view.status == "succeeded"


def test_an_algorithm_is_woken_by_its_own_timers_only() -> None:
    places = [world(Alarm(wake_s), name=f"at-{wake_s}") for wake_s in (3, 7)]
    session = shared_world(*places, devices=2).run()
    woken = [party.algorithm.woken for party in session.controller.parties if isinstance(party.algorithm, Alarm)]
    assert woken == [[3.0], [7.0]]
    assert session.view.at_s == 8.0


class Alarm(Algorithm):
    """One step at once, and another after some time."""

    def __init__(self, wake_s: float) -> None:
        self.wake_s, self.begun = wake_s, 0
        self.woken: list[float] = []

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self.begun:
            return []
        self.begun += 1
        return [self.new_runs(1, 1, final=True)]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Woken):
            self.woken.append(at_s)
            return Actions(groups=(self.new_runs(1, 1, final=True),))
        return Actions(wake_s=self.wake_s) if isinstance(event, Ended) and not self.woken else NOTHING


def test_the_best_checkpoints_of_each_are_kept() -> None:
    """Losses of one and accuracies of the other: by one yardstick all of the best would be of the same experiment."""
    places = (world(FIFO(6, R=3), name="a"), world(FIFO(6, R=3), name="b", metric="accuracy", mode="max"))
    session = shared_world(*places, devices=3, retention=Retention(keep_last=1, keep_best=2)).run()
    kept = [trial.id for trial in session.controller.trials.values() if trial.checkpoints]
    assert sorted(map(experiment_of, kept)) == ["a", "a", "b", "b"]
    for name in ("a", "b"):
        assert winner(session.view.only(name))[0] in kept


# ---------------------------------------------------------------------------------------------------- sharing devices


@pytest.mark.parametrize("priorities", [{}, {"a": 2.0}, {"a": 1.0, "b": 8.0}, {"a": 0.5, "b": 0.25}])
def test_devices_are_shared_by_priority(priorities: Mapping[str, float]) -> None:
    places = [world(FIFO(200, R=5), name=name) for name in ("a", "b")]
    session = shared_world(*places, devices=9, priorities=priorities, deadline_s=50.0).run()
    a, b = (had_s(session.view, name) for name in ("a", "b"))
    assert a + b == pytest.approx(9 * 50.0)
    ours, theirs = priorities.get("a", 1.0), priorities.get("b", 1.0)
    assert a / 50.0 == pytest.approx(9 * ours / (ours + theirs), abs=1.0)


@pytest.mark.parametrize("allocator", [None, Fluid()])
@pytest.mark.parametrize(
    ("devices", "priorities", "parts"),
    [
        (1, {}, {"a": 1 / 2, "b": 1 / 2}),
        (1, {"b": 3.0}, {"a": 1 / 4, "b": 3 / 4}),
        (2, {}, {"a": 2 / 3, "b": 2 / 3, "c": 2 / 3}),
        (2, {"c": 100.0}, {"a": 1 / 2, "b": 1 / 2, "c": 1.0}),
    ],
)
def test_on_fewer_devices_than_there_are_experiments_they_take_turns_by_priority(
    devices: int, priorities: Mapping[str, float], parts: Mapping[str, float], allocator: Allocator | None
) -> None:
    places = [world(ASHA(None, 1, 9, 3), name=name, deadline_s=600.0) for name in parts]
    place = shared_world(*places, devices=devices, priorities=priorities, allocator=allocator, deadline_s=600.0)
    session = place.run()
    had = {name: had_s(session.view, name) / 600.0 for name in parts}
    assert had == pytest.approx(parts, rel=0.25)
    assert state(recover(session.journal, place.experiment.controller(), None, ignore)[0]) == state(session.controller)


@pytest.mark.parametrize("allocator", [None, Fluid()])
def test_time_without_a_driver_is_nobodys_turn(allocator: Allocator | None) -> None:
    places = [world(ASHA(None, 1, 9, 3), name=name) for name in ("a", "b")]
    place = shared_world(*places, devices=1, allocator=allocator, deadline_s=1000.0)
    session = place.start()
    while session.cluster.now_s < 100:
        session.turns(1)
    session = place.resume(session.journal, after_s=600.0)
    assert sum(party.used_s for party in session.controller.parties) == pytest.approx(100.0, abs=2.0)
    a, b = (had_s(session.run().view, name) for name in ("a", "b"))
    assert a + b == pytest.approx(400.0, abs=2.0) and a == pytest.approx(b, rel=0.25)


def test_trials_that_leave_a_device_together_have_had_no_more_than_all_of_it() -> None:
    """Each of many trials of `a` is done after one step, four of them at the same time."""
    places = [world(FIFO(9000, R=R), name=name) for name, R in (("a", 1), ("b", 50))]
    packed = {0.25: 0.7, 0.5: 0.9, 1: 1}
    allocator, simulation = Fluid(scaling=packed), Simulation(scaling=packed)
    place = shared_world(*places, devices=1, allocator=allocator, deadline_s=600.0, simulation=simulation)
    session = place.run()
    assert sum(party.used_s for party in session.controller.parties) == pytest.approx(600.0, abs=5.0)
    a, b = (had_s(session.view, name) for name in "ab")
    assert a == pytest.approx(b, rel=0.25)


def test_of_two_with_long_trials_on_one_device_each_has_it_for_a_while() -> None:
    """First come, first served the second would have it only when the first trial of the other is done."""
    places = [world(FIFO(9, R=5000), name=name) for name in ("a", "b")]
    session = shared_world(*places, devices=1, allocator=Fluid(), deadline_s=900.0).run()
    a, b = (had_s(session.view, name) for name in ("a", "b"))
    assert a + b == pytest.approx(900.0, abs=2.0) and a == pytest.approx(b, rel=0.25)
    assert 4 < len(starts(session.records)) < 20, "what is saved and begun again costs something"


def test_a_trial_that_needs_all_devices_takes_turns_with_others() -> None:
    places = [world(TwoWide(100, R=9), name="wide"), world(FIFO(100, R=9), name="one")]
    session = shared_world(*places, devices=2, allocator=Fluid(widest=1), deadline_s=600.0).run()
    wide, one = (had_s(session.view, name) for name in ("wide", "one"))
    assert wide > 300 and one > 300


class TwoWide(FIFO):
    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        return [tuple(msgspec.structs.replace(run, width=2) for run in group) for group in super().more(free, at_s)]


def test_a_long_line_of_one_does_not_keep_another_from_its_devices() -> None:
    places = (world(SuccessiveHalving(81, 1, 81, 3), name="big"), world(FIFO(20, R=1), name="small"))
    session = shared_world(*places, devices=4).start().turns(1)
    assert sorted(starts(session.records)) == ["big", "big", "small", "small"]


def test_of_those_that_go_on_without_end_no_more_are_begun_than_there_is_a_place_for() -> None:
    places = [world(ASHA(1000, 1, 9), name=name, deadline_s=1e9) for name in ("a", "b")]
    session = shared_world(*places, devices=8).start().turns(1)
    assert len(session.controller.trials) == 8


def test_who_has_nothing_to_do_leaves_the_devices_to_the_others() -> None:
    places = (world(FIFO(1, R=10), name="one"), world(FIFO(7, R=10), name="many"))
    session = shared_world(*places, devices=8, priorities={"one": 100.0}).run()
    assert session.view.at_s == 10.0


class Watching(FirstComeFirstServed):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(1)
        self.told: set[tuple[str, str]] = set()
        self.priorities: dict[str, float] = {}

    def allocate(self, view: View, at_s: float) -> Target:
        self.told |= {(trial, view.experiment(trial)) for trial in [*view.widths, *view.waiting]}
        self.priorities = dict(view.priorities)
        return super().allocate(view, at_s)


def test_an_allocator_is_told_whose_a_trial_is_and_what_priority_that_has() -> None:
    places = [world(FIFO(2, R=2), name=name) for name in ("a-1", "b")]
    session = shared_world(*places, devices=1, allocator=Watching(), priorities={"b": 3.0}).run()
    watching = session.controller._allocation._allocator
    assert isinstance(watching, Watching)
    assert watching.priorities == {"a-1": 1.0, "b": 3.0}
    assert watching.told == {(f"{name}-{k:05d}", name) for name in ("a-1", "b") for k in range(2)}


@pytest.mark.parametrize("allocator", [None, Fluid(), Fluid(scaling={0.5: 0.7, 1: 1, 2: 1.9})])
@pytest.mark.parametrize("devices", [2, 20])
def test_as_many_trials_of_each_are_under_way_as_it_says_however_many_devices_there_are(
    devices: int, allocator: Allocator | None
) -> None:
    algorithms = {"a": ASHA(None, 1, 9, 3, max_concurrent=8), "b": FIFO(50, R=9, max_concurrent=3)}
    places = [world(algorithm, name=name, deadline_s=40.0) for name, algorithm in algorithms.items()]
    session = shared_world(*places, devices=devices, allocator=allocator, deadline_s=40.0).start()
    parties, runs = session.controller.parties, session.controller._runs
    while session.turns(1).cluster.now_s < 40:
        assert not session.controller.done
        assert [runs.under_way(party) for party in parties] == [8, 3]


def test_an_allocator_knows_of_all_that_want_devices_also_while_none_is_free() -> None:
    places = [world(FIFO(9, R=9), name=name) for name in ("a", "b", "c")]
    session = shared_world(*places, devices=1).start().turns(3)
    assert [len(party.waiting) + party.running for party in session.controller.parties] == [1, 1, 1]


# ------------------------------------------------------------------------------------------------------------ failures


def test_one_that_fails_wholly_leaves_the_others_as_they_are() -> None:
    simulation = Simulation(workload={"bad": Broken("loss", "min")})
    places = (world(SuccessiveHalving(27, 1, 27, 3), name="bad"), ALONE["halving"])
    session = shared_world(*places, devices=4, simulation=simulation).run()
    view = session.view
    assert_sound(session)
    assert view.status == "succeeded" and view.only("halving").status == "succeeded"
    assert only(view, "halving") == only(ALONE["halving"].run().view, "halving")
    bad = view.only("bad")
    assert bad.status == "failed" and "10 trials failed, none has reported a finite value" in bad.reason
    assert f"experiment bad is over: {bad.reason}" in [note.text for note in view.notes]
    assert {trial.status for trial in bad.trials.values()} == {"failed", "stopped"}
    (given_up_s,) = [r.at_s for r in session.records if m.ExperimentEnded("bad", "failed", bad.reason) in r.decisions]
    assert given_up_s == 5.0 and "bad" not in starts([r for r in session.records if r.at_s >= given_up_s])


def test_a_metric_that_one_does_not_report_ends_that_one() -> None:
    simulation = Simulation(workload={"bad": Synthetic("accuracy", "min")})
    session = shared_world(
        world(FIFO(3, R=30), name="bad"), world(FIFO(3, R=3), name="good"), devices=2, simulation=simulation
    ).run()
    assert session.view.status == "succeeded"
    assert "reported no metric 'loss': it reported: accuracy" in session.view.only("bad").reason
    assert_sound(session)


def test_one_that_has_come_to_its_end_stands_when_the_others_fail() -> None:
    simulation = Simulation(workload={"bad": Broken("loss", "min", step_s=10.0)})
    session = shared_world(
        world(FIFO(2, R=2), name="good"), world(FIFO(20, R=2), name="bad"), devices=4, simulation=simulation
    ).run()
    assert session.view.status == "succeeded"
    assert [session.view.only(name).status for name in ("good", "bad")] == ["succeeded", "failed"]


def test_the_run_fails_when_all_have_failed() -> None:
    simulation = Simulation(workload={"one": Broken("loss", "min"), "two": Broken("loss", "min", step_s=5.0)})
    session = shared_world(
        *(world(FIFO(20, R=2), name=name) for name in ("one", "two")), devices=4, simulation=simulation
    ).run()
    assert session.view.status == "failed"
    assert session.view.reason.startswith("every experiment failed; one: the first 10 trials failed")
    assert "; two: the first 10 trials failed" in session.view.reason
    assert_sound(session)


def test_a_fault_of_one_trial_is_tried_again_while_the_others_go_on() -> None:
    simulation = Simulation(faults=[Fault(1.5, "kill", "a-00000"), Fault(3.5, "lose", "n0", 1.0)])
    session = shared_world(
        world(FIFO(2, R=6), name="a"), world(FIFO(2, R=6), name="b"), devices=4, simulation=simulation
    ).run()
    assert session.view.status == "succeeded"
    assert {trial.status for trial in session.view.trials.values()} == {"completed"}
    assert_sound(session)


def test_a_deadline_is_that_of_all_but_one_that_is_done_has_succeeded() -> None:
    places = (world(FIFO(1, R=3), name="done"), world(FIFO(9, R=30), name="late"))
    session = shared_world(*places, devices=2, deadline_s=20.5).run()
    assert session.view.status == "deadline"
    assert [session.view.only(name).status for name in ("done", "late")] == ["succeeded", "deadline"]
    assert_sound(session)


# ----------------------------------------------------------------------------------------------------- crash and resume


@st.composite
def shared_worlds(draw: st.DrawFn, names: Sequence[str] = tuple(ALONE)) -> World:
    trials = [f"{name}-{k:05d}" for name in ALONE for k in range(4)]
    kills = st.builds(Fault, st.floats(0, 30), st.sampled_from(["kill", "damage"]), st.sampled_from(trials))
    losses = st.builds(Fault, st.floats(0, 30), st.just("lose"), st.sampled_from(["n0", "n1", "n2"]), st.just(2.0))
    broken = draw(st.sampled_from([{}, {"extra": Broken("loss", "min")}]))
    extra = draw(st.sampled_from([ASHA(10, 1, 9, 3), BOHB(9, eta=3, n=12), FIFO(5, R=6)]))
    return shared_world(
        *(ALONE[name] for name in names),
        world(extra, name="extra", searcher=draw(st.sampled_from(["random", "bohb"]))),
        machines=draw(st.integers(1, 2)),
        devices=draw(st.integers(1, 4)),
        priorities=draw(st.sampled_from([{}, {"halving": 3.0, "extra": 0.5}])),
        max_retries=20,
        checkpoint_every_s=draw(st.sampled_from([1.0, 3.0, 60.0])),
        simulation=Simulation(
            workload=broken,
            boot_s=draw(st.sampled_from([0.0, 2.5])),
            stragglers=draw(st.sampled_from([0.0, 0.3])),
            faults=draw(st.lists(kills | losses, max_size=5)),
        ),
    )


@examples(25)
@given(shared_worlds(), st.lists(st.tuples(st.integers(0, 40), st.floats(0, 50)), max_size=3))
def test_however_often_it_crashed_nothing_is_lost_and_each_has_the_same_winner(
    place: World, crashes: list[tuple[int, float]]
) -> None:
    session = place.start()
    for turns, after_s in crashes:
        counted = {trial.id: list(trial.reports) for trial in session.turns(turns).view.trials.values()}
        if not session.controller.done:
            session = place.resume(session.journal, after_s)
        for trial, reports in counted.items():
            assert session.view.trials[trial].reports[: len(reports)] == reports, "what was counted stands"
    session.run()
    assert_sound(session)
    for name, alone in ALONE.items():
        assert winner(session.view.only(name)) == winner(alone.run().view)


@examples(20)
@given(shared_worlds(names=["halving", "random", "brackets"]), st.integers(0, 60), st.integers(0, 40))
def test_replay_and_snapshot_give_the_same_state_and_the_same_next_step(place: World, before: int, after: int) -> None:
    session = place.start().turns(before)
    again = recover(session.journal, place.experiment.controller(), None, ignore)[0]
    assert state(again) == state(session.controller)
    session.journal.save_snapshot(len(session.records), KEY, pickle.dumps(session.controller))
    session.turns(after)
    again = recovered(session, place)
    assert state(again) == state(session.controller)
    if not session.controller.done:
        turn = session.cluster.poll(session.controller.wake_s)
        assert again.handle(turn) == session.controller.handle(turn)


def test_a_run_of_one_experiment_says_nothing_of_several() -> None:
    session = ALONE["halving"].run()
    assert b"experiments" not in next(iter(session.journal.read()))
    assert not [d for d in session.decisions if isinstance(d, m.ExperimentEnded)]
