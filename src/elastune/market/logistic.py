"""Logistic regression on the present record: what SpotTune's figure 10 compares with. In use it needs numpy only."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from elastune.market.extras import needed
from elastune.market.features import History, encoded, present
from elastune.market.per_market import PerMarket
from elastune.market.prices import Floats
from elastune.market.revocation import Arrays
from elastune.market.samples import Samples


class Logistic(PerMarket):
    """Trained with random bids, and without weights for the classes: its output is the probability."""

    name: ClassVar[str] = "logistic"

    @classmethod
    def _train(cls, samples: Samples, rng: np.random.Generator) -> Arrays:
        linear = needed("sklearn.linear_model", "training the model logistic", "spot")
        inputs = _inputs(samples.history, samples.bids, samples.at)
        mean, spread = inputs.mean(axis=0), inputs.std(axis=0)
        spread[spread == 0] = 1.0
        model = linear.LogisticRegression(max_iter=1000).fit((inputs - mean) / spread, samples.labels)
        weights = model.coef_[0] / spread
        return {"weights": weights, "intercept": model.intercept_[0] - mean @ weights}

    def _ask(self, model: Arrays, history: History, bids: Floats, at: Floats) -> Floats:
        return sigmoid(_inputs(history, bids, at) @ model["weights"] + model["intercept"])


def _inputs(history: History, bids: Floats, at: Floats) -> Floats:
    return np.column_stack([encoded(present(history, at)), np.log(bids)])


def sigmoid(odds: Floats) -> Floats:
    """The probability of odds that are given as a logarithm; none overflows."""
    found: Floats = 0.5 * (1.0 + np.tanh(0.5 * odds))
    return found
