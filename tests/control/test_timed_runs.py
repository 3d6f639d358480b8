"""Runs that end by the clock: whoever trains, waits or has failed when its time is over goes the way of all the others
of its stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.control.scripts import Script, ended, failed, notes, paused, ready, reported, saved, starts, statuses
from tests.worlds import Session, assert_sound, timed_world, world

from elastune import messages as m
from elastune.algorithm import SEER, ElasticGrid, SingleTrial, SuccessiveHalving
from elastune.algorithm.timed import Bracket, TimedStage, TimedStages
from elastune.cluster.ray.gangs import LATE_S
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Curve, Workload
from elastune.control.controller import Step
from elastune.spec import Limits, Terms

NOTHING_REPORTED = (
    "a trial has reported nothing by the end of its time, and counts as the worst: give trials more time to begin with "
    "(a larger t_min, where there is one), or report more often"
)


def two_stages(trials: int, keep: int, wide: int = 1) -> TimedStages:
    """Trials of one device until 10 s, the best of them with `wide` devices until 30 s."""
    first = TimedStage(0.0, 10.0, (Bracket(trials, 1, keep),), trials)
    return TimedStages((first, TimedStage(10.0, 30.0, (Bracket(keep, wide),), keep * wide)))


def script(algorithm: TimedStages, **more: Any) -> Script:
    """On machines of one device: as many as the first stage has trials are there."""
    made = Script(algorithm, allocator=algorithm.allocator(1), machines=10, **more)
    made.at(0.0, *(ready(f"n{k}") for k in range(algorithm.plan[0].machines)))
    return made


def over(trial: str, attempt: int = 1) -> m.TrialLost:
    """It was in the middle of a step when its time was over."""
    return m.TrialLost(trial, attempt, "its time is over", fault=False)


def node_of(made: Script, trial: str) -> str:
    (slot,) = made.controller.trials[trial].slots
    return slot.node


def added(step: Step) -> list[str]:
    return [command.node for command in step.commands if isinstance(command, m.AddNode)]


def released(step: Step) -> list[str]:
    return [command.node for command in step.commands if isinstance(command, m.ReleaseNode)]


class Steps(Workload):
    """Steps that take what a list says, the last of it for ever; the loss is better the larger x is."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = seconds

    def curve(self, config: m.Config) -> Curve:
        return lambda iteration: {"loss": 1 - config["lr"] + 1 / iteration}

    def step_s(self, config: m.Config, iteration: int) -> float:
        return self._seconds[min(iteration, len(self._seconds)) - 1]


def simulated(algorithm: TimedStages, seconds: Sequence[float], **more: Any) -> Session:
    place = world(algorithm, allocator=algorithm.allocator(1), machines=10, workload=Steps(*seconds), **more)
    return place.run()


def events(session: Session, kind: type[m.TrialPaused] | type[m.TrialLost]) -> list[tuple[float, str]]:
    found = ((record.at_s, event) for record in session.records for event in record.events)
    return [(round(at_s, 6), event.trial) for at_s, event in found if isinstance(event, kind)]


def started_from(session: Session, trial: str) -> list[int]:
    return [c.iteration for c in session.commands if isinstance(c, m.StartTrial) and c.trial == trial]


# --------------------------------------------------------------------------------------------------- by word for word


def test_a_start_says_when_the_run_is_over_and_on_how_many_devices() -> None:
    made = script(two_stages(2, keep=1, wide=2))
    (first, second) = (c for c in made.records[-1].commands if isinstance(c, m.StartTrial))
    assert (first.until_s, first.until_iteration, first.final, len(first.slots)) == (10.0, None, False, 1)
    made.at(9.0, reported("t-00000", 1, 0.5), paused("t-00000", 1))
    step = made.at(9.5, reported("t-00001", 1, 0.4), paused("t-00001", 1))
    (wide,) = (c for c in step.commands if isinstance(c, m.StartTrial))
    assert (wide.trial, wide.until_s, wide.final, wide.slots) == ("t-00001", 30.0, True, first.slots + second.slots)
    assert statuses(step) == [("t-00001", "paused"), ("t-00000", "stopped")]


