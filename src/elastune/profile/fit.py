"""From measured seconds to a latency, and to how a step scales with the number of devices.

A fitted latency has the mean and the spread of what was measured, whatever its shape: a plan adds up many draws, and
there the mean counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from elastune.errors import SpecError
from elastune.profile.latency import Floats, Latency, constant, empirical, lognormal, normal
from elastune.profile.scaling import Scaling, require_widths
from elastune.spec import require_number

NEGLIGIBLE = 0.01
"""A spread below this part of the mean is not worth drawing."""

NARROW = 0.1
"""Below this part of the mean the shape of a spread does not matter."""

ENOUGH = 20
"""From fewer values the shape of a distribution cannot be told."""

MOST_VALUES = 100

MISFIT = 1.035
"""The distance between the measured and the fitted distribution function that, times the root of the number of values,
one fit in a hundred exceeds by chance (Lilliefors' limit for Kolmogorov and Smirnov's test, with mean and spread taken
from the same values).
"""


def fit_latency(values: Sequence[float]) -> Latency:
    """Constant where the spread is negligible; else normal or lognormal, whichever is more likely; what was measured
    itself where neither is.
    """
    seconds = _seconds("values", values)
    mean, std = float(seconds.mean()), float(seconds.std(ddof=1)) if len(seconds) > 1 else 0.0
    if std <= NEGLIGIBLE * mean:
        return constant(mean)
    shapes: list[tuple[Latency, Floats]] = []
    if mean >= 3 * std:  # nearer to zero it would be cut off there, and its mean would not be this one
        shapes.append((normal(mean, std), (seconds - mean) / std))
    if seconds[0] > 0:
        variance = 2 * math.log(math.hypot(1.0, std / mean))
        standard = (np.log(seconds) - math.log(mean) + variance / 2) / math.sqrt(variance)
        shapes.append((lognormal(mean, std), standard))
    if not shapes:
        return _as_measured(seconds)
    latency, standard = max(shapes, key=lambda shape: _log_likelihood(shape[0], shape[1], seconds))
    if std > NARROW * mean and len(seconds) >= ENOUGH and _distance(standard) * math.sqrt(len(seconds)) > MISFIT:
        return _as_measured(seconds)
    return latency


def fit_scaling(seconds_by_width: Mapping[int, Sequence[float]]) -> tuple[Latency, Scaling]:
    """A step on one device, and the speed-up of every width, from seconds of steps that were measured on them.

    Where a width seems slower than a narrower one, but by no more than two standard errors, it counts as equally fast.
    The spread of a step is relative to its mean, and is taken from all widths together: there are few steps of each.
    """
    widths = require_widths("steps", seconds_by_width, "seconds of steps")
    steps = {width: _seconds(f"steps[{width}]", seconds_by_width[width]) for width in widths}
    for width, seconds in steps.items():
        require_number(f"steps[{width}]", float(seconds[0]))
    means = {width: float(seconds.mean()) for width, seconds in steps.items()}
    spread = _relative_spread(steps, means)
    lifted: dict[int, float] = {}
    for width, seconds in steps.items():
        speedup = means[1] / means[width]
        near = [
            faster
            for narrower, faster in lifted.items()
            if faster - speedup <= 2 * speedup * spread * math.sqrt(1 / len(steps[narrower]) + 1 / len(seconds))
        ]
        lifted[width] = max([speedup, *near])
    ratios = np.concatenate([seconds / means[width] for width, seconds in steps.items()])
    step = fit_latency([float(value) for value in ratios * means[1]])
    if step.kind in ("normal", "lognormal"):
        step = replace(step, mean_s=means[1], std_s=spread * means[1])
    return (constant(means[1]) if step.kind == "constant" else step), Scaling(lifted)


def _seconds(name: str, values: Sequence[float]) -> Floats:
    """Checked and sorted."""
    if len(values) == 0:
        raise SpecError(f"{name}: must have at least one measurement")
    for value in values:
        require_number(name, value, zero=True)
    return np.sort(np.array(values, dtype=np.float64))


def _relative_spread(steps: Mapping[int, Floats], means: Mapping[int, float]) -> float:
    """The standard deviation of a step as a part of its mean, pooled over widths; 0 where none was measured twice."""
    squares = sum(float(((seconds / means[width] - 1) ** 2).sum()) for width, seconds in steps.items())
    freedom = sum(len(seconds) - 1 for seconds in steps.values())
    return math.sqrt(squares / freedom) if freedom else 0.0


def _log_likelihood(latency: Latency, standard: Floats, seconds: Floats) -> float:
    """Without what all shapes have in common. Each has two parameters, so that the likelihood alone decides."""
    if latency.kind == "normal":
        scale = np.full_like(seconds, latency.std_s)
    else:
        scale = seconds * math.sqrt(2 * math.log(math.hypot(1.0, latency.std_s / latency.mean_s)))
    return float(-(standard**2 / 2 + np.log(scale)).sum())


def _distance(standard: Floats) -> float:
    """Kolmogorov and Smirnov's, of sorted values that should be standard normal."""
    expected = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in standard])
    n = len(standard)
    below, above = np.arange(n) / n, np.arange(1, n + 1) / n
    return float(max((above - expected).max(), (expected - below).max()))


def _as_measured(seconds: Floats) -> Latency:
    """All values, or of many the means of so many equal parts, in order: the mean of all stays what it is."""
    if len(seconds) <= MOST_VALUES:
        return empirical(tuple(map(float, seconds)))
    totals = np.concatenate([[0.0], seconds.cumsum()])
    cuts = np.linspace(0, len(seconds), MOST_VALUES + 1)
    parts = np.diff(np.interp(cuts, np.arange(len(totals)), totals)) * MOST_VALUES / len(seconds)
    return empirical(tuple(map(float, np.maximum(parts, 0.0))))
