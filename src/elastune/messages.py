"""Every event and every command: all that the controller and the world say to each other.

An event tells what happened, a command what shall happen, a decision what the controller chose for reasons that are not
in the events alone. A turn is one batch of events with one time. A record is a turn with what the controller made of
it: the unit of the journal.

The messages are msgspec structs: they are made, written and read tens of thousands of times a second in a simulation.
They are out of the garbage collector's sight, which would otherwise look at all of them again and again; they form no
cycles.
Times are seconds since the run began; downtime counts.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

Scalar = bool | int | float | str
Config = dict[str, Any]
Metrics = dict[str, Scalar]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_scalar(value: float) -> Scalar:
    """A float as it travels: JSON has no NaN and no infinity, so these become their names."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_float(value: Scalar) -> float | None:
    """The number that a metric stands for, or None where it is a text that is no number."""
    if isinstance(value, str):
        return _NON_FINITE.get(value)
    return float(value)


def trial_number(trial: str) -> str:
    """The end of a trial's id, without the name of the run: what is drawn for a trial must not depend on that."""
    return trial.rpartition("-")[2]


def experiment_of(trial: str) -> str:
    """The beginning of a trial's id: the name of its experiment, which may have hyphens itself."""
    return trial.rpartition("-")[0]


class Slot(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Where one worker process of a trial lives: a device of a machine, or one lane of a device that trials share."""

    node: str
    device: int
    lane: int = 0


Market = Literal["on-demand", "spot"]


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Which machine is asked for: its type, perhaps with a zone (m4.4xlarge/us-east-1a), and from which market. A spot
    machine is taken away when an hour of it costs more than the most that is offered.
    """

    type: str
    market: Market = "on-demand"
    max_usd_per_hour: float | None = None


class Checkpoint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A saved state of a trial: its place in the checkpoint store, and how to tell that it is whole. `midway` it is
    between this iteration and the next; with a `part`, counted from 1, it is one of several such.
    """

    trial: str
    lineage: int
    iteration: int
    path: str
    sha256: str
    size_bytes: int
    part: int = 0
    midway: bool = False


class PlannedRound(msgspec.Struct, frozen=True, gc=False):
    """A bracket in one of its rounds, which ends by the clock. `machines` are those of all brackets together from when
    the round begins.
    """

    round: int
    bracket: int
    trials: int
    devices_per_trial: int
    machines: int
    go_on: int | None
    """None: it is the last round."""
    begin_s: float
    end_s: float


class ClockPlan(msgspec.Struct, frozen=True, gc=False):
    """What an algorithm that plans by the clock has planned before the run, and what that takes and costs at most:
    `device_s` is the time on devices that is paid for. Without rounds it holds the same machines to the end.
    """

    rounds: tuple[PlannedRound, ...]
    machines: int
    """The most that are held at once."""
    finish_s: float
    cost_usd: float
    device_s: float


# ---------------------------------------------------------------------------------------------------------- events


class Event(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="type"):
    """Something that happened in the world."""


class StartedExperiment(msgspec.Struct, frozen=True, gc=False):
    """One of several that share a run."""

    name: str
    metric: str
    mode: Literal["min", "max"]
    seed: int
    priority: float
    experiment: dict[str, Any]


class RunStarted(Event, frozen=True, gc=False):
    """The first event of every journal: what was asked for, by whom it can be read, and when it began."""

    name: str
    metric: str
    mode: Literal["min", "max"]
    seed: int
    deadline_s: float | None
    budget_usd: float | None
    price_usd_per_device_hour: float
    started_unix_s: float
    experiment: dict[str, Any]
    versions: dict[str, str]
    checkpoints: str | None = None
    """Where the checkpoints are, if not in the run's folder."""
    budget_device_s: float | None = None
    plan: ClockPlan | None = None
    """Where the algorithm has one; plans that an allocator makes are decisions."""
    experiments: tuple[StartedExperiment, ...] | msgspec.UnsetType = msgspec.UNSET
    """Where several share the run; metric, mode and seed above are then those of the first."""


class RunResumed(Event, frozen=True, gc=False):
    """A new driver took over. What the old one left behind follows in the same turn, as losses."""


class RunInterrupted(Event, frozen=True, gc=False):
    """The user asked for an orderly end: pause everything, keep every checkpoint."""


class NodeBilled(Event, frozen=True, gc=False):
    """A machine that was asked for boots, and is paid for. Its price is that of the whole machine, for at least
    `minimum_s`, and `data_usd` once. If it is taken away before `refund_s`, it costs nothing.
    """

    node: str
    devices: int
    billed_from_s: float
    price_usd_per_hour: float
    minimum_s: float = 0.0
    data_usd: float = 0.0
    refund_s: float = 0.0


class NodeReady(NodeBilled, frozen=True, gc=False):
    """It can be used. Where it does not boot, this is the first that is heard of it."""


class NodePriced(Event, frozen=True, gc=False):
    """From now on an hour of a machine that is paid for costs this."""

    node: str
    price_usd_per_hour: float


class NodeStray(Event, frozen=True, gc=False):
    """A new driver found a machine that nobody asked for, or asks for any more: it must be given back."""

    node: str


class NodeNotice(Event, frozen=True, gc=False):
    """The machine will be taken away at `gone_at_s`."""

    node: str
    gone_at_s: float


class NodeLost(Event, frozen=True, gc=False):
    """The machine is gone. It is paid for until now, unless its end is known to have been earlier. `revoked`: it was
    the cloud that wanted it back.
    """

    node: str
    reason: str
    billed_until_s: float | None = None
    revoked: bool = False


class TrialReported(Event, frozen=True, gc=False):
    trial: str
    attempt: int
    iteration: int
    metrics: Metrics


class TrialCheckpointed(Event, frozen=True, gc=False):
    """Saved along the way; the trial goes on."""

    trial: str
    attempt: int
    checkpoint: Checkpoint


class TrialResized(Event, frozen=True, gc=False):
    """The trial has taken the slots it was told to take, and goes on."""

    trial: str
    attempt: int
    slots: tuple[Slot, ...]
    iteration: int
    checkpoint: Checkpoint | None


class TrialPaused(Event, frozen=True, gc=False):
    """The trial left its slots: its run is used up, or it was told to pause or stop. Without a checkpoint it starts
    anew.
    """

    trial: str
    attempt: int
    iteration: int
    checkpoint: Checkpoint | None


class TrialReturned(Event, frozen=True, gc=False):
    """The user's function came to its own end."""

    trial: str
    attempt: int
    iteration: int
    checkpoint: Checkpoint | None


class TrialFailed(Event, frozen=True, gc=False):
    """The user's code raised. With `final`, trying again cannot help. With `store` it was the checkpoint store that
    failed: the trial is not to blame, and others will meet the same.
    """

    trial: str
    attempt: int
    error: str
    traceback: str
    final: bool = False
    store: bool = False


class TrialLost(Event, frozen=True, gc=False):
    """The worker or its machine is gone. Without `fault` the trial has nothing to do with it, as when its machine or
    its driver ended: that is no failed try. A worker that died alone may have died of what it ran.
    """

    trial: str
    attempt: int
    reason: str
    fault: bool = True


class CheckpointDamaged(Event, frozen=True, gc=False):
    """The checkpoint a trial should start from cannot be read, or is not what was written. The trial did not start."""

    trial: str
    attempt: int
    checkpoint: Checkpoint
    reason: str


class TrialWarned(Event, frozen=True, gc=False):
    """Advice from the worker for the user."""

    trial: str
    attempt: int
    text: str


AnyEvent = (
    RunStarted
    | RunResumed
    | RunInterrupted
    | NodeBilled
    | NodeReady
    | NodePriced
    | NodeStray
    | NodeNotice
    | NodeLost
    | TrialReported
    | TrialCheckpointed
    | TrialResized
    | TrialPaused
    | TrialReturned
    | TrialFailed
    | TrialLost
    | CheckpointDamaged
    | TrialWarned
)
TrialEvent = (
    TrialReported
    | TrialCheckpointed
    | TrialResized
    | TrialPaused
    | TrialReturned
    | TrialFailed
    | TrialLost
    | CheckpointDamaged
    | TrialWarned
)

# -------------------------------------------------------------------------------------------------------- commands


class Command(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="type"):
    """Something that shall happen. The number makes it idempotent: a command that was carried out is not again."""

    id: int


class AddNode(Command, frozen=True, gc=False):
    """Without an offer it is a machine like all others of the run."""

    node: str
    offer: Offer | msgspec.UnsetType = msgspec.UNSET


class ReleaseNode(Command, frozen=True, gc=False):
    node: str


class StartTrial(Command, frozen=True, gc=False):
    """Train from `iteration` (where the checkpoint is) until the end; no report on the way waits for an answer.

    With `final` the trial will not be asked to go on afterwards. `share` is the part of its device that each of its
    workers may use: below 1 where trials share one. At `until_s` it is over too: it leaves at the last report before
    which another step would not fit, and is lost if it has not.
    """

    trial: str
    attempt: int
    lineage: int
    config: Config
    iteration: int
    checkpoint: Checkpoint | None
    until_iteration: int | None
    final: bool
    slots: tuple[Slot, ...]
    share: float = 1.0
    until_s: float | None = None


class PauseTrial(Command, frozen=True, gc=False):
    """Checkpoint at the next report and leave the slots; killed if that takes longer than `within_s`."""

    trial: str
    attempt: int
    within_s: float | None


class ResizeTrial(Command, frozen=True, gc=False):
    """Checkpoint at the next report, take these slots in place of those held, and go on. The attempt stays the same.

    They may be the slots that it holds, with another share of their devices.
    """

    trial: str
    attempt: int
    slots: tuple[Slot, ...]
    share: float = 1.0


class StopTrial(Command, frozen=True, gc=False):
    """Leave the slots at the next report, nothing need be kept; killed if that takes longer than `within_s`."""

    trial: str
    attempt: int
    within_s: float | None


class DropCheckpoint(Command, frozen=True, gc=False):
    checkpoint: Checkpoint


AnyCommand = AddNode | ReleaseNode | StartTrial | ResizeTrial | PauseTrial | StopTrial | DropCheckpoint

# ------------------------------------------------------------------------------------------------------- decisions

TrialStatus = Literal["waiting", "running", "paused", "completed", "stopped", "failed"]
RunStatus = Literal["succeeded", "deadline", "budget", "interrupted", "failed"]


class Decision(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="type"):
    """Something the controller chose. Replaying the journal reads it back instead of choosing again."""


class Suggested(Decision, frozen=True, gc=False):
    """The searcher's answer for a new trial; None: it has no more."""

    trial: str
    config: Config | None


class StatusChanged(Decision, frozen=True, gc=False):
    """A trial is in a new state. `paused` may go on later; completed, stopped and failed are final."""

    trial: str
    status: TrialStatus
    reason: str = ""


class EventHidden(Decision, frozen=True, gc=False):
    """The event at this place of the turn counts for nothing: trained again after a restore, of an older attempt, or of
    a trial that was told to stop.
    """

    index: int
    reason: Literal["retrained", "old attempt", "trial over"]


class Note(Decision, frozen=True, gc=False):
    """A sentence for the user."""

    level: Literal["info", "warning", "error"]
    text: str


class PlannedStage(msgspec.Struct, frozen=True, gc=False):
    """What a stage gets. `devices` is a factor or a multiple of the number of trials, so that they share it fairly:
    with fewer devices than trials each trial has one and the rest queue.

    `ask_s` is when the machines that this stage needs more than the one before are asked for: so long after that one
    began; None: when it has ended.
    """

    trials: int
    iterations: int
    devices: int
    machines: int
    ask_s: float | None = None

    @property
    def width(self) -> int:
        """Devices of each trial."""
        return max(1, self.devices // self.trials)


class Planned(Decision, frozen=True, gc=False):
    """The plan from now on, bracket by bracket: of each the stages from the one it is in, when it should be done and
    what the whole run should then have cost.
    """

    brackets: tuple[tuple[PlannedStage, ...], ...]
    done_s: tuple[float, ...]
    cost_usd: float

    @property
    def finish_s(self) -> float:
        """When all are done."""
        return max(self.done_s)


class Chosen(Decision, frozen=True, gc=False):
    """The machine that a trial is to have next: how likely it is to be taken away within the hour, and what a step is
    expected to cost there.
    """

    trial: str
    offer: Offer
    revoked_p: float
    step_usd: float


class Judged(Decision, frozen=True, gc=False):
    """The best of an experiment is this trial from now on, whatever trials report: what it is worth at which iteration,
    and what that is.
    """

    trial: str
    iteration: int
    value: float
    why: str


class ExperimentEnded(Decision, frozen=True, gc=False):
    """One of several that share the run is over."""

    experiment: str
    status: RunStatus
    reason: str


class RunEnded(Decision, frozen=True, gc=False):
    status: RunStatus
    reason: str


AnyDecision = Suggested | Planned | Chosen | StatusChanged | EventHidden | Note | Judged | ExperimentEnded | RunEnded


class Turn(msgspec.Struct, frozen=True, gc=False):
    at_s: float
    events: tuple[AnyEvent, ...]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One line of the journal: a turn, what was decided, and the commands that followed."""

    at_s: float
    events: tuple[AnyEvent, ...]
    decisions: tuple[AnyDecision, ...]
    commands: tuple[AnyCommand, ...]


class Inventory(msgspec.Struct, frozen=True, gc=False):
    """What is there: the machines, and the attempt each running trial is in."""

    nodes: frozenset[str]
    trials: dict[str, int]


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(Record).decode
