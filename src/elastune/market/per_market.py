"""Predictors that have a model for each market, as SpotTune's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from elastune.errors import SpecError, did_you_mean
from elastune.market.features import History, random_bids
from elastune.market.prices import Floats, Prices
from elastune.market.revocation import Arrays, Revocation
from elastune.market.samples import Samples, labelled, market_rng, training_times


class PerMarket(Revocation):
    """Knows the markets it was trained on. One whose training time has revocations only, or none, has no model but
    their share, with one more of each.
    """

    def __init__(self, prices: Prices, until_unix_s: float, models: Mapping[str, Arrays]) -> None:
        super().__init__(prices, until_unix_s)
        self.models = dict(models)

    @classmethod
    def fit(cls, prices: Prices, until_unix_s: float, seed: int = 0) -> Self:
        models: dict[str, Arrays] = {}
        for market, at in training_times(prices, until_unix_s).items():
            rng = market_rng(market, seed)
            samples = cls._samples(History(prices[market]), at, rng)
            share = (samples.labels.sum() + 1) / (len(at) + 2)
            one_class = samples.labels.all() or not samples.labels.any()
            models[market] = {"share": np.array(share)} if one_class else cls._train(samples, rng)
        return cls(prices, until_unix_s, models)

    @classmethod
    def _samples(cls, history: History, at: Floats, rng: np.random.Generator) -> Samples:
        """What is learnt from, for one market: random bids."""
        return labelled(history, at, random_bids(history, at, rng))

    @classmethod
    @abstractmethod
    def _train(cls, samples: Samples, rng: np.random.Generator) -> Arrays:
        """What is learnt from samples of both classes, as arrays."""

    @abstractmethod
    def _ask(self, model: Arrays, history: History, bids: Floats, at: Floats) -> Floats: ...

    def knows(self, market: str) -> bool:
        return super().knows(market) and market in self.models

    def _predict(self, history: History, bids: Floats, at: Floats) -> Floats:
        if not self.knows(history.market):
            raise SpecError(
                f"market {history.market!r}: {self.name} was not trained on it; "
                f"{did_you_mean(history.market, self.models, which='trained on')}"
            )
        model = self.models[history.market]
        return np.full(len(at), float(model["share"])) if "share" in model else self._ask(model, history, bids, at)

    def _state(self) -> tuple[dict[str, object], Arrays]:
        models = enumerate(self.models.values())
        arrays = {f"{place}.{name}": array for place, model in models for name, array in model.items()}
        return {"markets": list(self.models)}, arrays

    @classmethod
    def _restore(cls, prices: Prices, head: Mapping[str, Any], arrays: Arrays) -> Self:
        models: list[Arrays] = [{} for _ in head["markets"]]
        for key, array in arrays.items():
            place, _, name = key.partition(".")
            models[int(place)][name] = array
        return cls(prices, head["until_unix_s"], dict(zip(head["markets"], models, strict=True)))
