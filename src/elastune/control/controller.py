"""All decisions: a turn of events comes in, decisions and commands come out. Pure, so that a replay gives the same
again.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

import msgspec

from elastune import messages as m
from elastune.algorithm.base import NOTHING, Algorithm, AlgorithmEvent, Ended, Reported, TrialSource, Woken
from elastune.allocate.base import Allocator, Target, View
from elastune.control.answer import Answer
from elastune.control.fleet import Fleet
from elastune.control.retention import Keeper
from elastune.control.schedule import Schedule
from elastune.control.spending import Spending
from elastune.control.state import Trial
from elastune.errors import JournalDamaged, did_you_mean
from elastune.spec import Settings, TrialGroup, require_int, to_width

MAX_BACKOFF_S = 60.0
FAILURES_BEFORE_GIVING_UP = 3
"""So many trials may fail before any has reported; then the run is over: the fault is in the code, not in a trial."""


@dataclass(frozen=True, slots=True)
class Step:
    decisions: tuple[m.AnyDecision, ...]
    commands: tuple[m.AnyCommand, ...]


class Controller:
    """Holds the whole state of a run. `handle` is its only way to change."""

    def __init__(self, settings: Settings, algorithm: Algorithm, allocator: Allocator, source: TrialSource) -> None:
        self.settings = settings
        self.trials: dict[str, Trial] = {}
        self.done = False
        self.fleet = Fleet(Spending(settings.limits))
        self._answer = Answer()
        self._schedule = Schedule(self._answer, self.fleet)
        self._algorithm = algorithm
        self._allocator = allocator
        self._measures = type(allocator).stepped is not Allocator.stepped
        self._events: tuple[m.AnyEvent, ...] = ()
        """Of the present turn, and how many of them are reports of each trial."""
        self._together: Counter[str] | None = None
        self._source = source
        self._keeper = Keeper(settings.retention, self._answer)
        self._timers: list[tuple[float, int, str | None]] = []
        self._ends: list[tuple[float, int, str]] = []
        """When the time of a trial's run is over."""
        self._ending: tuple[m.RunStatus, str] | None = None
        self._limit = self.fleet.spending.limit(0.0)
        self._plans: deque[m.Planned] = deque()
        """While a journal is replayed: those of the present turn."""
        self._ask_again_s = math.inf
        """When the allocator wants to be asked even if nothing happens."""
        self._reports = 0
        self._failed = 0
        self._last_failure = ""
        self._nodes_never_ready = 0
        self._begin(0.0)

    # ------------------------------------------------------------------------------------------------- in and out

    def handle(self, turn: m.Turn) -> Step:
        self._begin(turn.at_s)
        self._events = turn.events
        for index, event in enumerate(turn.events):
            self._index = index
            self._HANDLERS[type(event)](self, event)
        self._events, self._together = (), None
        self._fire_timers()
        if turn.at_s >= self._ask_again_s:
            self._changed = True
        if self._ending is None and turn.at_s >= self._limit[0] and not self._nothing_left():
            self._end(self._limit[1], self._limit[2])
        if self._changed:
            self._fill()
        return Step(tuple(self._answer.decisions), tuple(self._answer.commands))

    def replay(self, record: m.Record) -> None:
        """Go through a recorded turn again. What was suggested is taken from the record; all else must come out the
        same.
        """
        self._source.recorded = deque(d for d in record.decisions if isinstance(d, m.Suggested))
        self._plans = deque(d for d in record.decisions if isinstance(d, m.Planned))
        step = self.handle(m.Turn(record.at_s, record.events))
        self._source.recorded = None
        self._plans.clear()
        for kind, recorded, again in (
            ("decision", record.decisions, step.decisions),
            ("command", record.commands, step.commands),
        ):
            if recorded != again:
                raise JournalDamaged(_difference(kind, record.at_s, recorded, again))

    @property
    def over(self) -> bool:
        """The run has ended and can never go on; one that was interrupted can."""
        return self.done and self._ending is not None and self._ending[0] != "interrupted"

    @property
    def wake_s(self) -> float | None:
        """When the controller wants a turn even if nothing happens."""
        if self._ending is not None:
            return None
        timers_s = (timers[0][0] for timers in (self._timers, self._ends) if timers)
        wake_s = min(*timers_s, self._limit[0], self._ask_again_s)
        return None if wake_s == math.inf else wake_s

    def _begin(self, at_s: float) -> None:
        self._at_s = at_s
        self._index = 0
        self._changed = False
        self._resuming = False
        self._answer.begin(at_s)
        self._source.decisions = self._answer.decisions

    # ------------------------------------------------------------------------------------------------ the whole run

    def _on_started(self, event: m.RunStarted) -> None:
        self._changed = True

    def _on_resumed(self, event: m.RunResumed) -> None:
        self._changed = self._resuming = True
        if self._ending is not None and self._ending[0] == "interrupted":
            self._ending, self.done = None, False

    def _on_interrupted(self, event: m.RunInterrupted) -> None:
        self._end("interrupted", "interrupted by the user")

    def _end(self, status: m.RunStatus, reason: str) -> None:
        """No more starts: every running trial is checkpointed and leaves; then the run is over."""
        self._changed = True
        if self._ending is None:
            self._ending = (status, reason)
            for trial_id in self._schedule.widths:
                self._schedule.pause(self.trials[trial_id], self.settings.grace_s)

    def _finish(self, status: m.RunStatus, reason: str) -> None:
        self.done = True
        self._ending = (status, reason)
        self._answer.decisions.append(m.RunEnded(status, reason))
        for node_id in list(self.fleet.nodes):
            self._release(node_id)

    def _succeed(self) -> None:
        """Nothing runs, nothing waits, and the algorithm has no more: paused trials will never go on."""
        for trial in self.trials.values():
            if trial.status == "paused":
                self._over(trial, "stopped", "not promoted")
        if not self._reports:
            timed = any(trial.run.until_s is not None for trial in self.trials.values())
            in_time = " in its time: give trials more of it, or report more often" * timed
            self._finish("failed", f"no trial has reported a finite {self.settings.metric!r}{in_time}")
        elif self._failed == len(self.trials):
            self._finish("failed", f"all {self._failed} trials failed; the last: {self._last_failure}")
        else:
            self._finish("succeeded", "every trial is done")

    # --------------------------------------------------------------------------------------------------- allocation

    def _fill(self) -> None:
        """Bring machines and trials to what the allocator wants; end the run when there is nothing left to do."""
        if self._ending is None:
            self._bring_to_target()
        if self._ending is not None and not self._schedule.widths and not self.done:
            self._finish(*self._ending)

    def _bring_to_target(self) -> None:
        self._ask_for_more()
        if self._nothing_left():
            self._succeed()
            return
        target = self._ask_for_target()
        if target.done:
            self._end("succeeded", target.done)
            return
        if self._fit_pools(target):
            self._ask_for_more()
            target = self._ask_for_target()
        waiting = len(self._schedule.waiting)
        self._schedule.follow(target, self.trials)
        if target.again and len(self._schedule.waiting) < waiting:
            self._bring_to_target()
            return
        self._hold(target.by_pool)
        stuck = not self._schedule.widths and self._schedule.waiting and not self._timers and not self._ends
        if stuck and all(node.devices for node in self.fleet.nodes.values()):
            self._end("failed", _nothing_for(next(iter(self._schedule.waiting)), target))

    def _fit_pools(self, target: Target) -> bool:
        """Give machines up where there are too many. Says whether some are kept after all that were to be given up."""
        kept = False
        for number, wanted in target.by_pool.items():
            pool = self.fleet.pools[number]
            surplus = pool.surplus(wanted)
            if surplus > 0:
                pool.give_up(surplus, *self._schedule.places(number, target, self.trials))
            elif surplus < 0:
                kept = pool.keep_again(-surplus) or kept
        return kept

    def _ask_for_more(self) -> None:
        """As many trials as there is a place for; at least one if there is nothing else to do."""
        room = self.fleet.room(to_width("the allocator's width", self._allocator.width))
        everything = self._allocator.all_at_once
        while (wanted := room - len(self._schedule.waiting)) > 0 or self._idle or everything:
            groups = [group for group in self._algorithm.more(max(wanted, 1), self._at_s) if group]
            if not groups:
                break
            self._queue(groups)

    def _nothing_left(self) -> bool:
        """Whether what came in with this turn was the last of all."""
        if self._idle and not self._timers:
            self._ask_for_more()
        return self._idle and not self._timers

    def _ask_for_target(self) -> Target:
        view = View(
            self.fleet.free,
            self._schedule.widths,
            self._schedule.waiting,
            lambda trial: self.trials[trial].run.stage,
            lambda pool: self.fleet.pools[pool].ready_machines(),
            lambda pool: self.fleet.pools[pool].awaited(),
            lambda: self.fleet.spent_usd(self._at_s),
            self._plans.popleft if self._plans else None,
            lambda: (trial for _, _, trial in self._timers if trial is not None and not self.trials[trial].over),
            lambda trial: self.trials[trial].run.width,
            lambda: (trial for trial in self._schedule.widths if self.trials[trial].leaving),
        )
        target = self._allocator.allocate(view, self._at_s)
        for machines in target.by_pool.values():
            require_int("the allocator's machines", machines, 0)
        self._ask_again_s = math.inf if target.wake_s is None else target.wake_s
        if target.plan is not None:
            self._answer.decisions.append(target.plan)
        return target

    @property
    def _idle(self) -> bool:
        """Nothing runs and nothing waits: if the algorithm has no more, nothing ever will."""
        return not self._schedule.waiting and not self._schedule.widths

    def _hold(self, machines: Mapping[int, int]) -> None:
        add, release = self.fleet.change(machines, self._at_s)
        for node_id in release:
            self._release(node_id)
        for node_id in add:
            self._answer.order(m.AddNode, node_id)

    def _release(self, node_id: str) -> None:
        self.fleet.drop(node_id, self._at_s)
        self._limit = self.fleet.spending.limit(self._at_s)
        self._answer.order(m.ReleaseNode, node_id)

    def _queue(self, groups: Iterable[TrialGroup]) -> None:
        for group in groups:
            for run in group:
                trial = self.trials.get(run.trial)
                if trial is None:
                    trial = self.trials[run.trial] = Trial(run.trial, run.config, run)
                trial.run, trial.config = run, run.config
                if run.until_s is not None:
                    heappush(self._ends, (run.until_s, self._answer.number(), trial.id))
                self._schedule.queue(trial)
                self._changed = True

    def _left(self, trial: Trial) -> None:
        self._schedule.left(trial)
        self._changed = True
        if trial.over:
            self._keeper.tidy(trial)

    # ----------------------------------------------------------------------------------------------------- machines

    def _on_node_billed(self, event: m.NodeBilled) -> None:
        if event.node in self.fleet.nodes:
            self.fleet.spending.begin(event)
            self._limit = self.fleet.spending.limit(self._at_s)

    def _on_node_ready(self, event: m.NodeReady) -> None:
        node = self.fleet.nodes.get(event.node)
        if node is not None and not node.devices:  # a machine that a new driver found again is ready already
            self.fleet.ready(event)
            self._nodes_never_ready = 0
            self._limit = self.fleet.spending.limit(self._at_s)
            self._changed = True

    def _on_node_notice(self, event: m.NodeNotice) -> None:
        if event.node in self.fleet.nodes:
            self.fleet.drain(event.node)
            for trial_id in sorted(self.fleet.nodes[event.node].trials):
                self._schedule.pause(self.trials[trial_id], max(0.0, event.gone_at_s - self._at_s))
            self._changed = True

    def _on_node_stray(self, event: m.NodeStray) -> None:
        if event.node not in self.fleet.nodes:
            self.fleet.never_again(event.node)
            self._answer.order(m.ReleaseNode, event.node)

    def _on_node_lost(self, event: m.NodeLost) -> None:
        if event.node not in self.fleet.nodes:
            return
        node = self.fleet.drop(event.node, self._at_s if event.billed_until_s is None else event.billed_until_s)
        self._limit = self.fleet.spending.limit(self._at_s)
        self._answer.note("warning", f"machine {node.id} is gone: {event.reason}")
        for trial_id in sorted(node.trials):
            trial = self.trials[trial_id]
            if all(slot.node != node.id for slot in trial.slots):  # it was only about to come here
                self._schedule.stay(trial)
                continue
            self._left(trial)
            if not trial.over:
                self._go_on_later(trial)
        self._changed = True
        if node.devices or self._resuming:
            return
        self._nodes_never_ready += 1
        if self._nodes_never_ready > FAILURES_BEFORE_GIVING_UP:
            self._end(
                "failed", f"{self._nodes_never_ready} machines in a row were lost before one was ready: {event.reason}"
            )

    # ------------------------------------------------------------------------------------------------------- trials

    def _current(self, event: m.TrialEvent) -> Trial | None:
        """The trial that an event is about; events of an older attempt are dropped."""
        trial = self.trials.get(event.trial)
        if trial is None or event.attempt != trial.attempt or not trial.slots:
            self._answer.decisions.append(m.EventHidden(self._index, "old attempt"))
            if (stray := getattr(event, "checkpoint", None)) is not None and not isinstance(event, m.CheckpointDamaged):
                self._answer.order(m.DropCheckpoint, stray)
            return None
        return trial

    def _on_reported(self, event: m.TrialReported) -> None:
        trial = self._current(event)
        if trial is None:
            return
        if self._measures:
            self._measure(trial)
        if event.iteration <= trial.iteration:
            self._answer.decisions.append(m.EventHidden(self._index, "retrained"))
            return
        if trial.over:  # it was told to stop, and its next report is where it does
            self._answer.decisions.append(m.EventHidden(self._index, "trial over"))
            return
        trial.iteration = event.iteration
        trial.failures = 0
        metric = self.settings.metric
        value = m.to_float(event.metrics[metric]) if metric in event.metrics else None
        if value is None:
            self._fail(trial, _no_metric(metric, event))
            if not self._reports:  # the first report of all: the name is wrong, not the trial
                self._end("failed", _no_metric(metric, event))
        elif not math.isfinite(value):
            self._fail(trial, f"{metric}={value} at iteration {event.iteration}: must be a finite number")
        else:
            self._count(trial, value if self.settings.mode == "min" else -value)

    def _measure(self, trial: Trial) -> None:
        """Reports that came in one turn share the time since the one before."""
        since_s, first = (trial.began_s, True) if trial.reported_s is None else (trial.reported_s, False)
        trial.reported_s = self._at_s
        if first or self._at_s > since_s:
            if self._together is None:
                self._together = Counter(each.trial for each in self._events if isinstance(each, m.TrialReported))
            self._allocator.stepped(trial.width, self._together[trial.id], self._at_s - since_s, first)

    def _count(self, trial: Trial, loss: float) -> None:
        self._reports += 1
        trial.loss = loss
        if trial.best_loss is None or loss < trial.best_loss:
            trial.best_loss = loss
            out = self._keeper.rank(trial)
            if out is not None and out != trial.id:
                self._keeper.tidy(self.trials[out])
        self._tell(Reported(trial.id, trial.iteration, loss))

    def _on_checkpointed(self, event: m.TrialCheckpointed) -> None:
        if (trial := self._current(event)) is not None:
            self._keeper.keep(trial, event.checkpoint)

    def _on_resized(self, event: m.TrialResized) -> None:
        if (trial := self._current(event)) is not None:
            self._schedule.resized(trial, event.slots)
            self._keeper.keep(trial, event.checkpoint)
            self._changed = True

    def _on_paused(self, event: m.TrialPaused) -> None:
        if (trial := self._current(event)) is None:
            return
        self._left(trial)
        self._keeper.keep(trial, event.checkpoint)
        if trial.over:
            return
        done = trial.run.until is not None and event.iteration >= trial.run.until
        out_of_time = trial.run.until_s is not None and not trial.leaving
        if not done and not out_of_time:
            self._go_on_later(trial)
            return
        if not trial.run.final and event.checkpoint is None:
            self._answer.advise(
                "the trainable gives no checkpoint to report(): a paused trial starts from zero when it goes on"
            )
        trial.status = "completed" if trial.run.final else "paused"
        self._ended(trial, over=False)

    def _go_on_later(self, trial: Trial) -> None:
        """It has left its slots before the end of its run, which may have come meanwhile."""
        if self._ending is None and trial.run.until_s is not None and self._at_s >= trial.run.until_s:
            self._out_of_time(trial)
        else:
            self._schedule.requeue(trial)

    def _out_of_time(self, trial: Trial) -> None:
        """The run is over however far the trial has come. What has reported nothing yet has no value to go by."""
        if trial.loss is not None:
            trial.status = "completed" if trial.run.final else "paused"
            self._ended(trial, over=False)
            return
        self._answer.advise(
            "a trial has reported nothing by the end of its time, and counts as the worst: give trials more time to "
            "begin with (a larger t_min, where there is one), or report more often"
        )
        trial.status = "stopped" if trial.run.final else "paused"
        self._answer.decisions.append(m.StatusChanged(trial.id, trial.status, "reported nothing in its time"))
        self._tell(Ended(trial.id, trial.iteration, None, over=trial.run.final))

    def _on_returned(self, event: m.TrialReturned) -> None:
        if (trial := self._current(event)) is None:
            return
        self._left(trial)
        self._keeper.keep(trial, event.checkpoint)
        if trial.over:
            return
        if trial.loss is None:
            self._fail(trial, "the trainable returned without calling elastune.report()")
        else:
            trial.status = "completed"
            self._ended(trial, over=True)

    def _ended(self, trial: Trial, over: bool) -> None:
        """A run has come to its end with a value: the searcher learns from it, the algorithm goes on."""
        assert trial.loss is not None
        self._answer.decisions.append(m.StatusChanged(trial.id, trial.status))
        self._observe(trial)
        self._keeper.tidy(trial)
        self._tell(Ended(trial.id, trial.iteration, trial.loss, over))

    def _observe(self, trial: Trial) -> None:
        assert trial.loss is not None
        trial.observed = trial.iteration
        value = trial.loss if self.settings.mode == "min" else -trial.loss
        self._source.observe(trial.id, trial.config, trial.iteration, value, trial.over)

    def _on_failed(self, event: m.TrialFailed) -> None:
        # While nothing has ever worked, trying the same code again only delays the news.
        self._retry_or_fail(event, event.error, event.final or not self._reports)

    def _on_lost(self, event: m.TrialLost) -> None:
        self._retry_or_fail(event, event.reason, False)

    def _retry_or_fail(self, event: m.TrialFailed | m.TrialLost, reason: str, final: bool) -> None:
        if (trial := self._current(event)) is None:
            return
        fault = isinstance(event, m.TrialFailed) or (event.fault and not self.fleet.is_draining(trial.slots))
        self._left(trial)
        if trial.over:
            return
        trial.failures += fault
        late = trial.run.until_s is not None and self._at_s >= trial.run.until_s
        if self._ending is not None or not fault or late:
            self._go_on_later(trial)
        elif final or trial.failures > self.settings.max_retries:
            self._fail(trial, reason)
        else:
            backoff_s = min(2.0 ** (trial.failures - 1), MAX_BACKOFF_S)
            self._answer.note("warning", f"trial {trial.id} is tried again in {backoff_s:g} s: {reason}")
            trial.status = "waiting"
            self._answer.decisions.append(m.StatusChanged(trial.id, trial.status, reason))
            heappush(self._timers, (self._at_s + backoff_s, self._answer.number(), trial.id))

    def _fail(self, trial: Trial, reason: str) -> None:
        self._answer.note("warning", f"trial {trial.id} failed: {reason}")
        self._source.observe(trial.id, trial.config, trial.iteration, None, True)
        self._over(trial, "failed", reason)
        self._failed += 1
        self._last_failure = f"{trial.id}: {reason}"
        if not self._reports and self._failed >= FAILURES_BEFORE_GIVING_UP:
            self._end(
                "failed", f"the first {self._failed} trials failed, none has reported anything; {self._last_failure}"
            )
        self._tell(Ended(trial.id, trial.iteration, None, over=True))

    def _over(self, trial: Trial, status: m.TrialStatus, reason: str) -> None:
        """The trial will never train again; if it still does, it is told to stop."""
        trial.status = status
        self._answer.decisions.append(m.StatusChanged(trial.id, status, reason))
        if status == "stopped" and trial.iteration > trial.observed:
            self._observe(trial)
        elif status == "stopped" and trial.loss is None and trial.attempt:
            self._source.observe(trial.id, trial.config, 0, None, True)
        self._schedule.stop(trial, self.settings.grace_s)
        self._forget_retry(trial)
        self._keeper.tidy(trial)
        self._changed = True

    def _on_damaged(self, event: m.CheckpointDamaged) -> None:
        if (trial := self._current(event)) is None:
            return
        self._left(trial)
        self._answer.note("warning", f"trial {trial.id}: {event.reason}; the checkpoint before it is used")
        self._keeper.drop(trial, event.checkpoint)
        if not trial.over:
            self._go_on_later(trial)

    def _on_warned(self, event: m.TrialWarned) -> None:
        self._answer.advise(event.text)

    # -------------------------------------------------------------------------------- algorithm, timers, checkpoints

    def _tell(self, event: AlgorithmEvent) -> None:
        actions = self._algorithm.on(event, self._at_s)
        if actions is NOTHING:  # nearly always
            return
        self._queue(actions.groups)
        for trial_id in actions.stops:
            if not self.trials[trial_id].over:
                self._over(self.trials[trial_id], "stopped", "not promoted")
        for trial_id in actions.pauses:
            self._cut_short(self.trials[trial_id])
        if actions.wake_s is not None:
            heappush(self._timers, (actions.wake_s, self._answer.number(), None))

    def _cut_short(self, trial: Trial) -> None:
        """The run ends with the next report: where the trial trains, or when it has a place again."""
        until = trial.iteration + 1
        if not trial.over and (trial.run.until is None or until < trial.run.until):
            trial.run = msgspec.structs.replace(trial.run, until=until, final=False)
            if trial.slots:
                self._schedule.pause(trial, None)

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._at_s:
            _, _, trial_id = heappop(self._timers)
            self._changed = True
            if trial_id is None:
                self._tell(Woken())
            else:
                self._schedule.queue(self.trials[trial_id])
        # While the run is ending they wait: it may be interrupted only.
        while self._ending is None and self._ends and self._ends[0][0] <= self._at_s:
            until_s, _, trial_id = heappop(self._ends)
            trial = self.trials[trial_id]
            # One that trains is ended where it trains; one that has ended may have another run by now.
            waits = trial_id in self._schedule.waiting or (trial.status == "waiting" and not trial.slots)
            if trial.run.until_s == until_s and waits:
                self._schedule.waiting.pop(trial_id, None)
                self._forget_retry(trial)
                self._changed = True
                self._out_of_time(trial)

    def _forget_retry(self, trial: Trial) -> None:
        """It is not tried again in a while, if it was to be."""
        self._timers = [timer for timer in self._timers if timer[2] != trial.id]
        heapify(self._timers)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        m.RunStarted: _on_started,
        m.RunResumed: _on_resumed,
        m.RunInterrupted: _on_interrupted,
        m.NodeBilled: _on_node_billed,
        m.NodeReady: _on_node_ready,
        m.NodeNotice: _on_node_notice,
        m.NodeStray: _on_node_stray,
        m.NodeLost: _on_node_lost,
        m.TrialReported: _on_reported,
        m.TrialCheckpointed: _on_checkpointed,
        m.TrialResized: _on_resized,
        m.TrialPaused: _on_paused,
        m.TrialReturned: _on_returned,
        m.TrialFailed: _on_failed,
        m.TrialLost: _on_lost,
        m.CheckpointDamaged: _on_damaged,
        m.TrialWarned: _on_warned,
    }


def _nothing_for(trial: str, target: Target) -> str:
    if trial not in target.widths:
        return f"trial {trial} waits, nothing else runs, and the allocator gives it no devices"
    return f"trial {trial} waits for {target.widths[trial]} devices that no set of machines here can offer"


def _no_metric(metric: str, event: m.TrialReported) -> str:
    given = event.metrics.get(metric)
    if given is not None:
        return f"trial {event.trial} reported {metric}={given!r}: must be a number"
    return f"trial {event.trial} reported no metric {metric!r}: {did_you_mean(metric, event.metrics, 'it reported')}"


def _difference(kind: str, at_s: float, recorded: tuple[object, ...], again: tuple[object, ...]) -> str:
    pairs = [pair for pair in zip(recorded, again, strict=False) if pair[0] != pair[1]]
    first = pairs[0] if pairs else (f"{len(recorded)} of them", f"{len(again)} of them")
    return (
        f"the journal cannot be replayed: at {at_s:g} s the recorded {kind} is {first[0]}, this version "
        f"makes {first[1]}. Resume with the version of Elastune and of the code that wrote it"
    )
