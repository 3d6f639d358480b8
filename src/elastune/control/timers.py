"""What happens by the clock: the algorithm is woken, trials are tried again, the time of runs is over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from elastune.control.answer import Answer


class Timers:
    """What is set for the same time comes in the order in which it was set."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._wakes: list[tuple[float, int, str | None]] = []
        """The trial that is tried again; None: the algorithm wants to be woken."""
        self._ends: list[tuple[float, int, str]] = []
        """When the time of a trial's run is over."""

    def wake_algorithm(self, at_s: float) -> None:
        heappush(self._wakes, (at_s, self._answer.number(), None))

    def retry(self, trial_id: str, at_s: float) -> None:
        heappush(self._wakes, (at_s, self._answer.number(), trial_id))

    def end_run(self, trial_id: str, until_s: float) -> None:
        heappush(self._ends, (until_s, self._answer.number(), trial_id))

    def forget_retry(self, trial_id: str) -> None:
        """It is not tried again in a while, if it was to be."""
        self._wakes = [wake for wake in self._wakes if wake[2] != trial_id]
        heapify(self._wakes)

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
        return (trial_id for _, _, trial_id in self._wakes if trial_id is not None)

    def due(self) -> Iterator[str | None]:
        """Whom to wake now: a trial that is tried again, or the algorithm, as None. More may be set meanwhile."""
        while self._wakes and self._wakes[0][0] <= self._answer.at_s:
            yield heappop(self._wakes)[2]

    def ended(self) -> Iterator[tuple[float, str]]:
        """The runs whose time is over now, by when it was and their trial."""
        while self._ends and self._ends[0][0] <= self._answer.at_s:
            until_s, _, trial_id = heappop(self._ends)
            yield until_s, trial_id
