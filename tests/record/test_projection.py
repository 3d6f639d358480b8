from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.cost import MachineUse
from elastune.errors import StorageError
from elastune.messages import (
    AnyCommand,
    AnyDecision,
    AnyEvent,
    Checkpoint,
    CheckpointDamaged,
    DropCheckpoint,
    EventHidden,
    NodeLost,
    NodeReady,
    Note,
    Record,
    ReleaseNode,
    ResizeTrial,
    RunEnded,
    RunResumed,
    RunStarted,
    Slot,
    StartTrial,
    StatusChanged,
    Suggested,
    TrialCheckpointed,
    TrialFailed,
    TrialLost,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialReturned,
    decode_record,
    encode_record,
)
from elastune.record.projection import Busy, RunView


def started(**changes: Any) -> RunStarted:
    asked: dict[str, Any] = {
        "name": "demo",
        "metric": "loss",
        "mode": "min",
        "seed": 0,
        "deadline_s": None,
        "budget_usd": None,
        "price_usd_per_device_hour": 3.6,
        "started_unix_s": 0.0,
        "experiment": {},
        "versions": {},
    }
    return RunStarted(**(asked | changes))


def start(
    trial: str, *slots: Slot, attempt: int = 1, lineage: int = 0, config: dict[str, Any] | None = None
) -> StartTrial:
    return StartTrial(0, trial, attempt, lineage, config or {"lr": 0.1}, 0, None, None, False, slots)


def record(
    at_s: float,
    *events: AnyEvent,
    decisions: tuple[AnyDecision, ...] = (),
    commands: tuple[AnyCommand, ...] = (),
) -> Record:
    return Record(at_s, events, decisions, commands)


def report(trial: str, iteration: int, loss: float | str, attempt: int = 1) -> TrialReported:
    return TrialReported(trial, attempt, iteration, {"loss": loss})


def saved(trial: str, iteration: int, lineage: int = 0) -> Checkpoint:
    return Checkpoint(trial, lineage, iteration, f"{trial}/{lineage}/{iteration}", "0", 1)


A0, A1, B0 = Slot("a", 0), Slot("a", 1), Slot("b", 0)
BEGIN = record(0.0, started(), NodeReady("a", 2, 0.0, 7.2), NodeReady("b", 1, 0.0, 3.6))


def test_trials_appear_when_suggested_or_started_and_carry_their_status() -> None:
    suggested = (Suggested("t1", {"lr": 1}), Suggested("t2", None), Suggested("t3", {"lr": 3}))
    view = RunView.of([BEGIN, record(1.0, decisions=suggested, commands=(start("t0", A0),))])
    assert {t.id: t.status for t in view.trials.values()} == {"t1": "waiting", "t3": "waiting", "t0": "running"}
    view.feed(record(2.0, decisions=(StatusChanged("t0", "stopped", "too slow"),)))
    assert (view.trials["t0"].status, view.trials["t0"].reason) == ("stopped", "too slow")
    assert view.counts() == {"waiting": 2, "stopped": 1}


def test_the_run_is_over_when_it_says_so_and_goes_on_when_it_is_resumed() -> None:
    view = RunView.of([BEGIN])
    assert view.status == "running"
    view.feed(record(5.0, decisions=(Note("info", "done"), RunEnded("deadline", "time is up"))))
    assert (view.status, view.reason, view.notes) == ("deadline", "time is up", [Note("info", "done")])
    view.feed(record(9.0, RunResumed()))
    assert (view.status, view.reason) == ("running", "")


def test_of_a_journal_without_a_start_it_is_said_that_the_run_may_not_have_begun_yet() -> None:
    with pytest.raises(StorageError, match="no RunStarted event: the run has not begun yet"):
        _ = RunView.of([]).started


@pytest.mark.parametrize(("mode", "best"), [("min", (0.2, 2)), ("max", (0.7, 1))])
def test_the_best_is_the_first_best_finite_value_by_mode(mode: str, best: tuple[float, int]) -> None:
    view = RunView.of([record(0.0, started(mode=mode)), record(0.0, commands=(start("t", A0),))])
    losses: list[float | str] = [0.7, 0.2, "NaN", "-Infinity", "Infinity", 0.2, 0.7]
    for iteration, loss in enumerate(losses, start=1):
        view.feed(record(float(iteration), report("t", iteration, loss)))
    trial = view.trials["t"]
    assert (trial.best_value, trial.best_iteration) == best
    assert trial.value == 0.7 and trial.iteration == 7 and len(trial.reports) == 7


