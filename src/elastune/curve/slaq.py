"""SLAQ (Zhang et al., SoCC 2017): one curve through all that a trial has reported.

Of its two families this is that of first-order methods, the one that SpotTune compares with. Its history of losses is
weighted exponentially, recent ones more; the constant is ours, and the same for EarlyCurve.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastune.curve.base import Extrapolator, Prediction
from elastune.curve.inverse_quadratic import follow


class SLAQ(Extrapolator):
    """The loss falls on as 1 / (a0 k**2 + a1 k + a2) + a3."""

    def predict(self, iterations: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
        return follow(iterations, losses, at)
