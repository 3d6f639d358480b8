"""The curve that gradient descent is expected to follow, fitted: 1 / (a0 k**2 + a1 k + a2) + a3, none of them negative.

Both SLAQ and EarlyCurve fit it. For a given a3 the other three are found by linear least squares with non-negative
coefficients: with d = loss - a3 and q the polynomial, what counts is d - 1/q = (q d - 1) / q, which is linear in q
where the q of the denominator is that of the round before. Nothing is divided by a loss, so noise may take losses below
a3. Some values of a3 are tried, and what they predict is averaged by how well each fits: a single best one jumps with
the noise.

Recent points weigh more, by an exponential, as in SLAQ: the first epochs fall faster than the law that the rest
follows.

A loss that is negative, as that of a metric to be maximised is, has no least value that is known: there a3 may be as
far below the least loss as the greatest is above. Where all losses are positive a3 is not negative. A curve that rises
has a constant for its best fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from elastune.curve.base import FURTHEST, Prediction
from elastune.curve.last import LastValue

FEWEST = 4
"""So many coefficients there are: fewer points are no curve."""
RECENCY = 10.0
"""A point weighs exp(RECENCY * k / last)."""
DISTANCES = np.geomspace(1e-3, 1.0, 14)
"""Of a3 from the level of the last reports, in parts of the way down to the lowest that it may be."""
ROUNDS = 3
LATE = 0.1
"""The part of the reports, three at least, whose median is the level that a trial is at."""
NEAR = 0.02
"""No level is taken to be nearer to a3 in the first round: of the whole change so far."""
FLATTEST = 0.5
"""The least value of the polynomial: no level is more than two above a3."""
EXACT = 1e-9
"""A fit whose mean square is no more than this is as good as exact."""
DOUBT = 1.0
"""The part of a predicted fall by which it may be off."""
SURPRISE = 2.0
"""A loss may be off by so many times how much it varied of late, when the steps grow by a factor of e."""
MOST = 1e100
"""So many times as far as the curve goes is as good as for ever."""

Floats = NDArray[np.float64]


def follow(steps: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
    """The loss at a later step. Steps are positive and increase."""
    least, most = float(min(losses)), float(max(losses))
    span = most / 2 - least / 2  # halves, because the whole may be more than a float can be
    if len(losses) < FEWEST or not span:
        return LastValue().predict(steps, losses, at)
    levels = np.clip((np.array(losses, dtype=float) / 2 - least / 2) / span, 0.0, 1.0)
    floor = -min(least / 2 / span, 1.0) if least > 0 else -1.0
    times = np.array(steps, dtype=float) / steps[-1]
    ahead = min(max(at / steps[-1], 1.0), MOST)
    # Rounded, so that the unit of the loss does not decide between two fits that are equally good.
    level, std = _follow(times, levels.round(12), round(floor, 12), ahead)
    loss = min(max(2 * (least / 2 + span * level), -FURTHEST), FURTHEST)
    return Prediction(loss, min(2 * span * std, FURTHEST))


def _follow(times: Floats, levels: Floats, floor: float, ahead: float) -> tuple[float, float]:
    """The level at the time `ahead` and its standard deviation, for levels from 0 to 1; the time of the last is 1."""
    weights = np.exp(RECENCY * (times - 1.0))
    weights /= weights.sum()
    powers = np.stack([times**2, times, np.ones_like(times)], axis=1)
    then = np.array([ahead**2, ahead, 1.0])
    now = float(np.median(levels[-max(3, int(LATE * len(levels))) :]))
    squares, predicted, falls = [], [], []
    for a3 in now - (now - floor) * DISTANCES:
        polynomial = _fit(powers, levels - a3, np.sqrt(weights))
        fitted = _heights(powers, polynomial)
        height = float(_heights(then, polynomial))
        squares.append(float(weights @ (levels - a3 - fitted) ** 2))
        predicted.append(a3 + height)
        falls.append(fitted[-1] - height)

    points = 1.0 / float(weights @ weights)  # as many of equal weight would be as much evidence
    free = max(points - FEWEST, 1.0)
    likely = np.log(np.array(squares) + EXACT)
    likely = np.exp(-0.5 * free * (likely - likely.min()))
    likely /= likely.sum()
    level = float(likely @ predicted)
    recent = sqrt(float(weights @ (levels - weights @ levels) ** 2))
    noise = float(likely @ squares) * points / free
    spread = float(likely @ (np.array(predicted) - level) ** 2)
    std = hypot(sqrt(noise + spread), DOUBT * float(likely @ falls), SURPRISE * min(log(ahead), 1.0) * recent)
    return min(max(level, floor), 1.0), std


def _fit(powers: Floats, heights: Floats, weights: Floats) -> Floats:
    """a0, a1 and a2 for heights above a3."""
    fitted = np.maximum(heights, NEAR)
    for _ in range(ROUNDS):
        scale = weights * fitted
        polynomial: Floats = nnls(powers * (heights * scale)[:, None], scale)[0]
        fitted = _heights(powers, polynomial)
    return polynomial


def _heights(powers: Floats, polynomial: Floats) -> Floats:
    return 1.0 / np.maximum(powers @ polynomial, FLATTEST)
