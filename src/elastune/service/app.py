"""The HTTP interface: `create_app(service)`. Routes say who may, and hand over to the service."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from elastune import __version__
from elastune.errors import ElastuneError, SpecError, StorageError
from elastune.record.checkpoints import CheckpointDamagedError
from elastune.service import schema as s
from elastune.service.access import PROBLEMS, Admin, Given, JobId, Member, Reader, Refused
from elastune.service.body_limit import BodyLimit
from elastune.service.docs_page import add_docs
from elastune.service.jobs import Conflict, NoSuchJob
from elastune.service.live import Live
from elastune.service.metrics import metrics_text
from elastune.service.pages import add_portal
from elastune.service.read_routes import reads
from elastune.service.reading import Runs
from elastune.service.room import OverQuota
from elastune.service.service import Service
from elastune.service.sessions import sessions
from elastune.service.states import State
from elastune.service.telling import told, without_places
from elastune.service.tenants import Quota

log = logging.getLogger("elastune")

CODE_BYTES, JSON_BYTES = 64 << 20, 1 << 20
_STATUS: list[tuple[type[ElastuneError], int]] = [
    (NoSuchJob, 404),
    (Conflict, 409),
    (OverQuota, 409),
    (SpecError, 422),
    (CheckpointDamagedError, 404),  # it will not come back: nobody shall ask again and again
    (StorageError, 503),
]

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
api = APIRouter(prefix="/api/v1", responses=PROBLEMS)


@api.put("/code", response_model=s.CodeModel)
async def upload_code(request: Request, service: Given, token: Member) -> s.CodeModel:
    """Upload code as tar.gz, for jobs to come. The same code again is the same hash."""
    from starlette.concurrency import run_in_threadpool

    data = await request.body()
    return s.CodeModel(code=await run_in_threadpool(service.upload, token.tenant, data), bytes=len(data))


@api.post("/jobs", status_code=201, response_model=s.JobDetail, responses={200: {"model": s.JobDetail}})
def submit_job(
    submitted: s.Submitted,
    service: Given,
    token: Member,
    response: Response,
    idempotency_key: Key = None,
) -> s.JobDetail:
    """Submit a job. With the same Idempotency-Key it is accepted once."""
    given = (submitted.spec, submitted.code, submitted.priority, submitted.seeds)
    job, new = service.submit(token.tenant, *given, idempotency_key)
    response.status_code = 201 if new else 200
    return _detail(service, job.id, token.tenant)


@api.get("/jobs", response_model=s.JobList)
def list_jobs(
    service: Given,
    token: Reader,
    state: Annotated[list[State] | None, Query()] = None,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> s.JobList:
    """The jobs of the tenant, the newest first."""
    jobs = service.jobs.page(token.tenant, state or (), before, limit)
    return s.JobList(jobs=[s.JobModel.of(job) for job in jobs], next=jobs[-1].number if len(jobs) == limit else None)


@api.get("/jobs/{job}", response_model=s.JobDetail)
def get_job(job: JobId, service: Given, token: Reader) -> s.JobDetail:
    return _detail(service, job, token.tenant)


@api.post("/jobs/{job}/cancel", response_model=s.JobDetail)
def cancel_job(job: JobId, service: Given, token: Member) -> s.JobDetail:
    """A job that runs ends in an orderly way; of one that has ended nothing becomes."""
    service.cancel(job, token.tenant)
    return _detail(service, job, token.tenant)


@api.post("/jobs/{job}/rerun", status_code=201, response_model=s.JobDetail, responses={200: {"model": s.JobDetail}})
def rerun_job(
    job: JobId,
    service: Given,
    token: Member,
    response: Response,
    idempotency_key: Key = None,
) -> s.JobDetail:
    """The same job again: code, configuration and seed. With `reproducible: true` it gives the same numbers."""
    again, new = service.rerun(job, token.tenant, idempotency_key)
    response.status_code = 201 if new else 200
    return _detail(service, again.id, token.tenant)


@api.delete("/jobs/{job}", status_code=204)
def delete_job(job: JobId, service: Given, token: Member) -> None:
    """Delete what is stored of a job that has ended: its run, its logs and its checkpoints."""
    service.delete(job, token.tenant)


@api.get("/me", response_model=s.Me)
def who_am_i(service: Given, token: Reader) -> s.Me:
    """The tenant, its quota, and what is used of it."""
    tenant, used = service.tenants.get(token.tenant), service.usage(token.tenant)
    usage = s.Usage(**{name: getattr(used, name) for name in type(used).__slots__})
    return s.Me(tenant=s.TenantModel.of(tenant), role=token.role, usage=usage)


@api.get("/tenants", response_model=list[s.TenantModel])
def list_tenants(service: Given, token: Admin) -> list[s.TenantModel]:
    return [s.TenantModel.of(tenant) for tenant in service.tenants.all()]


@api.post("/tenants", status_code=201, response_model=s.TenantModel)
def create_tenant(given: s.NewTenant, service: Given, token: Admin) -> s.TenantModel:
    return s.TenantModel.of(service.tenants.create(given.id, given.share, _quota(given)))


@api.put("/tenants/{tenant}", response_model=s.TenantModel)
def change_tenant(tenant: s.Name, given: s.QuotaModel, service: Given, token: Admin) -> s.TenantModel:
    """Change what is given. What is left out stays as it is, and null takes a limit away."""
    return s.TenantModel.of(service.tenants.change(tenant, **given.model_dump(exclude_unset=True)))


@api.get("/tenants/{tenant}/tokens", response_model=list[s.TokenModel])
def list_tokens(tenant: s.Name, service: Given, token: Admin) -> list[s.TokenModel]:
    return [s.TokenModel.of(each) for each in service.tenants.tokens(tenant)]


@api.post("/tenants/{tenant}/tokens", status_code=201, response_model=s.TokenSecret)
def create_token(tenant: s.Name, given: s.NewToken, service: Given, token: Admin) -> s.TokenSecret:
    """A new token. Its secret is in this answer, and nowhere else."""
    made, secret = service.tenants.create_token(tenant, given.role)
    return s.TokenSecret(**s.TokenModel.of(made).model_dump(), secret=secret)


@api.delete("/tokens/{token_id}", status_code=204)
def revoke_token(token_id: Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")], service: Given, token: Admin) -> None:
    service.tenants.revoke(token_id)


def create_app(service: Service) -> FastAPI:
    app = FastAPI(
        title="Elastune",
        version=__version__,
        description="Tuning as a service for many teams.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.runs, app.state.live = Runs(service.places), Live()
    app.add_middleware(BodyLimit, limit=lambda path: CODE_BYTES if path == "/api/v1/code" else JSON_BYTES)
    app.include_router(reads)  # before the others: /jobs/events is no job
    app.include_router(sessions)
    app.include_router(api)
    add_portal(app)
    add_docs(app)
    app.add_api_route("/healthz", _health, methods=["GET"], responses={503: {"model": s.Problem}})
    app.add_api_route("/metrics", _metrics, methods=["GET"], response_class=PlainTextResponse)
    app.add_exception_handler(ElastuneError, _explain)
    app.add_exception_handler(Refused, _explain)
    app.add_exception_handler(RequestValidationError, _explain)
    app.add_exception_handler(HTTPException, _explain)
    return app


def _health(service: Given) -> dict[str, str]:
    """Whether the database can be reached."""
    with service.database.read() as connection:
        connection.exec_driver_sql("SELECT 1")
    return {"status": "ok"}


def _metrics(service: Given) -> str:
    """For Prometheus."""
    return metrics_text(service.database)


def _explain(request: Request, error: Exception) -> JSONResponse:
    """Every refusal has the same form."""
    match error:
        case Refused():
            status, text = error.status, error.error
        case RequestValidationError():
            status, text = 422, "; ".join(_said(each) for each in error.errors())
        case HTTPException(__cause__=Exception() as cause):  # what json has choked on
            status, text = error.status_code, f"the body is not JSON: {str(cause).partition(';')[0]}"
        case HTTPException():
            status, text = error.status_code, str(error.detail)
        case _:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 422)
            text = without_places(told(error), request.app.state.service.places)
            if status == 503:
                log.warning("%s %s: %s", request.method, request.url.path, error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(s.Problem(error=text).model_dump(), status, headers)


def _said(error: dict[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']} (character {error['loc'][-1]})"
    if error["loc"] == ("body",):
        return "the body: must be a JSON object, sent with Content-Type: application/json"
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path", "header"))
    given = error.get("input")
    value = f"={given!r:.60}" if where and isinstance(given, str | int | float) else ""
    return f"{where or 'the body'}{value}: {error['msg']}"


def _detail(service: Service, job: str, tenant: str) -> s.JobDetail:
    found = service.jobs.get(job, tenant)
    model = s.JobModel.of(found).model_dump()
    return s.JobDetail(**model, spec=found.spec, history=service.jobs.history(job))


def _quota(given: s.QuotaModel) -> Quota:
    return Quota(**{name: getattr(given, name) for name in Quota.__slots__})
