"""Configurations as rows of whole numbers, for models that choose among a few values on every axis.

The options of a choice stay as they are. A numeric axis is cut into at most `BINS` pieces of its scale, so that on a
logarithmic one every piece spans the same factor; where there are steps, no step is cut in two. A value within a piece
is drawn evenly. Where a domain is not in use there is no bin: -1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastune.search.vectors import Array, Axis
from elastune.space import Choice, Float

Row = NDArray[np.int64]

BINS = 16
UNUSED = -1


class Bins:
    """The bins of every axis of a space."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = axes
        self._edges = [_edges(axis) for axis in axes]
        self.shares = [np.diff(edges) for edges in self._edges]
        """Of every axis, how likely each bin is in a random configuration."""

    def vector(self, row: Row, rng: np.random.Generator) -> Array:
        """A configuration from these bins."""
        vector = np.full(len(row), np.nan)
        for at, (axis, edges, chosen) in enumerate(zip(self._axes, self._edges, row.tolist(), strict=True)):
            if chosen != UNUSED:
                vector[at] = chosen if axis.is_choice else rng.uniform(edges[chosen], edges[chosen + 1])
        return vector

    def row(self, vector: Array) -> Row:
        """The bins that a configuration lies in."""
        row = np.full(len(vector), UNUSED)
        for at, (axis, edges, coordinate) in enumerate(zip(self._axes, self._edges, vector.tolist(), strict=True)):
            if not np.isnan(coordinate):
                row[at] = int(coordinate) if axis.is_choice else np.searchsorted(edges[1:-1], coordinate, side="right")
        return row


def _edges(axis: Axis) -> Array:
    """Where the bins of an axis begin and end, as coordinates; those of a choice are all equally wide."""
    if axis.is_choice:
        return np.linspace(0.0, 1.0, axis.steps + 1)
    cuts = np.arange(1, BINS) / BINS
    if axis.steps:
        cuts = np.array([_start_of_step(axis, cut) for cut in cuts])
    inside = np.unique(cuts[(cuts > 1e-9) & (cuts < 1.0)])
    return np.concatenate([[0.0], inside, [1.0]])


def _start_of_step(axis: Axis, coordinate: float) -> float:
    """Where the step begins in which the coordinate lies; if it is the border of two, the upper one."""
    domain = axis.domain
    assert not isinstance(domain, Choice)
    width = domain.q if isinstance(domain, Float) and domain.q is not None else 1.0
    return axis.coordinate(axis.value(coordinate + 1e-9) - width / 2)
