"""RevPred, the predictor of SpotTune (section III-B).

    59 past records    LSTM of three layers      ┐
    present record, b  three dense layers        ┴─ concatenated ─► P̂
    b in training      border_bids, Algorithm 2
    φ+, φ-             share of positives and negatives in training; weights φ- for positives, φ+ for negatives
    P                  equation 3

Weights φ- and φ+ multiply the odds that are learnt by φ-/φ+, so what undoes them is φ+/φ-:
odds(P) = odds(P̂) φ+/φ-. The paper prints the inverse, which would apply the weights twice; a calibration curve agrees
with the direction here.

Bids on the border are mostly less than a thousandth above the price, since a price that changes every few minutes does
not change in most of them. What a bid well above the price does is then not in the training: asked about one, the
network answers much as for the price itself, and is right only near it.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from elastune.market.features import History, border_bids, encoded, past, present
from elastune.market.logistic import sigmoid
from elastune.market.per_market import PerMarket
from elastune.market.prices import Floats
from elastune.market.revocation import Arrays
from elastune.market.samples import Samples, labelled


class RevPred(PerMarket):
    """Trained with bids on the border, one network for each market."""

    name: ClassVar[str] = "revpred"

    @classmethod
    def _samples(cls, history: History, at: Floats, rng: np.random.Generator) -> Samples:
        return labelled(history, at, border_bids(history, at))

    @classmethod
    def _train(cls, samples: Samples, rng: np.random.Generator) -> Arrays:
        from elastune.market.recurrent import RevPredNet, train

        positives = float(samples.labels.mean())
        weights = (positives, 1.0 - positives)
        inputs = records(samples.history, samples.bids, samples.at)
        learnt = train(RevPredNet, inputs, samples.labels.astype(np.float64), weights, rng)
        return {**learnt, "positives": np.array(positives)}

    def _ask(self, model: Arrays, history: History, bids: Floats, at: Floats) -> Floats:
        from elastune.market.recurrent import RevPredNet, log_odds

        positives = float(model["positives"])
        weighted = log_odds(RevPredNet, model, records(history, bids, at))
        return sigmoid(weighted + math.log(positives / (1.0 - positives)))


def records(history: History, bids: Floats, at: Floats) -> tuple[Floats, Floats]:
    """The past ones, and the present one with the bid."""
    return encoded(past(history, at)), np.column_stack([encoded(present(history, at)), np.log(bids)])