def test_the_controller_wakes_when_the_time_of_a_run_is_over() -> None:
    assert script(two_stages(2, keep=1)).controller.wake_s == 10.0


def test_machines_of_the_next_stage_are_kept_until_the_last_trial_has_left_even_if_that_is_late() -> None:
    made = script(two_stages(4, keep=2))
    left = [made.at(9.0 + k / 10, reported(f"t-0000{k}", 1, k), paused(f"t-0000{k}", 1)) for k in range(3)]
    assert [len(released(step)) for step in left] == [1, 1, 0]
    assert made.at(10.0).commands == ()
    step = made.at(10.05, over("t-00003"))
    assert sorted(starts(step)) == [("t-00000", 2, 1), ("t-00001", 2, 1)]
    assert added(step) == released(step) == []


def test_who_has_reported_nothing_is_ranked_last_and_the_user_is_told_once() -> None:
    made = script(two_stages(4, keep=2))
    made.at(5.0, reported("t-00001", 1, 0.7))
    made.at(9.0, reported("t-00003", 1, 0.9))
    step = made.at(10.0, *(over(f"t-0000{k}") for k in range(4)))
    assert notes(step) == [NOTHING_REPORTED]
    assert {trial for trial, _, _ in starts(step)} == {"t-00001", "t-00003"}
    changed = dict(statuses(step))
    assert changed["t-00000"] == changed["t-00002"] == "stopped"


def test_a_step_that_is_abandoned_is_only_worth_a_word_if_it_was_much_longer_than_those_before() -> None:
    made = script(two_stages(3, keep=2))
    made.at(0.5, reported("t-00000", 1, 0.7), reported("t-00001", 1, 0.8))
    made.at(1.0, reported("t-00000", 2, 0.6))
    made.at(8.0, reported("t-00002", 1, 0.9))
    made.at(9.9, reported("t-00001", 2, 0.7))
    step = made.at(10.0, over("t-00000"), over("t-00001"), over("t-00002"))
    assert notes(step) == [
        "trial t-00000 has reported nothing for 9s when its time ended, where a step took 500ms: if it hangs, "
        "workers.report_within ends it before"
    ]


def test_who_fails_as_its_time_ends_is_named_with_the_reason() -> None:
    made = script(two_stages(1, keep=1))
    made.at(9.0, reported("t-00000", 1, 0.7))
    step = made.at(10.0, failed("t-00000"))
    assert notes(step) == ["trial t-00000 failed as its time ended: ValueError: no"]
    assert statuses(step)[0] == ("t-00000", "paused"), "what it has reported counts"


def test_who_has_reported_nothing_goes_on_where_a_place_is_left() -> None:
    made = script(two_stages(2, keep=2))
    made.at(5.0, reported("t-00001", 1, 0.7))
    step = made.at(10.0, over("t-00000"), over("t-00001"))
    assert sorted(starts(step)) == [("t-00000", 2, 0), ("t-00001", 2, 0)]
    late = made.at(20.0, reported("t-00000", 1, 0.1, attempt=2))
    assert notes(late) == []
    made.at(30.0, over("t-00000", 2), over("t-00001", 2))
    assert made.controller.done and made.controller.over


def test_a_stage_in_which_nobody_reports_is_a_run_that_failed_and_says_what_to_do() -> None:
    made = script(two_stages(2, keep=1))
    made.at(10.0, over("t-00000"), over("t-00001"))
    assert ended(made.at(30.0, over("t-00000", 2))) == (
        "failed",
        "no trial has reported a finite 'loss' in its time: give trials more of it, or report more often",
    )


