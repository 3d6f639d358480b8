"""The database of the service: SQLite or PostgreSQL, with transactions that are right when many write at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from elastune.errors import SpecError, StorageError
from elastune.service.tables import JOBS, METADATA, VERSION, VERSIONS

_LOCK_WAIT_S = 30
_POSTGRES: dict[str, Any] = {
    "connect_timeout": 10,
    # A computer that is cut off in the middle of a transaction must not keep the lock until TCP gives it up.
    "options": "-c idle_in_transaction_session_timeout=10s -c lock_timeout=20s -c statement_timeout=30s",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_WRITE_LOCK, _CREATE_LOCK = 0x656C6101, 0x656C6102  # any numbers that no other program locks by chance


class ServiceDatabase:
    """`read` sees what was committed. `write` is one transaction, and there is one at a time: what it reads is still
    true when it commits. A service writes a few hundred times a second at most, and a write takes a millisecond.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._made = _url(url)
        self.name = str(self._made)  # without its password
        self.sqlite = self._made.get_backend_name() == "sqlite"
        if self.sqlite and self._made.database:
            Path(self._made.database).absolute().parent.mkdir(parents=True, exist_ok=True)
        wait: dict[str, Any] = {"timeout": _LOCK_WAIT_S} if self.sqlite else _POSTGRES
        self._engine = sa.create_engine(
            self._made, pool_size=16, max_overflow=32, pool_pre_ping=True, connect_args=wait
        )
        if self.sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin)

    def create(self) -> None:
        """Make the tables, if they are not there. Those of another version are refused, and left as they are."""
        with self.write(_CREATE_LOCK) as connection:
            new = not sa.inspect(connection).has_table(JOBS.name)
            METADATA.create_all(connection)
            if new:
                connection.execute(sa.insert(VERSIONS), {"number": VERSION})
            found = connection.execute(sa.select(VERSIONS.c.number)).scalar()
            if found != VERSION:
                raise StorageError(
                    f"the database {self.name} has tables of version {found or 'unknown'}, and this Elastune needs "
                    f"{VERSION}: use the Elastune that made them, or another database"
                )

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self, lock: int = _WRITE_LOCK) -> Iterator[sa.Connection]:
        options = {"elastune_write": True}
        with self._explained(), self._engine.connect().execution_options(**options) as connection, connection.begin():
            if not self.sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            raise StorageError(
                f"cannot open {self.name}: {error}. Install it with: pip install 'elastune[postgres]'"
            ) from error
        except OperationalError as error:
            raise StorageError(
                f"cannot use the database {self.name}: {str(error.orig).strip()}. Check that it is reachable, may be "
                "written, and that its disk is not full"
            ) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise StorageError(f"the database {self.name} has hung up: {str(error.orig).strip()}") from error
            raise


def now(connection: sa.Connection) -> float:
    """Unix seconds, by the clock of the database: replicas compare what others have written, and their own may differ.
    SQLite has that of its one computer.
    """
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())


def _url(text: str) -> sa.URL:
    if "://" not in text:
        return sa.URL.create("sqlite", database=str(Path(text).absolute()))
    scheme = text.partition("://")[0]
    try:
        url = sa.make_url(text)
        if scheme == "sqlite" and url.database:
            return url
        if scheme.partition("+")[0] in ("postgresql", "postgres"):
            return url.set(drivername="postgresql+psycopg")
    except (sa.exc.ArgumentError, ValueError):  # its text may hold the password
        pass
    raise SpecError(
        f"database {scheme}://...: allowed are a path, sqlite:///path and postgresql://user:password@host:port/database"
    )


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we say ourselves when a transaction begins, and of which kind
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: sa.Connection) -> None:
    """A transaction that will write takes the lock at once: one that reads first and writes then may be refused."""
    writes = connection.get_execution_options().get("elastune_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
