"""What goes wrong in trials: the run goes on where it can, and says why where it cannot."""

from __future__ import annotations

import math

import pytest
from tests.control.scripts import (
    Script,
    checkpointed,
    ended,
    failed,
    notes,
    paused,
    ready,
    reported,
    starts,
    statuses,
    unsaved,
)
from tests.worlds import Scripted, assert_sound, losses, world

from elastune import messages as m
from elastune.algorithm import FIFO, SuccessiveHalving
from elastune.cluster.simulated import Fault
from elastune.record.projection import RunView


def hidden(script: Script) -> list[tuple[int, str]]:
    return [(d.index, d.reason) for d in script.records[-1].decisions if isinstance(d, m.EventHidden)]


def test_a_failing_trial_is_tried_again_with_longer_and_longer_pauses_then_it_fails_alone() -> None:
    script = Script(FIFO(2, R=2), devices=2, max_retries=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5))
    first = script.at(1.0, failed("t-00001", 1))
    assert statuses(first) == [("t-00001", "waiting")] and starts(first) == []
    assert script.controller.wake_s == 2.0
    assert starts(script.at(2.0)) == [("t-00001", 2, 0)]
    script.at(3.0, failed("t-00001", 2))
    assert script.controller.wake_s == 5.0
    assert starts(script.at(5.0)) == [("t-00001", 3, 0)]
    last = script.at(6.0, failed("t-00001", 3, "ValueError: bad"))
    assert statuses(last) == [("t-00001", "failed")]
    assert notes(last) == ["trial t-00001 failed: ValueError: bad"]
    end = script.at(7.0, reported("t-00000", 2, 0.4), paused("t-00000", 2))
    assert ended(end) == ("succeeded", "every trial is done")


def test_a_run_whose_trials_have_all_failed_has_failed_and_says_why_the_last_did() -> None:
    script = Script(FIFO(2, R=9), devices=2, max_retries=0)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5))
    script.at(2.0, failed("t-00001", 1))
    last = script.at(3.0, failed("t-00000", 1, "ValueError: bad"))
    assert ended(last) == ("failed", "all 2 trials failed; the last: t-00000: ValueError: bad")


@pytest.mark.parametrize(("trials", "said"), [(1, "the only trial failed"), (2, "all 2 trials failed; the last")])
def test_a_run_of_few_trials_that_have_all_failed_without_a_report_says_why(trials: int, said: str) -> None:
    script = Script(FIFO(trials))
    script.at(0.0, ready("n0"))
    steps = [script.at(1.0 + number, failed(f"t-0000{number}", error="ValueError: bad")) for number in range(trials)]
    assert ended(steps[-1]) == ("failed", f"{said}: t-0000{trials - 1}: ValueError: bad")


def test_a_new_iteration_forgives_the_failures_before_it() -> None:
    script = Script(FIFO(1, R=9), max_retries=1)
    script.at(0.0, ready("n0"))
    at_s = 1.0
    for attempt in (1, 2, 3):
        script.at(at_s, reported("t-00000", attempt, 0.5, attempt))
        script.at(at_s + 1, failed("t-00000", attempt))
        assert starts(script.at(at_s + 2)) == [("t-00000", attempt + 1, 0)]
        at_s += 3


def test_training_again_what_was_known_forgives_nothing() -> None:
    script = Script(FIFO(1, R=9), max_retries=1)
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5))
    script.at(2.0, failed("t-00000", 1))
    script.at(3.0)
    script.at(4.0, reported("t-00000", 1, 0.5, 2))
    assert statuses(script.at(5.0, failed("t-00000", 2))) == [("t-00000", "failed")]


def test_a_final_failure_is_not_tried_again() -> None:
    script = Script(FIFO(2, R=2), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5))
    assert statuses(script.at(2.0, failed("t-00001", final=True))) == [("t-00001", "failed")]


def test_code_that_never_worked_ends_the_run_after_three_trials() -> None:
    script = Script(FIFO(50, R=2))
    script.at(0.0, ready("n0"))
    assert starts(script.at(1.0, failed("t-00000"))) == [("t-00001", 1, 0)]
    assert starts(script.at(2.0, failed("t-00001"))) == [("t-00002", 1, 0)]
    last = script.at(3.0, failed("t-00002", error="ImportError: no module named torche"))
    found = ended(last)
    assert found is not None and found[0] == "failed"
    assert "first 3 trials failed" in found[1] and "no module named torche" in found[1]


@pytest.mark.parametrize("diverge", [9, 10])
def test_trials_that_diverge_end_the_run_only_after_ten_of_them(diverge: int) -> None:
    workload = Scripted(*[losses(math.nan, 0.0)] * diverge, *[losses(0.5, 0.4)] * 20)
    view = world(FIFO(20, R=2), workload=workload).run().view
    if diverge < 10:
        assert view.status == "succeeded" and view.best is not None
    else:
        assert view.status == "failed" and "first 10 trials failed" in view.reason


