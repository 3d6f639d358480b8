"""Asynchronous successive halving (Li et al. 2020) that pauses at rungs, so that a trial can be promoted later.

A rung holds the losses of all trials that reached it. Whenever a device is free, the best trial of the highest rung
that is among the best 1/eta there and was not promoted yet goes on to the next rung; when there is none, a new trial
begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import ClassVar

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended
from elastune.algorithm.halving import require_halving
from elastune.messages import Config
from elastune.spec import Run, TrialGroup, require_int


@dataclass(slots=True)
class Rung:
    """The losses at one rung, split so that finding who may be promoted costs O(log n).

    `top` holds the best floor(n / eta) as a heap with its worst first, `rest` the others with their best first.
    `ready` holds those that entered the top and were not promoted, best first; who was pushed out again is skipped.
    """

    until: int
    eta: int
    size: int = 0
    top: list[tuple[float, int]] = field(default_factory=list)
    rest: list[tuple[float, int]] = field(default_factory=list)
    ready: list[tuple[float, int]] = field(default_factory=list)
    promoted: set[int] = field(default_factory=set)

    def add(self, loss: float, number: int) -> None:
        self.size += 1
        entry = (loss, number)
        if self.top and entry < self._worst_of_top():
            heappush(self.rest, self._pop_worst())
            self._enter(entry)
        else:
            heappush(self.rest, entry)
        if len(self.top) < self.size // self.eta:
            self._enter(heappop(self.rest))

    def promotable(self) -> int | None:
        """The best of the top that was not promoted; it counts as promoted from now on."""
        while self.ready:
            entry = heappop(self.ready)
            if entry[1] not in self.promoted and entry <= self._worst_of_top():
                self.promoted.add(entry[1])
                return entry[1]
        return None

    def _enter(self, entry: tuple[float, int]) -> None:
        loss, number = entry
        heappush(self.top, (-loss, -number))
        if number not in self.promoted:
            heappush(self.ready, entry)

    def _worst_of_top(self) -> tuple[float, int]:
        loss, number = self.top[0]
        return -loss, -number

    def _pop_worst(self) -> tuple[float, int]:
        loss, number = heappop(self.top)
        return -loss, -number


class ASHA(Algorithm):
    """Begins up to `n` trials (None: as many as the limits allow), rungs at r, r*eta, r*eta^2, ... and at last R. With
    `max_concurrent` so many are under way at once, on however many devices: the more there are, the more trials are
    begun before anybody knows who is good.
    """

    one_by_one: ClassVar[bool] = True

    def __init__(self, n: int | None, r: int, R: int, eta: int = 3, max_concurrent: int | None = None) -> None:
        require_halving(1, r, R, eta)
        if n is not None:
            require_int("n", n, 1)
        if max_concurrent is not None:
            require_int("max_concurrent", max_concurrent, 1)
        self.n, self.r, self.R, self.eta, self.max_concurrent = n, r, R, eta, max_concurrent
        untils = [r]
        while untils[-1] * eta < R:
            untils.append(untils[-1] * eta)
        self._rungs = [Rung(until, eta) for until in untils if until < R]
        self._trials: list[tuple[str, Config]] = []
        self._at: dict[str, tuple[int, int]] = {}

    def configurations(self) -> int | None:
        return self.n

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        groups: list[TrialGroup] = []
        while len(groups) < free and (run := self._promote() or self._begin()) is not None:
            groups.append((run,))
        return groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Ended) and event.loss is not None and not event.over:
            number, rung = self._at[event.trial]
            if rung < len(self._rungs):
                self._rungs[rung].add(event.loss, number)
        return NOTHING

    def _promote(self) -> Run | None:
        for index in range(len(self._rungs) - 1, -1, -1):
            number = self._rungs[index].promotable()
            if number is not None:
                return self._run(number, index + 1)
        return None

    def _begin(self) -> Run | None:
        if len(self._trials) == self.n or (new := self.new_trial()) is None:
            return None
        self._trials.append(new)
        return self._run(len(self._trials) - 1, 0)

    def _run(self, number: int, rung: int) -> Run:
        trial, config = self._trials[number]
        self._at[trial] = (number, rung)
        final = rung == len(self._rungs)
        return Run(trial, config, self.R if final else self._rungs[rung].until, final)
