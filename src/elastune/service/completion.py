"""The completion of a job: the one way to its end. It can be done again from the beginning at any point, and it takes
effect once.
"""

from __future__ import annotations

import logging
from typing import Any

import fsspec
import sqlalchemy as sa

from elastune.errors import StorageError
from elastune.service import jobs as j
from elastune.service.database import ServiceDatabase, now
from elastune.service.drivers import STUCK, stuck_delay_s
from elastune.service.jobs import Job
from elastune.service.limiter import release_all
from elastune.service.places import Places
from elastune.service.tables import JOBS
from elastune.service.telling import without_places

log = logging.getLogger("elastune")

TRIES = 8
"""So often it is looked for what is missing, with a delay that grows, before the job ends without it."""


def complete(database: ServiceDatabase, places: Places, job: Job) -> bool:
    """Run the finalizers, then give back devices and quota and end the job, in one transaction. True if it has ended;
    else it is tried again later.
    """
    assert job.outcome is not None
    problem, tries = "", TRIES
    try:
        problem = missing(places, job)
    except StorageError as error:  # what was trained for days is not lost because a store is away
        problem, tries = without_places(str(error), places), STUCK
    if problem and job.failures < tries:
        _try_again(database, job, problem)
        return False
    outcome, reason, stored = job.outcome, job.reason, _stored_bytes(places, job)
    if problem and outcome == "succeeded":
        outcome, reason = "failed", problem
    with database.write() as connection:
        at = now(connection)
        release_all(connection, job.id, at)
        last: dict[str, Any] = {
            "ended_at": at,
            "owner": None,
            "owned_until": 0.0,
            "wanted": None,
            "stored_bytes": stored,
        }
        ended = j.move(connection, job.id, outcome, reason, **last)
        j.look_again(connection, job.tenant)  # there is room again
    return ended


def _stored_bytes(places: Places, job: Job) -> int:
    """What its driver has counted, or had no time to."""
    if job.stored_bytes:
        return job.stored_bytes
    try:
        return places.stored_bytes(job.id)
    except StorageError:
        return 0


def missing(places: Places, job: Job) -> str:
    """What should be in the store and is not: the checkpoint of the best trial."""
    path = job.summary.get("checkpoint")
    if path is None:
        return ""
    url = f"{places.checkpoints_of(job.id)}/{path}"
    try:
        file_system, inside = fsspec.core.url_to_fs(url)
        return "" if file_system.exists(inside) else f"the checkpoint of the best trial is not in the store: {path}"
    except Exception as error:  # stores raise errors of their own
        raise StorageError(f"the store {places.storage} cannot be read: {error}") from error


def _try_again(database: ServiceDatabase, job: Job, problem: str) -> None:
    log.warning("job %s cannot be completed yet: %s", job.id, problem)
    with database.write() as connection:
        later = {"failures": job.failures + 1, "not_before": now(connection) + stuck_delay_s(job.failures)}
        mine = (JOBS.c.id == job.id, JOBS.c.state == "finishing")
        connection.execute(sa.update(JOBS).where(*mine).values(**later, owner=None, owned_until=0.0))
