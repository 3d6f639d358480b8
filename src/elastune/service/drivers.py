"""The processes that drive jobs, as the database has them. Each holds a lease, which it renews; who does not is dead.

A driver is of one tenant and one code: it may run one job after another, so that small jobs need not start Ray again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from elastune.service import jobs as j
from elastune.service.database import ServiceDatabase, now
from elastune.service.limiter import release_all
from elastune.service.states import Outcome
from elastune.service.tables import DRIVERS, JOBS

LEASE_S, START_S = 10.0, 30.0
"""How long a driver may be silent, and how long it may take until it is first heard of."""
DEATHS = 10
"""So many drivers of a job may die in a row."""
STUCK, LONGEST_DELAY_S = 60, 300.0
"""So often it is tried again what a store or Ray has prevented: for four hours."""


def stuck_delay_s(failed: int) -> float:
    """How long until it is tried again."""
    return min(LONGEST_DELAY_S, 2.0**failed)


@dataclass(frozen=True, slots=True)
class Driver:
    id: str
    pool: str
    tenant: str
    code: str | None
    host: str
    pid: int | None
    job: str | None
    leave: bool
    alive_until: float


_COLUMNS = [DRIVERS.c[name] for name in Driver.__slots__]


class Drivers:
    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def all(self, pool: str | None = None) -> list[Driver]:
        query = sa.select(*_COLUMNS) if pool is None else sa.select(*_COLUMNS).where(DRIVERS.c.pool == pool)
        with self._database.read() as connection:
            return [Driver(**row) for row in connection.execute(query).mappings()]

    def get(self, driver: str) -> Driver | None:
        with self._database.read() as connection:
            row = connection.execute(sa.select(*_COLUMNS).where(DRIVERS.c.id == driver)).mappings().first()
            return None if row is None else Driver(**row)

    def staff(self, pool: str, host: str, most: int) -> list[Driver]:
        """Give every job that runs without a driver an idle one, or a new one: those are to be started."""
        new = []
        with self._database.write() as connection:
            at = now(connection)
            drivers = [Driver(**row) for row in connection.execute(_of(pool)).mappings()]
            idle = [each for each in drivers if each.job is None and not each.leave and each.alive_until > at]
            number = len(drivers)
            for job, tenant, code in connection.execute(_without_driver(pool, at)).all():
                free = next((each for each in idle if (each.tenant, each.code) == (tenant, code)), None)
                if free is not None:
                    idle.remove(free)
                    connection.execute(sa.update(DRIVERS).where(DRIVERS.c.id == free.id).values(job=job))
                elif number < most:
                    driver = Driver(secrets.token_hex(8), pool, tenant, code, host, None, job, False, at + START_S)
                    row = {name: getattr(driver, name) for name in Driver.__slots__}
                    connection.execute(sa.insert(DRIVERS), row)
                    new.append(driver)
                    number += 1
                elif idle:  # there is no room beside one that has nothing to do
                    connection.execute(sa.update(DRIVERS).where(DRIVERS.c.id == idle.pop(0).id).values(leave=True))
                    continue
                else:
                    break
                connection.execute(sa.update(JOBS).where(JOBS.c.id == job).values(attempt=JOBS.c.attempt + 1))
        return new

    def beat(self, driver: str, pid: int) -> Driver | None:
        """Renew the lease; None if it is over: somebody else may have taken the job up."""
        with self._database.write() as connection:
            at = now(connection)
            mine = (DRIVERS.c.id == driver, DRIVERS.c.alive_until > at)
            renewed = sa.update(DRIVERS).where(*mine).values(alive_until=at + LEASE_S, pid=pid)
            if not connection.execute(renewed).rowcount:
                return None
            row = connection.execute(sa.select(*_COLUMNS).where(DRIVERS.c.id == driver)).mappings().one()
            return Driver(**row)

    def lives(self, driver: str, job: str) -> None:
        """It has come further than those before it: their deaths were not in a row with what may come."""
        with self._database.write() as connection:
            drives = sa.exists().where(DRIVERS.c.id == driver, DRIVERS.c.job == job)
            mine = (JOBS.c.id == job, JOBS.c.state == "running", JOBS.c.failures + JOBS.c.deaths > 0, drives)
            connection.execute(sa.update(JOBS).where(*mine).values(failures=0, deaths=0, reason=""))

    def extend(self, drivers: Collection[str]) -> None:
        """They are being started, and that takes long."""
        with self._database.write() as connection:
            mine = (DRIVERS.c.id.in_(drivers), DRIVERS.c.pid.is_(None))
            connection.execute(sa.update(DRIVERS).where(*mine).values(alive_until=now(connection) + START_S))

    def done(self, driver: str, job: str, outcome: Outcome | None, reason: str, **values: Any) -> bool:
        """The job is over, or with no outcome waits for a better time. Only its own driver may say so."""
        with self._database.write() as connection:
            at = now(connection)
            mine = (DRIVERS.c.id == driver, DRIVERS.c.job == job)
            if not connection.execute(sa.update(DRIVERS).where(*mine).values(job=None)).rowcount:
                return False
            if outcome is not None:
                return j.finish(connection, job, outcome, reason, **values)
            release_all(connection, job, at)
            return j.requeue(connection, job, reason, **values)

    def stuck(self, driver: str, job: str, why: str) -> None:
        """A store or Ray cannot be used now. That is not the job's fault: it is tried again, for hours."""
        with self._database.write() as connection:
            at, mine = now(connection), (DRIVERS.c.id == driver, DRIVERS.c.job == job)
            failed = connection.execute(sa.select(JOBS.c.failures).where(JOBS.c.id == job)).scalar() or 0
            if not connection.execute(sa.update(DRIVERS).where(*mine).values(job=None)).rowcount:
                return
            release_all(connection, job, at)
            if failed + 1 >= STUCK:
                j.finish(connection, job, "failed", why)
            else:
                j.requeue(connection, job, why, failures=failed + 1, not_before=at + stuck_delay_s(failed))

    def retire(self, driver: str) -> bool:
        """It may end: it has nothing to do, and will get nothing more."""
        with self._database.write() as connection:
            mine = (DRIVERS.c.id == driver, DRIVERS.c.job.is_(None))
            return bool(connection.execute(sa.delete(DRIVERS).where(*mine)).rowcount)

    def bury(self, driver: Driver, why: str | None) -> bool:
        """It is dead: it was seen to be, or without a reason it is if it has not been heard of for long. Its job gets
        another, after a delay that grows. False: it lives.
        """
        with self._database.write() as connection:
            at = now(connection)
            row = connection.execute(sa.select(*_COLUMNS).where(DRIVERS.c.id == driver.id)).mappings().first()
            if row is not None and why is None and row["alive_until"] >= at:
                return False
            if row is not None:
                connection.execute(sa.delete(DRIVERS).where(DRIVERS.c.id == driver.id))
                if row["job"] is not None:
                    _died(connection, row["job"], why or "it was not heard of any more", at)
        return True

    def dismiss(self, pool: str, host: str) -> None:
        """All of them shall end: what they drive goes on later."""
        with self._database.write() as connection:
            mine = (DRIVERS.c.pool == pool, DRIVERS.c.host == host)
            connection.execute(sa.update(DRIVERS).where(*mine).values(leave=True))


