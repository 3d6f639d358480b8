"""What happens by the clock: the algorithm is woken, trials are tried again, the time of runs is over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from elastune.control.answer import Answer
from elastune.control.party import Party
from elastune.control.state import Trial


class Timers:
    """What is set for the same time comes in the order in which it was set."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._wakes: list[tuple[float, int, str | None, Party]] = []
        """The trial that is tried again; None: the algorithm of that party wants to be woken."""
        self._ends: list[tuple[float, int, str]] = []
        """When the time of a trial's run is over."""

    def wake_algorithm(self, party: Party, at_s: float) -> None:
        heappush(self._wakes, (at_s, self._answer.number(), None, party))

    def retry(self, trial: Trial, at_s: float) -> None:
        heappush(self._wakes, (at_s, self._answer.number(), trial.id, trial.party))

    def end_run(self, trial_id: str, until_s: float) -> None:
        heappush(self._ends, (until_s, self._answer.number(), trial_id))

    def forget_retry(self, trial_id: str) -> None:
        """It is not tried again in a while, if it was to be."""
        self._wakes = [wake for wake in self._wakes if wake[2] != trial_id]
        heapify(self._wakes)

    def forget(self, party: Party) -> None:
        """It is over."""
        self._wakes = [wake for wake in self._wakes if wake[3] is not party]
        heapify(self._wakes)

    def waking_for(self, party: Party) -> bool:
        return any(wake[3] is party for wake in self._wakes)

    @property
    def waking(self) -> bool:
        """Whether something will happen that nobody trains for."""
        return bool(self._wakes)

    @property
    def next_s(self) -> float:
        wake_s = self._wakes[0][0] if self._wakes else math.inf
        end_s = self._ends[0][0] if self._ends else math.inf
        return wake_s if wake_s < end_s else end_s

    @property
    def retried(self) -> Iterable[str]:
        """The trials that will be tried again."""
        return (trial_id for _, _, trial_id, _ in self._wakes if trial_id is not None)

    def due(self) -> Iterator[tuple[str | None, Party]]:
        """Whom to wake now: a trial that is tried again, or None and whose algorithm. More may be set meanwhile."""
        while self._wakes and self._wakes[0][0] <= self._answer.at_s:
            yield heappop(self._wakes)[2:]

    def ended(self) -> Iterator[tuple[float, str]]:
        """The runs whose time is over now, by when it was and their trial."""
        while self._ends and self._ends[0][0] <= self._answer.at_s:
            until_s, _, trial_id = heappop(self._ends)
            yield until_s, trial_id
