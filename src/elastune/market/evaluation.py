"""Predictors against prices that came after their training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elastune.errors import SpecError
from elastune.market.prices import Prices, format_date
from elastune.market.revocation import Revocation
from elastune.market.samples import asked_samples
from elastune.market.scores import Bin, Scores, calibration_curve, score

ALL = "all"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Of one model: the scores by market, with all of them together at the end, and the calibration of all."""

    scores: dict[str, Scores]
    curve: list[Bin]


def evaluate(models: Mapping[str, Revocation], prices: Prices, seed: int = 0) -> dict[str, Evaluation]:
    """All are asked about the same times and bids: from the latest end of a training to the end of the prices, in the
    markets that all of them know.
    """
    begin = max(model.until_unix_s for model in models.values())
    end = max(series.end_unix_s for series in prices.values())
    markets = [market for market in prices if all(model.knows(market) for model in models.values())]
    if not markets:
        raise SpecError("there is no market in these prices that all models were trained on: train them on the same")
    asked = {market: asked_samples(prices, market, begin, end, seed=seed) for market in markets}
    asked = {market: samples for market, samples in asked.items() if len(samples.at)}
    if not asked:
        raise SpecError(
            f"the prices end on {format_date(end)}, the training on {format_date(begin)}: they must go on for more "
            "than an hour; train on less with --until, or give later prices"
        )
    found = {}
    for name, model in models.items():
        said = {market: model.probabilities(market, each.bids, each.at) for market, each in asked.items()}
        labels = np.concatenate([each.labels for each in asked.values()])
        together = np.concatenate(list(said.values()))
        scores = {market: score(each.labels, said[market]) for market, each in asked.items()}
        found[name] = Evaluation({**scores, ALL: score(labels, together)}, calibration_curve(labels, together))
    return found
