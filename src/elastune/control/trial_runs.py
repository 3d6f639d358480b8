"""The runs that algorithms ask for: from the queue to their end, of which the searcher and the algorithm learn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from elastune.algorithm.base import NOTHING, AlgorithmEvent, Ended, Reported, Verdict, Woken
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.party import Party
from elastune.control.retention import Keeper
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.timers import Timers
from elastune.errors import SpecError
from elastune.messages import ExperimentEnded, Judged, RunStatus, StatusChanged, TrialStatus
from elastune.spec import Run, Settings, TrialGroup, to_width

FAILURES_BEFORE_GIVING_UP, DIVERGED_BEFORE_GIVING_UP = 3, 10
"""So many trials may fail, or diverge, before any has come anywhere; then it is over: the fault is not in a trial."""


class TrialRuns:
    """A run ends with a value, without one, or because its trial has failed or is stopped. Whatever the algorithm
    answers to that is done at once.
    """

    def __init__(
        self,
        settings: Settings,
        parties: Sequence[Party],
        trials: dict[str, Trial],
        schedule: Schedule,
        course: Course,
        answer: Answer,
    ) -> None:
        self.keeper = Keeper(settings.retention, answer)
        self.timers = Timers(answer)
        self.parties = parties
        self._grace_s = settings.grace_s
        self._trials, self._schedule, self._course, self._answer = trials, schedule, course, answer

    # --------------------------------------------------------------------------------------------------- to the queue

    def under_way(self, party: Party) -> int:
        """How many of its trials run, wait, or will be tried again in a while."""
        retried = sum(self._trials[trial].party is party for trial in self.timers.retried)
        return party.running + len(party.waiting) + retried

    def ask_for_more(self, party: Party, free: int) -> bool:
        """Says whether its algorithm had any."""
        if (most := party.algorithm.max_concurrent) is not None:
            free = min(free, most - self.under_way(party))
        if free < 1:
            return False
        groups = [group for group in party.algorithm.more(free, self._answer.at_s) if group]
        self._queue(party, groups)
        return bool(groups)

    def _queue(self, party: Party, groups: Iterable[TrialGroup]) -> None:
        for group in groups:
            for run in group:
                if run.width is not None:
                    run = msgspec.structs.replace(run, width=to_width(f"the width of a run of {run.trial}", run.width))
                trial = self._trials.get(run.trial)
                if trial is None:
                    trial = self._trials[run.trial] = Trial(run.trial, run.config, run, party)
                    party.trials += 1
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
        for trial_id, party in self.timers.due():
            self._answer.changed = True
            if trial_id is None:
                self._tell(party, Woken())
            else:
                self._schedule.queue(self._trials[trial_id])
        if self._course.outcome is not None:  # it may be interrupted only: then runs end when it goes on
            return
        for until_s, trial_id in self.timers.ended():
            trial = self._trials[trial_id]
            # One that trains is ended where it trains; one that has ended may have another run by now.
            waits = trial_id in trial.party.waiting or (trial.status == "waiting" and not trial.slots)
            if trial.run.until_s == until_s and waits:
                trial.party.waiting.pop(trial_id, None)
                self.timers.forget_retry(trial_id)
                self._answer.changed = True
                self._out_of_time(trial)

    # -------------------------------------------------------------------------------------------------- on the devices

    def count(self, trial: Trial, loss: float) -> bool:
        """A report of an iteration that is new. Says whether no trial of its experiment was so good before."""
        trial.party.reports += 1
        trial.party.works = True
        trial.loss = loss
        self.keeper.remember(trial, loss)
        if trial.best_loss is None or loss < trial.best_loss:
            self._rank(trial, loss)
        if trial.run.until_s is not None and trial.iteration.bit_count() == 1:
            self._observe(trial, trains=True)
        self._tell(trial.party, Reported(trial.id, trial.iteration, loss, trial.trained_s))
        best, trial.party.best_loss = trial.party.best_loss, min(trial.party.best_loss, loss)
        return loss < best

    def _rank(self, trial: Trial, loss: float) -> None:
        """The trial is now so good: if it is among the best, its checkpoints are kept, and another's are not."""
        trial.best_loss = loss
        out = self.keeper.rank(trial)
        if out is not None and out != trial.id:
            self.keeper.tidy(self._trials[out])

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
        self._tell(trial.party, Ended(trial.id, trial.iteration, trial.loss, over))

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
        self._tell(trial.party, Ended(trial.id, trial.iteration, None, over=trial.run.final))

    def fail(self, trial: Trial, reason: str) -> None:
        party = trial.party
        self._answer.note("warning", f"trial {trial.id} failed: {reason}")
        self._tell_searcher(trial, trial.iteration, None, True)
        self._over(trial, "failed", reason)
        party.failed += 1
        party.last_failure = f"{trial.id}: {reason}"
        raised = party.failed - party.diverged
        hopeless = raised >= FAILURES_BEFORE_GIVING_UP or party.diverged >= DIVERGED_BEFORE_GIVING_UP
        if hopeless and not party.works:
            self.give_up(
                party, f"the first {party.failed} trials failed, none has reported a finite value; {party.last_failure}"
            )
        self._tell(party, Ended(trial.id, trial.iteration, None, over=True))

    def give_up(self, party: Party, reason: str) -> None:
        """Nothing will come of an experiment. The others go on; without any that has come to something or may yet, the
        run is over.
        """
        if party.outcome is not None:
            return
        others = [other for other in self.parties if other is not party]
        if all(other.outcome is not None and other.outcome[0] == "failed" for other in others):
            self._course.end("failed", _said_of_all([*others, party], reason))
            return
        self._record(party, "failed", reason)
        self.timers.forget(party)
        for trial in self._of(party):
            if not trial.over:
                self._over(trial, "stopped", "its experiment is given up")

    def close(self) -> tuple[RunStatus, str]:
        """Nothing runs, nothing waits, and no algorithm has more. How it all ended."""
        for party in self.parties:
            if party.outcome is None:
                self.close_one(party)
        if all(party.outcome is not None and party.outcome[0] == "failed" for party in self.parties):
            return "failed", _said_of_all(self.parties)
        return "succeeded", "every trial is done"

    def close_one(self, party: Party) -> None:
        """Of this experiment nothing runs and nothing waits, and its algorithm has no more: its paused trials will
        never go on.
        """
        for trial in self._of(party):
            if trial.status == "paused":
                self._over(trial, "stopped", "not promoted")
        if party.failed and party.failed == party.trials:
            all_failed = "the only trial failed" if party.failed == 1 else f"all {party.failed} trials failed; the last"
            self._record(party, "failed", f"{all_failed}: {party.last_failure}")
        elif not party.reports:
            self._record(party, "failed", self._why_nothing(party))
        else:
            self._record(party, "succeeded", "every trial is done")

    def _record(self, party: Party, status: RunStatus, reason: str) -> None:
        """An experiment is over. Where there is but one, so is the run, which is recorded as that."""
        party.outcome = (status, reason)
        if len(self.parties) > 1:
            self._answer.decisions.append(ExperimentEnded(party.name, status, reason))
            if status == "failed":
                self._answer.note("warning", f"experiment {party.name} is over: {reason}")

    def _of(self, party: Party) -> list[Trial]:
        return [trial for trial in self._trials.values() if trial.party is party]

    def _why_nothing(self, party: Party) -> str:
        nothing = f"no trial has reported a finite {party.metric!r}"
        trials = self._of(party)
        if not any(trial.run.until_s is not None for trial in trials):
            return nothing
        if not any(trial.attempt for trial in trials):
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
        self._schedule.stop(trial, self._grace_s)
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
        value = trial.loss if trial.party.mode == "min" else -trial.loss
        self._tell_searcher(trial, trial.iteration, value, trial.status == "completed", trains)

    def _tell_searcher(
        self, trial: Trial, iteration: int, value: float | None, final: bool, trains: bool = False
    ) -> None:
        """Not of a trial that has taken over from another: what it is worth says nothing of what was suggested."""
        if not trial.lineage:
            trial.party.source.observe(trial.id, trial.config, iteration, value, final, trains)

    # --------------------------------------------------------------------------------------------------- the algorithm

    def _tell(self, party: Party, event: AlgorithmEvent) -> None:
        if party.outcome is not None:
            return
        actions = party.algorithm.on(event, self._answer.at_s)
        if actions is NOTHING:  # nearly always
            return
        self._queue(party, actions.groups)
        for trial_id in actions.stops:
            if not self._trials[trial_id].over:
                self._over(self._trials[trial_id], "stopped", "not promoted")
        for trial_id in actions.pauses:
            self._cut_short(self._trials[trial_id])
        if actions.wake_s is not None:
            self.timers.wake_algorithm(party, actions.wake_s)
        if actions.verdict is not None:
            self._judge(party, actions.verdict)
        if actions.gives_up is not None:
            self.give_up(party, actions.gives_up)

    def _judge(self, party: Party, verdict: Verdict) -> None:
        """Whatever it reports itself, its checkpoints are those to keep."""
        value = verdict.loss if party.mode == "min" else -verdict.loss
        self._answer.decisions.append(Judged(verdict.trial, verdict.iteration, value, verdict.why))
        self._rank(self._trials[verdict.trial], -math.inf)

    def _cut_short(self, trial: Trial) -> None:
        """The run ends with the next report: where the trial trains, or when it has a place again."""
        until = trial.iteration + 1
        if not trial.over and (trial.run.until is None or until < trial.run.until):
            trial.run = msgspec.structs.replace(trial.run, until=until, final=False)
            if trial.slots:
                self._schedule.pause(trial, None)


def _said_of_all(parties: Sequence[Party], last: str = "") -> str:
    """Why all have failed; of a single one just that. `last` is why the last of them has, where that is new."""
    reasons = [last if party.outcome is None else party.outcome[1] for party in parties]
    if len(parties) == 1:
        return reasons[0]
    told = (f"{party.name}: {reason}" for party, reason in zip(parties, reasons, strict=True))
    return f"every experiment failed; {'; '.join(told)}"
