"""M in SpotTune: how long a step of each trial takes on each type of machine, learnt while they run.

A pair that was measured counts as measured. For another, what is known of the trial on other types is carried over by
how these types compare for trials that were on both, or by what was thought of their speeds before; of a trial that
never ran, what is known of others. Of very many the last ones count: placing a trial costs no more the later it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

RECENT = 0.5
"""What a new step counts for against those before."""
ENOUGH = 50
"""So many trials tell what others take, and how two types compare."""


@dataclass(slots=True)
class StepTimes:
    """`speeds` are what is thought of the types before the run, such as their numbers of processors (the paper's
    C0 / CPUs)."""

    speeds: Mapping[str, float]
    _measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds by trial and type."""
    _ratios: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _others: dict[str, float] = field(default_factory=dict)
    """What a trial that never ran should take, by type; until something new is measured."""

    def add(self, trial: str, kind: str, step_s: float) -> None:
        self._others.clear()
        known = self._measured.setdefault(trial, {})
        new = kind not in known
        known[kind] = step_s if new else known[kind] + RECENT * (step_s - known[kind])
        if new:
            for other in known.keys() - {kind}:
                self._compare(other, kind, known[kind] / known[other])
                self._compare(kind, other, known[other] / known[kind])

    def step_s(self, trial: str, kind: str) -> float:
        known = self._measured.get(trial)
        if known is None:
            return self._of_others(kind)
        if kind in known:
            return known[kind]
        return median(step_s * self._ratio(other, kind) for other, step_s in known.items())

    def measured(self, trial: str) -> bool:
        return trial in self._measured

    def _compare(self, one: str, other: str, ratio: float) -> None:
        self._ratios.setdefault((one, other), deque(maxlen=ENOUGH)).append(ratio)

    def _of_others(self, kind: str) -> float:
        if not self._measured:
            return 1.0 / self.speeds[kind]
        if kind not in self._others:
            last = islice(reversed(self._measured), ENOUGH)
            self._others[kind] = median(self.step_s(trial, kind) for trial in last)
        return self._others[kind]

    def _ratio(self, one: str, other: str) -> float:
        """How many times as long a step takes on the other."""
        before = self.speeds[one] / self.speeds[other]
        return float(median([before, *self._ratios.get((one, other), [before])]))
