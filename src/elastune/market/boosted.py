"""Our predictor of revocations: gradient boosting on what the past of a market says about a maximum price.

One model for all markets, in ratios of prices, so that a market with little past profits from the others. It differs
from SpotTune's RevPred in what it is given: days of the past and not an hour, and above all how often such a maximum
price was passed before. It learns from bids at every distance from the price, and its probability never rises with the
maximum price. Trees that have seen only the first part of the training time are held against the last: that says how
many there should be, and makes their sum a probability. Then they are trained on all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from elastune.cost import SECONDS_PER_HOUR
from elastune.market.exceedance import COLUMNS, Exceedance
from elastune.market.extras import needed
from elastune.market.features import DAY_S, LEAST_DELTA, MOST_DELTA, History, border_bids, hour, random_bids, weekday
from elastune.market.logistic import sigmoid
from elastune.market.prices import MINUTE_S, Floats, Prices
from elastune.market.revocation import Arrays, Revocation
from elastune.market.samples import labelled, market_rng, training_times
from elastune.market.trees import Trees, from_sklearn

EVERY_S = 30 * MINUTE_S
MOST_TREES = 300
HELD_OUT = 0.2
"""The last part of the training time, by which the number of trees is chosen and the probabilities are calibrated."""
HOUR_S = SECONDS_PER_HOUR
MAXIMA_S = (HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S)
MEANS_S = (HOUR_S, DAY_S, 7 * DAY_S)
FALLING, RISING, FREE = -1, 1, 0
# What a higher bid does to each input decides in which direction the probability may follow it.
DIRECTIONS = (
    FALLING,  # the bid over the price
    *(RISING for _ in MAXIMA_S),  # the highest price over the bid
    *(FALLING if column == "hours_since_above" else RISING for column in COLUMNS),
    *(FREE for _ in range(len(MEANS_S) + 7)),
)


class Boosted(Revocation):
    """Trees, and the line that makes their sum the logarithm of calibrated odds."""

    name: ClassVar[str] = "boosted"

    def __init__(self, prices: Prices, until_unix_s: float, trees: Trees, line: Floats) -> None:
        super().__init__(prices, until_unix_s)
        self.trees, self.line = trees, line
        self._pasts: dict[str, Exceedance] = {}

    @classmethod
    def fit(cls, prices: Prices, until_unix_s: float, seed: int = 0) -> Self:
        # Before its threads can be limited it must be there.
        ensemble = needed("sklearn.ensemble", "training the model boosted", "spot")
        early, late = _training_set(prices, until_unix_s, seed)
        with threadpool_limits(1):  # on a busy machine threads that wait for each other take several times as long
            first = _boost(ensemble, early, MOST_TREES, seed)
            count, odds = _stop(first.staged_decision_function(late[0]), late[1])
            everything = np.concatenate([early[0], late[0]]), np.concatenate([early[1], late[1]])
            trees = from_sklearn(_boost(ensemble, everything, count, seed))
        return cls(prices, until_unix_s, trees, _line(odds, late[1]))

    def _predict(self, history: History, bids: Floats, at: Floats) -> Floats:
        if history.market not in self._pasts:
            self._pasts[history.market] = Exceedance(history)
        slope, intercept = self.line
        return sigmoid(slope * self.trees.sum(inputs(history, self._pasts[history.market], bids, at)) + intercept)

    def _state(self) -> tuple[dict[str, object], Arrays]:
        return {}, {"line": self.line, **{each.name: getattr(self.trees, each.name) for each in fields(Trees)}}

    @classmethod
    def _restore(cls, prices: Prices, head: Mapping[str, Any], arrays: Arrays) -> Self:
        line = arrays.pop("line")
        return cls(prices, head["until_unix_s"], Trees(**arrays), line)


def inputs(history: History, past: Exceedance, bids: Floats, at: Floats) -> Floats:
    """A row for each bid and time. Prices are in ratios."""
    price = history.price(at)
    columns = [
        np.log(bids / price),
        *(np.log(history.highest(at - length_s, at) / bids) for length_s in MAXIMA_S),
        past.of(bids, at),
        *(np.log(price / history.mean(at, length_s)) for length_s in MEANS_S),
        history.changes(at, HOUR_S),
        history.changes(at, DAY_S),
        history.since_s(at),
        history.volatility(at, HOUR_S),
        history.volatility(at, DAY_S),
        hour(at),
        weekday(at),
    ]
    return np.column_stack(columns)


def training_bids(history: History, at: Floats, rng: np.random.Generator) -> list[Floats]:
    """On the border, at random, and at random with small distances as frequent as large ones."""
    distances = np.exp(rng.uniform(np.log(LEAST_DELTA), np.log(MOST_DELTA), len(at)))
    return [border_bids(history, at), random_bids(history, at, rng), history.price(at) * (1.0 + distances)]


Set = tuple[Floats, NDArray[np.bool_]]


def _training_set(prices: Prices, until_unix_s: float, seed: int) -> tuple[Set, Set]:
    """The early part and the late one. The hour between them is in neither: its labels look into the late part."""
    rows: list[tuple[Floats, NDArray[np.bool_], Floats]] = []
    for market, at in training_times(prices, until_unix_s, EVERY_S).items():
        history, rng = History(prices[market]), market_rng(market, seed)
        past = Exceedance(history)
        for bids in training_bids(history, at, rng):
            rows.append((inputs(history, past, bids, at), labelled(history, at, bids).labels, at))
    x, y, at = (np.concatenate(column) for column in zip(*rows, strict=True))
    border = until_unix_s - HELD_OUT * (until_unix_s - at.min())
    early, late = at < border - HOUR_S, at >= border
    return (x[early], y[early]), (x[late], y[late])


def _boost(ensemble: ModuleType, known: Set, trees: int, seed: int) -> Any:
    model = ensemble.HistGradientBoostingClassifier(
        max_iter=trees,
        learning_rate=0.05,
        max_leaf_nodes=31,
        min_samples_leaf=100,
        l2_regularization=10.0,
        monotonic_cst=DIRECTIONS,
        early_stopping=False,
        random_state=seed % 2**32,  # more it does not take
    )
    return model.fit(*known)


def _stop(stages: Iterable[Floats], labels: NDArray[np.bool_]) -> tuple[int, Floats]:
    """How many trees predict the labels best, and the odds that they give."""
    losses = ((float(np.logaddexp(0.0, np.where(labels, -odds, odds)).mean()), odds) for odds in map(np.ravel, stages))
    count, (_, best) = min(enumerate(losses, 1), key=lambda each: each[1][0])
    return count, best


def _line(odds: Floats, labels: NDArray[np.bool_]) -> Floats:
    """Slope and intercept that calibrate; as they are where there is nothing to learn from."""
    linear = needed("sklearn.linear_model", "training the model boosted", "spot")
    if labels.all() or not labels.any():
        return np.array([1.0, 0.0])
    model = linear.LogisticRegression(C=1e6).fit(odds[:, None], labels)
    return np.array([max(float(model.coef_[0, 0]), 0.0), float(model.intercept_[0])])
