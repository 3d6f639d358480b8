"""The folder of a run: made once, held by one driver at a time, and what it keeps."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elastune.errors import JournalTaken, SpecError, StorageError
from elastune.record.journal import Journal, SqlJournal

MACHINES = "machines"
"""The folder of a run in which its machines on this computer are kept."""


def storage_folder(storage: object) -> str:
    if not isinstance(storage, str) or not storage or "://" in storage:
        raise SpecError(f"storage={storage!r}: must be a folder; for checkpoints elsewhere give checkpoints=")
    return storage


def open_journal(path: Path, url: str | None, must_exist: bool, group: int = 1) -> Journal:
    if must_exist and not path.is_dir():
        raise StorageError(f"{path}: there is no such run; a run is a folder such as runs/digits")
    return SqlJournal(url or path / "journal.db", path.resolve().name, group=group, must_exist=must_exist)


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