def test_a_run_in_which_no_machine_came_says_so_and_nothing_of_reports() -> None:
    algorithm = two_stages(2, keep=1)
    made = Script(algorithm, allocator=algorithm.allocator(1), machines=10)
    half, last = made.at(10.0), made.at(30.0)
    assert ended(last) == (
        "failed",
        "no trial has begun: no machine was ready before their time was over. Give a later deadline, or plan with the "
        "time that machines take to come (boot, or that of a cloud)",
    )
    assert all(not notes(step) for step in (half, last)) and released(last)


def test_a_trial_that_waits_for_a_machine_when_its_time_is_over_is_ranked_by_what_it_has() -> None:
    made = script(two_stages(2, keep=1))
    made.at(5.0, reported("t-00000", 1, 0.5), m.TrialCheckpointed("t-00000", 1, saved("t-00000", 1)))
    lost = made.at(6.0, m.NodeLost(node_of(made, "t-00000"), "revoked"))
    assert added(lost) == ["n2"], "it boots for a long time"
    assert made.controller.wake_s == 10.0
    step = made.at(10.0, reported("t-00001", 1, 0.8), paused("t-00001", 1))
    assert starts(step) == [("t-00000", 2, 1)], "on the machine that is there"
    assert dict(statuses(step)) == {"t-00000": "paused", "t-00001": "stopped"}
    assert released(step) == ["n2"], "one is enough now"


def test_a_trial_in_back_off_when_its_time_is_over_is_ranked_by_what_it_has() -> None:
    made = script(two_stages(2, keep=1))
    made.at(5.0, reported("t-00000", 1, 0.5), m.TrialCheckpointed("t-00000", 1, saved("t-00000", 1)))
    made.at(8.0, reported("t-00001", 1, 0.8), paused("t-00001", 1))
    assert added(made.at(9.5, failed("t-00000"))) == []
    step = made.at(10.0)
    assert starts(step) == [("t-00000", 2, 1)]
    assert added(step) == [], "it needs devices once, not twice"
    assert made.at(10.5).commands == (), "the time at which it was to be tried again means nothing any more"
    last = made.at(30.0, over("t-00000", 2))
    assert ended(last) == ("succeeded", "every trial is done")


def test_a_trial_that_fails_just_after_its_time_is_not_tried_again() -> None:
    made = script(two_stages(2, keep=1))
    made.at(5.0, reported("t-00000", 1, 0.5), m.TrialCheckpointed("t-00000", 1, saved("t-00000", 1)))
    made.at(8.0, reported("t-00001", 1, 0.8), paused("t-00001", 1))
    assert made.at(10.0).commands == (), "it trains, and is ended where it does"
    assert starts(made.at(10.02, failed("t-00000"))) == [("t-00000", 2, 1)], (
        "the next stage does not wait for a back-off"
    )


def test_a_trial_in_back_off_at_the_very_end_does_not_keep_the_run_waiting() -> None:
    made = script(two_stages(1, keep=1))
    made.at(9.0, reported("t-00000", 1, 0.5), paused("t-00000", 1))
    made.at(29.9, failed("t-00000", 2))
    assert ended(made.at(30.0)) == ("succeeded", "every trial is done")


def test_a_trial_that_leaves_a_machine_which_is_taken_away_goes_on_until_its_time_is_over() -> None:
    made = script(two_stages(2, keep=1))
    node = node_of(made, "t-00000")
    made.at(5.0, m.NodeNotice(node, 7.0))
    step = made.at(6.0, reported("t-00000", 1, 0.5), paused("t-00000", 1))
    assert statuses(step) == [("t-00000", "paused")] and starts(step) == []
    assert starts(made.at(7.0, m.NodeLost(node, "revoked"), ready("n2"))) == [("t-00000", 2, 1)]
    late = made.at(10.2, reported("t-00001", 1, 0.7), paused("t-00001", 1), over("t-00000", 2))
    assert starts(late) == [("t-00000", 3, 1)]


