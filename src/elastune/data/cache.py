"""Files of a store as files of this machine: in place where they are here already, else by way of a cache.

The cache is a folder that all processes of the machine share. A file in it is named by its content, is complete when it
has its name, and is downloaded by one process while the others wait for it. What was not used for longest goes first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elastune.data.store import Damaged, Store
from elastune.errors import StorageError

_CHUNK = 1 << 20
_UNFINISHED = ".part"
_ABANDONED_NS = 3600 * 10**9
"""What is not finished, and so much older than the newest file, nobody is at any more."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file of a store. Of a plain one the content is not known, only that it has this size and that tag."""

    path: str
    size_bytes: int
    sha256: str | None = None
    tag: str = ""

    @property
    def key(self) -> str:
        return self.sha256 or hashlib.sha256(f"{self.path} {self.size_bytes} {self.tag}".encode()).hexdigest()

    def check(self, file: Path) -> None:
        """Whether the file is what was written."""
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != self.size_bytes:
                raise Damaged(f"it has {size} bytes instead of {self.size_bytes}")
            if self.sha256 is None:
                return
            sha256 = hashlib.sha256()
            while chunk := opened.read(_CHUNK):
                sha256.update(chunk)
            if sha256.hexdigest() != self.sha256:
                raise Damaged("it is not what was written: its sha256 differs")


class Cache:
    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit_bytes = folder, limit_bytes
        # Looking through the folder takes time when its files are many and small: it need not be done for each.
        self._unseen_bytes = self._look_after_bytes = limit_bytes // 20
        self._looking = threading.Lock()

    def fetch(self, store: Store, item: Item) -> Path:
        target = self._folder / item.key[:2] / item.key
        with suppress(FileNotFoundError):
            os.utime(target)  # it is in use: the last to go
            return target
        with self._locked(item.key[:2]):
            if not target.exists():
                self._make_room(item.size_bytes)
                target.parent.mkdir(exist_ok=True)
                unfinished = target.with_suffix(_UNFINISHED)
                store.download(item.path, unfinished, item.check)
                os.utime(unfinished)
                os.replace(unfinished, target)
        return target

    def discard(self, item: Item) -> None:
        (self._folder / item.key[:2] / item.key).unlink(missing_ok=True)

    def _make_room(self, wanted_bytes: int) -> None:
        with self._looking:
            self._unseen_bytes += wanted_bytes
            if self._unseen_bytes < self._look_after_bytes:
                return
            self._unseen_bytes = 0
        with self._locked("room"):
            found = []
            for path in self._folder.glob("??/*"):
                with suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
            excess = sum(size for _, size, _ in found) + wanted_bytes - self._limit_bytes
            newest_ns = max((used_ns for used_ns, _, _ in found), default=0)
            for used_ns, size, path in sorted(found):
                if excess <= 0:
                    break
                if path.suffix == _UNFINISHED and used_ns > newest_ns - _ABANDONED_NS:
                    continue  # somebody is downloading it
                path.unlink(missing_ok=True)  # who has it open can read on
                excess -= size

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Held by one thread of one process of this machine; the system frees it when that is killed."""
        locks = self._folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Nearby:
    """Opens files of a store, each checked once by this process."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = None if store.is_local else cache
        self._checked: set[str] = set()

    @property
    def is_local(self) -> bool:
        return self._cache is None

    def fetch(self, item: Item) -> Path:
        """Bring it here, if it is not."""
        try:
            return Path(item.path) if self._cache is None else self._cache.fetch(self._store, item)
        except OSError as error:
            raise StorageError(f"the cache of data from {self._store.url} cannot be written: {error}") from error

    def open(self, item: Item) -> IO[bytes]:
        for _ in range(3):
            path = self.fetch(item)
            try:
                if item.key not in self._checked:
                    item.check(path)
                    self._checked.add(item.key)
                return path.open("rb")
            except OSError as error:  # from the cache, another process may have just removed it
                reason: Exception = error
            except Damaged as error:
                reason = error
                if self._cache is not None:
                    self._cache.discard(item)
            if self._cache is None:
                break
        raise StorageError(f"{item.path} of the data at {self._store.url} cannot be read: {reason}") from reason
