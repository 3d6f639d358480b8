"""The predictor of Tributary, as SpotTune describes what it compares itself with.

An LSTM reads all records, the present one included, each with the maximum price; maximum prices are random in training
too.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from elastune.market.features import History
from elastune.market.logistic import sigmoid
from elastune.market.per_market import PerMarket
from elastune.market.prices import Floats
from elastune.market.revocation import Arrays
from elastune.market.revpred import records
from elastune.market.samples import Samples


class Tributary(PerMarket):
    """One network for each market; the classes have no weights, so its output is the probability."""

    name: ClassVar[str] = "tributary"

    @classmethod
    def _train(cls, samples: Samples, rng: np.random.Generator) -> Arrays:
        from elastune.market.recurrent import TributaryNet, train

        inputs = records(samples.history, samples.bids, samples.at)
        return train(TributaryNet, inputs, samples.labels.astype(np.float64), (1.0, 1.0), rng)

    def _ask(self, model: Arrays, history: History, bids: Floats, at: Floats) -> Floats:
        from elastune.market.recurrent import TributaryNet, log_odds

        return sigmoid(log_odds(TributaryNet, model, records(history, bids, at)))
