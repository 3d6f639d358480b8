"""The quotas of tenants in a storm, and whether they were ever exceeded.

Of five tenants one has little room and one little money. Who is refused, or kept waiting for it, asks an administrator
for more; from when on he may have had it is kept for the audit, which reads the rest from the database.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from elastune.service.client import Client, ServiceError
from elastune.service.database import ServiceDatabase
from elastune.service.tables import CODES, GRANTS, HISTORY, JOBS

MAX_DEVICES, MAX_RUNNING = 2, 2
USD_PER_HOUR = 30.0
"""Of a device. Nothing begins when no more is left than two minutes of a device cost."""
STORAGE, MONEY = "max_storage_bytes", "max_usd_per_month"
PLENTY: Mapping[str, float] = {STORAGE: 10**9, MONEY: 1000.0}
TIGHT: Mapping[str, float] = {STORAGE: 1_000, MONEY: USD_PER_HOUR * 132.0 / 3600.0}
MORE: Mapping[str, float] = {STORAGE: 60_000, MONEY: USD_PER_HOUR * 36.0 / 3600.0}
LOOK_S = 0.5


class Quotas:
    """What was in force when, by tenant."""

    def __init__(self, tenants: int) -> None:
        self.past: dict[str, dict[str, list[tuple[float, float]]]] = {}
        self.refused: Counter[str] = Counter()
        self._lock = threading.Lock()
        for index in range(tenants):
            first = {STORAGE: (TIGHT if index % 5 == 3 else PLENTY), MONEY: (TIGHT if index % 5 == 4 else PLENTY)}
            self.past[f"t{index}"] = {name: [(0.0, limits[name])] for name, limits in first.items()}

    def of(self, tenant: str) -> dict[str, float]:
        """All limits of a tenant, as a request has them."""
        money = {name: changes[-1][1] for name, changes in self.past[tenant].items()}
        return {"max_devices": MAX_DEVICES, "max_running": MAX_RUNNING, **money}

    def in_force(self, tenant: str, name: str, at: float) -> float:
        return [limit for since, limit in self.past[tenant][name] if since <= at][-1]

    def raise_(self, admin: Client, tenant: str, name: str, refused_at: float) -> None:
        """Unless another has asked for it since. It counts from when it was asked for: it may be in force at once."""
        with self._lock:
            since, limit = self.past[tenant][name][-1]
            if since > refused_at:
                return
            self.refused[name] += 1
            self.past[tenant][name].append((time.time(), limit + MORE[name]))
            while True:
                try:
                    admin.request("PUT", f"/tenants/{tenant}", json=self.of(tenant))
                    return
                except ServiceError as error:
                    if error.status is not None:
                        raise

    def give_money(self, database: ServiceDatabase, admin: Callable[[], Client], over: threading.Event) -> None:
        """To tenants with jobs that wait for it."""
        waits = (JOBS.c.state == "queued", JOBS.c.reason.contains("of this month"))
        while not over.wait(LOOK_S):
            at = time.time()
            with database.read() as connection:
                waiting = connection.execute(sa.select(JOBS.c.tenant).where(*waits).distinct()).scalars().all()
                grants = connection.execute(sa.select(GRANTS).where(GRANTS.c.tenant.in_(waiting))).all()
            for tenant in waiting:  # what a job was told last may be over
                left = self.in_force(tenant, MONEY, at) - spent_usd(grants, tenant, at)
                if left < USD_PER_HOUR * 120.0 / 3600.0:
                    self.raise_(admin(), tenant, MONEY, at)
        database.close()


@dataclass(frozen=True, slots=True)
class Past:
    """What the database knows of it afterwards."""

    grants: Sequence[Any]
    jobs: Sequence[Any]
    codes: Sequence[Any]
    began: Mapping[str, float]
    ended: Mapping[str, float]

    @classmethod
    def of(cls, connection: sa.Connection) -> Past:
        history = connection.execute(sa.select(HISTORY.c.job, HISTORY.c.at).order_by(HISTORY.c.seq)).all()
        jobs = connection.execute(
            sa.select(JOBS.c.id, JOBS.c.tenant, JOBS.c.key, JOBS.c.spec_bytes, JOBS.c.stored_bytes)
        )
        return cls(
            connection.execute(sa.select(GRANTS)).all(),
            jobs.all(),
            connection.execute(sa.select(CODES)).all(),
            began={row.job: row.at for row in reversed(history)},
            ended={row.job: row.at for row in history},
        )


def overspent(past: Past, quotas: Quotas, now: float) -> list[str]:
    """Money is only ever spent: what was spent in all when a limit was raised was never more under that limit."""
    found = []
    for tenant, limits in quotas.past.items():
        changes = limits[MONEY]
        for (_, limit), until in zip(changes, [since for since, _ in changes[1:]] + [now], strict=True):
            if (spent := spent_usd(past.grants, tenant, until)) > limit:
                found.append(f"{tenant} has spent ${spent:.3f} of ${limit:.3f}")
    return found


def spent_usd(grants: Sequence[Any], tenant: str, at: float) -> float:
    spent: float = sum(
        (min(at, grant.released_at or at) - grant.granted_at) * grant.price_usd_per_hour / 3600.0
        for grant in grants
        if grant.tenant == tenant and grant.granted_at < at
    )
    return spent


def overstored(past: Past, quotas: Quotas, sent_at: Mapping[str, float]) -> list[str]:
    """When a submission was sent that was accepted later, what the tenant had stored by then must have been within its
    quota: code, specifications, and the runs of jobs that had ended.
    """
    found = []
    for job in past.jobs:
        at = sent_at[job.key]
        theirs = [other for other in past.jobs if other.tenant == job.tenant and past.began[other.id] < at]
        used = sum(each.spec_bytes for each in theirs)
        used += sum(each.stored_bytes for each in theirs if past.ended[each.id] < at)
        used += sum(code.bytes for code in past.codes if theirs and code.tenant == job.tenant)
        limit = quotas.in_force(job.tenant, STORAGE, past.began[job.id])
        if used > limit:
            found.append(f"{job.id} was accepted when {job.tenant} had stored {used:,} of {limit:,} bytes")
    return found
