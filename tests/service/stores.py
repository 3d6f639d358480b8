"""A database of the service with tenants and jobs in it, for tests."""

from __future__ import annotations

import time

import sqlalchemy as sa

from elastune.service.database import ServiceDatabase
from elastune.service.jobs import Job, Jobs, Submission, digest_of, move
from elastune.service.tables import DRIVERS
from elastune.service.tenants import Quota, Tenants


def tenant(database: ServiceDatabase, name: str, share: float = 1.0, quota: Quota | None = None) -> str:
    Tenants(database).create(name, share, quota or Quota())
    return name


def submission(name: str = "job", least: int = 1, most: int = 1, priority: int = 0, lr: float = 0.1) -> Submission:
    spec = {"trainable": "a:b", "lr": lr}
    return Submission(name, spec, None, priority, least, most, least, digest=digest_of(spec, None, priority, None))


def queued(database: ServiceDatabase, of: str, least: int = 1, most: int = 1, priority: int = 0) -> Job:
    """A job that is built and waits."""
    jobs = Jobs(database)
    job, _ = jobs.submit(of, submission(least=least, most=most, priority=priority))
    with database.write() as connection:
        assert move(connection, job.id, "building")
        assert move(connection, job.id, "queued")
    return jobs.get(job.id)


def driver_of(database: ServiceDatabase, job: Job, pool: str = "here", alive_s: float = 60.0) -> str:
    """A driver of the job that is alive, as the database has it."""
    name = f"driver of {job.id}"
    row = {"id": name, "pool": pool, "tenant": job.tenant, "code": None, "host": "h", "pid": 1, "job": job.id}
    with database.write() as connection:
        connection.execute(sa.insert(DRIVERS), {**row, "leave": False, "alive_until": time.time() + alive_s})
    return name
