"""The folder of a run: made once, held by one driver at a time, and what it keeps."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elastune.errors import JournalTaken, SpecError, StorageError
from elastune.record.journal import Journal, SqlJournal

MACHINES = "machines"
"""The folder of a run in which its machines on this computer are kept."""
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")


def storage_folder(storage: object) -> Path:
    if isinstance(storage, Path):
        storage = str(storage)
    if not isinstance(storage, str) or not storage or "://" in storage:
        raise SpecError(f"storage={storage!r}: must be a folder; for checkpoints elsewhere give checkpoints=")
    return Path(os.path.expanduser(storage))


def journal_url(journal: object) -> str | None:
    """None: in the run's folder. A file elsewhere is no use: whoever reads the run would have to know of it."""
    if journal is None:
        return None
    if isinstance(journal, str) and journal.startswith(_POSTGRES):
        return journal
    scheme, found, _ = journal.partition("://") if isinstance(journal, str) else ("", "", "")
    said = f"{scheme}://..." if found else journal  # the rest of a URL may hold a password
    raise SpecError(
        f"journal={said!r}: must be a database such as 'postgresql://user@host/database'; "
        "without one the journal is in the run's folder"
    )


def open_journal(path: Path, url: str | None, must_exist: bool, group: int = 1) -> Journal:
    if must_exist and not path.is_dir():
        raise StorageError(f"{path}: there is no such run; a run is a folder such as runs/digits")
    file = path / "journal.db"
    if must_exist and url is None and not file.exists():
        raise StorageError(
            f"there is no journal at {file}: if it is in PostgreSQL, say where with --journal (in Python journal=)"
        )
    return SqlJournal(journal_url(url) or file, path.resolve().name, group=group, must_exist=must_exist)


@contextmanager
def only_driver(path: Path) -> Iterator[None]:
    """A lock that the system gives back whenever this process ends, however it does.

    The journal refuses a second writer too, but only once both have begun; this one is refused before it does harm.
    """
    try:
        file = (path / "driver.lock").open("a")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalTaken(f"another driver is at work on run {path}: wait until it is done, or stop it") from None
        yield


def new_folder(storage: Path, name: str) -> Path:
    """A folder that did not exist: name, name-2, name-3, ..."""
    try:
        storage.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1_000_000):
            path = storage / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
                return path
            except FileExistsError:
                continue
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise StorageError(
            f"storage={str(storage)!r} cannot be written: {reason}. Give a folder that can, with storage="
        ) from error
    raise StorageError(f"storage={str(storage)!r}: too many runs are named {name!r}")


def release_leftovers(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give back the machines that a driver of this run left behind: their names, and of those that a living one has."""
    from elastune.provider.local import release_all

    swept = release_all(path.resolve() / MACHINES)
    return swept.released, swept.owned


@contextmanager
def closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()