def test_what_failed_or_returned_makes_room_for_the_next_best() -> None:
    made = script(two_stages(3, keep=2), max_retries=0)
    made.at(5.0, *(reported(f"t-0000{k}", 1, k / 10) for k in range(3)))
    made.at(6.0, failed("t-00000"), m.TrialReturned("t-00001", 1, 1, None))
    step = made.at(10.0, over("t-00002"))
    assert starts(step) == [("t-00002", 2, 0)]
    assert {t.id: t.status for t in made.controller.trials.values()} == {
        "t-00000": "failed",
        "t-00001": "completed",
        "t-00002": "running",
    }


def test_after_a_long_downtime_every_stage_whose_time_is_over_ends_at_once() -> None:
    made = script(two_stages(2, keep=1))
    made.at(5.0, reported("t-00000", 1, 0.5), m.TrialCheckpointed("t-00000", 1, saved("t-00000", 1)))
    down = [m.NodeLost(node, "its driver ended") for node in ("n0", "n1")]
    step = made.at(50.0, m.RunResumed(), *down)
    assert starts(step) == [] and ended(step) == ("succeeded", "every trial is done")


def test_a_run_that_is_interrupted_and_resumed_after_its_stage_begins_the_next_one() -> None:
    made = script(two_stages(2, keep=1))
    made.at(5.0, reported("t-00000", 1, 0.5), reported("t-00001", 1, 0.7))
    made.at(9.0, m.RunInterrupted())
    made.at(11.0, *(event for k in (0, 1) for event in (reported(f"t-0000{k}", 2, 0.4), paused(f"t-0000{k}", 2))))
    assert made.controller.done and not made.controller.over
    step = made.at(12.0, m.RunResumed())
    (node,) = added(step)
    assert dict(statuses(step)) == {"t-00000": "paused", "t-00001": "stopped"}, "ranked as they are"
    assert starts(made.at(13.0, ready(node))) == [("t-00000", 2, 2)]


@pytest.mark.parametrize("deadline_s", [1.0, 8.0, 30.0, 3600.0])
def test_who_is_in_a_step_at_the_very_end_is_given_up_before_a_deadline_however_near(
    deadline_s: float,
) -> None:
    limits = Limits(deadline_s, budget_device_s=deadline_s)
    algorithm = SingleTrial()
    allocator = algorithm.prepare(Terms(limits, machines=1, devices=1))
    made = Script(algorithm, allocator=allocator, deadline_s=deadline_s, budget_device_s=deadline_s)
    (start,) = (c for c in made.at(0.0, ready("n0")).commands if isinstance(c, m.StartTrial))
    assert start.until_s is not None
    made.at(deadline_s / 2, reported("t-00000", 1, 0.5))
    heard_s = start.until_s + 2 * LATE_S  # waited for, and a while until that is known
    assert heard_s < deadline_s
    assert ended(made.at(heard_s, over("t-00000"))) == ("succeeded", "every trial is done")


# ------------------------------------------------------------------------------------------------------- by simulation


def test_a_step_that_would_pass_the_end_is_not_begun() -> None:
    session = simulated(two_stages(2, keep=1), [4.0])
    assert events(session, m.TrialPaused)[:2] == [(8.0, "t-00000"), (8.0, "t-00001")]
    assert events(session, m.TrialLost) == [] and session.view.retrained == 0
    assert session.view.at_s == pytest.approx(28.0)  # five steps more
    assert_sound(session)


def test_a_step_that_ends_just_in_time_is_begun() -> None:
    session = simulated(two_stages(2, keep=1), [2.5])
    assert events(session, m.TrialPaused)[0] == (10.0, "t-00000")
    assert session.view.at_s == pytest.approx(30.0)


def test_who_is_in_a_step_at_the_end_goes_on_from_before_it() -> None:
    session = simulated(two_stages(2, keep=1), [2.4, 2.4, 2.4, 9.0, 2.0], checkpoint_every_s=1000.0)
    assert events(session, m.TrialLost) == [(10.0, "t-00000"), (10.0, "t-00001")]
    best = session.view.best
    assert best is not None and started_from(session, best.id) == [0, 3]
    assert session.view.retrained == 0, "nothing is lost but that step"
    assert best.iteration == 3 + 1 + 5  # until 30: a step of 9 and five of 2
    assert session.view.status == "succeeded" and session.view.trials[best.id].losses == 1
    assert_sound(session)


