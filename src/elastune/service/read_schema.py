"""What is told of a run over HTTP. Times that end in `_s` are seconds since the run began, others unix seconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastune.messages import Scalar, TrialStatus
from elastune.service.schema import Best, JobModel, TenantModel, Usage
from elastune.service.states import State

Point = tuple[float, float]


class Brief(BaseModel):
    """How a run stands, in one line."""

    metric: str | None = None
    mode: Literal["min", "max"] | None = None
    best_value: float | None = None
    trials: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    fraction: float | None = None
    """How much of it is done; null where that is not known."""


class JobRow(JobModel):
    now: Brief


class Overview(BaseModel):
    jobs: list[JobRow]
    next: int | None


class StageModel(BaseModel):
    """A stage as it was planned; `actual_*` is what came of it, as far as it has begun and that is known."""

    bracket: int
    trials: int
    iterations: int | None
    devices: int
    machines: int
    begin_s: float | None = None
    end_s: float | None = None
    actual_trials: int | None = None
    actual_begin_s: float | None = None
    actual_end_s: float | None = None
    actual_machines: int | None = None


class Plan(BaseModel):
    """What was planned before the run, and what is expected now, after so many plans."""

    finish_s: float
    cost_usd: float
    at_most: bool
    """It is what the plan allows, not what it expects."""
    plans: int
    newest_finish_s: float
    newest_cost_usd: float
    stages: list[StageModel]


class NoteModel(BaseModel):
    level: Literal["info", "warning", "error"]
    text: str


class Progress(BaseModel):
    job: str
    name: str
    state: State
    reason: str
    cancelling: bool
    created_at: float
    started_at: float | None
    ended_at: float | None
    status: str | None = None
    """That of the run, once it has begun: running, succeeded, deadline, budget, interrupted or failed."""
    metric: str | None = None
    mode: Literal["min", "max"] | None = None
    trials: dict[TrialStatus, int] = {}
    trials_expected: int | None = None
    iterations: int = 0
    iterations_expected: int | None = None
    fraction: float | None = None
    best: Best | None = None
    checkpoint_iteration: int | None = None
    """That of the checkpoint that can be downloaded: the one kept nearest to the best value. Null: there is none."""
    error: str | None = None
    """Why the last of the failed trials has failed."""
    began_at: float | None = None
    seconds: float = 0.0
    deadline_s: float | None = None
    cost_usd: float = 0.0
    priced: bool = False
    """Its machines have a price."""
    budget_usd: float | None = None
    device_s: float = 0.0
    """Time on devices that is paid for."""
    budget_device_s: float | None = None
    plan: Plan | None = None
    machines: list[Point] = []
    """At that time it began to be so many."""
    spend: list[Point] = []
    bests: list[Point] = []
    """At that time this was the best value."""
    notes: list[NoteModel] = []


class TrialModel(BaseModel):
    trial: str
    number: int
    status: TrialStatus
    reason: str
    iteration: int
    value: float | None
    best_value: float | None
    best_iteration: int | None
    why: str | None
    """What its best value is, where it has not reported that itself."""
    params: dict[str, Any]
    """Those that the best value was reached with."""
    seconds: float
    """On devices."""
    attempts: int
    """It was started so often: after a pause, a loss of its machine or a failure it is again."""
    failures: int
    error: str | None


class TrialPage(BaseModel):
    trials: list[TrialModel]
    total: int


class ReportModel(BaseModel):
    at_s: float
    iteration: int
    metrics: dict[str, Scalar]


class TrialDetail(TrialModel):
    reports: list[ReportModel]
    """Fewer than there are, if there are very many."""
    reports_in_all: int
    traceback: str | None
    log: str
    """Its end."""
    log_cut: bool
    """There is more before it."""


class Curve(BaseModel):
    trial: str
    status: TrialStatus
    best_value: float
    points: list[Point]
    """Iteration and value."""


class Curves(BaseModel):
    metric: str | None
    mode: Literal["min", "max"] | None
    curves: list[Curve]
    left_out: int
    """So many trials have reported and are not among them."""


class Log(BaseModel):
    text: str
    cut: bool
    """There is more before it."""


class SeedRow(JobModel):
    seed: int | None
    now: Brief


class ExperimentModel(BaseModel):
    """The same job with several seeds. Mean and standard deviation are of those that have succeeded."""

    id: str
    name: str
    metric: str | None
    mode: Literal["min", "max"] | None
    jobs: list[SeedRow]
    count: int
    mean: float | None
    std: float | None
    best: float | None


class TenantUsage(BaseModel):
    tenant: TenantModel
    usage: Usage


class Login(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_-]+$")]