def test_a_killed_worker_costs_only_what_was_trained_since_the_checkpoint() -> None:
    session = world(FIFO(1, R=10), faults=[Fault(6.5, "kill", "t-00000")], checkpoint_every_s=3.0).run()
    trial = session.view.trials["t-00000"]
    assert (session.view.status, trial.losses, trial.attempts) == ("succeeded", 1, 2)
    assert starts_of(session.commands, "t-00000") == [0, 6]
    assert_sound(session)


def starts_of(commands: list[m.AnyCommand], trial: str) -> list[int]:
    return [c.iteration for c in commands if isinstance(c, m.StartTrial) and c.trial == trial]


def test_a_machine_that_fails_a_trial_again_and_again_does_not_stop_the_others() -> None:
    faults = [Fault(0.5 + 0.1 * k, "kill", "t-00000") for k in range(200)]
    session = world(FIFO(3, R=4), devices=2, faults=faults, max_retries=2).run()
    assert {t.id: t.status for t in session.view.trials.values()} == {
        "t-00000": "failed",
        "t-00001": "completed",
        "t-00002": "completed",
    }
    assert session.view.trials["t-00000"].reason == "the worker process died"
    assert_sound(session)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_fails_that_trial_and_the_others_go_on(value: float) -> None:
    workload = Scripted(losses(0.5, value, 0.0, 0.0, 0.0), losses(0.6, 0.4, 0.3, 0.2, 0.1))
    session = world(FIFO(2, R=5), devices=2, workload=workload).run()
    view = session.view
    assert view.status == "succeeded"
    assert {t.id: t.status for t in view.trials.values()} == {"t-00000": "failed", "t-00001": "completed"}
    assert view.trials["t-00000"].reason == f"loss={value} at iteration 2: must be a finite number"
    assert view.best is not None and view.best.id == "t-00001"
    assert_sound(session)


def test_a_halving_goes_on_with_those_that_are_left() -> None:
    workload = Scripted(losses(math.nan, 0.0), *[losses(0.5 + k, 0.5) for k in range(3)])
    session = world(SuccessiveHalving(4, 1, 2, 2), devices=4, workload=workload).run()
    assert session.view.status == "succeeded"
    assert sorted(t.id for t in session.view.trials.values() if t.status == "completed") == ["t-00001", "t-00002"]


def test_only_values_that_are_not_finite_is_no_result() -> None:
    session = world(FIFO(2, R=5), workload=Scripted(losses(math.nan, 1.0))).run()
    assert session.view.status == "failed"
    assert "all 2 trials failed; the last: t-00001: loss=nan at iteration 1" in session.view.reason


@pytest.mark.parametrize("until", [1, 3])
def test_a_missing_metric_ends_the_run_and_names_what_was_reported(until: int) -> None:
    reports: list[m.Metrics] = [{"accuracy": 0.5, "losss": 0.1}] * 3
    session = world(FIFO(4, R=until), devices=2, workload=Scripted(reports)).run()
    view: RunView = session.view
    assert view.status == "failed"
    assert view.reason == (
        "trial t-00000 reported no metric 'loss': did you mean 'losss'? it reported: accuracy, losss. "
        "Report it, or set metric to what is reported"
    )
    assert_sound(session)


def test_a_missing_metric_from_a_function_that_returns_ends_the_run_too() -> None:
    session = world(FIFO(4), workload=Scripted([{"accuracy": 0.5}])).run()
    assert session.view.status == "failed" and "no metric 'loss'" in session.view.reason


def test_a_loss_that_is_no_fault_of_the_trial_is_no_failed_try() -> None:
    script = Script(FIFO(1, R=9), max_retries=0)
    script.at(0.0, ready("n0"))
    for attempt in range(1, 6):
        step = script.at(attempt, m.TrialLost("t-00000", attempt, "its driver ended", fault=False))
        assert starts(step) == [("t-00000", attempt + 1, 0)], "at once"
    assert statuses(script.at(9.0, m.TrialLost("t-00000", 6, "its worker process died"))) == [("t-00000", "failed")]


def test_a_trial_that_cannot_save_before_its_machine_is_taken_away_is_not_to_blame() -> None:
    script = Script(FIFO(1, R=9), max_retries=0)
    for number in range(5):
        assert starts(script.at(number, ready(f"n{number}"))) == [("t-00000", number + 1, 0)]
        script.at(number + 0.1, m.NodeNotice(f"n{number}", number + 0.5))
        killed = script.at(number + 0.5, m.TrialLost("t-00000", number + 1, "killed: no report within 0.4 s"))
        assert statuses(killed) == [("t-00000", "waiting")]


def test_while_the_checkpoint_store_fails_nothing_begins_and_nobody_is_to_blame() -> None:
    script = Script(FIFO(9, R=9), devices=2, max_retries=0)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5), reported("t-00001", 1, 0.5))
    first = script.at(2.0, unsaved("t-00000"))
    assert statuses(first) == [("t-00000", "waiting")] and starts(first) == []
    assert notes(first) == ["the store is full. Nothing begins until it can; after 5m the run stops"]
    second = script.at(3.0, unsaved("t-00001"))
    assert (starts(second), notes(second)) == ([], [])
    assert script.controller.wake_s == 13.0
    assert starts(script.at(13.0)) == [("t-00000", 2, 0), ("t-00001", 2, 0)]