def test_a_report_without_the_metric_counts_as_progress_only() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),))])
    view.feed(record(2.0, TrialReported("t", 1, 4, {"other": 1.0}), TrialReported("t", 1, 5, {"loss": "high"})))
    assert view.trials["t"].iteration == 5 and view.trials["t"].value is None and view.best is None


def test_best_so_far_has_one_point_per_improvement_with_its_cost() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0), start("u", A1)))])
    losses = [("t", 0.5), ("u", 0.6), ("u", 0.4), ("t", 0.4), ("t", 0.3)]
    for second, (trial, loss) in enumerate(losses, start=10):
        view.feed(record(float(second), report(trial, second, loss)))
    assert [(p.at_s, p.value, p.trial) for p in view.best_so_far] == [(10, 0.5, "t"), (12, 0.4, "u"), (14, 0.3, "t")]
    assert [p.cost_usd for p in view.best_so_far] == pytest.approx([0.030, 0.036, 0.042])
    assert view.best is view.trials["t"]


def test_the_best_keeps_the_configuration_it_was_reached_with() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0, config={"lr": 1}),))])
    view.feed(record(2.0, report("t", 1, 0.1), commands=(start("t", A0, attempt=2, lineage=1, config={"lr": 2}),)))
    view.feed(record(3.0, report("t", 2, 0.5, attempt=2)))
    assert (view.trials["t"].config, view.trials["t"].best_config) == ({"lr": 2}, {"lr": 1})


@pytest.mark.parametrize("saved_first", [True, False])
def test_the_checkpoint_of_the_best_is_known_whether_saved_before_or_after_the_report(saved_first: bool) -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),))])
    events: list[AnyEvent] = [report("t", 3, 0.1), TrialCheckpointed("t", 1, saved("t", 3))]
    view.feed(record(2.0, *(reversed(events) if saved_first else events)))
    view.feed(record(3.0, report("t", 4, 0.2), TrialPaused("t", 1, 4, saved("t", 4))))
    trial = view.trials["t"]
    assert (trial.best_checkpoint, trial.last_checkpoint) == (saved("t", 3), saved("t", 4))


def test_a_checkpoint_in_the_middle_of_the_next_step_is_not_that_of_the_best() -> None:
    midway = msgspec.structs.replace(saved("t", 3), path="t/0-00000003-1-midway", midway=True)
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),))])
    view.feed(record(2.0, report("t", 3, 0.1), TrialCheckpointed("t", 1, saved("t", 3))))
    view.feed(record(3.0, TrialPaused("t", 1, 3, midway)))
    trial = view.trials["t"]
    assert (trial.best_checkpoint, trial.last_checkpoint) == (saved("t", 3), midway)


def test_a_checkpoint_of_another_lineage_is_not_that_of_the_best() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),)), record(2.0, report("t", 3, 0.1))])
    view.feed(record(3.0, commands=(start("t", A0, attempt=2, lineage=1),)))
    view.feed(record(4.0, report("t", 3, 0.9, 2), TrialCheckpointed("t", 2, saved("t", 3, lineage=1))))
    assert view.trials["t"].best_checkpoint is None and view.trials["t"].last_checkpoint == saved("t", 3, lineage=1)


def test_a_trial_that_takes_over_stands_where_the_other_stood() -> None:
    """Until it saves one of its own, its last checkpoint is that of the other, and goes with it."""
    begin = [BEGIN, record(1.0, commands=(start("t", A0), start("u", B0)))]
    begin.append(record(2.0, report("t", 3, 0.1), TrialPaused("t", 1, 3, saved("t", 3))))
    begin.append(record(2.0, report("u", 5, 0.9), TrialPaused("u", 1, 5, saved("u", 5))))
    taken = msgspec.structs.replace(
        start("u", B0, attempt=2, lineage=1, config={"lr": 2}), iteration=3, checkpoint=saved("t", 3)
    )
    begin.append(record(2.0, commands=(taken,)))
    trial = RunView.of(begin).trials["u"]
    assert (trial.iteration, trial.last_checkpoint, trial.best_checkpoint) == (3, saved("t", 3), saved("u", 5))
    assert (trial.best_value, trial.best_config, trial.config) == (0.9, {"lr": 0.1}, {"lr": 2})
    dropped = RunView.of([*begin, record(3.0, commands=(DropCheckpoint(0, saved("t", 3)),))])
    assert [dropped.trials[name].last_checkpoint for name in "tu"] == [None, None]
    better = RunView.of([*begin, record(3.0, report("u", 4, 0.05, attempt=2))])
    assert better.best is better.trials["u"] and better.best.best_config == {"lr": 2}
    assert better.best.best_checkpoint is None, "that of the other is not where this was reached"


