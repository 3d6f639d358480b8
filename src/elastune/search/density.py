"""A kernel density estimate over configurations as vectors.

The kernel around an observation is a product over the axes: Gaussian with bandwidth h on a numeric axis, Aitchison and
Aitken's on a choice among k options (1 - h for the same option, h / (k - 1) for any other). Bandwidths follow the
normal reference rule, 1.06 * spread * n^(-1 / (4 + d)), with floors that leave room for what was not observed.

An axis that the observation does not use says nothing about it: its kernel is even there. An axis that the
configuration in question does not use is left out.

The logarithm of a kernel is linear in a few features of the configuration (x^2, x and 1 of each number, a 0 or 1 for
each option), so that one product of matrices gives all kernels of all configurations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastune.search.vectors import Array, Axis

Mask = NDArray[np.bool_]

EVEN_SPREAD = 12**-0.5
"""The standard deviation of the even distribution between 0 and 1, for an axis of which next to nothing is known."""
LEAST_LEAVE = 1e-3
"""The bandwidth of a choice that has one option only: no more than a guard against the logarithm of zero."""


class Layout:
    """Which coordinates are numbers and which are choices: the same for all densities over a space."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.dimension = len(axes)
        self.numbers = np.array([at for at, axis in enumerate(axes) if not axis.is_choice], dtype=np.intp)
        self.choices = np.array([at for at, axis in enumerate(axes) if axis.is_choice], dtype=np.intp)
        # At least half a step, so that the neighbours of the only value that was observed are not ruled out.
        self.h_floor = np.array([0.5 / axis.steps if axis.steps else 0.0 for axis in axes if not axis.is_choice])
        self.k = np.array([axis.steps for axis in axes if axis.is_choice], dtype=np.intp)
        # The options of all choices in a row: the choice and the axis of each, its index, and where each choice begins.
        self.choice_of = np.repeat(np.arange(len(self.k)), self.k)
        self.axis_of = self.choices[self.choice_of]
        self.begin = np.cumsum(self.k) - self.k
        self.option = np.arange(len(self.choice_of)) - self.begin[self.choice_of]

    def features(self, vectors: Array) -> Array:
        numbers, used, chosen, _ = self.parts(vectors)
        return np.concatenate([numbers * numbers, numbers, used, chosen], axis=1)

    def parts(self, vectors: Array) -> tuple[Array, Mask, Mask, Mask]:
        """The numbers (0 where not in use), whether each is in use, which options are chosen, which could not be."""
        numbers, codes = vectors[:, self.numbers], vectors[:, self.axis_of]
        unused = np.isnan(numbers)
        numbers[unused] = 0.0
        return numbers, ~unused, codes == self.option, np.isnan(codes)


class Density:
    """An estimate from observations, a row for each. No bandwidth of a number is below `narrowest`."""

    def __init__(self, layout: Layout, observations: Array, narrowest: float) -> None:
        self._layout = layout
        self._observations = observations
        numbers, used, chosen, closed = layout.parts(observations)
        rate = 1.06 * len(observations) ** (-1 / (4 + layout.dimension))
        self._h = h = np.maximum(np.maximum(rate * _spread(numbers, used), narrowest), layout.h_floor)
        self._leave = _leave(layout, chosen, rate)
        narrow = used / (h * h)
        constant = -0.5 * numbers * numbers * narrow - used * np.log(h * math.sqrt(2.0 * math.pi))
        same, other = np.log1p(-self._leave), np.log(self._leave / np.maximum(layout.k - 1, 1))
        options = np.where(chosen, same[layout.choice_of], other[layout.choice_of])
        options = np.where(closed, -np.log(layout.k)[layout.choice_of], options)
        self._weights = np.concatenate([-0.5 * narrow, numbers * narrow, constant, options], axis=1).T

    def log(self, features: Array) -> Array:
        """The logarithm of the density at configurations with these features."""
        exponents = features @ self._weights
        highest = exponents.max(axis=1)
        kernels = np.exp(exponents - highest[:, None])
        logs: Array = highest + np.log(kernels.mean(axis=1))
        return logs

    def draw(self, rng: np.random.Generator, count: int, wider: float) -> Array:
        """Configurations drawn from the estimate with all bandwidths `wider`. What a Gaussian throws over an end comes
        back in, as a ball from a wall. Coordinates are drawn also where they will turn out not to be in use.
        """
        layout = self._layout
        drawn = self._observations[rng.integers(len(self._observations), size=count)]
        numbers, codes = drawn[:, layout.numbers], drawn[:, layout.choices]
        thrown = (numbers + wider * self._h * rng.standard_normal(numbers.shape)) % 2.0
        drawn[:, layout.numbers] = np.where(np.isnan(numbers), rng.random(numbers.shape), 1.0 - np.abs(1.0 - thrown))
        leaves = rng.random(codes.shape) < np.minimum(wider * self._leave, 1.0 - 1.0 / layout.k)
        step = np.where(leaves, 1.0 + np.floor(rng.random(codes.shape) * (layout.k - 1)), 0.0)
        even = np.floor(rng.random(codes.shape) * layout.k)
        drawn[:, layout.choices] = np.where(np.isnan(codes), even, (codes + step) % layout.k)
        return drawn


def _spread(numbers: Array, used: Mask) -> Array:
    """The standard deviation on each axis."""
    count = used.sum(axis=0)
    n = np.maximum(count, 1)
    mean = numbers.sum(axis=0) / n
    variance = np.maximum((numbers * numbers).sum(axis=0) / n - mean * mean, 0.0)
    spread: Array = np.where(count < 2, EVEN_SPREAD, np.sqrt(variance))
    return spread


def _leave(layout: Layout, chosen: Mask, rate: float) -> Array:
    """The bandwidth of each choice: the weight that leaves the observed option.

    The spread is that of the options as unit vectors. At least what the options that were never observed have by
    Laplace's rule of succession; at most where all options weigh the same.
    """
    seen = chosen.sum(axis=0)
    count = np.add.reduceat(seen, layout.begin) if len(seen) else seen
    shares = seen / np.maximum(count, 1)[layout.choice_of]
    alike = np.add.reduceat(shares * shares, layout.begin) if len(seen) else shares
    floor = (layout.k - 1) / (count + layout.k)
    leave: Array = np.minimum(np.maximum(rate * np.sqrt(np.maximum(1.0 - alike, 0.0)), floor), 1.0 - 1.0 / layout.k)
    return np.maximum(leave, LEAST_LEAVE)