def test_without_checkpoints_a_trial_begins_each_stage_anew() -> None:
    session = simulated(two_stages(2, keep=1), [1.0], with_checkpoints=False)
    best = session.view.best
    assert best is not None and started_from(session, best.id) == [0, 0] and best.iteration == 20
    assert_sound(session)


def test_steps_longer_than_the_least_time_of_a_trial_fail_the_run_and_say_what_to_raise() -> None:
    place = timed_world(
        SEER(eta=2, t_min=10.0), deadline_s=100.0, budget_device_s=800.0, workload=Steps(1000.0), machines=20
    )
    session = place.run()
    assert session.view.status == "failed" and session.view.reason.endswith(
        "in its time: give trials more of it, or report more often"
    )
    assert [note.text for note in session.view.notes] == [NOTHING_REPORTED]
    assert session.view.at_s <= 100.0
    assert_sound(session)


def test_a_machine_that_is_lost_in_a_stage_is_replaced_and_its_trial_goes_on() -> None:
    fault = Fault(5.5, "lose", "n0")
    session = simulated(two_stages(2, keep=2), [1.0], faults=[fault], checkpoint_every_s=1.0, boot_s=1.0)
    lost, other = sorted(session.view.trials.values(), key=lambda trial: trial.iteration)
    assert (lost.attempts, other.attempts) == (3, 2)
    assert (lost.iteration, other.iteration) == (27, 29), "half a step, the boot of a machine, and half a step"
    assert session.view.retrained == 0, "it was saved at every step"
    assert len(session.view.machines) == 3 and session.view.status == "succeeded"
    assert session.view.at_s == pytest.approx(30.0)
    assert_sound(session)


@pytest.mark.parametrize("after_s", [0.0, 3.0, 8.0, 15.0])
def test_a_crash_is_survived_whichever_stage_it_is_by_then(after_s: float) -> None:
    algorithm = two_stages(3, keep=1)
    place = world(algorithm, allocator=algorithm.allocator(1), machines=10, workload=Steps(1.0), checkpoint_every_s=1.0)
    session = place.start()
    while session.view.at_s < 6.0:
        session.turns(1)
    undisturbed = place.run().view.best
    resumed = place.resume(session.journal, after_s).run()
    best = resumed.view.best
    assert best is not None and undisturbed is not None and best.id == undisturbed.id
    assert resumed.view.status == "succeeded" and resumed.view.at_s == pytest.approx(30.0)
    assert best.iteration == pytest.approx(30 - after_s, abs=1), "downtime counts"
    assert_sound(resumed)


def test_machines_that_are_empty_are_given_back_before_the_stage_is_over() -> None:
    """Those that the next stage needs are kept."""
    session = simulated(two_stages(3, keep=1), [4.0])
    assert sorted(use.to_s for use in session.view.machines) == [8.0, 8.0, 28.0]


def test_a_trial_of_the_grid_gets_the_other_half_of_the_time_and_more_devices() -> None:
    place = timed_world(ElasticGrid(p_max=4), deadline_s=100.0, budget_device_s=820.0, devices=4)
    session = place.run()
    starts = [c for c in session.commands if isinstance(c, m.StartTrial)]
    # Two machines until half-time, and one to the end.
    assert [(round(c.until_s or 0, 6), len(c.slots)) for c in starts] == [(49.75, 1)] * 12 + [(99.5, 4)]
    assert sum(use.devices * use.to_s for use in session.view.machines) <= 820.0
    assert_sound(session)


def test_runs_that_end_by_iterations_are_not_told_of_any_time() -> None:
    session = world(SuccessiveHalving(4, 1, 4, 2), devices=2).run()
    assert {c.until_s for c in session.commands if isinstance(c, m.StartTrial)} == {None}