def test_a_dropped_or_damaged_checkpoint_is_not_offered() -> None:
    begin = [BEGIN, record(1.0, commands=(start("t", A0),))]
    begin.append(record(2.0, report("t", 3, 0.1), TrialCheckpointed("t", 1, saved("t", 3))))
    dropped = RunView.of([*begin, record(3.0, commands=(DropCheckpoint(0, saved("t", 3)),))])
    damaged = RunView.of([*begin, record(3.0, CheckpointDamaged("t", 1, saved("t", 3), "short"))])
    for view in (dropped, damaged):
        assert view.trials["t"].best_checkpoint is None and view.trials["t"].last_checkpoint is None


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (TrialPaused("t", 1, 1, None), "left"),
        (TrialReturned("t", 1, 1, None), "left"),
        (TrialFailed("t", 1, "ValueError", ""), "failed"),
        (TrialLost("t", 1, "gone"), "lost"),
        (CheckpointDamaged("t", 1, saved("t", 0), "short"), "lost"),
    ],
)
def test_a_trial_is_on_its_devices_from_the_command_until_its_attempt_ends(event: AnyEvent, end: str) -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0, B0),))])
    view.feed(record(4.0))
    assert {(b.slot, b.from_s, b.to_s, b.end) for b in view.segments()} == {(A0, 1, 4, "open"), (B0, 1, 4, "open")}
    view.feed(record(5.0, event))
    view.feed(record(9.0))
    assert {(b.slot, b.from_s, b.to_s, b.end) for b in view.segments()} == {(A0, 1, 5, end), (B0, 1, 5, end)}
    assert (view.trials["t"].start_s, view.trials["t"].end_s) == (1, 5)


def test_the_end_of_another_attempt_does_not_take_a_trial_off_its_devices() -> None:
    view = RunView.of(
        [BEGIN, record(1.0, commands=(start("t", A0, attempt=2),)), record(5.0, TrialLost("t", 1, "gone"))]
    )
    assert [b.end for b in view.segments()] == ["open"]


def test_a_lost_machine_ends_what_is_on_it_and_its_bill() -> None:
    begin = [BEGIN, record(0.0, commands=(start("t", A0, B0), start("u", A1)))]
    view = RunView.of([*begin, record(10.0, NodeLost("a", "revoked")), record(20.0)])
    assert set(view.segments()) == {
        Busy(A0, "t", 0.0, 10.0, "lost"),
        Busy(B0, "t", 0.0, 10.0, "lost"),
        Busy(A1, "u", 0.0, 10.0, "lost"),
    }
    assert view.machines == [MachineUse("a", 2, 7.2, 0.0, 10.0), MachineUse("b", 1, 3.6, 0.0, 20.0)]
    assert view.cost_usd() == pytest.approx(0.040) and view.cost_usd(5.0) == pytest.approx(0.015)
    assert view.busy_device_s() == pytest.approx(30.0) and view.utilisation() == pytest.approx(0.75)


def test_nobody_trains_while_the_driver_is_down() -> None:
    """Machine a waits for the next driver and is paid for, b went with the old one."""
    begin = [BEGIN, record(1.0, commands=(start("t", A0), start("u", A1), start("v", B0))), record(10.0)]
    lost = TrialLost("t", 1, "its driver ended"), TrialLost("u", 1, "its driver ended")
    again = start("t", A0, attempt=2)
    view = RunView.of([*begin, record(110.0, RunResumed(), NodeLost("b", "gone", 10.0), *lost, commands=(again,))])
    view.feed(record(115.0, TrialLost("t", 2, "killed")))
    assert set(view.segments()) == {
        Busy(A0, "t", 1.0, 10.0, "lost"),
        Busy(A1, "u", 1.0, 10.0, "lost"),
        Busy(B0, "v", 1.0, 10.0, "lost"),
        Busy(A0, "t", 110.0, 115.0, "lost"),
    }
    assert [(use.node, use.to_s) for use in view.machines] == [("a", 115.0), ("b", 10.0)]
    assert view.trials["u"].end_s == 10.0
    assert view.busy_device_s() == pytest.approx(32.0) and view.utilisation() == pytest.approx(32 / 240)


