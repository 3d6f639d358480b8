"""The database behind a journal: SQLite or PostgreSQL through the same code, with errors that a user can act on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from elastune.errors import JournalDamaged, SpecError, StorageError

_LOCK_WAIT_S = 30
_CONNECT_WAIT_S = 10
_SWITCH_ATTEMPTS, _SWITCH_PAUSE_S = 200, 0.05
_CREATE_LOCK = 0x656C6173  # any number that no other program locks by chance
_DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_TABLES = sa.MetaData()
RECORDS = sa.Table(
    "records",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
SNAPSHOTS = sa.Table(
    "snapshots",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
BLOBS = sa.Table(
    "blobs",
    _TABLES,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


class Database:
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
            if sa.inspect(connection).has_table(RECORDS.name):
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
            return list(connection.execute(sa.select(RECORDS.c.run).distinct().order_by(RECORDS.c.run)).scalars())

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


def raw(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """As the driver has it: in a damaged SQLite file a value may be of any type."""
    return sa.type_coerce(column, sa.types.NullType())


def _sqlite_code(error: DBAPIError) -> int:
    """The primary result code, without its details; 0 for another database."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF
