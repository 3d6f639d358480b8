"""Who owns the machines of a folder: the one process that holds a lock there, for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path

from elastune.errors import SpecError

TRIES_S = 1.0
"""Keepers hold the lock for a moment when they look whether somebody has it."""


class OwnerLock:
    """Held until it is closed or the process ends, however it ends. Children do not hold it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        give_up_s = time.monotonic() + TRIES_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up_s:
                    self._file.close()
                    raise SpecError(
                        f"machines in {path.parent}: a driver that is running owns them; wait until it has ended, "
                        "or use another folder"
                    ) from None
                time.sleep(0.02)
        _held.add(self)

    def close(self) -> None:
        self._file.close()


_held: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lock in _held:
        lock.close()


os.register_at_fork(after_in_child=_let_go_in_child)
