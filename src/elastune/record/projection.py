"""Reads a journal into what people want to see: trials, machines, cost, the best so far.

A fold over records and nothing else, so the same view serves a run that goes on, a run of last year and a simulated
one. Whatever the controller hid (an older attempt, training done again) counts for nothing here either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

import msgspec

from elastune import cost
from elastune.cost import MachineUse
from elastune.errors import SpecError, StorageError, did_you_mean
from elastune.messages import (
    AddNode,
    AnyCommand,
    AnyDecision,
    AnyEvent,
    Checkpoint,
    CheckpointDamaged,
    Chosen,
    Config,
    DropCheckpoint,
    EventHidden,
    ExperimentEnded,
    Judged,
    Metrics,
    NodeBilled,
    NodeLost,
    NodeNotice,
    NodePriced,
    NodeReady,
    Note,
    Offer,
    Planned,
    Record,
    ReleaseNode,
    ResizeTrial,
    RunEnded,
    RunResumed,
    RunStarted,
    RunStatus,
    Slot,
    StartedExperiment,
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
    TrialStatus,
    experiment_of,
    to_float,
)

BusyEnd = Literal["open", "left", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Busy:
    """A trial on a device, from when it was told to start there until it left; `open`: it is there still."""

    slot: Slot
    trial: str
    from_s: float
    to_s: float
    end: BusyEnd
    share: float = 1.0
    """The part of the device that it had."""


def busy_device_s(segments: Iterable[Busy]) -> float:
    """For how long devices had work. Trials that share a device keep it busy once."""
    total, busy_until_s = 0.0, dict[tuple[str, int], float]()
    for busy in sorted(segments, key=lambda busy: busy.from_s):
        device = busy.slot.node, busy.slot.device
        from_s = max(busy.from_s, busy_until_s.get(device, -math.inf))
        total += max(0.0, busy.to_s - from_s)
        busy_until_s[device] = max(from_s, busy.to_s)
    return total


@dataclass(frozen=True, slots=True)
class BestPoint:
    """The moment a value better than all before it was reported, and what the run had cost by then."""

    at_s: float
    cost_usd: float
    value: float
    trial: str
    iteration: int


class Report(NamedTuple):
    at_s: float
    iteration: int
    metrics: Metrics


@dataclass(slots=True)
class TrialView:
    """What is known of one trial. `config` is the newest one; `best_config` the one its best value was reached with."""

    id: str
    config: Config
    status: TrialStatus = "waiting"
    reason: str = ""
    iteration: int = 0
    attempt: int | None = None
    attempts: int = 0
    lineage: int = 0
    value: float | None = None
    best_value: float | None = None
    best_iteration: int | None = None
    best_lineage: int | None = None
    best_config: Config | None = None
    judged: str = ""
    """What its best value is, where it has not reported that itself."""
    reports: list[Report] = field(default_factory=list)
    failures: list[TrialFailed] = field(default_factory=list)
    losses: int = 0
    last_checkpoint: Checkpoint | None = None
    best_checkpoint: Checkpoint | None = None
    slots: tuple[Slot, ...] = ()
    """The devices it is on now, since `held_from_s`."""
    share: float = 1.0
    """The part of each of them that it has; `told_share` is what it has after its next resize."""
    told_share: float = 1.0
    held_from_s: float = 0.0
    segments: list[Busy] = field(default_factory=list)
    """The devices it was on before; `RunView.segments()` has both."""
    start_s: float | None = None
    end_s: float | None = None

    @property
    def to_train(self) -> int:
        """How many iterations it has still to train until it is what it was judged to be."""
        return max(0, (self.best_iteration or 0) - self.iteration) if self.judged else 0

    @property
    def verdict(self) -> str:
        """What its best value is, where it has not reported that itself, and how far it is from there."""
        so_far = f": so far {self.iteration} of {self.best_iteration} iterations" if self.to_train else ""
        return f"{self.judged}{so_far}"

    def is_best(self, checkpoint: Checkpoint) -> bool:
        """Whether it is what its best value was measured on: in the middle of the next step it is not."""
        best = self.id, self.best_lineage, self.best_iteration
        return (checkpoint.trial, checkpoint.lineage, checkpoint.iteration) == best and not checkpoint.midway

    def saved(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None:
            self.last_checkpoint = checkpoint
            if self.is_best(checkpoint):
                self.best_checkpoint = checkpoint

    def improved(self, value: float, iteration: int) -> None:
        self.best_value, self.best_iteration = value, iteration
        self.best_lineage, self.best_config = self.lineage, self.config
        last = self.last_checkpoint  # it may have been saved just before it was reported
        self.best_checkpoint = last if last is not None and self.is_best(last) else None


class Improvement(NamedTuple):
    at_s: float
    value: float
    trial: str
    iteration: int


@dataclass
class RunView:
    """A run as its journal tells it so far. Feed it records in order; a live run can be followed one by one.

    Where several experiments share the run, what trials have reported is by the metric of their own, and there is no
    `best` of all; `only` shows one of them.
    """

    at_s: float = 0.0
    status: Literal["running"] | RunStatus = "running"
    reason: str = ""
    plans: list[tuple[float, Planned]] = field(default_factory=list)
    """Every plan that was made, and when."""
    chosen: list[tuple[float, Chosen]] = field(default_factory=list)
    """Every machine that was chosen for a trial, and when."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """What was asked for, by machine, where machines differ."""
    noticed: set[str] = field(default_factory=set)
    """Machines of which it was said that they will be taken away."""
    ready_s: list[float] = field(default_factory=list)
    """When each of `machines` could be used."""
    notes: list[Note] = field(default_factory=list)
    trials: dict[str, TrialView] = field(default_factory=dict)
    best: TrialView | None = None
    bests: dict[str, TrialView] = field(default_factory=dict)
    """By experiment."""
    last_failure: str = ""
    """Which trial failed last, for good or to be tried again, and why."""
    retrained: int = 0
    """Reports of training that was done again after a restore."""
    _sharing: dict[str, StartedExperiment] = field(default_factory=dict)
    """The experiments, where there are several."""
    _ended: dict[str, tuple[RunStatus, str]] = field(default_factory=dict)
    """Those of them that are over."""
    _others: dict[str, TrialView] = field(default_factory=dict)
    """Where only one of them is shown: the trials of the others, which were on the same machines."""
    _retrained: Counter[str] = field(default_factory=Counter, compare=False)
    _started: RunStarted | None = None
    _uses: list[MachineUse] = field(default_factory=list)
    _held: dict[str, int] = field(default_factory=dict)  # node -> its place in _uses, while it is held
    _places: dict[str, int] = field(default_factory=dict)  # the same of all that ever were
    _on_devices: dict[str, TrialView] = field(default_factory=dict)
    _heirs: dict[str, list[TrialView]] = field(default_factory=dict)
    """By the path of a checkpoint: the other trials that have gone on from it."""
    _improvements: list[Improvement] = field(default_factory=list)
    _before_s: float = 0.0
    _lost_s: float = 0.0
    """Until when a trial that is lost in this turn has trained. Of the time in which no driver was there nothing is
    known: then it is the turn before."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> RunView:
        view = cls()
        for record in records:
            view.feed(record)
        return view

    def feed(self, record: Record) -> None:
        self._before_s, self.at_s = self.at_s, record.at_s
        self._lost_s = self.at_s
        hidden = {d.index: d.reason for d in record.decisions if isinstance(d, EventHidden)}
        for index, event in enumerate(record.events):
            if index not in hidden:
                self._on_event(event)
            elif hidden[index] == "retrained":
                self.retrained += 1
                self._retrained[experiment_of(getattr(event, "trial", ""))] += 1
        for decision in record.decisions:
            self._on_decision(decision)
        for command in record.commands:
            self._on_command(command)

    # ---------------------------------------------------------------------------------------------- what can be read

    @property
    def started(self) -> RunStarted:
        if self._started is None:
            raise StorageError(
                "the journal has no RunStarted event: the run has not begun yet, since Ray starts first, or it is not "
                "the journal of a run"
            )
        return self._started

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of those that share the run; mostly there is but one."""
        return tuple(self._sharing) or (self.started.name,)

    def only(self, experiment: str) -> RunView:
        """One experiment as it stands now: its trials, its metric, its best. Machines, time and cost are those of the
        whole run.
        """
        if experiment not in self.experiments:
            raise SpecError(f"experiment={experiment!r}: {did_you_mean(experiment, self.experiments, 'this run has')}")
        if not self._sharing:
            return self
        its = self._sharing[experiment]
        status, reason = self._ended.get(experiment, (self.status, self.reason))
        return replace(
            self,
            status=status,
            reason=reason,
            trials={trial: view for trial, view in self.trials.items() if experiment_of(trial) == experiment},
            _others={trial: view for trial, view in self.trials.items() if experiment_of(trial) != experiment},
            best=self.bests.get(experiment),
            bests={name: trial for name, trial in self.bests.items() if name == experiment},
            retrained=self._retrained[experiment],
            _sharing={},
            _started=msgspec.structs.replace(
                self.started,
                name=its.name,
                metric=its.metric,
                mode=its.mode,
                seed=its.seed,
                experiment=self.started.experiment | its.experiment,
                experiments=msgspec.UNSET,
            ),
            _improvements=[point for point in self._improvements if experiment_of(point.trial) == experiment],
        )

    @property
    def machines(self) -> list[MachineUse]:
        """Every machine ever held, in the order they came; those still held end now."""
        return self._machines_until(self.at_s)

    def cost_usd(self, until_s: float | None = None) -> float:
        """What the run had cost by `until_s`, by default by now; nothing is known beyond now."""
        until_s = self.at_s if until_s is None else min(until_s, self.at_s)
        return cost.cost_usd(self._machines_until(until_s))

    def paid_device_s(self) -> float:
        """For how long devices were paid, busy or not: what a budget in time on devices goes by."""
        return cost.SECONDS_PER_HOUR * cost.cost_usd(use.in_device_hours for use in self.machines)

    @property
    def best_so_far(self) -> list[BestPoint]:
        """One entry per improvement. Costs are looked up late: a machine is billed from before it is known as ready."""
        return [
            BestPoint(point.at_s, self.cost_usd(point.at_s), point.value, point.trial, point.iteration)
            for point in self._improvements
        ]

    @property
    def improvements(self) -> list[Improvement]:
        """As `best_so_far`, without looking costs up."""
        return list(self._improvements)

    def counts(self) -> dict[TrialStatus, int]:
        """How many trials are in each status that occurs, in the order a trial goes through them."""
        found = Counter(trial.status for trial in self.trials.values())
        return {status: found[status] for status in get_args(TrialStatus) if status in found}

    def segments(self) -> Iterator[Busy]:
        """Which trial was on which device, and when, whoever's it is; what is open still ends now."""
        for trial in (*self.trials.values(), *self._others.values()):
            yield from trial.segments
            for slot in trial.slots:
                yield Busy(slot, trial.id, trial.held_from_s, self.at_s, "open", trial.share)

    def busy_device_s(self) -> float:
        return busy_device_s(self.segments())

    def utilisation(self) -> float | None:
        """The share of the paid device time in which devices had work; None before there was any."""
        held_device_s = sum(use.devices * max(0.0, use.to_s - use.from_s) for use in self.machines)
        return self.busy_device_s() / held_device_s if held_device_s > 0 else None

    def metric_of(self, metrics: Metrics) -> float | None:
        """The run's metric in a report, where it is there and a finite number."""
        return _value(self.started, metrics)

    # ---------------------------------------------------------------------------------------------------- the folding

    def _on_event(self, event: AnyEvent) -> None:
        match event:
            case TrialReported():
                if trial := self.trials.get(event.trial):
                    self._reported(trial, event)
            case TrialCheckpointed():
                if trial := self.trials.get(event.trial):
                    trial.saved(event.checkpoint)
            case TrialResized():
                if trial := self.trials.get(event.trial):
                    trial.saved(event.checkpoint)
                    self._leaves(trial, "left")
                    self._holds(trial, event.slots, trial.told_share)
            case TrialPaused() | TrialReturned():
                if trial := self.trials.get(event.trial):
                    trial.iteration = max(trial.iteration, event.iteration)
                    trial.saved(event.checkpoint)
                    self._attempt_over(trial, event.attempt, "left")
            case TrialFailed():
                if trial := self.trials.get(event.trial):
                    trial.failures.append(event)
                    self._attempt_over(trial, event.attempt, "failed")
            case TrialLost():
                if trial := self.trials.get(event.trial):
                    trial.losses += 1
                    self._attempt_over(trial, event.attempt, "lost")
            case CheckpointDamaged():
                self._gone(event.checkpoint)
                if trial := self.trials.get(event.trial):
                    self._attempt_over(trial, event.attempt, "lost")
            case NodeBilled():
                if event.node not in self._held:
                    self._begin_use(event)
                if isinstance(event, NodeReady):
                    self.ready_s[self._held[event.node]] = min(self.at_s, self.ready_s[self._held[event.node]])
            case NodeNotice():
                self.noticed.add(event.node)
            case NodePriced():
                if (place := self._held.get(event.node)) is not None:
                    self._uses[place] = self._uses[place].repriced(self.at_s, event.price_usd_per_hour)
            case NodeLost():
                self._node_over(event.node, "lost", event.billed_until_s, event.revoked)
            case RunStarted():
                self._started = event
                if event.experiments is not msgspec.UNSET:
                    self._sharing = {each.name: each for each in event.experiments}
            case RunResumed():
                self.status, self.reason = "running", ""
                self._lost_s = self._before_s

    def _on_decision(self, decision: AnyDecision) -> None:
        match decision:
            case Suggested(config=config) if config is not None:
                self.trials.setdefault(decision.trial, TrialView(decision.trial, config))
            case StatusChanged():
                if trial := self.trials.get(decision.trial):
                    trial.status, trial.reason = decision.status, decision.reason
                    if decision.reason and decision.status in ("waiting", "failed"):
                        self.last_failure = f"{trial.id}: {decision.reason}"
            case Planned():
                self.plans.append((self.at_s, decision))
            case Chosen():
                self.chosen.append((self.at_s, decision))
            case Note():
                self.notes.append(decision)
            case Judged():
                self._judged(decision)
            case ExperimentEnded():
                self._ended[decision.experiment] = decision.status, decision.reason
            case RunEnded():
                self.status, self.reason = decision.status, decision.reason

    def _on_command(self, command: AnyCommand) -> None:
        match command:
            case StartTrial():
                self._starts(command)
            case AddNode():
                if isinstance(command.offer, Offer):
                    self.offers[command.node] = command.offer
            case ResizeTrial():
                if trial := self.trials.get(command.trial):
                    trial.told_share = command.share
            case ReleaseNode():
                self._node_over(command.node, "left")
            case DropCheckpoint():
                self._gone(command.checkpoint)

    def _reported(self, trial: TrialView, event: TrialReported) -> None:
        trial.iteration = max(trial.iteration, event.iteration)
        trial.reports.append(Report(self.at_s, event.iteration, event.metrics))
        experiment = self._experiment_of(trial)
        goal = self._sharing.get(experiment, self.started)
        value = _value(goal, event.metrics)
        if value is None:
            return
        trial.value = value
        if not trial.judged and _is_better(goal, value, trial.best_value):
            best = self.bests.get(experiment)
            best_before, settled = (best.best_value, best.judged) if best else (None, "")
            trial.improved(value, event.iteration)
            if not settled and _is_better(goal, value, best_before):
                self._has_best(experiment, trial, value, event.iteration)

    def _judged(self, decision: Judged) -> None:
        """What was the best before was none."""
        trial = self.trials[decision.trial]
        experiment = self._experiment_of(trial)
        trial.judged = decision.why
        trial.improved(decision.value, decision.iteration)
        its = [point for point in self._improvements if self._experiment_of(self.trials[point.trial]) == experiment]
        self._improvements = [point for point in self._improvements if point not in its]
        self._has_best(experiment, trial, decision.value, decision.iteration)

    def _has_best(self, experiment: str, trial: TrialView, value: float, iteration: int) -> None:
        self.bests[experiment] = trial
        self.best = None if self._sharing else trial
        self._improvements.append(Improvement(self.at_s, value, trial.id, iteration))

    def _experiment_of(self, trial: TrialView) -> str:
        return experiment_of(trial.id) if self._sharing else self.started.name

    def _starts(self, command: StartTrial) -> None:
        trial = self.trials.setdefault(command.trial, TrialView(command.trial, command.config))
        if command.attempt == trial.attempt and trial.slots:
            return  # submitted again after a resume: it is there already
        self._leaves(trial, "left")
        trial.status, trial.reason = "running", ""
        if command.lineage > trial.lineage and command.checkpoint is not None:
            self._takes_over(trial, command.checkpoint)
        trial.config, trial.lineage = command.config, command.lineage
        trial.attempts += command.attempt != trial.attempt
        trial.attempt = command.attempt
        trial.start_s = self.at_s if trial.start_s is None else trial.start_s
        self._holds(trial, command.slots, command.share)

    def _takes_over(self, trial: TrialView, checkpoint: Checkpoint) -> None:
        """Where it stands now is where another trial stood; its best stays what it has reported itself."""
        trial.iteration, trial.last_checkpoint = checkpoint.iteration, checkpoint
        if checkpoint.trial != trial.id:
            self._heirs.setdefault(checkpoint.path, []).append(trial)

    def _attempt_over(self, trial: TrialView, attempt: int, end: BusyEnd) -> None:
        if attempt == trial.attempt:
            self._leaves(trial, end)

    def _holds(self, trial: TrialView, slots: tuple[Slot, ...], share: float) -> None:
        trial.slots, trial.held_from_s, trial.end_s = tuple(sorted(set(slots))), self.at_s, None
        trial.share = trial.told_share = share
        self._on_devices[trial.id] = trial

    def _leaves(self, trial: TrialView, end: BusyEnd, to_s: float | None = None) -> None:
        if trial.slots:
            if to_s is None:
                to_s = self._lost_s if end == "lost" else self.at_s
            to_s = max(to_s, trial.held_from_s)
            held = (trial.held_from_s, to_s, end, trial.share)
            trial.segments += [Busy(slot, trial.id, *held) for slot in trial.slots]
            trial.slots, trial.end_s = (), to_s
            del self._on_devices[trial.id]

    def _begin_use(self, event: NodeBilled) -> None:
        """A machine that was to be given back when its driver died, and is found again, is paid for once."""
        place = self._places.get(event.node)
        if place is not None and self._uses[place].from_s == event.billed_from_s:
            self._held[event.node] = place
            self._uses[place] = replace(self._uses[place], to_s=math.inf)
            return
        self._held[event.node] = self._places[event.node] = len(self._uses)
        self._uses.append(MachineUse.of(event))
        self.ready_s.append(math.inf)

    def _node_over(self, node: str, end: BusyEnd, billed_until_s: float | None = None, revoked: bool = False) -> None:
        for trial in list(self._on_devices.values()):
            if any(slot.node == node for slot in trial.slots):  # a gang falls with any of its members
                self._leaves(trial, end, billed_until_s)
        place = self._held.pop(node, None)
        if place is not None:
            until_s = self.at_s if billed_until_s is None else billed_until_s
            self._uses[place] = self._uses[place].until(until_s, revoked)

    def _gone(self, checkpoint: Checkpoint) -> None:
        trial = self.trials.get(checkpoint.trial)
        for holder in [*([] if trial is None else [trial]), *self._heirs.pop(checkpoint.path, ())]:
            if holder.last_checkpoint == checkpoint:
                holder.last_checkpoint = None
            if holder.best_checkpoint == checkpoint:
                holder.best_checkpoint = None

    def _machines_until(self, until_s: float) -> list[MachineUse]:
        return [use.until(until_s) for use in self._uses]


def _value(goal: RunStarted | StartedExperiment, metrics: Metrics) -> float | None:
    value = to_float(metrics[goal.metric]) if goal.metric in metrics else None
    return value if value is not None and math.isfinite(value) else None


def _is_better(goal: RunStarted | StartedExperiment, value: float, than: float | None) -> bool:
    return than is None or (value < than if goal.mode == "min" else value > than)
