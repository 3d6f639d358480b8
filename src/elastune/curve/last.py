"""No extrapolation: a trial is where its last report says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, sqrt

from elastune.curve.base import FURTHEST, Extrapolator, Prediction

RECENT = 5
"""So many of the last differences say how much the loss changes from one report to the next."""


class LastValue(Extrapolator):
    """The loss as it is now."""

    def predict(self, iterations: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
        changes = [after - before for before, after in pairwise(losses[-RECENT - 1 :])]
        std = hypot(*changes) / sqrt(max(len(changes), 1))
        return Prediction(float(losses[-1]), min(std, FURTHEST))
