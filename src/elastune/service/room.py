"""What a tenant has stored, and whether there is room for more within its quota."""

from __future__ import annotations

import sqlalchemy as sa

from elastune.errors import ElastuneError
from elastune.service.tables import CODES, JOBS, KEPT, REPLICAS, TENANTS


class OverQuota(ElastuneError):
    """A quota of the tenant does not allow it."""


def check_room(connection: sa.Connection, tenant: str, new_bytes: int) -> None:
    """In the transaction that stores them: of several at the same time each sees what those before have stored."""
    limit = connection.execute(sa.select(TENANTS.c.max_storage_bytes).where(TENANTS.c.id == tenant)).scalar()
    if limit is None:
        return
    stored = stored_bytes(connection, tenant)
    if stored + new_bytes > limit:
        raise OverQuota(
            f"tenant {tenant!r} has stored {stored:,} bytes, {new_bytes:,} would come on top, and its quota is "
            f"{limit:,}: delete jobs that you do not need (`elastune delete JOB`), or ask for more room"
        )


def stored_bytes(connection: sa.Connection, tenant: str) -> int:
    code = sa.select(sa.func.sum(CODES.c.bytes)).where(CODES.c.tenant == tenant)
    runs = sa.select(sa.func.sum(JOBS.c.stored_bytes + JOBS.c.spec_bytes)).where(JOBS.c.tenant == tenant)
    served = KEPT.c.pool.in_(sa.select(REPLICAS.c.pool))
    kept = sa.select(sa.func.sum(KEPT.c.bytes)).where(KEPT.c.tenant == tenant, served)
    return sum(int(connection.execute(query).scalar() or 0) for query in (code, runs, kept))
