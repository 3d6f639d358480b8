"""The append-only journal: the truth about a run.

A body is opaque here (JSON made by `messages.encode_record`). A checksum that is seeded with the sequence number tells
a damaged or a misplaced record from a good one, and the primary key (run, seq) tells a second driver from the first.

Reading never writes: `elastune status` reads while a run is going on. So a damaged last record is left where it is
until the next append takes its place.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from elastune.errors import JournalDamaged, JournalTaken, SpecError, StorageError, did_you_mean

_PAGE = 1000
_LOCK_WAIT_S = 30
_CONNECT_WAIT_S = 10
_SWITCH_ATTEMPTS, _SWITCH_PAUSE_S = 200, 0.05
_CREATE_LOCK = 0x656C6173  # any number that no other program locks by chance
_DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_Row = tuple[int, int, Any]  # seq, crc, body

_TABLES = sa.MetaData()
_RECORDS = sa.Table(
    "records",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_SNAPSHOTS = sa.Table(
    "snapshots",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_BLOBS = sa.Table(
    "blobs",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


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
        self._database = _Database(url, must_exist)
        try:
            self._find_end()
            if must_exist and self._next == 0 and self._damaged_last is None:
                runs = self._database.runs()
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
            rows = self._rows(_RECORDS.c.seq >= start, _RECORDS.c.seq < end, limit=_PAGE)
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
        mine = _SNAPSHOTS.c.run == self._run
        second = sa.select(_SNAPSHOTS.c.seq).where(mine).order_by(_SNAPSHOTS.c.seq.desc()).limit(1).offset(1)
        row = {"run": self._run, "seq": seq, "key": key, "crc": zlib.crc32(data, seq), "data": data}
        with self._write() as connection:
            connection.execute(sa.delete(_SNAPSHOTS).where(mine, _SNAPSHOTS.c.seq == seq))
            connection.execute(sa.insert(_SNAPSHOTS), row)
            connection.execute(sa.delete(_SNAPSHOTS).where(mine, _SNAPSHOTS.c.seq < second.scalar_subquery()))

    def newest_snapshot(self, key: str) -> tuple[int, bytes] | None:
        table = _SNAPSHOTS.c
        query = sa.select(table.seq, table.crc, _raw(table.data)).order_by(table.seq.desc())
        # One that knows more records than there are was made before the last record was damaged.
        query = query.where(table.run == self._run, table.key == key, table.seq <= self._next)
        with self._database.transaction() as connection:
            rows = connection.execute(query).all()
        return next(((seq, data) for seq, crc, data in rows if _intact(seq, crc, data)), None)

    def put_blob(self, name: str, data: bytes) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(_BLOBS).where(_BLOBS.c.run == self._run, _BLOBS.c.name == name))
            connection.execute(sa.insert(_BLOBS), {"run": self._run, "name": name, "data": data})

    def get_blob(self, name: str) -> bytes | None:
        query = sa.select(_BLOBS.c.data).where(_BLOBS.c.run == self._run, _BLOBS.c.name == name)
        with self._database.transaction() as connection:
            return connection.execute(query).scalar_one_or_none()

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
            connection.execute(_INSERT_RECORD, rows)
        self._next += len(rows)
        self._damaged_last = None

    def _remove_damaged_last(self, connection: sa.Connection) -> None:
        """Only that very row, lest a good one go that another driver has put in its place."""
        if self._damaged_last is None:
            return
        seq, crc, body = self._damaged_last
        table = _RECORDS.c
        that = (table.run == self._run, table.seq == seq, table.crc == crc, _raw(table.body) == _raw(sa.literal(body)))
        connection.execute(sa.delete(_RECORDS).where(*that))
        connection.execute(sa.delete(_SNAPSHOTS).where(_SNAPSHOTS.c.run == self._run, _SNAPSHOTS.c.seq > seq))

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
        table = _RECORDS.c
        query = sa.select(table.seq, table.crc, _raw(table.body)).where(table.run == self._run, *where).limit(limit)
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


class _Database:
    """One open connection, whose errors name the database and the reason, and never the password."""

    def __init__(self, url_or_path: str | Path, must_exist: bool) -> None:
        url = _url(url_or_path)
        sqlite = url.get_backend_name() == "sqlite"
        path = Path(url.database or "") if sqlite else None
        self.name = str(path or url.difference_update_query(["password"]))  # str() of a URL hides its password
        if path is not None and must_exist and not path.exists():
            raise StorageError(f"there is no journal at {path}: check the path, or start a run to create it")
        with self._explained():
            if path is not None and not must_exist:
                path.parent.mkdir(parents=True, exist_ok=True)
            wait = {"timeout": _LOCK_WAIT_S} if sqlite else {"connect_timeout": _CONNECT_WAIT_S}
            self._connection = sa.create_engine(url, poolclass=sa.NullPool, connect_args=wait).connect()
        try:
            self._prepare(sqlite, must_exist)
        except BaseException:
            self.close()
            raise

    def _prepare(self, sqlite: bool, must_exist: bool) -> None:
        if sqlite:
            with self._explained():
                self._connection.exec_driver_sql("PRAGMA synchronous=FULL")
                if not must_exist:
                    self._let_readers_in()
                self._connection.commit()
        with self.transaction() as connection:
            if sa.inspect(connection).has_table(_RECORDS.name):
                return
        if must_exist:
            raise StorageError(f"{self.name} holds no journal: check the name, or start a run to create it")
        # Two drivers may come here at once. One waits for the other, which neither database does by itself.
        lock = "BEGIN IMMEDIATE" if sqlite else f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})"
        with self.transaction() as connection:
            connection.exec_driver_sql(lock)
            for table in _TABLES.sorted_tables:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))

    def _let_readers_in(self) -> None:
        """Write ahead (kept in the file). SQLite does not wait for others by itself when it switches to that."""
        for attempt in range(_SWITCH_ATTEMPTS):
            try:
                self._connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except DBAPIError as error:
                if _sqlite_code(error) != sqlite3.SQLITE_BUSY or attempt == _SWITCH_ATTEMPTS - 1:
                    raise
                time.sleep(_SWITCH_PAUSE_S)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        with self._explained(), self._connection.begin():
            yield self._connection

    def runs(self) -> list[str]:
        with self.transaction() as connection:
            return list(connection.execute(sa.select(_RECORDS.c.run).distinct().order_by(_RECORDS.c.run)).scalars())

    def close(self) -> None:
        with suppress(DBAPIError):
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # what it means depends on what was written
        except ModuleNotFoundError as error:
            raise StorageError(
                f"cannot open {self.name}: {error}. Install it with: pip install 'elastune[postgres]'"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot create the journal {self.name}: {error.strerror or error}") from error
        except DBAPIError as error:
            reason = str(error.orig).strip()
            if _sqlite_code(error) in _DAMAGED_CODES:
                raise JournalDamaged(
                    f"the journal {self.name} cannot be read: {reason}. If it was one, restore it from a backup; "
                    "otherwise choose another path"
                ) from error
            raise StorageError(
                f"cannot use the journal {self.name}: {reason}. Check that it is reachable, may be written, "
                "and that its disk is not full"
            ) from error


_INSERT_RECORD = sa.insert(_RECORDS)


def open_journal(url_or_path: str | Path, run: str, group: int = 1, must_exist: bool = False) -> Journal:
    """The journal of a run in a SQLite file (a path) or a PostgreSQL database (a URL); several runs may share one."""
    return SqlJournal(url_or_path, run, group, must_exist)


def list_runs(url_or_path: str | Path) -> list[str]:
    """The names of all runs in a database."""
    database = _Database(url_or_path, must_exist=True)
    try:
        return database.runs()
    finally:
        database.close()


def _url(url_or_path: str | Path) -> sa.URL:
    text = str(url_or_path)
    if "://" not in text:
        return sa.URL.create("sqlite", database=str(Path(text).absolute()))
    scheme = text.partition("://")[0]
    wrong = (
        f"journal {scheme}://...: allowed are a path, sqlite:///path and postgresql://user:password@host:port/database"
    )
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # its text may hold the password
        raise SpecError(wrong) from None
    if scheme == "sqlite" and url.database:
        return url
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise SpecError(wrong)


def _raw(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """As the driver has it: in a damaged SQLite file a value may be of any type."""
    return sa.type_coerce(column, sa.types.NullType())


def _sqlite_code(error: DBAPIError) -> int:
    """The primary result code, without its details; 0 for another database."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


def _intact(seq: int, crc: int, data: object) -> bool:
    return isinstance(data, bytes) and zlib.crc32(data, seq) == crc


def _taken(run: str, name: str, seq: int, expected: int) -> JournalTaken:
    there = "is already there" if seq < expected else f"was to be written where record {expected} is due"
    return JournalTaken(
        f"another driver writes to run {run!r} in {name}: record {seq} {there}. "
        "Stop the other driver, or choose another run name"
    )
