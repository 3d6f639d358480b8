"""The append-only journal: the truth about a run.

A body is opaque here (JSON made by `messages.encode_record`). A checksum that is seeded with the sequence number tells
a damaged or a misplaced record from a good one, and the primary key (run, seq) tells a second driver from the first.

Reading never writes: `elastune status` reads while a run is going on. So a damaged last record is left where it is
until the next append takes its place.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from elastune.errors import JournalDamaged, JournalTaken, StorageError, did_you_mean
from elastune.record.database import BLOBS, RECORDS, SNAPSHOTS, Database, raw

_PAGE = 1000

_Row = tuple[int, int, Any]  # seq, crc, body
_INSERT = sa.insert(RECORDS)


class Journal(Protocol):
    """What the loop writes and everybody else reads. `warnings` has what was dropped, in words for the user."""

    warnings: list[str]

    def append(self, seq: int, body: bytes) -> None:
        """Durable when it returns, unless appends are grouped. A `seq` that is not the next one: JournalTaken."""

    def read(self, start: int = 0) -> Iterator[bytes]:
        """The bodies in order. A damaged last record is left out, with a warning; other damage: JournalDamaged."""

    def save_snapshot(self, seq: int, key: str, data: bytes) -> None:
        """Keep the state made of all records before `seq`, so that `read(seq)` gives what is missing in it."""

    def newest_snapshot(self, key: str) -> tuple[int, bytes] | None:
        """The newest intact one of this key; only the newest two of a run are kept."""

    def put_blob(self, name: str, data: bytes) -> None: ...

    def get_blob(self, name: str) -> bytes | None: ...

    def close(self) -> None: ...


class MemoryJournal:
    """For tests and for simulations that are thrown away."""

    def __init__(self, run: str = "memory") -> None:
        self.warnings: list[str] = []
        self._run = run
        self._bodies: list[bytes] = []
        self._snapshots: dict[int, tuple[str, bytes]] = {}
        self._blobs: dict[str, bytes] = {}

    def append(self, seq: int, body: bytes) -> None:
        if seq != len(self._bodies):
            raise _taken(self._run, "memory", seq, len(self._bodies))
        self._bodies.append(body)

    def read(self, start: int = 0) -> Iterator[bytes]:
        yield from self._bodies[start:]

    def save_snapshot(self, seq: int, key: str, data: bytes) -> None:
        self._snapshots[seq] = (key, data)
        for old in sorted(self._snapshots)[:-2]:
            del self._snapshots[old]

    def newest_snapshot(self, key: str) -> tuple[int, bytes] | None:
        return max(((seq, data) for seq, (its_key, data) in self._snapshots.items() if its_key == key), default=None)

    def put_blob(self, name: str, data: bytes) -> None:
        self._blobs[name] = data

    def get_blob(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def close(self) -> None:
        pass


class SqlJournal:
    """A run in SQLite or PostgreSQL. With `group` = N there is one commit for N appends, and one at the end."""

    def __init__(self, url: str | Path, run: str, group: int = 1, must_exist: bool = False) -> None:
        self.warnings: list[str] = []
        self._run = run
        self._group = group
        self._pending: list[dict[str, Any]] = []
        self._next = 0
        self._damaged_last: _Row | None = None
        self._database = Database(url, must_exist)
        try:
            self._find_end()
            if must_exist and self._next == 0 and self._damaged_last is None and not self._has_blob():
                runs = self._database.runs()
                if isinstance(url, Path) and len(runs) == 1:
                    raise StorageError(f"{url} is the journal of run {runs[0]!r}: give its folder that name again")
                hint = did_you_mean(run, runs) if runs else "it has no runs yet"
                raise StorageError(f"there is no run {run!r} in {self._database.name}: {hint}")
        except BaseException:
            self._database.close()
            raise

    def append(self, seq: int, body: bytes) -> None:
        if seq != self._next:
            raise _taken(self._run, self._database.name, seq, self._next)
        self._pending.append({"run": self._run, "seq": seq, "crc": zlib.crc32(body, seq), "body": body})
        self._next += 1
        if len(self._pending) >= self._group:
            self._flush()

    def read(self, start: int = 0) -> Iterator[bytes]:
        self._flush()
        self._find_end()
        end = self._next
        while start < end:  # by pages: no transaction stays open while the caller works
            rows = self._rows(RECORDS.c.seq >= start, RECORDS.c.seq < end, limit=_PAGE)
            if not rows:
                raise self._damaged(start, "is missing")
            for seq, crc, body in rows:
                if seq != start:
                    raise self._damaged(start, "is missing")
                if not _intact(seq, crc, body):
                    raise self._damaged(seq, "is not what was written (its checksum differs)")
                yield body
                start += 1

    def save_snapshot(self, seq: int, key: str, data: bytes) -> None:
        self._flush()
        mine = SNAPSHOTS.c.run == self._run
        second = sa.select(SNAPSHOTS.c.seq).where(mine).order_by(SNAPSHOTS.c.seq.desc()).limit(1).offset(1)
        row = {"run": self._run, "seq": seq, "key": key, "crc": zlib.crc32(data, seq), "data": data}
        with self._write() as connection:
            connection.execute(sa.delete(SNAPSHOTS).where(mine, SNAPSHOTS.c.seq == seq))
            connection.execute(sa.insert(SNAPSHOTS), row)
            connection.execute(sa.delete(SNAPSHOTS).where(mine, SNAPSHOTS.c.seq < second.scalar_subquery()))

    def newest_snapshot(self, key: str) -> tuple[int, bytes] | None:
        table = SNAPSHOTS.c
        query = sa.select(table.seq, table.crc, raw(table.data)).order_by(table.seq.desc())
        # One that knows more records than there are was made before the last record was damaged.
        query = query.where(table.run == self._run, table.key == key, table.seq <= self._next)
        with self._database.transaction() as connection:
            rows = connection.execute(query).all()
        return next(((seq, data) for seq, crc, data in rows if _intact(seq, crc, data)), None)

    def put_blob(self, name: str, data: bytes) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(BLOBS).where(BLOBS.c.run == self._run, BLOBS.c.name == name))
            connection.execute(sa.insert(BLOBS), {"run": self._run, "name": name, "data": data})

    def get_blob(self, name: str) -> bytes | None:
        query = sa.select(BLOBS.c.data).where(BLOBS.c.run == self._run, BLOBS.c.name == name)
        with self._database.transaction() as connection:
            return connection.execute(query).scalar_one_or_none()

    def _has_blob(self) -> bool:
        """A run that ended before its first turn has its experiment only."""
        with self._database.transaction() as connection:
            return connection.execute(sa.select(BLOBS.c.name).where(BLOBS.c.run == self._run)).first() is not None

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._database.close()

    def _flush(self) -> None:
        rows, self._pending = self._pending, []
        if not rows:
            return
        self._next = rows[0]["seq"]  # if it fails, nothing was appended
        with self._write() as connection:
            self._remove_damaged_last(connection)
            connection.execute(_INSERT, rows)
        self._next += len(rows)
        self._damaged_last = None

    def _remove_damaged_last(self, connection: sa.Connection) -> None:
        """Only that very row, lest a good one go that another driver has put in its place."""
        if self._damaged_last is None:
            return
        seq, crc, body = self._damaged_last
        table = RECORDS.c
        that = (table.run == self._run, table.seq == seq, table.crc == crc, raw(table.body) == raw(sa.literal(body)))
        connection.execute(sa.delete(RECORDS).where(*that))
        connection.execute(sa.delete(SNAPSHOTS).where(SNAPSHOTS.c.run == self._run, SNAPSHOTS.c.seq > seq))

    def _find_end(self) -> None:
        rows = self._rows(newest_first=True, limit=1)
        self._next = rows[0][0] + 1 if rows else 0
        self._damaged_last = None
        if rows and not _intact(*rows[0]):
            self._damaged_last = rows[0]
            self._next -= 1
            warning = (
                f"the last record ({self._next}) of run {self._run!r} in {self._database.name} is damaged and was left "
                "out; the run goes on from the record before it"
            )
            if warning not in self.warnings:
                self.warnings.append(warning)

    def _rows(self, *where: sa.ColumnElement[bool], limit: int, newest_first: bool = False) -> list[_Row]:
        table = RECORDS.c
        query = sa.select(table.seq, table.crc, raw(table.body)).where(table.run == self._run, *where).limit(limit)
        with self._database.transaction() as connection:
            rows = connection.execute(query.order_by(table.seq.desc() if newest_first else table.seq))
            return [(seq, crc, body) for seq, crc, body in rows]

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        try:
            with self._database.transaction() as connection:
                yield connection
        except IntegrityError as error:
            raise _taken(self._run, self._database.name, self._next, self._next + 1) from error

    def _damaged(self, seq: int, what: str) -> JournalDamaged:
        kept = f"records 0 to {seq - 1} are before it; " if seq else ""
        return JournalDamaged(
            f"record {seq} of run {self._run!r} in {self._database.name} {what}: {kept}"
            "restore the journal from a backup, or start the experiment anew under another run name"
        )


def forget_run(url: str, run: str) -> None:
    """Remove all that a database holds of a run."""
    database = Database(url, must_exist=False)
    try:
        with database.transaction() as connection:
            for table in (RECORDS, SNAPSHOTS, BLOBS):
                connection.execute(sa.delete(table).where(table.c.run == run))
    finally:
        database.close()


def _intact(seq: int, crc: int, data: object) -> bool:
    return isinstance(data, bytes) and zlib.crc32(data, seq) == crc


def _taken(run: str, name: str, seq: int, expected: int) -> JournalTaken:
    there = "is already there" if seq < expected else f"was to be written where record {expected} is due"
    return JournalTaken(
        f"another driver writes to run {run!r} in {name}: record {seq} {there}. "
        "Stop the other driver, or choose another run name"
    )