def test_when_a_checkpoint_is_saved_all_goes_on_at_once() -> None:
    script = Script(FIFO(3, R=9), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(2.0, unsaved("t-00000"))
    step = script.at(3.0, reported("t-00001", 1, 0.5), checkpointed("t-00001", 1))
    assert notes(step) == ["the checkpoint store works again"] and starts(step) == [("t-00000", 2, 0)]


def test_a_store_that_fails_for_long_stops_the_run_which_can_be_gone_on_with() -> None:
    script = Script(FIFO(2, R=9), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    at_s, attempt = 2.0, 1
    step = script.at(at_s, unsaved("t-00000", attempt))
    while ended(step) is None:
        assert at_s < 320.0
        at_s, attempt = at_s + 10.0, attempt + 1
        assert starts(script.at(at_s)) == [("t-00000", attempt, 1)]
        step = script.at(at_s, unsaved("t-00000", attempt))
        if any(isinstance(command, m.PauseTrial) for command in step.commands):
            step = script.at(at_s, unsaved("t-00001"))
    assert ended(step) == ("interrupted", "the store is full") and at_s == 302.0
    resumed = script.at(400.0, m.RunResumed())
    resumed = script.at(401.0, ready("n1", 2))
    assert starts(resumed) == [("t-00000", attempt + 1, 1), ("t-00001", 2, 0)]


def test_who_cannot_save_when_the_run_is_interrupted_goes_on_from_its_last_checkpoint() -> None:
    script = Script(FIFO(1, R=9), max_retries=0)
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, m.RunInterrupted())
    end = script.at(3.0, unsaved("t-00000"))
    assert ended(end) == ("interrupted", "interrupted by the user") and notes(end) == []
    script.at(9.0, m.RunResumed())
    assert starts(script.at(9.5, ready("n1"))) == [("t-00000", 2, 1)]


def test_who_alone_cannot_save_again_and_again_is_to_blame_after_all() -> None:
    script = Script(FIFO(2, R=9), devices=2, max_retries=2)
    script.at(0.0, ready("n0", 2))
    for attempt in (1, 2, 3):
        step = script.at(attempt, unsaved("t-00000", attempt))
        if attempt < 3:
            step = script.at(attempt + 0.5, reported("t-00001", attempt, 0.5), checkpointed("t-00001", attempt))
            assert starts(step) == [("t-00000", attempt + 1, 0)]
    assert statuses(step) == [("t-00000", "failed")]


def test_a_metric_that_is_a_text_ends_the_run() -> None:
    session = world(FIFO(1, R=3), workload=Scripted([{"loss": "small"}] * 3)).run()
    assert session.view.reason == "trial t-00000 reported loss='small': must be a number"


def test_events_of_an_older_attempt_are_hidden() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5))
    script.at(2.0, m.TrialLost("t-00000", 1, "gone"))
    late = script.at(2.5, reported("t-00000", 2, 0.1, 1))
    assert late.decisions == (m.EventHidden(0, "old attempt"),), "it holds no slots"
    script.at(3.0)
    step = script.at(4.0, reported("t-00000", 2, 0.1, 1), reported("t-00000", 1, 0.5, 2), paused("t-00000", 2, 1))
    assert hidden(script) == [(0, "old attempt"), (1, "retrained"), (2, "old attempt")]
    assert [type(command).__name__ for command in step.commands] == ["DropCheckpoint"], "nobody would ever use it"
    assert script.controller.trials["t-00000"].iteration == 1


def test_what_is_trained_again_is_hidden_from_the_algorithm_and_the_results() -> None:
    session = world(FIFO(1, R=6), faults=[Fault(3.5, "kill", "t-00000")]).run()
    view = session.view
    assert view.retrained == 3
    assert [report.iteration for report in view.trials["t-00000"].reports] == [1, 2, 3, 4, 5, 6]
    assert_sound(session)


def test_a_trainable_without_checkpoints_starts_from_zero_and_the_user_is_told_once() -> None:
    session = world(SuccessiveHalving(8, 1, 7, 2), devices=2, with_checkpoints=False).run()
    view = session.view
    assert view.status == "succeeded"
    starts_at = {c.iteration for c in session.commands if isinstance(c, m.StartTrial)}
    assert starts_at == {0} and view.retrained > 0
    assert [note.text for note in view.notes] == [
        "the trainable gives no checkpoint to report(): a paused trial starts from zero when it goes on"
    ]
    with_them = world(SuccessiveHalving(8, 1, 7, 2), devices=2).run()
    assert with_them.view.best is not None and view.best is not None
    assert (view.best.id, view.best.best_value) == (with_them.view.best.id, with_them.view.best.best_value)
    assert_sound(session)


def test_advice_from_a_worker_is_passed_on_once() -> None:
    script = Script(FIFO(2, R=9), devices=2)
    script.at(0.0, ready("n0", 2))
    assert notes(script.at(1.0, m.TrialWarned("t-00000", 1, "slow"), m.TrialWarned("t-00001", 1, "slow"))) == ["slow"]
