"""Jobs: submitted once, moved from state to state, each step written down."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from elastune.errors import ElastuneError, SpecError
from elastune.service.database import ServiceDatabase, now
from elastune.service.room import check_room
from elastune.service.states import ENDED, FOLLOWS, OPEN, Outcome, State
from elastune.service.tables import CODES, HISTORY, JOBS

LONGEST_KEY = 200


class Conflict(ElastuneError):
    """What was asked for does not go with what is there."""


class NoSuchJob(ElastuneError):
    """Also said of a job of another tenant: nobody learns that it is there."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A job without its specification, which may be large."""

    number: int
    id: str
    tenant: str
    name: str
    code: str | None
    experiment: str | None
    priority: int
    least: int
    most: int
    quantum: int
    state: State
    outcome: Outcome | None
    reason: str
    cancelled: bool
    pool: str | None
    attempt: int
    failures: int
    deaths: int
    not_before: float
    summary: dict[str, Any]
    stored_bytes: int
    created_at: float
    started_at: float | None
    ended_at: float | None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Job(Listed):
    spec: dict[str, Any]
    rerun: bool
    """All is computed, also scores that are known."""


_LISTED = [JOBS.c[name] for name in Listed.__slots__]
_COLUMNS = [*_LISTED, JOBS.c.spec, JOBS.c.rerun]


@dataclass(frozen=True, slots=True)
class Submission:
    """What a job is made of, checked. `least`, `most` and `quantum` count devices."""

    name: str
    spec: Mapping[str, Any]
    code: str | None
    priority: int
    least: int
    most: int
    quantum: int
    seeds: int | None = None
    """An experiment: so many jobs that differ in their seed only."""
    digest: str = ""
    """Of the request, as it was given: `digest_of`."""
    rerun: bool = False

    def specs(self) -> list[Mapping[str, Any]]:
        if self.seeds is None:
            return [self.spec]
        first = int(self.spec.get("seed") or 0)
        return [{**self.spec, "seed": first + number} for number in range(self.seeds)]


