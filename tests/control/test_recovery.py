"""The journal is the truth: whatever happens to the driver, its replay gives the same state, and the run goes on."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.test_contract import MedianStopping
from tests.control.scripts import Script, ready
from tests.worlds import KEY, Session, World, assert_sound, timed_world, winner, world

from elastune import messages as m
from elastune.algorithm import (
    ASHA,
    BOHB,
    FIFO,
    PBT,
    SEER,
    Algorithm,
    ElasticGrid,
    ElasticHyperband,
    Hyperband,
    HyperSched,
    KFold,
    SingleTrial,
    SuccessiveHalving,
    SyncBOHB,
)
from elastune.cluster.simulated import Fault
from elastune.control.controller import Controller
from elastune.control.run import recover
from elastune.errors import JournalDamaged, JournalTaken
from elastune.messages import Record
from elastune.record.projection import RunView

ALGORITHMS: dict[str, Algorithm] = {
    "FIFO": FIFO(5, R=6),
    "SuccessiveHalving": SuccessiveHalving(9, 1, 10, 3),
    "ASHA": ASHA(10, 1, 9, 3),
    "BOHB": BOHB(9, eta=3, n=12),
    "BOHB with a limit": BOHB(9, eta=3, n=12, max_concurrent=2),
    "Hyperband": Hyperband(9, eta=3),
    "KFold": KFold(4, 7, 2),
    "PBT": PBT(5, 9, 2),
    "SyncBOHB": SyncBOHB(9, eta=3, n=12),
    "MedianStopping": MedianStopping(6, 8),
}
TIMED: dict[str, Algorithm] = {
    "SEER": SEER(eta=2, t_min=3.0),
    "ElasticGrid": ElasticGrid(p_max=3),
    "ElasticHyperband": ElasticHyperband(eta=2, t_min=4.0),
    "HyperSched": HyperSched(1, 9, 3),
    "SingleTrial": SingleTrial(),
}
"""They plan for the machines that there are, and until a deadline."""

faults = st.lists(
    st.one_of(
        st.builds(
            Fault,
            st.floats(0, 30),
            st.just("lose"),
            st.sampled_from([f"n{k}" for k in range(6)]),
            st.sampled_from([0.0, 0.5, 3.0]),
        ),
        st.builds(
            Fault,
            st.floats(0, 30),
            st.sampled_from(["kill", "damage"]),
            st.sampled_from([f"t-{k:05d}" for k in range(8)]),
        ),
    ),
    max_size=8,
)


@st.composite
def worlds(draw: st.DrawFn, algorithms: Iterable[str] = (*ALGORITHMS, *TIMED), searcher: str = "random") -> World:
    name = draw(st.sampled_from(sorted(algorithms)))
    world_like: dict[str, Any] = {
        "searcher": searcher,
        "machines": draw(st.integers(1, 3)),
        "devices": draw(st.integers(1, 3)),
        "seed": draw(st.integers(0, 999)),
        "boot_s": draw(st.sampled_from([0.0, 2.5])),
        "lifetime_s": draw(st.sampled_from([None, None, 40.0])),
        "notice_s": draw(st.sampled_from([0.0, 3.0])),
        "stragglers": draw(st.sampled_from([0.0, 0.3])),
        "checkpoint_every_s": draw(st.sampled_from([1.0, 3.0, 60.0])),
        "with_checkpoints": draw(st.sampled_from([True, True, False])),
        "faults": draw(faults),
        "max_retries": 20,
    }
    if name in TIMED:
        return timed_world(TIMED[name], **timed_limits(draw, world_like["devices"]), **world_like | {"machines": 9})
    return world(ALGORITHMS[name], **world_like)


def timed_limits(draw: st.DrawFn, devices: int) -> dict[str, Any]:
    """The budget pays some machines until the deadline."""
    return {"deadline_s": 40.0, "budget_device_s": 40.0 * devices * draw(st.sampled_from([3, 7]))}


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, derandomize=True)


def state(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Everything an object is made of, so that two of them can be compared. What is found again is only named: two that
    share something are not the same as two that have a copy each.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | type | Enum | msgspec.Struct):
        return value
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, set | frozenset):
        return sorted(value)
    seen = {} if seen is None else seen
    if not isinstance(value, dict) and isinstance(value, Iterable):
        return [state(inner, seen) for inner in value]
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, dict):
        return [(state(key, seen), state(inner, seen)) for key, inner in value.items()]
    names = [
        *getattr(value, "__dict__", ()),
        *(n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())),
    ]
    return type(value).__name__, [(name, state(getattr(value, name, None), seen)) for name in sorted(set(names))]


def ignore(record: Record) -> None: ...


def recovered(session: Session, place: World) -> Controller:
    return recover(session.journal, place.experiment.controller(), KEY, ignore)[0]


@examples(60)
@given(worlds())
def test_any_run_ends_with_every_iteration_once_and_no_device_shared(place: World) -> None:
    assert_sound(place.run())


@examples(40)
@given(worlds(), st.integers(0, 80))
def test_the_replay_gives_the_same_state_and_the_same_next_step(place: World, turns: int) -> None:
    session = place.start().turns(turns)
    again = recovered(session, place)
    assert state(again) == state(session.controller)
    if not session.controller.done:
        turn = session.cluster.poll(session.controller.wake_s)
        assert again.handle(turn) == session.controller.handle(turn)
        assert again.wake_s == session.controller.wake_s


@examples(40)
@given(worlds(), st.integers(0, 60), st.integers(0, 60))
def test_a_snapshot_taken_at_any_turn_gives_the_same_state(place: World, before: int, after: int) -> None:
    session = place.start().turns(before)
    count = len(session.records)
    session.journal.save_snapshot(count, KEY, pickle.dumps(session.controller))
    session.turns(after)
    assert state(recovered(session, place)) == state(session.controller)


def test_a_snapshot_saves_the_replay_of_what_was_before_it() -> None:
    place = world(FIFO(2, R=3))
    session = place.start().turns(3)
    session.journal.save_snapshot(4, KEY, pickle.dumps(session.controller))
    session.turns(1)
    useless = world(SuccessiveHalving(9, 1, 9)).experiment.controller()  # its own replay would not fit
    assert state(recover(session.journal, useless, KEY, ignore)[0]) == state(session.controller)
    with pytest.raises(JournalDamaged):
        recover(session.journal, useless, "another key", ignore)


def test_the_loop_takes_snapshots_of_a_long_run_and_resumes_from_them() -> None:
    place = world(FIFO(30, R=100), devices=1)
    session = place.start().turns(1700)
    found = session.journal.newest_snapshot(KEY)
    assert found is not None and found[0] == 1500
    assert state(recovered(session, place)) == state(session.controller)


def test_a_snapshot_holds_an_algorithm_that_cannot_be_imported() -> None:
    class Local(FIFO):
        """Made inside of a function: pickle alone cannot find it again."""

    place = world(Local(20, R=100), devices=1)
    session = place.start().turns(1100)
    assert session.journal.newest_snapshot(KEY) is not None
    assert state(recovered(session, place)) == state(session.controller)


@examples(50)
@given(worlds(), st.integers(0, 80))
def test_after_a_crash_at_any_turn_nothing_is_lost_or_counted_twice(place: World, turns: int) -> None:
    crashed = place.start().turns(turns)
    if crashed.controller.done:
        return
    counted = {trial.id: list(trial.reports) for trial in crashed.view.trials.values()}
    resumed = place.resume(crashed.journal).run()
    assert_sound(resumed)
    for trial, reports in counted.items():
        assert resumed.view.trials[trial].reports[: len(reports)] == reports, "what was counted stands"


@examples(50)
@given(worlds(), st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1000)), min_size=1, max_size=3))
def test_devices_are_never_busy_for_longer_than_they_are_paid_for(
    place: World, crashes: list[tuple[int, float]]
) -> None:
    session = place.start()
    for turns, after_s in crashes:
        if not session.turns(turns).controller.done:
            session = place.resume(session.journal, after_s)
        assert (session.view.utilisation() or 0.0) <= 1 + 1e-9
    assert_sound(session.run())


@examples(40)
@given(
    worlds(algorithms=["SuccessiveHalving", "Hyperband", "FIFO", "KFold", "PBT", "SyncBOHB"]),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_a_synchronous_algorithm_has_the_same_winner_however_often_it_crashed(place: World, crashes: list[int]) -> None:
    calm = world(place.experiment.algorithm, seed=place.experiment.seed, devices=3).run()
    session = place.start()
    for turns in crashes:
        if not session.turns(turns).controller.done:
            session = place.resume(session.journal)
    session.run()
    assert winner(session.view) == winner(calm.view)
    assert_sound(session)


@examples(5)
@given(worlds(algorithms=["SuccessiveHalving"], searcher="tpe"), st.integers(0, 60))
def test_a_searcher_from_a_library_has_the_same_winner_after_a_crash(place: World, turns: int) -> None:
    calm = world(place.experiment.algorithm, searcher="tpe", seed=place.experiment.seed, devices=3).run()
    session = place.start().turns(turns)
    if not session.controller.done:
        session = place.resume(session.journal).run()
    assert winner(session.view) == winner(calm.view)
    assert_sound(session)


@examples(5)
@given(worlds(algorithms=["ASHA"], searcher="tpe") | worlds(algorithms=["BOHB"], searcher="bohb"), st.integers(0, 60))
def test_a_searcher_that_learns_suggests_after_a_replay_what_it_would_have(place: World, turns: int) -> None:
    session = place.start().turns(turns)
    again = recovered(session, place)
    while not session.controller.done:
        turn = session.cluster.poll(session.controller.wake_s)
        step = session.controller.handle(turn)
        assert again.handle(turn) == step
        session.cluster.submit(step.commands)


def test_a_crash_during_the_pause_at_the_deadline_still_ends_at_the_deadline() -> None:
    place = world(FIFO(2, R=50), deadline_s=5.5, devices=2)
    session = place.start()
    while session.view.at_s < 5.5:
        session.turns(1)
    assert not session.controller.done
    resumed = place.resume(session.journal)
    assert resumed.controller.done and resumed.view.status == "deadline"
    assert_sound(resumed)


def test_time_goes_on_from_where_the_journal_ends() -> None:
    place = world(FIFO(2, R=20), deadline_s=30.0)
    session = place.start().turns(15)
    at_s = session.view.at_s
    resumed = place.resume(session.journal)
    assert resumed.view.at_s == at_s > 10
    assert resumed.run().view.at_s == pytest.approx(30.0, abs=1.0)


def test_faults_of_the_past_do_not_come_again() -> None:
    place = world(FIFO(1, R=10), faults=[Fault(2.5, "kill", "t-00000")], checkpoint_every_s=1.0)
    session = place.start()
    while session.view.at_s < 5:
        session.turns(1)
    resumed = place.resume(session.journal).run()
    assert resumed.view.trials["t-00000"].losses == 1


def test_another_algorithm_cannot_go_on_with_the_journal_and_both_commands_are_named() -> None:
    session = world(SuccessiveHalving(4, 1, 9, 3), devices=4).start().turns(4)
    other = world(SuccessiveHalving(4, 3, 9, 3), devices=4).experiment.controller()
    with pytest.raises(JournalDamaged, match="cannot be replayed") as error:
        recover(session.journal, other, KEY, ignore)
    assert "until_iteration=1," in str(error.value) and "until_iteration=3," in str(error.value)
    assert "Resume with the version" in str(error.value)


def test_other_settings_cannot_go_on_with_the_journal() -> None:
    session = world(FIFO(4, R=9), devices=4, deadline_s=3.0).start().turns(4)
    other = world(FIFO(4, R=9), devices=4, deadline_s=4.0).experiment.controller()
    with pytest.raises(JournalDamaged, match="at 3 s the recorded command is 4 of them, this version makes 0 of them"):
        recover(session.journal, other, KEY, ignore)


def test_two_drivers_cannot_write_to_the_same_run() -> None:
    place = world(FIFO(4, R=9))
    session = place.start().turns(3)
    second = place.resume(session.journal)
    with pytest.raises(JournalTaken):
        session.turns(1)
    second.run()


# ------------------------------------------------------------------------------------- machines that outlive a driver


@examples(60)
@given(worlds(), st.integers(0, 60), st.lists(st.sampled_from(["n77", "n1", "x"]), max_size=2))
def test_a_new_driver_keeps_the_machines_of_the_old_one_and_gives_back_those_it_does_not_know(
    place: World, turns: int, unknown: list[str]
) -> None:
    crashed = place.start().turns(turns)
    if crashed.controller.done:
        return
    held = set(crashed.controller.fleet.nodes)
    strays = set(unknown) - held
    crashed.cluster._nodes.update(dict.fromkeys(strays, True))
    before = len(crashed.records)
    adopted = place.adopt(crashed)
    resumed = adopted.records[before]
    assert {event.node for event in resumed.events if isinstance(event, m.NodeStray)} == strays
    assert strays <= {command.node for command in resumed.commands if isinstance(command, m.ReleaseNode)}
    lost = [event for event in resumed.events if isinstance(event, m.NodeLost)]
    taken = {event.node for event in lost if event.reason == "revoked"}  # by a fault at this very moment
    assert {event.node for event in lost} == taken
    adopted.run()
    assert_sound(adopted)
    assert not adopted.cluster.inventory().nodes, "all machines were given back"
    later = [command for record in adopted.records[before:] for command in record.commands]
    assert strays.isdisjoint(command.node for command in later if isinstance(command, m.AddNode))


def test_a_machine_that_was_ready_and_is_found_again_is_neither_counted_nor_billed_twice() -> None:
    script = Script(FIFO(9, R=9), devices=2, price=1.0)
    script.at(0.0, ready("n0", 2, price=7200.0))
    step = script.at(10.0, ready("n0", 2, billed_from_s=9.0, price=3600.0))
    assert step.commands == () and len(script.controller.trials) == 2
    assert script.controller.fleet.spending.spent_usd(10.0) == RunView.of(script.records).cost_usd() == 20.0


def test_the_workers_of_an_old_driver_are_lost_without_a_fault_of_their_trials() -> None:
    place = world(FIFO(1, R=9), max_retries=0, checkpoint_every_s=1.0)
    session = place.start().turns(3)
    for _ in range(4):
        session = place.adopt(session).turns(1)
    session.run()
    assert session.view.status == "succeeded" and session.view.trials["t-00000"].losses == 4
    assert [command.node for command in session.commands if isinstance(command, m.AddNode)] == ["n0"]
    assert_sound(session)


def test_a_run_that_is_over_gives_back_what_its_driver_could_not_and_stays_over() -> None:
    place = world(FIFO(1, R=3))
    session = place.run()
    before = len(session.records)
    place.adopt(session)
    assert len(session.records) == before, "there is nothing to do"
    session.cluster._nodes["n0"] = True
    again = place.adopt(session)
    (record,) = again.records[before:]
    assert record.events == (m.NodeStray("n0"),)
    assert [type(command) for command in record.commands] == [m.ReleaseNode]
    assert again.controller.done and again.view.status == "succeeded" and not again.cluster.inventory().nodes
