"""Times, maximum prices and whether the machine was taken away: what predictors learn from and are judged by."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.errors import SpecError
from elastune.market.features import History, random_bids, rises_above
from elastune.market.prices import MINUTE_S, Floats, Prices, PriceSeries, format_date

TRAIN_EVERY_S = 15 * MINUTE_S
TEST_EVERY_S = 10 * MINUTE_S
FEWEST = 24


class TooFewPrices(SpecError):
    """Of the time before the one up to which is to be trained."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A row for each time and bid."""

    history: History
    at: Floats
    bids: Floats
    labels: NDArray[np.bool_]


def labelled(history: History, at: Floats, bids: Floats) -> Samples:
    return Samples(history, at, bids, rises_above(history, bids, at))


def market_rng(market: str, seed: int, purpose: int = 0) -> np.random.Generator:
    """A generator for a market, whichever others there are."""
    return np.random.default_rng([seed, zlib.crc32(market.encode()), purpose])


def training_times(prices: Prices, until_unix_s: float, every_s: float = TRAIN_EVERY_S) -> dict[str, Floats]:
    """By market, times whose features and label are known by then; without markets that have too few of them."""
    found = {market: _times(series, until_unix_s, every_s) for market, series in prices.items()}
    enough = {market: at for market, at in found.items() if len(at) >= FEWEST}
    if not enough:
        begin = min(series.begin_unix_s for series in prices.values())
        if until_unix_s < begin:
            raise TooFewPrices(f"until: prices begin on {format_date(begin)}, after it: give a later time")
        raise TooFewPrices(
            f"until: no market has {(FEWEST * every_s) / SECONDS_PER_HOUR + 3:g} hours of prices before it, the first "
            f"begins {(until_unix_s - begin) / SECONDS_PER_HOUR:.1f} hours before: give a later time, or older prices"
        )
    return enough


def _times(series: PriceSeries, until_unix_s: float, every_s: float) -> Floats:
    # The 59 minutes before a time look back an hour each.
    return np.arange(series.begin_unix_s + 2 * SECONDS_PER_HOUR, until_unix_s - SECONDS_PER_HOUR, every_s)


def asked_samples(
    prices: Prices, market: str, from_unix_s: float, to_unix_s: float, every_s: float = TEST_EVERY_S, seed: int = 0
) -> Samples:
    """The same times and random bids for every model that is asked."""
    history = History(prices[market])
    begin = max(from_unix_s, history.begin_unix_s + SECONDS_PER_HOUR)
    at = np.arange(begin, to_unix_s - SECONDS_PER_HOUR, every_s)
    return labelled(history, at, random_bids(history, at, market_rng(market, seed, purpose=1)))
