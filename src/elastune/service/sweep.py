"""What nobody needs any more goes: what this computer has of jobs that were deleted, code that no job uses, copies of
it, environments, and old scores. What is kept on this computer is counted.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter

import sqlalchemy as sa

from elastune.service.database import ServiceDatabase, now
from elastune.service.environment import last_asked_for, remove_environment
from elastune.service.places import Places, folder_bytes
from elastune.service.states import ENDED, OPEN
from elastune.service.tables import CODES, DRIVERS, JOBS, KEPT

UNUSED_S = 3600.0
"""Code is uploaded first and submitted then: so long it may take."""
UNUSED_ENVIRONMENT_S = 7 * 24 * 3600.0
OLD_SCORE_S = 30 * 24 * 3600.0
"""Known scores are of all tenants and codes, and small: they go by their age, and are computed again when asked for."""


def sweep(database: ServiceDatabase, places: Places, pool: str) -> None:
    here = places.jobs_here()
    with database.read() as connection:
        deleted = sa.select(JOBS.c.id).where(JOBS.c.deleted_at.is_not(None), JOBS.c.id.in_(here))
        gone = connection.execute(deleted).scalars().all()
    for job in gone:
        places.remove_here(job)
    _remove_environments(database, places)
    _count(database, places, pool)
    _remove_unused_code(database, places)
    _remove_strays(database, places)
    places.remove_scores(time.time() - OLD_SCORE_S)


def remove_copies(database: ServiceDatabase, places: Places) -> None:
    """The unpacked code of jobs that have ended. What a driver has run may be on the import path of that driver still,
    which goes on with other jobs of the same code.
    """
    code = sa.func.coalesce(JOBS.c.code, "")
    warm = sa.exists().where(DRIVERS.c.tenant == JOBS.c.tenant, sa.func.coalesce(DRIVERS.c.code, "") == code)
    here = sa.select(JOBS.c.id).where(JOBS.c.id.in_(places.codes_here()), JOBS.c.state.in_(ENDED))
    with database.read() as connection:
        unused = connection.execute(here.where(sa.or_(JOBS.c.attempt == 0, sa.not_(warm)))).scalars().all()
    for job in unused:
        shutil.rmtree(places.code(job), ignore_errors=True)


def _remove_unused_code(database: ServiceDatabase, places: Places) -> None:
    used = sa.exists().where(JOBS.c.tenant == CODES.c.tenant, JOBS.c.code == CODES.c.hash, JOBS.c.deleted_at.is_(None))
    with database.read() as connection:
        unused = (CODES.c.created_at < now(connection) - UNUSED_S, sa.not_(used))
        found = connection.execute(sa.select(CODES.c.tenant, CODES.c.hash).where(*unused)).all()
    for tenant, code in found:
        with database.write() as connection:  # the archive in the same transaction: it may be uploaded anew right after
            mine = (CODES.c.tenant == tenant, CODES.c.hash == code)
            if connection.execute(sa.delete(CODES).where(*mine, *unused)).rowcount:
                places.remove_archive(tenant, code)


def _remove_strays(database: ServiceDatabase, places: Places) -> None:
    """What uploads have left that were cut off: drafts, and archives that nobody knows of."""
    codes = sa.select(CODES.c.tenant, CODES.c.hash)
    with database.read() as connection:
        known = {(tenant, f"{code}.tar.gz") for tenant, code in connection.execute(codes)}
    for tenant, file in places.archives():
        if (tenant, file) in known:
            continue
        mine = (CODES.c.tenant == tenant, CODES.c.hash == file.removesuffix(".tar.gz"))
        with database.write() as connection:  # nobody comes to know of it meanwhile
            if connection.execute(codes.where(*mine)).first() is None:
                places.remove_stray(tenant, file, time.time() - UNUSED_S)


def _remove_environments(database: ServiceDatabase, places: Places) -> None:
    """A job asks for its environment whenever it is built or begins: one that was submitted later does not use it."""
    for lock in places.environments.glob("*/*/lock"):
        asked_at = last_asked_for(lock.parent)
        if asked_at > time.time() - UNUSED_ENVIRONMENT_S:
            continue
        tenant = lock.parent.parent.name
        older = (JOBS.c.tenant == tenant, JOBS.c.state.in_(OPEN), JOBS.c.created_at < asked_at + UNUSED_S)
        with database.read() as connection:
            in_use = connection.execute(sa.select(JOBS.c.id).where(*older).limit(1)).first() is not None
        if not in_use:
            remove_environment(lock.parent, asked_at)


def _count(database: ServiceDatabase, places: Places, pool: str) -> None:
    """What the quotas of tenants must know of this computer."""
    kept = Counter[str]()
    for folder in places.environments.glob("*"):
        kept[folder.name] += folder_bytes(folder)
    with database.read() as connection:
        here = sa.select(JOBS.c.id, JOBS.c.tenant).where(JOBS.c.id.in_(places.codes_here()))
        owners = connection.execute(here).all()
    for job, tenant in owners:
        kept[tenant] += folder_bytes(places.code(job))
    with database.write() as connection:
        connection.execute(sa.delete(KEPT).where(KEPT.c.pool == pool))
        for tenant, size in kept.items():
            connection.execute(sa.insert(KEPT), {"pool": pool, "tenant": tenant, "bytes": size})