def digest_of(spec: Mapping[str, Any], code: str | None, priority: int, seeds: int | None, rerun: bool = False) -> str:
    asked = [spec, code, priority, seeds, *(["rerun"] if rerun else [])]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class Jobs:
    def __init__(self, database: ServiceDatabase) -> None:
        self.database = database

    def known(self, tenant: str, key: str, digest: str) -> Job | None:
        """The job that was submitted with this key. Another submission with the same key is refused."""
        with self.database.read() as connection:
            return _known(connection, tenant, key, digest)

    def submit(self, tenant: str, submission: Submission, key: str | None = None) -> tuple[Job, bool]:
        """The job, and whether it is new: with the same key the same submission is the same job. With `seeds` there are
        as many jobs, accepted all or none, and this is the first of them. Their specifications are stored: without room
        for them it raises OverQuota.
        """
        if key is not None and not 0 < len(key) <= LONGEST_KEY:
            raise SpecError(f"Idempotency-Key: has {len(key)} characters: must have 1 to {LONGEST_KEY}")
        specs = [(spec, len(json.dumps(spec))) for spec in submission.specs()]
        with self.database.write() as connection:
            if key is not None and (known := _known(connection, tenant, key, submission.digest)) is not None:
                return known, False
            check_room(connection, tenant, sum(size for _, size in specs))
            if submission.code is not None:
                use_code(connection, tenant, submission.code)
            experiment = None if submission.seeds is None else f"{submission.name}-{secrets.token_hex(4)}"
            made = [
                _insert(connection, tenant, submission, spec, spec_bytes, experiment, key if number == 0 else None)
                for number, (spec, spec_bytes) in enumerate(specs)
            ]
            return self._get(connection, made[0]), True

    def get(self, job: str, tenant: str | None = None) -> Job:
        with self.database.read() as connection:
            return self._get(connection, job, tenant)

    def page(
        self,
        tenant: str | None = None,
        states: Collection[State] = (),
        before: int | None = None,
        limit: int = 100,
        experiment: str | None = None,
    ) -> list[Listed]:
        """The newest first; `before` a number, for the next page."""
        query = sa.select(*_LISTED).where(JOBS.c.deleted_at.is_(None)).order_by(JOBS.c.number.desc()).limit(limit)
        if tenant is not None:
            query = query.where(JOBS.c.tenant == tenant)
        if states:
            query = query.where(JOBS.c.state.in_(states))
        if before is not None:
            query = query.where(JOBS.c.number < before)
        if experiment is not None:
            query = query.where(JOBS.c.experiment == experiment)
        with self.database.read() as connection:
            return [Listed(**row) for row in connection.execute(query).mappings()]

    def seeds(self, experiment: str) -> dict[str, int]:
        """Of the jobs of an experiment, where they have one."""
        seed = JOBS.c.spec["seed"].as_string()
        query = sa.select(JOBS.c.id, seed).where(JOBS.c.experiment == experiment, seed.is_not(None))
        with self.database.read() as connection:
            return {job: int(given) for job, given in connection.execute(query)}

    def history(self, job: str) -> list[dict[str, Any]]:
        columns = (HISTORY.c.at, HISTORY.c.state, HISTORY.c.attempt, HISTORY.c.reason)
        query = sa.select(*columns).where(HISTORY.c.job == job).order_by(HISTORY.c.seq)
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def cancel(self, job: str, tenant: str) -> Job:
        """One that runs is told, and ends in its own time; any other ends at once. Of one that has ended nothing
        becomes.
        """
        with self.database.write() as connection:
            found = self._get(connection, job, tenant)
            if found.state in OPEN and found.state != "finishing":
                connection.execute(sa.update(JOBS).where(JOBS.c.id == job).values(cancelled=True))
                if found.state != "running":
                    finish(connection, job, "cancelled", "cancelled by its owner")
            return self._get(connection, job)

    def forget(self, job: str) -> None:
        """It is not shown any more, and nothing of it is stored. Its history stays."""
        with self.database.write() as connection:
            gone = sa.update(JOBS).where(JOBS.c.id == job).values(deleted_at=now(connection), key=None)
            connection.execute(gone.values(spec={}, spec_bytes=0, stored_bytes=0))

    def _get(self, connection: sa.Connection, job: str, tenant: str | None = None) -> Job:
        there = (JOBS.c.id == job, JOBS.c.deleted_at.is_(None))
        row = connection.execute(sa.select(*_COLUMNS).where(*there)).mappings().first()
        if row is None or (tenant is not None and row["tenant"] != tenant):
            raise NoSuchJob(f"there is no job {job!r}{_as_experiment(connection, job, tenant)}")
        return _job(row)


def _as_experiment(connection: sa.Connection, name: str, tenant: str | None) -> str:
    """What is said of a name that is an experiment's, to whom it belongs."""
    its = (JOBS.c.experiment == name, JOBS.c.tenant == tenant, JOBS.c.deleted_at.is_(None))
    found = connection.execute(sa.select(JOBS.c.id).where(*its)).first()
    return "" if found is None else f": it is an experiment, and `elastune experiment {name}` shows its jobs"


def use_code(connection: sa.Connection, tenant: str, code: str) -> None:
    """The next sweep leaves it, and those after it find the job that uses it."""
    mine = (CODES.c.tenant == tenant, CODES.c.hash == code)
    if not connection.execute(sa.update(CODES).where(*mine).values(created_at=now(connection))).rowcount:
        raise SpecError(f"code={code!r}: it was not uploaded: PUT it to /api/v1/code first")


