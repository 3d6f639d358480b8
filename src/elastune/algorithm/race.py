"""Who is given up before the end of a round, and who has trained enough to be compared with the others at its end."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from elastune.algorithm.base import Reported

FEW = 4
"""Of fewer trials that have trained as long none is said to be behind."""


class Race:
    """Early values tell much of some models and little of others, so every second trial is given up early, as ASHA
    does: if it is not among the best 1/eta of those with as many iterations, after 1, eta, eta^2, ... of them and at
    least half of `t_min_s`. The others have twice `t_min_s`, and from then on must be among the better half.

    Who is not given up has a turn of four times `t_min_s`: more is not needed to see who is best, and the devices are
    of more use to a new trial.
    """

    def __init__(self, eta: float, t_min_s: float) -> None:
        self.eta, self.t_min_s = eta, t_min_s
        self._losses: dict[int, list[float]] = {}
        self._patient: dict[str, bool] = {}

    def is_behind(self, reported: Reported) -> bool:
        losses = self._losses.setdefault(reported.iteration, [])
        insort(losses, reported.loss)
        better = bisect_left(losses, reported.loss)
        patient = self._patient.setdefault(reported.trial, len(self._patient) % 2 == 0)
        if len(losses) < FEW:
            return False
        if patient:
            return reported.trained_s >= 2 * self.t_min_s and better >= len(losses) / 2
        early = reported.trained_s >= self.t_min_s / 2 and self._is_rung(reported.iteration)
        return early and better >= len(losses) / self.eta

    def is_enough(self, reported: Reported, left_s: float) -> bool:
        """Whether its turn ends with its next step, and a new trial then has time to show what it is worth."""
        step_s = reported.trained_s / reported.iteration
        return reported.trained_s + step_s >= 4 * self.t_min_s and left_s - step_s >= 2 * self.t_min_s

    def _is_rung(self, iteration: int) -> bool:
        return round(self.eta ** round(math.log(iteration, self.eta))) == iteration
