"""A trial that leaves in the middle of a step goes on from there, and its run is counted as before."""

from __future__ import annotations

import msgspec
from tests.control.scripts import Script, checkpointed, drops, ready, reported, saved, starts

from elastune import messages as m
from elastune.algorithm import FIFO
from elastune.control.controller import Step


def midway(iteration: int, attempt: int = 1) -> m.Checkpoint:
    plain = saved("t-00000", iteration, attempt)
    return msgspec.structs.replace(plain, path=f"{plain.path}-midway")


def begun(step: Step) -> list[m.StartTrial]:
    return [command for command in step.commands if isinstance(command, m.StartTrial)]


def test_state_between_two_iterations_takes_the_place_of_the_one_before_it() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5), checkpointed("t-00000", 1))
    script.at(2.0, reported("t-00000", 2, 0.4), checkpointed("t-00000", 2))
    script.at(2.5, m.NodeNotice("n0", 122.5))
    step = script.at(3.0, m.TrialPaused("t-00000", 1, 2, midway(2)))
    assert drops(step) == ["t-00000/2-1"]
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
