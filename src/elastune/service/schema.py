"""What travels over HTTP, with the same names as elsewhere. Times are unix seconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastune.service.jobs import Listed
from elastune.service.states import State
from elastune.service.tenants import Tenant, Token

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Problem(BaseModel):
    """Why a request was refused: what was given, what is allowed, what to do."""

    error: str


class Submitted(BaseModel):
    """A job to run: an experiment with the names that its YAML file has, or Ultron's JSON."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any]
    code: Hash | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    seeds: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Run it so many times with other seeds, as one experiment."""


class JobModel(BaseModel):
    id: str
    number: int
    tenant: str
    name: str
    state: State
    reason: str
    priority: int
    experiment: str | None
    code: str | None
    attempt: int
    devices: int
    """The most it can use."""
    created_at: float
    started_at: float | None
    ended_at: float | None
    summary: dict[str, Any]

    @classmethod
    def of(cls, job: Listed) -> JobModel:
        fields = {name: getattr(job, name) for name in cls.model_fields if name != "devices"}
        return cls(**fields, devices=job.most)


class JobList(BaseModel):
    jobs: list[JobModel]
    next: int | None
    """Give it as `before` for the next page."""


class JobDetail(JobModel):
    spec: dict[str, Any]
    history: list[dict[str, Any]]


class CodeModel(BaseModel):
    code: str
    bytes: int


class Best(BaseModel):
    """The best configuration so far."""

    trial: str
    metric: str
    value: float
    iteration: int | None
    params: dict[str, Any]
    why: str | None = None
    """What its value is, where the algorithm judges it and the trial has not reported it itself."""


class Usage(BaseModel):
    devices: int
    running: int
    stored_bytes: int
    usd_this_month: float


class QuotaModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    max_devices: Count | None = None
    max_running: Count | None = None
    max_storage_bytes: Annotated[int, Field(ge=0, le=2**62)] | None = None
    max_usd_per_month: Annotated[float, Field(ge=0, le=1e12)] | None = None


class NewTenant(QuotaModel):
    id: Name


class TenantModel(BaseModel):
    id: str
    share: float
    max_devices: int | None
    max_running: int | None
    max_storage_bytes: int | None
    max_usd_per_month: float | None
    created_at: float

    @classmethod
    def of(cls, tenant: Tenant) -> TenantModel:
        quota = {name: getattr(tenant.quota, name) for name in type(tenant.quota).__slots__}
        return cls(id=tenant.id, share=tenant.share, created_at=tenant.created_at, **quota)


class Me(BaseModel):
    tenant: TenantModel
    role: Literal["reader", "member", "admin"]
    usage: Usage


class NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["reader", "member", "admin"] = "member"


class TokenModel(BaseModel):
    id: str
    tenant: str
    role: Literal["reader", "member", "admin"]
    created_at: float
    revoked_at: float | None

    @classmethod
    def of(cls, token: Token) -> TokenModel:
        return cls(**{name: getattr(token, name) for name in Token.__slots__})


class TokenSecret(TokenModel):
    secret: str
    """Shown now and never again."""
