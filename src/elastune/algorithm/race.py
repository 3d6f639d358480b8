"""Who is given up before the end of a round."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from elastune.algorithm.base import Reported

FEW = 4
"""Of fewer trials that have trained as long none is said to be behind."""


class Race:
    """Who is behind those that have trained for as many iterations. Early values tell much of some models and little of
    others, so every second trial is given up early, as ASHA does: if it is not among the best 1/eta after 1, eta,
    eta^2, ... iterations. The others have time, and after that must be among the better half.
    """

    def __init__(self, eta: float, patience_s: float) -> None:
        self.eta, self.patience_s = eta, patience_s
        self._losses: dict[int, list[float]] = {}
        self._patient: dict[str, bool] = {}

    def is_behind(self, reported: Reported, trained_s: float) -> bool:
        losses = self._losses.setdefault(reported.iteration, [])
        insort(losses, reported.loss)
        better = bisect_left(losses, reported.loss)
        patient = self._patient.setdefault(reported.trial, len(self._patient) % 2 == 0)
        if len(losses) < FEW:
            return False
        if patient:
            return trained_s >= self.patience_s and better >= len(losses) / 2
        early = trained_s >= self.patience_s / 2 and self._is_rung(reported.iteration)
        return early and better >= len(losses) / self.eta

    def _is_rung(self, iteration: int) -> bool:
        return round(self.eta ** round(math.log(iteration, self.eta))) == iteration
