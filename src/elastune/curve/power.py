"""A power law, fitted to the recent part of a curve and believed as far as it has proved itself.

loss(k) = c + a * k**-b with a >= 0: for a given b the best a and c are a weighted linear fit, so some values of b are
all tried at once, and what they predict is averaged by how well each fits and how likely it was before.

What counts is the order of trials that have trained for different lengths, and there a plain fit does harm: its error
is smaller than that of the last value, but it differs from trial to trial, and so it ranks them worse. Three habits
turn that around:

- Recent points weigh more. The first epochs fall faster than the law that the rest follows, and a fit through them
  promises most to whoever began worst.
- A fall is believed less, the fewer the points are and the worse they fit: a trial whose further fall is only guessed
  should not pass one that is there.
- No trial falls further than it has fallen since its worst report.

The prediction sets out from the level of the last reports, wherever the fit may pass: a curve that rises, or has become
flat, is predicted to stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, log1p, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

from elastune.curve.base import FURTHEST, Extrapolator, Prediction

EXPONENTS = np.geomspace(0.1, 2.0, 24)
PRIOR = -0.5 * np.log(EXPONENTS) ** 2
"""In logarithms: b is 1, give or take a factor of e."""
PARAMETERS = 3
EXACT = 1e-6
"""A fit that leaves no more than this part of the variance unexplained is as good as exact."""
RECENCY = 10.0
"""A point weighs (k / last)**RECENCY: those of the last tenth of the iterations more than all others together."""
DOUBT = 12.0
"""A fall is believed by half where its relative standard error is 1 / DOUBT: so much of a misfit is no noise."""
FEW = 6.0
"""Of a perfect fit to so few points half is believed."""
LATE = 0.1
"""The part of the reports, three at least, whose median is the level that a trial is at."""
SURPRISE = 0.2
"""The part of all its change so far by which a loss may be off, when the iterations grow by a factor of e."""
TINY = 1e-300

Floats = NDArray[np.float64]


class PowerLaw(Extrapolator):
    """The loss falls on as a power of the iteration."""

    def predict(self, iterations: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
        least, most = float(min(losses)), float(max(losses))
        span = most / 2 - least / 2  # halves, because the whole may be more than a float can be
        if not span:
            return Prediction(float(losses[-1]), 0.0)
        levels = (np.array(losses, dtype=float) / 2 - least / 2) / span
        steps = np.maximum(np.array(iterations, dtype=float), 1.0)
        last = float(steps[-1])
        level, std = _follow(np.log1p((steps - last) / last), levels, log1p(max(at - last, 0.0) / last))
        loss = min(max(2 * (least / 2 + span * level), -FURTHEST), FURTHEST)
        return Prediction(loss, min(2 * span * std, FURTHEST))


def _follow(times: Floats, levels: Floats, ahead: float) -> tuple[float, float]:
    """The level so far ahead and its standard deviation, for levels from 0 to 1. Times are logarithms of iterations,
    and that of the last one is 0.
    """
    count = len(times)
    weights = np.exp(RECENCY * times)
    weights /= weights.sum()
    powers = np.expm1(np.outer(-EXPONENTS, times))  # k**-b, less that of the last
    off_powers, off_levels = powers - (powers @ weights)[:, None], levels - levels @ weights
    weighted = weights * off_levels
    variance = float(weighted @ off_levels)
    if not variance:
        return float(levels[-1]), 0.0
    shared = np.maximum(off_powers @ weighted, 0.0)
    slopes = shared / ((off_powers * off_powers) @ weights + TINY)
    unexplained = np.clip(1.0 - slopes * shared / variance, 0.0, 1.0)
    likely = PRIOR - 0.5 * max(count - PARAMETERS, 0) * np.log(unexplained + EXACT)
    likely = np.exp(likely - likely.max())
    likely /= likely.sum()
    slopes *= likely

    late = max(3, int(LATE * count))
    now = min(max(median((levels[-late:] - slopes @ powers[:, -late:]).tolist()), 0.0), 1.0)
    fall = float(slopes @ -np.expm1(-EXPONENTS * ahead))
    left = float(likely @ unexplained)
    noise = left * count / max(count - PARAMETERS, 1)
    error = sqrt(noise / max(1.0 - left, TINY) * float(weights @ weights))
    belief = 1.0 / (1.0 + DOUBT * error + (FEW / count) ** 2)
    std = hypot(sqrt(noise * variance), min(fall, 1.0), min(SURPRISE * ahead, 1.0))
    return now - min(belief * fall, 1.0 - now), std