def move(
    connection: sa.Connection,
    job: str,
    to: State,
    reason: str = "",
    only_if: Sequence[sa.ColumnElement[bool]] = (),
    **values: Any,
) -> bool:
    """Take a job to another state, if that may follow; False if it may not, because somebody else was faster."""
    before = [state for state, after in FOLLOWS.items() if to in after]
    where = (JOBS.c.id == job, JOBS.c.state.in_(before), *only_if)
    new = {"state": to, "reason": reason.replace("\0", ""), **values}  # PostgreSQL takes no text with a NUL
    changed = connection.execute(sa.update(JOBS).where(*where).values(new))
    if changed.rowcount:
        _note(connection, job, now(connection))
    return bool(changed.rowcount)


def requeue(connection: sa.Connection, job: str, reason: str, **values: Any) -> bool:
    """Back to the queue, with all that was trained; one that its owner has given up ends instead."""
    if connection.execute(sa.select(JOBS.c.cancelled).where(JOBS.c.id == job)).scalar():
        return finish(connection, job, "cancelled", "cancelled by its owner")
    return move(connection, job, "queued", reason, pool=None, wanted=None, **values)


def look_again(connection: sa.Connection, tenant: str) -> None:
    """Jobs that were put off need not wait for their time: what kept them waiting may be no more, and is not said."""
    put_off = (JOBS.c.tenant == tenant, JOBS.c.state == "queued", JOBS.c.put_offs > 0)
    connection.execute(sa.update(JOBS).where(*put_off).values(reason="", not_before=0.0, put_offs=0))


def finish(
    connection: sa.Connection,
    job: str,
    outcome: Outcome,
    reason: str,
    only_if: Sequence[sa.ColumnElement[bool]] = (),
    **values: Any,
) -> bool:
    """The first word about how it ends stands; its completion is still to come."""
    unowned = {"owner": None, "owned_until": 0.0, "failures": 0, "not_before": 0.0}
    return move(connection, job, "finishing", reason, only_if, outcome=outcome, **unowned, **values)


def _known(connection: sa.Connection, tenant: str, key: str, digest: str) -> Job | None:
    query = sa.select(*_COLUMNS, JOBS.c.digest).where(JOBS.c.tenant == tenant, JOBS.c.key == key)
    row = connection.execute(query).mappings().first()
    if row is not None and row["digest"] != digest:
        raise Conflict(
            f"Idempotency-Key {key!r}: job {row['id']} was submitted with it, and it is another one: "
            "give every submission a key of its own"
        )
    return None if row is None else _job(row)


def _insert(
    connection: sa.Connection,
    tenant: str,
    submission: Submission,
    spec: Mapping[str, Any],
    spec_bytes: int,
    experiment: str | None,
    key: str | None,
) -> str:
    at, job = now(connection), f"{submission.name}-{secrets.token_hex(4)}"
    values = {
        **{name: getattr(submission, name) for name in ("name", "code", "priority", "least", "most", "quantum")},
        **{"id": job, "tenant": tenant, "spec": spec, "experiment": experiment, "key": key},
        **{"digest": submission.digest, "state": "accepted", "reason": "", "cancelled": False},
        **{"attempt": 0, "put_offs": 0, "failures": 0, "deaths": 0, "not_before": 0.0, "owned_until": 0.0},
        **{"summary": {}},
        **{"rerun": submission.rerun, "spec_bytes": spec_bytes, "stored_bytes": 0, "created_at": at},
    }
    connection.execute(sa.insert(JOBS), values)
    _note(connection, job, at)
    return job


def _note(connection: sa.Connection, job: str, at: float) -> None:
    copied = sa.select(JOBS.c.id, JOBS.c.tenant, sa.literal(at), JOBS.c.state, JOBS.c.attempt, JOBS.c.reason)
    names = ["job", "tenant", "at", "state", "attempt", "reason"]
    connection.execute(sa.insert(HISTORY).from_select(names, copied.where(JOBS.c.id == job)))


def _job(row: Mapping[Any, Any]) -> Job:
    return Job(**{column.name: row[column.name] for column in _COLUMNS})
