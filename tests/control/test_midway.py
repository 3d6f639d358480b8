"""A trial that leaves in the middle of a step goes on from there, and its run is counted as before."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from tests.control.scripts import (
    Script,
    checkpointed,
    drops,
    ended,
    failed,
    ready,
    reported,
    saved,
    starts,
    statuses,
)

from elastune import messages as m
from elastune.algorithm import FIFO
from elastune.allocate.base import Steps
from elastune.allocate.fifo import FirstComeFirstServed
from elastune.control.controller import Step
from elastune.control.trial_events import FORGIVING


def midway(iteration: int, attempt: int = 1) -> m.Checkpoint:
    plain = saved("t-00000", iteration, attempt)
    return msgspec.structs.replace(plain, path=f"{plain.path}-midway", midway=True)


def begun(step: Step) -> list[m.StartTrial]:
    return [command for command in step.commands if isinstance(command, m.StartTrial)]


class Listens(FirstComeFirstServed):
    """Remembers how long steps took."""

    told: ClassVar[list[float]] = []

    def stepped(self, steps: Steps) -> bool:
        self.told.append(steps.seconds)
        return False


def test_what_is_left_of_a_step_is_not_taken_for_a_whole_one() -> None:
    Listens.told.clear()
    script = Script(FIFO(1, R=9), allocator=Listens())
    script.at(0.0, ready("n0"))
    script.at(10.0, reported("t-00000", 1, 0.5))
    script.at(19.0, m.NodeNotice("n0", 139.0))
    script.at(19.0, m.TrialPaused("t-00000", 1, 1, midway(1)))
    script.at(30.0, m.NodeLost("n0", "taken away"), ready("n1"))
    script.at(31.0, reported("t-00000", 2, 0.4, attempt=2))
    script.at(41.0, reported("t-00000", 3, 0.3, attempt=2))
    assert Listens.told == [10.0, 10.0]


def test_state_between_two_iterations_stands_beside_the_one_before_it() -> None:
    """Which may be the best there is, and is what its loss was measured on."""
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, reported("t-00000", 2, 0.4), checkpointed("t-00000", 2))
    script.at(2.5, m.NodeNotice("n0", 122.5))
    step = script.at(3.0, m.TrialPaused("t-00000", 1, 2, midway(2)))
    assert drops(step) == ["t-00000/1-1"], "the last two are kept"
    step = script.at(9.0, m.NodeLost("n0", "taken away"), ready("n1"))
    (start,) = begun(step)
    assert (start.iteration, start.attempt, start.checkpoint) == (2, 2, midway(2))
    step = script.at(11.0, reported("t-00000", 3, 0.3, attempt=2))
    assert step.decisions == (), "it counts"
    assert script.controller.trials["t-00000"].iteration == 3


def test_damaged_state_between_two_iterations_leads_back_to_the_iteration_before() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, reported("t-00000", 2, 0.4))
    script.at(2.5, m.NodeNotice("n0", 122.5))
    script.at(3.0, m.TrialPaused("t-00000", 1, 2, midway(2)))
    script.at(9.0, m.NodeLost("n0", "taken away"), ready("n1"))
    step = script.at(10.0, m.CheckpointDamaged("t-00000", 2, midway(2), "torn"))
    assert starts(step) == [("t-00000", 3, 1)]


def test_trial_that_leaves_before_its_first_report_goes_on_from_what_it_has_saved() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(2.5, m.NodeNotice("n0", 122.5))
    script.at(3.0, m.TrialPaused("t-00000", 1, 0, midway(0)))
    (start,) = begun(script.at(9.0, m.NodeLost("n0", "taken away"), ready("n1")))
    assert (start.iteration, start.checkpoint) == (0, midway(0))


def test_checkpoint_that_is_complete_only_after_its_trial_has_left_is_dropped() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, m.TrialLost("t-00000", 1, "gone"))
    assert drops(script.at(3.0, checkpointed("t-00000", 2))) == ["t-00000/2-1"]


def part(number: int, attempt: int = 1) -> m.Checkpoint:
    plain = saved("t-00000", 0, attempt)
    return msgspec.structs.replace(plain, path=f"{plain.path}-part-{number}", part=number, midway=True)


def test_of_the_parts_of_one_long_step_the_newest_two_are_kept_and_the_newest_is_gone_on_from() -> None:
    script = Script(FIFO(1, R=1))
    script.at(0.0, ready("n0"))
    dropped = [drops(script.at(i, m.TrialCheckpointed("t-00000", 1, part(i)))) for i in (1, 2, 3)]
    assert dropped == [[], [], [part(1).path]]
    script.at(4.0, m.TrialLost("t-00000", 1, "its worker process died"))
    (start,) = begun(script.at(6.0))
    assert (start.iteration, start.checkpoint) == (0, part(3))
    (again,) = begun(script.at(7.0, m.CheckpointDamaged("t-00000", 2, part(3), "torn")))
    assert again.checkpoint == part(2)


def test_a_part_reads_back_from_the_journal_and_a_whole_checkpoint_is_written_as_before() -> None:
    for checkpoint in (part(3), saved("t-00000", 1, 1)):
        written = msgspec.json.encode(checkpoint)
        assert msgspec.json.decode(written, type=m.Checkpoint) == checkpoint
        assert (b'"part"' in written) == bool(checkpoint.part)


def lost(attempt: int) -> m.TrialLost:
    return m.TrialLost("t-00000", attempt, "its worker process died")


def test_an_epoch_that_was_saved_forgives_the_failures_before_it() -> None:
    script = Script(FIFO(1, R=1), max_retries=1)
    script.at(0.0, ready("n0"))
    for attempt in range(1, 6):
        script.at(10.0 * attempt, m.TrialCheckpointed("t-00000", attempt, part(attempt, attempt)))
        script.at(10.0 * attempt + 1, lost(attempt))
        assert starts(script.at(10.0 * attempt + 2)) == [("t-00000", attempt + 1, 0)]
    assert statuses(script.at(61.0, lost(6))) == [("t-00000", "failed")], "nothing was saved in between"
    again = script.world.experiment.controller()
    for record in script.records:
        again.replay(record)


def test_code_that_saves_the_same_epochs_again_and_again_fails_at_last() -> None:
    script = Script(FIFO(1, R=1), max_retries=1)
    script.at(0.0, ready("n0"))
    for attempt in range(1, FORGIVING + 2):
        script.at(10.0 * attempt, m.TrialCheckpointed("t-00000", attempt, part(attempt, attempt)))
        last = script.at(10.0 * attempt + 1, lost(attempt))
        script.at(10.0 * attempt + 2)
    assert statuses(last) == [("t-00000", "failed")]


def test_once_an_epoch_was_saved_configurations_that_fail_do_not_end_the_run() -> None:
    script = Script(FIFO(50, R=1), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, m.TrialCheckpointed("t-00000", 1, part(1)))
    assert statuses(script.at(2.0, failed("t-00001"))) == [("t-00001", "waiting")], "it is tried again"
    for number in range(2, 8):
        assert ended(script.at(number, failed(f"t-0000{number}", final=True))) is None
