"""The runs that the algorithm asks for: from the queue to their end, of which the searcher and the algorithm learn."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from elastune.algorithm.base import NOTHING, Algorithm, AlgorithmEvent, Ended, Reported, TrialSource, Woken
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.retention import Keeper
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.timers import Timers
from elastune.errors import SpecError
from elastune.messages import RunStatus, StatusChanged, TrialStatus
from elastune.spec import Run, Settings, TrialGroup, to_width

FAILURES_BEFORE_GIVING_UP = 3
"""So many trials may fail before any has reported; then the run is over: the fault is in the code, not in a trial."""


class TrialRuns:
    """A run ends with a value, without one, or because its trial has failed or is stopped. Whatever the algorithm
    answers to that is done at once.
    """

    def __init__(
        self,
        settings: Settings,
        algorithm: Algorithm,
        source: TrialSource,
        trials: dict[str, Trial],
        schedule: Schedule,
        course: Course,
        answer: Answer,
    ) -> None:
        self.keeper = Keeper(settings.retention, answer)
        self.timers = Timers(answer)
        self.reports = 0
        """Those that count, of all trials."""
        self._settings, self._algorithm, self._source = settings, algorithm, source
        self._trials, self._schedule, self._course, self._answer = trials, schedule, course, answer
        self._failed = 0
        self.best_loss = math.inf
        self.one_by_one = algorithm.one_by_one
        self._last_failure = ""

    # --------------------------------------------------------------------------------------------------- to the queue

    @property
    def max_concurrent(self) -> int | None:
        """How many may be under way at once."""
        return self._algorithm.max_concurrent

    @property
    def under_way(self) -> int:
        """How many trials run, wait, or will be tried again in a while."""
        return len(self._schedule.widths) + len(self._schedule.waiting) + sum(1 for _ in self.timers.retried)

    @property
    def begin_whole(self) -> bool:
        """Whether new trials are one group, of which more can be asked for than can run: nothing is learnt before."""
        return self._algorithm.whole and not self._source.searcher.learns

    def ask_for_more(self, free: int) -> bool:
        """Says whether the algorithm had any."""
        groups = [group for group in self._algorithm.more(free, self._answer.at_s) if group]
        self._queue(groups)
        return bool(groups)

    def _queue(self, groups: Iterable[TrialGroup]) -> None:
        for group in groups:
            for run in group:
                if run.width is not None:
                    run = msgspec.structs.replace(run, width=to_width(f"the width of a run of {run.trial}", run.width))
                trial = self._trials.get(run.trial)
                if trial is None:
                    trial = self._trials[run.trial] = Trial(run.trial, run.config, run)
                self._go_on_as(trial, run)
                trial.run, trial.config = run, run.config
                if run.until_s is not None:
                    self.timers.end_run(trial.id, run.until_s)
                self._schedule.queue(trial)
                self._answer.changed = True

    def _go_on_as(self, trial: Trial, run: Run) -> None:
        """With the state of another trial, or another configuration, a new lineage begins: what is trained from there
        is not what was trained before, though iterations may have the same numbers.
        """
        if run.start_from is None:
            trial.lineage += run.config != trial.config
            return
        donor = self._trials.get(run.start_from)
        if donor is None:
            raise SpecError(f"trial {trial.id}: Run.start_from={run.start_from!r}: there is no such trial")
        trial.lineage += 1
        if not donor.checkpoints:
            self._answer.advise(
                "a trial should go on from the checkpoint of another, which has none: it takes over the configuration "
                "only. Give a checkpoint to report()"
            )
            return
        self.keeper.hand_over(donor, trial)
        trial.iteration = trial.observed = donor.checkpoints[-1].iteration
        trial.loss, trial.trained_s = donor.loss, donor.trained_s

    def go_on_later(self, trial: Trial) -> None:
        """It has left its slots before the end of its run, which may have come meanwhile."""
        if self._course.outcome is None and trial.run.until_s is not None and self._answer.at_s >= trial.run.until_s:
            self._out_of_time(trial)
        else:
            self._schedule.requeue(trial)

    def fire_timers(self) -> None:
        for trial_id in self.timers.due():
            self._answer.changed = True
            if trial_id is None:
                self._tell(Woken())
            else:
                self._schedule.queue(self._trials[trial_id])
        if self._course.outcome is not None:  # it may be interrupted only: then runs end when it goes on
            return
        for until_s, trial_id in self.timers.ended():
            trial = self._trials[trial_id]
            # One that trains is ended where it trains; one that has ended may have another run by now.
            waits = trial_id in self._schedule.waiting or (trial.status == "waiting" and not trial.slots)
            if trial.run.until_s == until_s and waits:
                self._schedule.waiting.pop(trial_id, None)
                self.timers.forget_retry(trial_id)
                self._answer.changed = True
                self._out_of_time(trial)

    # -------------------------------------------------------------------------------------------------- on the devices

    def count(self, trial: Trial, loss: float) -> bool:
        """A report of an iteration that is new. Says whether no trial was so good before."""
        self.reports += 1
        trial.loss = loss
        if trial.best_loss is None or loss < trial.best_loss:
            trial.best_loss = loss
            out = self.keeper.rank(trial)
            if out is not None and out != trial.id:
                self.keeper.tidy(self._trials[out])
        if trial.run.until_s is not None and trial.iteration.bit_count() == 1:
            self._observe(trial, trains=True)
        self._tell(Reported(trial.id, trial.iteration, loss, trial.trained_s))
        best, self.best_loss = self.best_loss, min(self.best_loss, loss)
        return loss < best

    def left(self, trial: Trial) -> None:
        """It holds no slots any more, whatever the reason."""
        self._schedule.left(trial)
        self._answer.changed = True
        if trial.over:
            self.keeper.tidy(trial)

    # ------------------------------------------------------------------------------------------------------ to the end

    def end(self, trial: Trial, over: bool) -> None:
        """A run has come to its end with a value. With `over` the trial cannot go on."""
        assert trial.loss is not None
        trial.status = "completed" if over or trial.run.final else "paused"
        self._answer.decisions.append(StatusChanged(trial.id, trial.status))
        self._observe(trial)
        self.keeper.tidy(trial)
        self._tell(Ended(trial.id, trial.iteration, trial.loss, over))

    def _out_of_time(self, trial: Trial) -> None:
        """The run is over however far the trial has come. What has reported nothing yet has no value to go by."""
        if trial.loss is not None:
            self.end(trial, over=False)
            return
        if trial.attempt:
            self._answer.advise(
                "a trial has reported nothing by the end of its time, and counts as the worst: give trials more time "
                "to begin with (a larger t_min, where there is one), or report more often"
            )
        trial.status = "stopped" if trial.run.final else "paused"
        self._answer.decisions.append(StatusChanged(trial.id, trial.status, "reported nothing in its time"))
        self._tell(Ended(trial.id, trial.iteration, None, over=trial.run.final))

    def fail(self, trial: Trial, reason: str) -> None:
        self._answer.note("warning", f"trial {trial.id} failed: {reason}")
        self._tell_searcher(trial, trial.iteration, None, True)
        self._over(trial, "failed", reason)
        self._failed += 1
        self._last_failure = f"{trial.id}: {reason}"
        if not self.reports and self._failed >= FAILURES_BEFORE_GIVING_UP:
            self._course.end(
                "failed", f"the first {self._failed} trials failed, none has reported anything; {self._last_failure}"
            )
        self._tell(Ended(trial.id, trial.iteration, None, over=True))

    def close(self) -> tuple[RunStatus, str]:
        """Nothing runs, nothing waits, and the algorithm has no more: paused trials will never go on. How it all
        ended.
        """
        for trial in self._trials.values():
            if trial.status == "paused":
                self._over(trial, "stopped", "not promoted")
        if not self.reports:
            return "failed", self._why_nothing()
        if self._failed == len(self._trials):
            return "failed", f"all {self._failed} trials failed; the last: {self._last_failure}"
        return "succeeded", "every trial is done"

    def _why_nothing(self) -> str:
        nothing = f"no trial has reported a finite {self._settings.metric!r}"
        if not any(trial.run.until_s is not None for trial in self._trials.values()):
            return nothing
        if not any(trial.attempt for trial in self._trials.values()):
            return (
                "no trial has begun: no machine was ready before their time was over. Give a later deadline, or plan "
                "with the time that machines take to come (boot, or that of a cloud)"
            )
        return f"{nothing} in its time: give trials more of it, or report more often"

    def _over(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """The trial will never train again; if it still does, it is told to stop."""
        trial.status = status
        self._answer.decisions.append(StatusChanged(trial.id, status, reason))
        if status == "stopped" and trial.iteration > trial.observed:
            self._observe(trial)
        elif status == "stopped" and trial.loss is None and trial.attempt:
            self._tell_searcher(trial, 0, None, True)
        self._schedule.stop(trial, self._settings.grace_s)
        self.timers.forget_retry(trial.id)
        self.keeper.tidy(trial)
        self._answer.changed = True

    def _observe(self, trial: Trial, trains: bool = False) -> None:
        """The searcher learns what a trial is worth so far: when its run ends, and where that is a matter of time also
        after 1, 2, 4, ... iterations. If not, it would only learn of those that are given up, until the time is over.
        """
        assert trial.loss is not None
        if not trains:
            trial.observed = trial.iteration
        value = trial.loss if self._settings.mode == "min" else -trial.loss
        self._tell_searcher(trial, trial.iteration, value, trial.status == "completed", trains)

    def _tell_searcher(
        self, trial: Trial, iteration: int, value: float | None, final: bool, trains: bool = False
    ) -> None:
        """Not of a trial that has taken over from another: what it is worth says nothing of what was suggested."""
        if not trial.lineage:
            self._source.observe(trial.id, trial.config, iteration, value, final, trains)

    # --------------------------------------------------------------------------------------------------- the algorithm

    def _tell(self, event: AlgorithmEvent) -> None:
        actions = self._algorithm.on(event, self._answer.at_s)
        if actions is NOTHING:  # nearly always
            return
        self._queue(actions.groups)
        for trial_id in actions.stops:
            if not self._trials[trial_id].over:
                self._over(self._trials[trial_id], "stopped", "not promoted")
        for trial_id in actions.pauses:
            self._cut_short(self._trials[trial_id])
        if actions.wake_s is not None:
            self.timers.wake_algorithm(actions.wake_s)

    def _cut_short(self, trial: Trial) -> None:
        """The run ends with the next report: where the trial trains, or when it has a place again."""
        until = trial.iteration + 1
        if not trial.over and (trial.run.until is None or until < trial.run.until):
            trial.run = msgspec.structs.replace(trial.run, until=until, final=False)
            if trial.slots:
                self._schedule.pause(trial, None)