def test_a_machine_that_is_lost_without_its_end_being_known_has_trained_nothing_while_the_driver_was_down() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),)), record(10.0)])
    view.feed(record(110.0, RunResumed(), NodeLost("a", "revoked")))
    assert list(view.segments()) == [Busy(A0, "t", 1.0, 10.0, "lost")] and view.machines[0].to_s == 110.0


def test_a_trial_that_outlives_its_driver_has_trained_all_the_time() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0), start("u", A1))), record(10.0)])
    view.feed(record(110.0, RunResumed(), TrialPaused("u", 1, 5, None)))
    view.feed(record(120.0, report("t", 50, 0.1)))
    assert set(view.segments()) == {Busy(A0, "t", 1.0, 120.0, "open"), Busy(A1, "u", 1.0, 110.0, "left")}


def test_a_released_machine_is_paid_until_it_is_given_back_and_may_come_again() -> None:
    view = RunView.of([BEGIN, record(10.0, commands=(ReleaseNode(1, "a"),)), record(15.0, NodeLost("a", "late"))])
    view.feed(record(30.0, NodeReady("a", 2, 25.0, 7.2)))
    view.feed(record(40.0))
    assert [(use.from_s, use.to_s) for use in view.machines if use.node == "a"] == [(0, 10), (25, 40)]


def test_trials_that_share_a_device_keep_it_busy_once() -> None:
    lanes = start("t", A0), start("u", Slot("a", 0, lane=1))
    view = RunView.of([BEGIN, record(0.0, commands=lanes), record(10.0)])
    assert view.busy_device_s() == pytest.approx(10.0)


def test_a_trial_has_the_share_that_it_was_last_told_once_it_has_moved() -> None:
    half = msgspec.structs.replace(start("t", A0), share=0.5)
    view = RunView.of(
        [BEGIN, record(0.0, commands=(half,)), record(1.0, commands=(ResizeTrial(1, "t", 1, (A0,), 1.0),))]
    )
    assert [busy.share for busy in view.segments()] == [0.5]
    view.feed(record(2.0, TrialResized("t", 1, (A0,), 1, None)))
    assert [(busy.from_s, busy.share) for busy in view.segments()] == [(0.0, 0.5), (2.0, 1.0)]


def test_every_machine_is_billed_at_its_own_price_from_its_first_readiness_on() -> None:
    view = RunView.of([BEGIN, record(50.0, NodeReady("c", 4, 40.0, 360.0)), record(100.0)])
    assert view.cost_usd() == pytest.approx(0.2 + 0.1 + 6.0)
    view.feed(record(110.0, NodeReady("c", 8, 105.0, 720.0)))
    assert view.cost_usd() == pytest.approx(1.1 * 0.3 + 7.0), "who adopts a machine does not pay another price for it"


def test_attempts_failures_and_losses_are_counted() -> None:
    view = RunView.of([BEGIN, record(1.0, commands=(start("t", A0),))])
    view.feed(record(2.0, TrialFailed("t", 1, "ValueError: x", "..."), commands=(start("t", A0, attempt=2),)))
    view.feed(record(3.0, commands=(start("t", A0, attempt=2),)))
    view.feed(record(4.0, TrialLost("t", 2, "gone")))
    trial = view.trials["t"]
    assert (trial.attempts, [f.error for f in trial.failures], trial.losses) == (2, ["ValueError: x"], 1)


# ------------------------------------------------------------------------------------ any journal, even a senseless one

