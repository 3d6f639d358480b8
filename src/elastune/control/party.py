"""The experiments that share a run, and whose turn it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from elastune.algorithm.base import Algorithm, TrialSource
from elastune.messages import RunStatus
from elastune.spec import Mode


@dataclass(slots=True, eq=False)
class Party:
    """One experiment of a run: what it looks for, who decides for it, and how it stands."""

    name: str
    metric: str
    mode: Mode
    algorithm: Algorithm
    source: TrialSource
    priority: float = 1.0
    outcome: tuple[RunStatus, str] | None = None
    """From when it is over, be it before the others."""
    waiting: dict[str, None] = field(default_factory=dict)
    """Its trials that want devices, in order."""
    running: int = 0
    """How many of its trials hold some."""
    used_s: float = 0.0
    """Device-seconds that its trials have had, as far as they have reported."""
    trials: int = 0
    reports: int = 0
    """Those that count."""
    works: bool = False
    """Whether a trial has come anywhere: it has reported, or saved an epoch of a long step."""
    failed: int = 0
    diverged: int = 0
    """Those of the failed that have reported a value, which was not finite."""
    last_failure: str = ""
    best_loss: float = math.inf
    best: list[tuple[float, str]] = field(default_factory=list)
    """Its best trials, whose checkpoints are kept."""

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running


def in_turn(parties: Sequence[Party], has_another: Callable[[Party, int], bool]) -> Iterator[Party]:
    """Whose turn it is to get a device, again and again: that of the one with the fewest running trials for its
    priority, those counted that it got here; of several, of the one that has had least so far. `has_another` is told
    how many that were; one that has none is out.
    """

    def entry(place: int, got: int) -> tuple[float, float, float, int, int]:
        party = parties[place]
        running, used_s = (party.running + got) / party.priority, party.used_s / party.priority
        return running, used_s, -party.priority, place, got

    heap = [entry(place, 0) for place in range(len(parties))]
    heapify(heap)
    while heap:
        *_, place, got = heap[0]
        if has_another(parties[place], got):
            yield parties[place]
            heapreplace(heap, entry(place, got + 1))
        else:
            heappop(heap)


class Line:
    """The trials of all parties that want devices: each party's in order, and the parties in turn."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._parties = parties

    def __len__(self) -> int:
        return sum(len(party.waiting) for party in self._parties)

    def __iter__(self) -> Iterator[str]:
        if len(self._parties) == 1:
            yield from self._parties[0].waiting
            return
        lines = {party.name: iter(party.waiting) for party in self._parties}
        for party in in_turn(self._parties, lambda party, got: got < len(party.waiting)):
            yield next(lines[party.name])
