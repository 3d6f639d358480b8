"""The output of a trial in a file of its own, also that of C code and of children, and never more than so much."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOG_BYTES = 10_000_000
"""What is kept of a trial's output, per rank: the newer half in its log, the older in a second file beside it."""
CHECK_S = FOLLOW_S = 1.0
_CHUNK = 1 << 16


def log_path(folder: Path, trial: str, rank: int) -> Path:
    return folder / (f"{trial}.{rank}.log" if rank else f"{trial}.log")


def older(path: Path) -> Path:
    """Where a log goes when it is full."""
    return path.with_name(path.name + ".1")


def follow_log(path: Path, over: Callable[[], bool]) -> Iterator[str]:
    """All of a log, the older part first, and what is added to it until nothing more will be."""
    if older(path).exists():
        yield older(path).read_text(errors="replace")
    file: IO[str] | None = None
    while True:
        done = over()  # asked before reading: what was written by then is shown
        if file is None and path.exists():
            file = path.open(errors="replace")
        if file is not None:
            full = path.exists() and os.stat(path).st_ino != os.fstat(file.fileno()).st_ino
            while text := file.read(_CHUNK):
                yield text
            if full:
                file.close()
                file = None
                continue
        if done:
            return
        time.sleep(FOLLOW_S)


class Logs:
    """Turns the output of this process to one log after the other. A thread looks at its size once in a while."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self._half = limit_bytes // 2
        self._path: Path | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def to(self, path: Path) -> Iterator[None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        _flush()
        kept = os.dup(1), os.dup(2)
        with self._lock:
            _open(path)
            self._path = path
        try:
            yield
        finally:
            _flush()
            with self._lock:
                self._path = None
                for saved, stream in zip(kept, (1, 2), strict=True):
                    os.dup2(saved, stream)
                    os.close(saved)

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(CHECK_S):
            self.trim()

    def trim(self) -> None:
        with self._lock, suppress(OSError):  # a full disk is not the trial's business
            if self._path is not None and os.fstat(1).st_size > self._half:
                os.replace(self._path, older(self._path))
                _open(self._path)


def _open(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _flush() -> None:
    """Also mends what the user's code has closed: the next trial prints too."""
    for name, stream in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name).closed:
            setattr(sys, name, os.fdopen(os.dup(stream), "w", buffering=1))
        getattr(sys, name).flush()
