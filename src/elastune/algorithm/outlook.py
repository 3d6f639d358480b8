"""Where trials will be at the end of the run: what they can be ranked by instead of their last value.

Trials that have trained on different numbers of devices, or whose steps take longer, are not equally far. What counts
is where each would end if it had the most devices from now on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from elastune.algorithm.base import Reported
from elastune.curve import Extrapolator


@dataclass(slots=True)
class _Curve:
    iterations: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first: tuple[float, int] = (0.0, 0)
    """Of its present run: how long the trial had trained before, and with which iteration it began."""
    trained_s: float = 0.0
    width: float = 1.0


class Outlook:
    """`speedup` tells how much faster a trial trains on more devices, of which `widest` is the most; the run ends at
    `end_s`.
    """

    def __init__(
        self, extrapolator: Extrapolator, speedup: Callable[[float], float], widest: float, end_s: float
    ) -> None:
        self._extrapolator, self._speedup, self._widest, self._end_s = extrapolator, speedup, widest, end_s
        self._curves: dict[str, _Curve] = {}
        self._now_s = 0.0

    def begin(self, trial: str, width: float) -> None:
        """A run of the trial begins."""
        curve = self._curves.setdefault(trial, _Curve())
        curve.first, curve.width = (curve.trained_s, curve.iterations[-1] if curve.iterations else 0), width

    def report(self, reported: Reported, at_s: float) -> None:
        curve = self._curves[reported.trial]
        curve.iterations.append(reported.iteration)
        curve.losses.append(reported.loss)
        curve.trained_s = reported.trained_s
        self._now_s = at_s

    def loss(self, trial: str) -> float:
        """At the end of the run."""
        curve = self._curves[trial]
        if not curve.iterations:
            return math.inf
        before_s, iteration = curve.first
        last, taken_s = curve.iterations[-1], curve.trained_s - before_s
        speed = (last - iteration) / taken_s if taken_s > 0 else 0.0
        speed *= self._speedup(self._widest) / self._speedup(curve.width)
        at = last + speed * max(0.0, self._end_s - self._now_s)
        return self._extrapolator.predict(curve.iterations, curve.losses, at).loss