def _died(connection: sa.Connection, job: str, why: str, at: float) -> None:
    """What becomes of the job that it drove."""
    query = sa.select(JOBS.c.deaths, JOBS.c.cancelled).where(JOBS.c.id == job, JOBS.c.state == "running")
    row = connection.execute(query).first()
    if row is None:
        return
    if row.cancelled:  # it needs no other
        j.finish(connection, job, "cancelled", "cancelled by its owner")
        return
    deaths = row.deaths + 1
    if deaths >= DEATHS:
        j.finish(connection, job, "failed", f"its driver died {deaths} times: {why}")
        return
    delay_s = 0.0 if deaths == 1 else min(30.0, 0.25 * 2**deaths)
    later = {"deaths": deaths, "not_before": at + delay_s, "reason": f"its driver died: {why}"}
    connection.execute(sa.update(JOBS).where(JOBS.c.id == job).values(later))


def _of(pool: str) -> sa.Select[Any]:
    return sa.select(*_COLUMNS).where(DRIVERS.c.pool == pool)


def _without_driver(pool: str, now: float) -> sa.Select[Any]:
    driven = sa.select(DRIVERS.c.job).where(DRIVERS.c.job.is_not(None))
    where = (JOBS.c.pool == pool, JOBS.c.state == "running", JOBS.c.not_before <= now, JOBS.c.id.not_in(driven))
    return sa.select(JOBS.c.id, JOBS.c.tenant, JOBS.c.code).where(*where).order_by(JOBS.c.number)
