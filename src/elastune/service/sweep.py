"""What nobody needs any more goes: what this computer has of jobs that were deleted, and code that no job uses."""

from __future__ import annotations

import time

import sqlalchemy as sa

from elastune.service.database import ServiceDatabase
from elastune.service.places import Places
from elastune.service.tables import CODES, JOBS

UNUSED_S = 3600.0
"""Code is uploaded first and submitted then: so long it may take."""


def sweep(database: ServiceDatabase, places: Places) -> None:
    here = places.jobs_here()
    with database.read() as connection:
        deleted = sa.select(JOBS.c.id).where(JOBS.c.deleted_at.is_not(None), JOBS.c.id.in_(here))
        gone = connection.execute(deleted).scalars().all()
    for job in gone:
        places.remove_here(job)
    for tenant, code in _take_unused(database):
        places.remove_archive(tenant, code)


def _take_unused(database: ServiceDatabase) -> list[tuple[str, str]]:
    used = sa.exists().where(JOBS.c.tenant == CODES.c.tenant, JOBS.c.code == CODES.c.hash, JOBS.c.deleted_at.is_(None))
    unused = (CODES.c.created_at < time.time() - UNUSED_S, sa.not_(used))
    with database.write() as connection:
        found = connection.execute(sa.select(CODES.c.tenant, CODES.c.hash).where(*unused)).all()
        for tenant, code in found:
            connection.execute(sa.delete(CODES).where(CODES.c.tenant == tenant, CODES.c.hash == code))
    return [(tenant, code) for tenant, code in found]
