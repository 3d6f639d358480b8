"""Boosted trees as arrays, so that a model which scikit-learn has trained is saved without pickle and asked with numpy
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastune.market.prices import Floats

AT_ONCE = 2000
Integers = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A row for each tree and a column for each of its nodes, the root first. A leaf leads to itself."""

    feature: Integers
    threshold: Floats
    left: Integers
    right: Integers
    value: Floats
    baseline: Floats
    depth: Integers

    def sum(self, inputs: Floats) -> Floats:
        """What all trees say together: the logarithm of the odds."""
        parts = [inputs[begin : begin + AT_ONCE] for begin in range(0, len(inputs), AT_ONCE)]
        return np.concatenate([self._sum(part) for part in parts])

    def _sum(self, inputs: Floats) -> Floats:
        tree, row = np.arange(len(self.feature)), np.arange(len(inputs))[:, None]
        node = np.zeros((len(inputs), len(tree)), dtype=np.int32)
        for _ in range(int(self.depth)):
            lower = inputs[row, self.feature[tree, node]] <= self.threshold[tree, node]
            node = np.where(lower, self.left[tree, node], self.right[tree, node])
        total: Floats = self.value[tree, node].sum(axis=1) + self.baseline
        return total


def from_sklearn(model: Any) -> Trees:
    """The trees of a HistGradientBoostingClassifier for two classes, whose inputs are numbers and are never missing."""
    nodes = [predictor.nodes for (predictor,) in model._predictors]
    most = max(map(len, nodes))
    shape = len(nodes), most
    itself = np.broadcast_to(np.arange(most, dtype=np.int32), shape)
    feature, threshold, value = np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape)
    left, right = itself.copy(), itself.copy()
    for place, each in enumerate(nodes):
        count, inner = len(each), ~each["is_leaf"].astype(bool)
        feature[place, :count] = np.where(inner, each["feature_idx"], 0)
        threshold[place, :count] = np.where(inner, each["num_threshold"], 0.0)
        left[place, :count][inner] = each["left"][inner]
        right[place, :count][inner] = each["right"][inner]
        value[place, :count] = each["value"]
    depth = np.array(max(int(each["depth"].max()) for each in nodes), dtype=np.int32)
    return Trees(feature, threshold, left, right, value, np.ravel(model._baseline_prediction)[0], depth)
