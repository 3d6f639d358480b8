"""The runs of jobs, read from their journals as far as these go.

A run that was read once is kept for a while, so that the next reader needs only what was appended since. Large journals
are read in pieces, one piece at a time for all readers together: whoever asks for something small need not wait long.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from elastune.errors import JournalDamaged, StorageError
from elastune.messages import decode_record
from elastune.record.journal import SqlJournal
from elastune.record.projection import RunView
from elastune.service.jobs import Listed
from elastune.service.places import Places
from elastune.worker.log import older

T = TypeVar("T")
log = logging.getLogger("elastune")

MOST_VIEWS, MOST_RECORDS = 64, 400_000
"""So many runs are kept in memory, and so many records in all of them, but always the newest one."""
FRESH_S = 0.2
"""What was read so short a time ago is not read again."""
_PIECE, _PAUSE_S = 100, 0.001
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What colours a terminal."""


@dataclass
class _Reading:
    view: RunView = field(default_factory=RunView)
    records: int = 0
    read_s: float = -math.inf
    whole: bool = False
    """Nothing will be appended any more."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Runs:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._kept: OrderedDict[str, _Reading] = OrderedDict()
        self._lock, self._folding = threading.Lock(), threading.Lock()

    def read(self, job: Listed, make: Callable[[RunView], T]) -> T | None:
        """What is made of the run as it stands now; None if it has not begun."""
        if job.attempt == 0:
            return None
        reading = self._reading(job.id)
        with reading.lock:  # a view that somebody looks at must stand still
            now_s = time.monotonic()
            if not reading.whole and (job.ended or now_s - reading.read_s > FRESH_S):
                self._feed(job.id, reading)
                reading.read_s, reading.whole = now_s, job.ended
            made = make(reading.view) if reading.records else None
        self._drop_oldest()
        return made

    def _reading(self, job: str) -> _Reading:
        with self._lock:
            reading = self._kept.setdefault(job, _Reading())
            self._kept.move_to_end(job)
            return reading

    def _drop_oldest(self) -> None:
        with self._lock:
            records = sum(reading.records for reading in self._kept.values())
            while len(self._kept) > 1 and (len(self._kept) > MOST_VIEWS or records > MOST_RECORDS):
                records -= self._kept.popitem(last=False)[1].records

    def _feed(self, job: str, reading: _Reading) -> None:
        file = self._places.run(job) / "journal.db"
        if self._places.journal is None and not file.exists():
            return
        try:
            with closing(SqlJournal(self._places.journal or file, job, must_exist=True)) as journal:
                for piece in _pieces(journal.read(reading.records)):
                    with self._folding:
                        for body in piece:
                            reading.view.feed(decode_record(body))
                            reading.records += 1
                    if len(piece) == _PIECE:
                        time.sleep(_PAUSE_S)  # lets others have a turn
        except (JournalDamaged, msgspec.DecodeError) as error:
            raise JournalDamaged(
                f"the journal of job {job!r} is damaged after its first {reading.records} records: "
                "ask an administrator to restore it from a backup, or run the job again"
            ) from error
        except StorageError as error:
            if reading.records:
                log.warning("the journal of job %s cannot be read: %s", job, error)
                raise StorageError(f"the journal of job {job!r} cannot be read now: try again in a while") from error
            # Its driver has made the file and nothing in it yet.


def _pieces(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(bodies)
    while piece := list(islice(rest, _PIECE)):
        yield piece


def log_text(path: Path, most_bytes: int) -> tuple[str, bool]:
    """The end of a log that may go on, without colours, and whether there is more before it. Of one that is not there:
    nothing.
    """
    pieces: list[bytes] = []
    left = most_bytes
    for part in (path, older(path)):
        try:
            with part.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - left))
                pieces.insert(0, file.read(left))
        except OSError:
            continue
        if size > left:
            return _plain(pieces), True
        left -= size
    return _plain(pieces), False


def _plain(pieces: list[bytes]) -> str:
    return _ESCAPES.sub("", b"".join(pieces).decode(errors="replace"))
