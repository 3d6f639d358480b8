"""Which checkpoint a trial goes on from, and which are dropped."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.scripts import (
    KEEP_ALL,
    Script,
    checkpointed,
    drops,
    failed,
    notes,
    paused,
    ready,
    reported,
    saved,
    starts,
)
from tests.worlds import Scripted, Session, assert_sound, losses, world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, SuccessiveHalving
from elastune.cluster.simulated import Fault
from elastune.control.retention import MOST_REPORTED
from elastune.spec import Retention


def test_a_damaged_checkpoint_is_dropped_and_the_one_before_it_used() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, reported("t-00000", 2, 0.4), checkpointed("t-00000", 2))
    script.at(3.0, m.TrialLost("t-00000", 1, "gone"))
    assert starts(script.at(4.0)) == [("t-00000", 2, 2)]
    step = script.at(5.0, m.CheckpointDamaged("t-00000", 2, saved("t-00000", 2), "the checkpoint is torn"))
    assert drops(step) == ["t-00000/2-1"]
    assert starts(step) == [("t-00000", 3, 1)]
    assert notes(step) == ["trial t-00000: the checkpoint is torn; the checkpoint before it is used"]


def test_when_the_only_checkpoint_is_damaged_the_trial_starts_from_zero() -> None:
    faults = [Fault(4.1, "damage", "t-00000"), Fault(4.2, "kill", "t-00000")]
    session = world(FIFO(1, R=6), faults=faults, checkpoint_every_s=3.5).run()
    begun = [c.iteration for c in session.commands if isinstance(c, m.StartTrial)]
    assert begun == [0, 4, 0]
    assert session.view.status == "succeeded"
    assert_sound(session)


def test_the_last_ones_and_the_best_are_kept_while_a_trial_runs() -> None:
    script = Script(FIFO(1, R=9), retention=Retention(keep_last=2, keep_best=1))
    script.at(0.0, ready("n0"))
    dropped = []
    for iteration, loss in enumerate((0.5, 0.1, 0.6, 0.7, 0.8), start=1):
        step = script.at(iteration, reported("t-00000", iteration, loss), checkpointed("t-00000", iteration))
        dropped += drops(step)
    assert dropped == ["t-00000/1-1", "t-00000/3-1"]
    kept = [checkpoint.iteration for checkpoint in script.controller.trials["t-00000"].checkpoints]
    assert kept == [2, 4, 5]


def test_the_best_is_kept_also_if_it_arrives_after_later_reports() -> None:
    script = Script(FIFO(1, R=9), retention=Retention(keep_last=1, keep_best=1))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.1))
    script.at(2.0, reported("t-00000", 2, 0.5), checkpointed("t-00000", 1))
    script.at(3.0, reported("t-00000", 3, 0.6), checkpointed("t-00000", 2))
    assert drops(script.at(4.0, reported("t-00000", 4, 0.7), checkpointed("t-00000", 3))) == ["t-00000/2-1"]
    kept = [checkpoint.iteration for checkpoint in script.controller.trials["t-00000"].checkpoints]
    assert kept == [1, 3]


def test_the_best_is_kept_also_if_it_is_saved_when_it_is_trained_again() -> None:
    script = Script(FIFO(1, R=9), retention=Retention(keep_last=1, keep_best=1))
    script.at(0.0, ready("n0"))
    for iteration, loss in enumerate((0.5, 0.1, 0.6, 0.7), start=1):
        script.at(iteration, reported("t-00000", iteration, loss))
    script.at(5.0, m.TrialLost("t-00000", 1, "gone"))
    assert starts(script.at(6.0)) == [("t-00000", 2, 0)]
    dropped = []
    for iteration, loss in enumerate((0.5, 0.1, 0.6, 0.7), start=1):
        again = reported("t-00000", iteration, loss, 2), checkpointed("t-00000", iteration, 2)
        dropped += drops(script.at(6.0 + iteration, *again))
    assert dropped == ["t-00000/1-2", "t-00000/3-2"]


def test_a_trial_remembers_few_of_its_losses() -> None:
    script = Script(FIFO(2, R=None), devices=2, retention=Retention(keep_last=1, keep_best=1))
    script.at(0.0, ready("n0", 2))
    for iteration in range(1, MOST_REPORTED + 10):
        script.at(iteration, reported("t-00000", iteration, 0.5), reported("t-00001", iteration, 0.5))
        if iteration % 10 == 0:
            script.at(iteration, checkpointed("t-00000", iteration))
    assert len(script.controller.trials["t-00000"].reported) == 10
    assert len(script.controller.trials["t-00001"].reported) == MOST_REPORTED
    script.at(MOST_REPORTED + 10, m.TrialReturned("t-00001", 1, MOST_REPORTED + 9, None))
    assert not script.controller.trials["t-00001"].reported


def test_a_trial_that_is_over_keeps_nothing_unless_it_is_among_the_best() -> None:
    script = Script(FIFO(3, R=1), devices=3, retention=Retention(keep_last=1, keep_best=1))
    script.at(0.0, ready("n0", 3))
    assert drops(script.at(1.0, reported("t-00000", 1, 0.5), paused("t-00000", 1))) == []
    assert drops(script.at(2.0, reported("t-00001", 1, 0.6), paused("t-00001", 1))) == ["t-00001/1-1"]
    assert drops(script.at(3.0, reported("t-00002", 1, 0.4), paused("t-00002", 1))) == ["t-00000/1-1"]


def test_a_trial_that_fails_while_it_runs_leaves_no_checkpoints_behind() -> None:
    script = Script(FIFO(3, R=9), devices=3, retention=Retention(keep_last=2, keep_best=1))
    script.at(0.0, ready("n0", 3))
    script.at(1.0, reported("t-00002", 1, 0.1))
    for trial in ("t-00000", "t-00001"):
        script.at(1.0, reported(trial, 1, 0.5), checkpointed(trial, 1))
        step = script.at(2.0, reported(trial, 2, "NaN"))
        assert [type(c) for c in step.commands] == [m.StopTrial]
    assert drops(script.at(3.0, reported("t-00000", 3, 0.5), paused("t-00000", 3, keep=False))) == ["t-00000/1-1"]
    assert drops(script.at(3.0, m.NodeLost("n0", "revoked"))) == ["t-00001/1-1"]


def test_one_saved_again_at_the_same_iteration_takes_the_place_of_the_older() -> None:
    script = Script(FIFO(1, R=None))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, failed("t-00000"))
    assert starts(script.at(3.0)) == [("t-00000", 2, 1)]
    assert drops(script.at(4.0, m.TrialReturned("t-00000", 2, 1, saved("t-00000", 1, 2)))) == ["t-00000/1-1"]
    assert script.controller.trials["t-00000"].checkpoints == [saved("t-00000", 1, 2)]


def test_nothing_is_dropped_that_is_asked_to_be_kept() -> None:
    session = world(SuccessiveHalving(8, 1, 7, 2), devices=2, retention=KEEP_ALL, checkpoint_every_s=1.0).run()
    assert not [c for c in session.commands if isinstance(c, m.DropCheckpoint)]


def assert_checkpoints_are_there_when_they_are_needed(session: Session) -> None:
    """No start from a checkpoint that was dropped or never made; no drop of the newest one of a trial that runs."""
    newest: dict[str, m.Checkpoint] = {}
    there: set[str] = set()
    running: dict[str, tuple[m.Slot, ...]] = {}
    for record in session.records:
        for event in record.events:
            with_one = m.TrialCheckpointed | m.TrialResized | m.TrialPaused | m.TrialReturned
            if isinstance(event, with_one) and event.checkpoint:
                there.add(event.checkpoint.path)
                newest[event.trial] = event.checkpoint
            if isinstance(event, m.CheckpointDamaged):
                newest.pop(event.trial, None)
            if isinstance(event, m.TrialPaused | m.TrialReturned | m.TrialFailed | m.TrialLost | m.CheckpointDamaged):
                running.pop(event.trial, None)
            if isinstance(event, m.TrialResized) and event.trial in running:
                running[event.trial] = event.slots
            if isinstance(event, m.NodeLost):
                fallen = [trial for trial, slots in running.items() if any(slot.node == event.node for slot in slots)]
                for trial in fallen:
                    del running[trial]
        for command in record.commands:
            if isinstance(command, m.DropCheckpoint):
                checkpoint = command.checkpoint
                assert checkpoint.path in there, "dropped twice"
                there.remove(checkpoint.path)
                assert not (checkpoint.trial in running and newest.get(checkpoint.trial) == checkpoint)
            elif isinstance(command, m.StartTrial):
                running[command.trial] = command.slots
                if command.checkpoint is not None:
                    assert command.checkpoint.path in there
                    assert command.iteration == command.checkpoint.iteration


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    keep_last=st.integers(1, 3),
    keep_best=st.integers(0, 3),
    every_s=st.sampled_from([1.0, 2.0, 60.0]),
    asha=st.booleans(),
    seed=st.integers(0, 999),
    faults=st.lists(
        st.builds(
            Fault,
            st.floats(0.0, 40.0),
            st.sampled_from(["kill", "damage"]),
            st.sampled_from([f"t-{k:05d}" for k in range(6)]),
        ),
        max_size=8,
    ),
)
def test_retention_never_drops_what_may_still_be_needed(
    keep_last: int, keep_best: int, every_s: float, asha: bool, seed: int, faults: list[Fault]
) -> None:
    algorithm = ASHA(8, 1, 9, 2) if asha else SuccessiveHalving(8, 1, 9, 2)
    session = world(
        algorithm,
        devices=2,
        seed=seed,
        faults=faults,
        checkpoint_every_s=every_s,
        retention=Retention(keep_last, keep_best),
        max_retries=20,
    ).run()
    assert_sound(session)
    assert_checkpoints_are_there_when_they_are_needed(session)
    left = [c for trial in session.controller.trials.values() for c in trial.checkpoints]
    best = {trial.id for trial in sorted(session.controller.trials.values(), key=lambda t: (t.best_loss, t.id))[:3]}
    assert {checkpoint.trial for checkpoint in left} <= best
    assert len({checkpoint.trial for checkpoint in left}) <= keep_best


def test_a_failed_value_does_not_make_a_checkpoint_the_best() -> None:
    workload = Scripted(losses(0.5, math.nan, 0.0), losses(0.6, 0.5, 0.4))
    session = world(FIFO(2, R=3), devices=2, workload=workload, checkpoint_every_s=1.0).run()
    assert session.view.best is not None and session.view.best.id == "t-00001"
