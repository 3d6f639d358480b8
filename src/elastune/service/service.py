"""The service behind HTTP: what a request may ask for, as functions of the database and the places."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from elastune.errors import SpecError
from elastune.service.archive import check_archive, code_hash
from elastune.service.check import check, check_text
from elastune.service.database import ServiceDatabase, now
from elastune.service.jobs import Conflict, Job, Jobs, digest_of, use_code
from elastune.service.limiter import price_of_a_device_usd, spent_this_month_usd
from elastune.service.places import Places
from elastune.service.room import OverQuota, check_room, stored_bytes
from elastune.service.supervisor import Supervisor
from elastune.service.tables import CODES, GRANTS, JOBS
from elastune.service.tenants import Tenants
from elastune.spec import require_int

MOST_SEEDS_BYTES = 16_000_000
"""Every job of an experiment has a copy of its specification."""


@dataclass(frozen=True, slots=True)
class Used:
    devices: int
    running: int
    stored_bytes: int
    usd_this_month: float


class Service:
    def __init__(self, database: ServiceDatabase, places: Places, supervisor: Supervisor | None = None) -> None:
        self.database, self.places, self.supervisor = database, places, supervisor
        self.tenants, self.jobs = Tenants(database), Jobs(database)

    def upload(self, tenant: str, data: bytes) -> str:
        """Keep code; what is known already is not stored again."""
        code, mine = code_hash(data), CODES.c.tenant == tenant
        with self.database.write() as connection:  # so that the next sweep leaves it
            used = sa.update(CODES).where(mine, CODES.c.hash == code).values(created_at=now(connection))
            known = bool(connection.execute(used).rowcount)
        if known and self.places.has_archive(tenant, code):
            return code
        if not known:
            with self.database.read() as reading:
                check_room(reading, tenant, len(data))
        check_archive(data)
        self.places.save_archive(tenant, code, data)
        with self.database.write() as connection:
            if connection.execute(sa.select(CODES.c.hash).where(mine, CODES.c.hash == code)).first() is None:
                try:
                    check_room(connection, tenant, len(data))  # others may have been faster
                except OverQuota:
                    self.places.remove_archive(tenant, code)  # here, where nobody else can say that he has stored it
                    raise
                row = {"tenant": tenant, "hash": code, "bytes": len(data), "created_at": now(connection)}
                connection.execute(sa.insert(CODES), row)
        return code

    def submit(
        self,
        tenant: str,
        spec: Mapping[str, Any],
        code: str | None,
        priority: int = 0,
        seeds: int | None = None,
        key: str | None = None,
        rerun: bool = False,
    ) -> tuple[Job, bool]:
        check_text(spec)
        if seeds is not None and seeds * len(json.dumps(spec)) > MOST_SEEDS_BYTES:
            raise SpecError(f"seeds={seeds}: the experiment is too large for so many of them: at most 16 MB in all")
        digest = digest_of(spec, code, priority, seeds, rerun)
        if key is not None and (known := self.jobs.known(tenant, key, digest)) is not None:
            return known, False  # whatever has become of quotas and stores since
        data = None
        if code is not None:
            with self.database.write() as connection:
                use_code(connection, tenant, code)
            data = self.places.load_archive(tenant, code)
        with self.database.read() as connection:
            price_usd = price_of_a_device_usd(connection, now(connection))
        submission = replace(check(spec, data, code, priority, price_usd), seeds=seeds, digest=digest, rerun=rerun)
        require_int("seed of the last job", submission.specs()[-1].get("seed") or 0, 0)
        submitted = self.jobs.submit(tenant, submission, key)
        self._wake()
        return submitted

    def rerun(self, job: str, tenant: str, key: str | None) -> tuple[Job, bool]:
        """The same again: the same code, configuration and seed, and scores that are known are computed anew."""
        found = self.jobs.get(job, tenant)
        return self.submit(tenant, found.spec, found.code, found.priority, key=key, rerun=True)

    def delete(self, job: str, tenant: str) -> None:
        """Whatever is stored of a job that has ended. When it is cut off it can be asked for again."""
        found = self.jobs.get(job, tenant)
        if not found.ended:
            raise Conflict(f"job {job} is {found.state}: cancel it first, or wait until it has ended")
        self.places.remove(job)
        self.jobs.forget(job)

    def cancel(self, job: str, tenant: str) -> Job:
        cancelled = self.jobs.cancel(job, tenant)
        self._wake()
        return cancelled

    def usage(self, tenant: str) -> Used:
        with self.database.read() as connection:

            def number(query: sa.Select[Any]) -> int:
                return int(connection.execute(query).scalar() or 0)

            held = (GRANTS.c.tenant == tenant, GRANTS.c.released_at.is_(None))
            running = (JOBS.c.tenant == tenant, JOBS.c.state.in_(("running", "finishing")))
            return Used(
                number(sa.select(sa.func.count()).select_from(GRANTS).where(*held)),
                number(sa.select(sa.func.count()).select_from(JOBS).where(*running)),
                stored_bytes(connection, tenant),
                spent_this_month_usd(connection, tenant, now(connection)),
            )

    def _wake(self) -> None:
        if self.supervisor is not None:
            self.supervisor.wake()