TRIALS, NODES = st.sampled_from(["t", "u", "v"]), st.sampled_from(["a", "b"])
ATTEMPTS, ITERATIONS = st.integers(1, 3), st.integers(0, 9)
SLOTS = st.builds(Slot, NODES, st.integers(0, 1))
CHECKPOINTS = st.builds(saved, TRIALS, ITERATIONS, st.integers(0, 1))
LOSSES = st.one_of(st.floats(-5, 5), st.sampled_from(["NaN", "Infinity", "-Infinity", "text"]))
METRICS = st.dictionaries(st.sampled_from(["loss", "other"]), LOSSES)
MAYBE_SAVED = st.none() | CHECKPOINTS
EVENTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(TrialReported, TRIALS, ATTEMPTS, ITERATIONS, METRICS),
    st.builds(TrialCheckpointed, TRIALS, ATTEMPTS, CHECKPOINTS),
    st.builds(TrialPaused, TRIALS, ATTEMPTS, ITERATIONS, MAYBE_SAVED),
    st.builds(TrialFailed, TRIALS, ATTEMPTS, st.just("no"), st.just("")),
    st.builds(TrialLost, TRIALS, ATTEMPTS, st.just("gone")),
    st.builds(CheckpointDamaged, TRIALS, ATTEMPTS, CHECKPOINTS, st.just("short")),
    st.builds(NodeReady, NODES, st.just(2), st.floats(0, 50), st.floats(0, 10)),
    st.builds(NodeLost, NODES, st.just("gone")),
    st.just(RunResumed()),
)
DECISIONS: st.SearchStrategy[Any] = st.one_of(
    st.builds(Suggested, TRIALS, st.none() | st.just({"lr": 1.0})),
    st.builds(StatusChanged, TRIALS, st.sampled_from(["waiting", "paused", "failed"])),
    st.just(RunEnded("succeeded", "done")),
)
HIDDEN: st.SearchStrategy[dict[int, Any]] = st.dictionaries(
    st.integers(0, 2), st.sampled_from(["retrained", "old attempt"]), max_size=2
)
COMMANDS: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda trial, attempt, slots: start(trial, *slots, attempt=attempt), TRIALS, ATTEMPTS, st.lists(SLOTS)),
    st.builds(ReleaseNode, st.just(0), NODES),
    st.builds(DropCheckpoint, st.just(0), CHECKPOINTS),
)


@st.composite
def journals(draw: st.DrawFn) -> list[Record]:
    records = [record(0.0, started(mode=draw(st.sampled_from(["min", "max"]))), commands=(start("t", A0),))]
    for step in draw(st.lists(st.floats(0, 10), max_size=12)):
        events, decisions, commands = (
            tuple(draw(st.lists(kind, max_size=3))) for kind in (EVENTS, DECISIONS, COMMANDS)
        )
        hidden = tuple(EventHidden(index, reason) for index, reason in draw(HIDDEN).items())
        records.append(Record(records[-1].at_s + step, events, decisions + hidden, commands))
    return records


def read_all(view: RunView) -> list[object]:
    return [view.machines, view.best_so_far, view.counts(), list(view.segments()), view.utilisation(), view.cost_usd()]


@settings(max_examples=60)
@given(journals())
def test_following_a_run_and_reading_it_on_the_way_gives_the_same_view_as_reading_it_at_the_end(
    records: list[Record],
) -> None:
    live = RunView()
    for index, one in enumerate(records):
        live.feed(decode_record(encode_record(one)))
        read_all(live)
        if index == len(records) // 2:
            live = pickle.loads(pickle.dumps(live))
    whole = RunView.of(records)
    assert live == whole and read_all(live) == read_all(whole)


def without_hidden(one: Record) -> Record:
    hidden = {d.index for d in one.decisions if isinstance(d, EventHidden)}
    events = tuple(event for index, event in enumerate(one.events) if index not in hidden)
    return Record(one.at_s, events, tuple(d for d in one.decisions if not isinstance(d, EventHidden)), one.commands)


@settings(max_examples=60)
@given(journals())
def test_hidden_events_count_for_nothing_but_the_number_of_retrained_ones(records: list[Record]) -> None:
    view = RunView.of(records)
    hidden = [d for one in records for d in one.decisions if isinstance(d, EventHidden) and d.index < len(one.events)]
    assert view.retrained == sum(d.reason == "retrained" for d in hidden)
    assert replace(view, retrained=0) == RunView.of(map(without_hidden, records))


@settings(max_examples=60)
@given(journals(), st.lists(st.floats(0, 300), min_size=2))
def test_the_cost_never_falls_with_time_and_ends_at_the_cost_so_far(records: list[Record], times: list[float]) -> None:
    view = RunView.of(records)
    costs = [view.cost_usd(time) for time in sorted(times)]
    assert costs == sorted(costs) and costs[0] >= 0
    assert view.cost_usd(1e9) == view.cost_usd() == view.cost_usd(view.at_s)


@settings(max_examples=60)
@given(journals())
def test_the_best_points_only_improve_and_end_at_the_best_trial(records: list[Record]) -> None:
    view = RunView.of(records)
    values = [point.value for point in view.best_so_far]
    assert values == sorted(set(values), reverse=view.started.mode == "min")
    known = [trial.best_value for trial in view.trials.values() if trial.best_value is not None]
    best = (min if view.started.mode == "min" else max)(known, default=None)
    assert (view.best.best_value if view.best else None) == best == (values[-1] if values else None)
