"""How likely a machine is taken away within the hour: the price of its market rises above the maximum price.

    Revocation
    ├── Boosted          ours: gradient boosting over all markets together          needs nothing in use
    └── PerMarket        a model for each market
        ├── RevPred      SpotTune's                                                 torch
        ├── Tributary    the predictor that SpotTune compares itself with           torch
        └── Logistic     logistic regression                                        needs nothing in use

A file holds arrays and a line of JSON; reading it runs no code of the file.
"""

from __future__ import annotations

import io
import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.errors import SpecError, did_you_mean
from elastune.market.features import History
from elastune.market.prices import Floats, Prices, format_date
from elastune.market.whole_file import write_whole

MODELS = {
    "boosted": ("elastune.market.boosted", "Boosted"),
    "revpred": ("elastune.market.revpred", "RevPred"),
    "tributary": ("elastune.market.tributary", "Tributary"),
    "logistic": ("elastune.market.logistic", "Logistic"),
}
FORMAT = "elastune revocation 1"
Arrays = dict[str, NDArray[Any]]


class Revocation(ABC):
    """A trained model and the prices it looks at. Of them it uses those up to the time it is asked about."""

    name: ClassVar[str]

    def __init__(self, prices: Prices, until_unix_s: float) -> None:
        self.prices = prices
        self.until_unix_s = until_unix_s
        """It was trained on prices up to this time."""
        self._histories: dict[str, History] = {}

    @classmethod
    @abstractmethod
    def fit(cls, prices: Prices, until_unix_s: float, seed: int = 0) -> Self:
        """Train on the prices up to a time. The same prices and seed give the same model."""

    def probability(self, market: str, max_price: float, at_unix_s: float) -> float:
        """That the price is above `max_price` (dollars per hour) at some time in the hour that begins now.

        1 where it is above already. A market that is not known, a time with less than an hour of prices before it and a
        maximum price that is no positive number are a SpecError.
        """
        return float(self.probabilities(market, max_price, at_unix_s))

    def probabilities(self, market: str, max_prices: ArrayLike, at_unix_s: ArrayLike) -> Floats:
        """The same for many: maximum prices and times are broadcast against each other."""
        history = self.history(market)
        bids, at = np.broadcast_arrays(np.asarray(max_prices, np.float64), np.asarray(at_unix_s, np.float64))
        shape, bids, at = bids.shape, bids.ravel(), at.ravel()
        _check(history, bids, at)
        found = np.ones(len(at))
        held = bids >= history.price(at)
        if held.any():
            found[held] = np.clip(self._predict(history, bids[held], at[held]), 0.0, 1.0)
        return found.reshape(shape)

    def knows(self, market: str) -> bool:
        """Whether it can be asked about a market."""
        return market in self.prices

    def history(self, market: str) -> History:
        """The prices of a market, prepared once."""
        if market not in self._histories:
            self._histories[market] = History(self.prices[market])
        return self._histories[market]

    def save(self, path: str | Path) -> None:
        """Write a file that `load_revocation` reads."""
        about, arrays = self._state()
        head = {"format": FORMAT, "model": self.name, "until_unix_s": self.until_unix_s, **about}
        content: dict[str, Any] = {"head": np.array(json.dumps(head)), **arrays}
        file = io.BytesIO()
        np.savez_compressed(file, **content)
        try:
            write_whole(Path(path), file.getvalue())
        except OSError as error:
            raise SpecError(f"{path}: cannot be written: {error.strerror}") from None

    @abstractmethod
    def _predict(self, history: History, bids: Floats, at: Floats) -> Floats:
        """The probabilities for bids that are not below the price."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, object], Arrays]:
        """What was learnt: a part for JSON, and arrays."""

    @classmethod
    @abstractmethod
    def _restore(cls, prices: Prices, head: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state."""


def _check(history: History, bids: Floats, at: Floats) -> None:
    wrong = bids[~(np.isfinite(bids) & (bids > 0))]
    if len(wrong):
        raise SpecError(f"max_price={wrong[0]:g}: must be dollars per hour, greater than 0")
    if not np.isfinite(at).all():
        raise SpecError("at_unix_s: must be seconds since 1970")
    if len(at) and at.min() < history.begin_unix_s + SECONDS_PER_HOUR:
        raise SpecError(
            f"at_unix_s={at.min():.0f}: prices of {history.market} begin at {history.begin_unix_s:.0f} "
            f"({format_date(history.begin_unix_s)}), and an hour of them must be known: ask about a later time, or "
            "give older prices"
        )


def model_class(name: str) -> type[Revocation]:
    """The class of a model, by the name that the command line and files have for it."""
    if name not in MODELS:
        raise SpecError(f"model={name!r}: {did_you_mean(name, MODELS)}")
    module, kind = MODELS[name]
    found: type[Revocation] = getattr(import_module(module), kind)
    return found


def load_revocation(path: str | Path, prices: Prices) -> Revocation:
    """The model in a file, to be asked about these prices."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = {name: file[name] for name in file.files}
        head = json.loads(str(arrays.pop("head")))
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, AttributeError, TypeError, EOFError, RecursionError, zipfile.BadZipFile):
        raise SpecError(f"{path}: is no model; make one with: elastune revocation train") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise SpecError(f"{path}: was written by another version of Elastune; train it again")
    try:
        return model_class(head["model"])._restore(prices, head, arrays)
    except (KeyError, TypeError, ValueError, IndexError):
        raise SpecError(f"{path}: a part of the model is missing or damaged; train it again") from None
