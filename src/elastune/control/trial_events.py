"""What the events of trials lead to: reports, checkpoints, pauses, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elastune import messages as m
from elastune.allocate.base import Allocator, Steps
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.fleet import Fleet
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.trial_runs import TrialRuns
from elastune.errors import did_you_mean
from elastune.spec import Settings
from elastune.units import format_duration

MAX_BACKOFF_S = 60.0
FORGIVING = 20
"""So many attempts of a trial may forgive failures by what they save. Code that saves the same epochs again and again,
instead of going on from them, looks like one that comes forward."""
HANGS, HANGS_S = 10.0, 5.0
"""A step that takes so many times as long as those before, and so many seconds, probably hangs."""


class TrialEvents:
    """Events of an older attempt of a trial are dropped; an iteration that is trained again does not count again."""

    def __init__(
        self,
        settings: Settings,
        allocator: Allocator,
        trials: Mapping[str, Trial],
        fleet: Fleet,
        schedule: Schedule,
        runs: TrialRuns,
        course: Course,
        answer: Answer,
    ) -> None:
        self._settings, self._allocator, self._trials = settings, allocator, trials
        self._fleet, self._schedule, self._runs, self._course, self._answer = fleet, schedule, runs, course, answer
        self._measures = type(allocator).stepped is not Allocator.stepped
        self.begin(())

    @property
    def handlers(self) -> dict[type[m.AnyEvent], Callable[[Any], None]]:
        return {
            m.TrialReported: self._on_reported,
            m.TrialCheckpointed: self._on_checkpointed,
            m.TrialResized: self._on_resized,
            m.TrialPaused: self._on_paused,
            m.TrialReturned: self._on_returned,
            m.TrialFailed: self._on_failed,
            m.TrialLost: self._on_lost,
            m.CheckpointDamaged: self._on_damaged,
            m.TrialWarned: self._on_warned,
        }

    def begin(self, events: Sequence[m.AnyEvent]) -> None:
        """These are all events of the present turn."""
        self._events = events
        self._together: Counter[str] | None = None
        """How many of them are reports of each trial."""
        self._sharing = self._sharing_before(events)

    def _sharing_before(self, events: Sequence[m.AnyEvent]) -> dict[str, int]:
        """How many were on the device of each trial that reports, as long as none of them has left with this turn."""
        found = {}
        for event in events:
            trial = self._trials.get(event.trial) if isinstance(event, m.TrialReported) else None
            if trial is not None and trial.slots and trial.width < 1:
                found[trial.id] = self._schedule.sharing(trial)
        return found

    def _current(self, event: m.TrialEvent) -> Trial | None:
        """The trial that an event is about; None if it is about an older attempt."""
        trial = self._trials.get(event.trial)
        if trial is None or event.attempt != trial.attempt or not trial.slots:
            self._answer.hide("old attempt")
            if (stray := getattr(event, "checkpoint", None)) is not None and not isinstance(event, m.CheckpointDamaged):
                self._answer.order(m.DropCheckpoint, stray)
            return None
        return trial

    # ------------------------------------------------------------------------------------------------------- it trains

    def _on_reported(self, event: m.TrialReported) -> None:
        trial = self._current(event)
        if trial is None:
            return
        seconds = self._measure(trial)
        if event.iteration <= trial.iteration:
            self._answer.hide("retrained")
            return
        if trial.over:  # it was told to stop, and its next report is where it does
            self._answer.hide("trial over")
            return
        trial.iteration = event.iteration
        trial.trained_s += seconds
        trial.failures = 0
        party = trial.party
        metric = party.metric
        value = m.to_float(event.metrics[metric]) if metric in event.metrics else None
        if value is None:
            self._runs.fail(trial, _no_metric(metric, event))
            if not party.reports:  # the first report of all: the name is wrong, not the trial
                self._runs.give_up(party, _no_metric(metric, event))
        elif not math.isfinite(value):
            party.diverged += 1
            self._runs.fail(trial, f"{metric}={value} at iteration {event.iteration}: must be a finite number")
        elif self._runs.count(trial, value if party.mode == "min" else -value):
            self._allocator.improved(trial.id, trial.trained_s, self._answer.at_s)

    def _measure(self, trial: Trial) -> float:
        """How long the trial has trained since its last report. Reports that came in one turn share that time."""
        at_s = self._answer.at_s
        since_s, first, sharing = trial.since_s, trial.reported_s is None, self._sharing.get(trial.id, 1)
        self._schedule.charge(trial, sharing)
        trial.reported_s = at_s
        midway, trial.midway = trial.midway, False
        if self._measures and not midway and (first or at_s > since_s):
            if self._together is None:
                self._together = Counter(each.trial for each in self._events if isinstance(each, m.TrialReported))
            steps = Steps(trial.id, trial.width, self._together[trial.id], at_s - since_s, first, sharing)
            if self._allocator.stepped(steps):
                self._answer.changed = True
        return at_s - since_s

    def _on_checkpointed(self, event: m.TrialCheckpointed) -> None:
        if (trial := self._current(event)) is None:
            return
        self._keep(trial, event.checkpoint)
        if event.checkpoint.part and trial.attempt <= FORGIVING:
            trial.failures = 0
            trial.party.works = True

    def _keep(self, trial: Trial, checkpoint: m.Checkpoint | None) -> None:
        if checkpoint is not None:
            self._course.store_works()
        self._runs.keeper.keep(trial, checkpoint)

    def _on_resized(self, event: m.TrialResized) -> None:
        if (trial := self._current(event)) is not None:
            self._schedule.resized(trial, event.slots)
            self._keep(trial, event.checkpoint)
            self._answer.changed = True

    def _on_warned(self, event: m.TrialWarned) -> None:
        self._answer.advise(event.text)

    # ------------------------------------------------------------------------------------------------------- it leaves

    def _on_paused(self, event: m.TrialPaused) -> None:
        if (trial := self._current(event)) is None:
            return
        self._runs.left(trial)
        self._keep(trial, event.checkpoint)
        if trial.over:
            return
        done = trial.run.until is not None and event.iteration >= trial.run.until
        out_of_time = trial.run.until_s is not None and not trial.leaving
        if not done and not out_of_time:
            self._runs.go_on_later(trial)
            return
        if not trial.run.final and event.checkpoint is None:
            self._answer.advise(
                "the trainable gives no checkpoint to report(): a paused trial starts from zero when it goes on"
            )
        self._runs.end(trial, over=False)

    def _on_returned(self, event: m.TrialReturned) -> None:
        if (trial := self._current(event)) is None:
            return
        self._runs.left(trial)
        self._keep(trial, event.checkpoint)
        if trial.over:
            return
        if trial.loss is None:
            self._runs.fail(trial, "the trainable returned without calling elastune.report()")
        else:
            self._runs.end(trial, over=True)

    def _on_failed(self, event: m.TrialFailed) -> None:
        if event.store:
            self._on_store_failed(event)
            return
        # While nothing has ever worked, trying the same code again only delays the news.
        trial = self._trials.get(event.trial)
        self._retry_or_fail(event, event.error, event.final or (trial is not None and not trial.party.works))

    def _on_store_failed(self, event: m.TrialFailed) -> None:
        if (trial := self._current(event)) is None:
            return
        self._runs.left(trial)
        if self._course.outcome is None:
            # Who meets it again and again, where others can save meanwhile, is to blame after all.
            trial.failures += self._course.store_failed(event.error)
        if trial.over:
            return
        if trial.failures > max(1, self._settings.max_retries):
            self._runs.fail(trial, event.error)
        else:
            self._runs.go_on_later(trial)

    def _on_lost(self, event: m.TrialLost) -> None:
        self._retry_or_fail(event, event.reason, False)

    def _retry_or_fail(self, event: m.TrialFailed | m.TrialLost, reason: str, final: bool) -> None:
        if (trial := self._current(event)) is None:
            return
        fault = isinstance(event, m.TrialFailed) or (event.fault and not self._fleet.is_draining(trial.slots))
        self._runs.left(trial)
        if trial.over:
            return
        if fault and (otherwise := self._allocator.failed(trial.id, trial.width)):
            self._answer.note("warning", f"trial {trial.id} failed: {reason}. That was {otherwise}")
            self._runs.go_on_later(trial)
            return
        trial.failures += fault
        late = trial.run.until_s is not None and self._answer.at_s >= trial.run.until_s
        if late and fault:
            self._answer.note("warning", f"trial {trial.id} failed as its time ended: {reason}")
        elif late:
            self._tell_if_it_hung(trial)
        if self._course.outcome is not None or not fault or late:
            self._runs.go_on_later(trial)
        elif final or trial.failures > self._settings.max_retries:
            self._runs.fail(trial, reason)
        else:
            backoff_s = min(2.0 ** (trial.failures - 1), MAX_BACKOFF_S)
            self._answer.note("warning", f"trial {trial.id} is tried again in {backoff_s:g} s: {reason}")
            trial.status = "waiting"
            self._answer.decisions.append(m.StatusChanged(trial.id, trial.status, reason))
            self._runs.timers.retry(trial, self._answer.at_s + backoff_s)

    def _tell_if_it_hung(self, trial: Trial) -> None:
        """It was abandoned in the middle of a step, which is usual, but not of one that is so much longer."""
        silent_s = self._answer.at_s - trial.since_s
        step_s = trial.trained_s / max(trial.iteration, 1)
        if trial.iteration and silent_s > max(HANGS * step_s, HANGS_S):
            self._answer.note(
                "warning",
                f"trial {trial.id} has reported nothing for {format_duration(silent_s)} when its time ended, where a "
                f"step took {format_duration(step_s)}: if it hangs, workers.report_within ends it before",
            )

    def _on_damaged(self, event: m.CheckpointDamaged) -> None:
        if (trial := self._current(event)) is None:
            return
        self._runs.left(trial)
        self._answer.note("warning", f"trial {trial.id}: {event.reason}; the checkpoint before it is used")
        self._runs.keeper.drop(trial, event.checkpoint)
        if not trial.over:
            self._runs.go_on_later(trial)


def _no_metric(metric: str, event: m.TrialReported) -> str:
    given = event.metrics.get(metric)
    if given is not None:
        return f"trial {event.trial} reported {metric}={given!r}: must be a number"
    found = did_you_mean(metric, event.metrics, "it reported")
    return f"trial {event.trial} reported no metric {metric!r}: {found}. Report it, or set metric to what is reported"
