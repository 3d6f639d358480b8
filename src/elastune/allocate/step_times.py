"""M in SpotTune: how long a step of each trial takes on each type of machine, learnt while they run.

A pair that was measured counts as measured. For another, what is known of the trial on other types is carried over by
how these types compare for trials that were on both, or by what was thought of their speeds before; of a trial that
never ran, what is known of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

RECENT = 0.5
"""What a new step counts for against those before."""


@dataclass(slots=True)
class StepTimes:
    """`speeds` are what is thought of the types before the run, such as their numbers of processors (the paper's
    C0 / CPUs)."""

    speeds: Mapping[str, float]
    _measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds by trial and type."""
    _ratios: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, trial: str, kind: str, step_s: float) -> None:
        known = self._measured.setdefault(trial, {})
        new = kind not in known
        known[kind] = step_s if new else known[kind] + RECENT * (step_s - known[kind])
        if new:
            for other in known.keys() - {kind}:
                self._ratios.setdefault((other, kind), []).append(known[kind] / known[other])
                self._ratios.setdefault((kind, other), []).append(known[other] / known[kind])

    def step_s(self, trial: str, kind: str) -> float:
        known = self._measured.get(trial)
        if known is None:
            return self._of_others(kind)
        if kind in known:
            return known[kind]
        return median(step_s * self._ratio(other, kind) for other, step_s in known.items())

    def measured(self, trial: str) -> bool:
        return trial in self._measured

    def _of_others(self, kind: str) -> float:
        if not self._measured:
            return 1.0 / self.speeds[kind]
        return median(self.step_s(trial, kind) for trial in self._measured)

    def _ratio(self, one: str, other: str) -> float:
        """How many times as long a step takes on the other."""
        before = self.speeds[one] / self.speeds[other]
        return median([before, *self._ratios.get((one, other), [before])])
