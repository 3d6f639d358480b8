"""What is read of jobs and their runs. Whose job it is not finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path as FilePath
from statistics import fmean, stdev
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from elastune.errors import StorageError
from elastune.messages import Checkpoint, TrialStatus
from elastune.record.projection import RunView
from elastune.results import checkpoint_store
from elastune.service import read_schema as r
from elastune.service import schema as s
from elastune.service import views
from elastune.service.access import PROBLEMS, Admin, Given, JobId, Reader, Refused
from elastune.service.jobs import Listed
from elastune.service.live import Live, Look
from elastune.service.reading import Runs, log_text
from elastune.service.service import Service
from elastune.service.tenants import Token
from elastune.worker.log import log_path

LOG_BYTES, MOST_LOG_BYTES = 1 << 16, 1 << 22
OVERVIEW = 100

reads = APIRouter(prefix="/api/v1", responses=PROBLEMS)


def _runs_of(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


def _live_of(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


Views = Annotated[Runs, Depends(_runs_of)]
Streams = Annotated[Live, Depends(_live_of)]
TrialId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.-]+$")]
Bytes = Annotated[int, Query(ge=1, le=MOST_LOG_BYTES)]
_EVENTS: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
}
_FILE: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
}


@reads.get("/jobs/events", **_EVENTS)
async def watch_jobs(service: Given, token: Reader, runs: Views, live: Streams) -> StreamingResponse:
    """The newest jobs of the tenant, as server-sent events: `jobs` whenever something has changed."""

    def look() -> Look:
        return Look(_overview(service, runs, token.tenant, None, OVERVIEW).model_dump_json())

    return _stream(service, live, token, f"tenant {token.tenant}", "jobs", look)


@reads.get("/overview", response_model=r.Overview)
def overview(
    service: Given,
    token: Reader,
    runs: Views,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> r.Overview:
    """The jobs of the tenant, the newest first, each with how it stands."""
    return _overview(service, runs, token.tenant, before, limit)


@reads.get("/jobs/{job}/progress", response_model=r.Progress)
def job_progress(job: JobId, service: Given, token: Reader, runs: Views) -> r.Progress:
    """How a job stands: trials, the best so far, time, cost, the plan against what came of it."""
    return _progress(service, runs, job, token.tenant)


@reads.get("/jobs/{job}/events", **_EVENTS)
async def watch_job(job: JobId, service: Given, token: Reader, runs: Views, live: Streams) -> StreamingResponse:
    """A job as server-sent events: `progress` whenever something has changed, and `end` when it has ended."""
    await run_in_threadpool(service.jobs.get, job, token.tenant)

    def look() -> Look:
        told = _progress(service, runs, job, token.tenant)
        return Look(told.model_dump_json(), over=told.ended_at is not None)

    return _stream(service, live, token, f"job {job}", "progress", look)


@reads.get("/jobs/{job}/trials", response_model=r.TrialPage)
def list_trials(
    job: JobId,
    service: Given,
    token: Reader,
    runs: Views,
    sort: Literal["value", "number"] = "value",
    descending: bool = False,
    status: TrialStatus | None = None,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> r.TrialPage:
    """The trials of a job, or those with one status: by value the best come first."""
    page = runs.read(
        service.jobs.get(job, token.tenant), lambda view: views.trials(view, sort, descending, status, offset, limit)
    )
    return page or r.TrialPage(trials=[], total=0)


@reads.get("/jobs/{job}/trials/{trial}", response_model=r.TrialDetail)
def get_trial(job: JobId, trial: TrialId, service: Given, token: Reader, runs: Views) -> r.TrialDetail:
    """A trial with its reports and the end of its log."""
    found = service.jobs.get(job, token.tenant)
    detail = runs.read(found, lambda view: views.trial_detail(view, trial))
    if detail is None:
        raise Refused(404, f"job {job!r} has no trial {trial!r}")
    log = _log(service, found, [log_path(service.places.run(job) / "logs", trial, 0)], LOG_BYTES)
    return detail.model_copy(update={"log": log.text, "log_cut": log.cut})


@reads.get("/jobs/{job}/curves", response_model=r.Curves)
def learning_curves(
    job: JobId,
    service: Given,
    token: Reader,
    runs: Views,
    number: Annotated[int, Query(ge=1, le=100)] = 12,
    points: Annotated[int, Query(ge=4, le=1000)] = 100,
) -> r.Curves:
    """The learning curves of the best trials, and of as many that run."""
    found = runs.read(service.jobs.get(job, token.tenant), lambda view: views.curves(view, number, points))
    return found or r.Curves(metric=None, mode=None, curves=[], left_out=0)


@reads.get("/jobs/{job}/best", response_model=s.Best)
def get_best(job: JobId, service: Given, token: Reader, runs: Views) -> s.Best:
    """The best configuration so far."""
    found = service.jobs.get(job, token.tenant)
    best = runs.read(found, views.best)
    if best is None and found.ended:
        raise Refused(404, f"job {job!r} has ended without a best trial: {found.reason}")
    if best is None:
        raise Refused(404, f"no trial of job {job!r} has reported a finite value yet")
    return best


@reads.get("/jobs/{job}/logs", response_model=r.Log)
def get_log(
    job: JobId,
    service: Given,
    token: Reader,
    runs: Views,
    trial: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    of: Literal["build", "driver"] | None = None,
    rank: Annotated[int, Query(ge=0, le=100_000)] = 0,
    most: Bytes = LOG_BYTES,
) -> r.Log:
    """The end of a log: that of a trial, of the build or of the driver; if none is named, the last two."""
    found, places = service.jobs.get(job, token.tenant), service.places
    if trial is not None:
        if not runs.read(found, lambda view: trial in view.trials):
            raise Refused(404, f"job {job!r} has no trial {trial!r}")
        return _log(service, found, [log_path(places.run(job) / "logs", trial, rank)], most)
    logs = {"build": places.build_log(job), "driver": places.driver_log(job)}
    return _log(service, found, [path for name, path in logs.items() if of in (None, name)], most)


@reads.get("/jobs/{job}/download", **_FILE)
def download(job: JobId, service: Given, token: Reader, runs: Views) -> StreamingResponse:
    """The checkpoint of the best trial: a tar archive if the trial gave a path, else a pickle."""
    asked = service.jobs.get(job, token.tenant)
    found = runs.read(asked, _best_checkpoint)
    if found is None and asked.ended:
        raise Refused(404, f"job {job!r} has ended without a checkpoint of a best trial")
    if found is None:
        raise Refused(404, f"job {job!r} has no checkpoint of a best trial yet")
    checkpoint, url = found
    store = checkpoint_store(service.places.run(job), url)
    suffix = "tar" if store.kind(checkpoint) == "tar" else "pkl"
    pieces = store.pieces(checkpoint)
    first = next(pieces)  # what is not there at all is told as a refusal
    headers = {
        "Content-Disposition": f'attachment; filename="{checkpoint.trial}-{checkpoint.iteration}.{suffix}"',
        "Content-Length": str(checkpoint.size_bytes),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_all(first, pieces), media_type="application/octet-stream", headers=headers)


@reads.get("/experiments/{experiment}", response_model=r.ExperimentModel)
def get_experiment(experiment: JobId, service: Given, token: Reader, runs: Views) -> r.ExperimentModel:
    """The same job with several seeds: what each has found, mean and standard deviation."""
    jobs = service.jobs.page(token.tenant, experiment=experiment, limit=1000)[::-1]
    if not jobs:
        raise Refused(404, f"there is no experiment {experiment!r}")
    seeds = service.jobs.seeds(experiment)
    rows = [r.SeedRow(**s.JobModel.of(job).model_dump(), seed=seeds.get(job.id), now=_brief(runs, job)) for job in jobs]
    known = next((row.now for row in rows if row.now.metric is not None), r.Brief())
    values = [row.now.best_value for row in rows if row.state == "succeeded" and row.now.best_value is not None]
    best = (max if known.mode == "max" else min)(values) if values else None
    return r.ExperimentModel(
        id=experiment,
        name=jobs[0].name,
        metric=known.metric,
        mode=known.mode,
        jobs=rows,
        count=len(values),
        mean=fmean(values) if values else None,
        std=stdev(values) if len(values) > 1 else None,
        best=best,
    )


@reads.get("/usage", response_model=list[r.TenantUsage])
def all_usage(service: Given, token: Admin) -> list[r.TenantUsage]:
    """Every tenant with its quota, and what is used of it."""
    return [
        r.TenantUsage(tenant=s.TenantModel.of(tenant), usage=s.Usage(**_fields(service.usage(tenant.id))))
        for tenant in service.tenants.all()
    ]


def _progress(service: Service, runs: Runs, job: str, tenant: str) -> r.Progress:
    found = service.jobs.get(job, tenant)
    return runs.read(found, lambda view: views.progress(found, view)) or views.progress(found, None)


def _overview(service: Service, runs: Runs, tenant: str, before: int | None, limit: int) -> r.Overview:
    jobs = service.jobs.page(tenant, (), before, limit)
    rows = [r.JobRow(**s.JobModel.of(job).model_dump(), now=_brief(runs, job)) for job in jobs]
    return r.Overview(jobs=rows, next=jobs[-1].number if len(jobs) == limit else None)


def _brief(runs: Runs, job: Listed) -> r.Brief:
    """Of one that has ended it is in the database: its journal need not be read."""
    if job.ended and job.summary:
        return views.brief_of_summary(job)
    try:
        return runs.read(job, views.brief) or r.Brief()
    except StorageError:  # a damaged journal must not hide the other jobs
        return r.Brief()


def _log(service: Service, job: Listed, paths: list[FilePath], most: int) -> r.Log:
    """The ends of files of this computer. What a job has printed on another stays there."""
    ends = [log_text(path, most) for path in paths]
    text, cut = "".join(text for text, _ in ends), any(cut for _, cut in ends)
    here = None if service.supervisor is None else service.supervisor.pool.name
    if here is not None and job.pool not in (None, here) and not paths[-1].exists():
        text += f"(this is the service of pool {here!r}: the log is on the computer of pool {job.pool!r}, ask there)\n"
    return r.Log(text=text, cut=cut)


def _best_checkpoint(view: RunView) -> tuple[Checkpoint, str | None] | None:
    checkpoint = views.best_checkpoint(view)
    return None if checkpoint is None else (checkpoint, view.started.checkpoints)


def _all(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _stream(
    service: Service, live: Live, token: Token, key: str, event: str, look: Callable[[], Look]
) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    told = live.watch(key, event, look, partial(service.tenants.is_valid, token.id))
    return StreamingResponse(told, media_type="text/event-stream", headers=headers)


def _fields(used: Any) -> dict[str, Any]:
    return {name: getattr(used, name) for name in type(used).__slots__}
