"""What is known of a spot market at a time: the six features of SpotTune (section III-B), and the maximum prices that
its predictors are trained with and asked about.

    prices[I][t]     History.price
    average price    History.mean, over the past hour, each price by how long it held
    b(I, t)          border_bids in training (Algorithm 2), random_bids in use
    label            rises_above

Whatever is said of a time comes from prices up to then; only `rises_above`, the label, looks ahead. Days and hours are
those of UTC. A record that repeats the price is no change. Before the first record the price is that of the first.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.market.prices import MINUTE_S, Floats, PriceSeries

DAY_S = 24 * SECONDS_PER_HOUR
FEATURES = ("price", "mean_price", "changes", "since_s", "workday", "hour")
PAST_MINUTES = 59
TRIM = 0.2
LEAST_DELTA, MOST_DELTA = 0.00005, 1.0
"""How much a maximum price is above the price, as part of it. The paper has 0.00001 to 0.2 dollars, for machines that
cost about 0.2.
"""
Places = NDArray[np.intp]


class History:
    """The prices of a market, prepared for questions about many times at once."""

    def __init__(self, series: PriceSeries) -> None:
        new = np.concatenate(([True], np.diff(series.usd_per_hour) != 0))
        self.market = series.market
        self.times, self.prices = series.changed_unix_s[new], series.usd_per_hour[new]
        self.begin_unix_s = series.begin_unix_s
        moves = np.concatenate(([0.0], np.diff(np.log(self.prices))))
        self._moved = np.cumsum(moves**2)
        self._paid = np.concatenate(([0.0], np.cumsum(np.diff(self.times) * self.prices[:-1])))

    def places(self, at: Floats) -> Places:
        """Which price holds."""
        return np.maximum(np.searchsorted(self.times, at, side="right") - 1, 0)

    def price(self, at: Floats) -> Floats:
        return self.prices[self.places(at)]

    def mean(self, at: Floats, past_s: float) -> Floats:
        """The average over the past, each price by how long it held."""
        found: Floats = (self._integral(at) - self._integral(at - past_s)) / past_s
        return found

    def changes(self, at: Floats, past_s: float) -> Places:
        """How often the price has changed in the past."""
        return self.places(at) - self.places(at - past_s)

    def since_s(self, at: Floats) -> Floats:
        """How long the price has been what it is."""
        found: Floats = np.maximum(at - self.times[self.places(at)], 0.0)
        return found

    def volatility(self, at: Floats, past_s: float) -> Floats:
        """How far the logarithm of the price has moved in the past: the root of the sum of its squared steps."""
        squares = self._moved[self.places(at)] - self._moved[self.places(at - past_s)]
        found: Floats = np.sqrt(np.maximum(squares, 0.0))
        return found

    def highest(self, begin: Floats, end: Floats) -> Floats:
        """The highest price from one time to another, both included."""
        first, last = self.places(begin), self.places(end)
        level = np.floor(np.log2(last - first + 1)).astype(np.intp)
        found: Floats = np.maximum(self._maxima[level, first], self._maxima[level, last - (1 << level) + 1])
        return found

    def _integral(self, at: Floats) -> Floats:
        place = self.places(at)
        return self._paid[place] + (at - self.times[place]) * self.prices[place]

    @cached_property
    def _maxima(self) -> Floats:
        """Row k has at i the highest of the 2**k prices from i on, as far as there are so many."""
        count = len(self.prices)
        rows = [self.prices]
        for half in (1 << k for k in range(int(math.log2(count)))):
            row = rows[-1].copy()
            row[: count - half] = np.maximum(row[: count - half], row[half:])
            rows.append(row)
        return np.stack(rows)


def present(history: History, at: Floats) -> Floats:
    """The six features of each time, in the order of `FEATURES`."""
    return np.stack(
        [
            history.price(at),
            history.mean(at, SECONDS_PER_HOUR),
            history.changes(at, SECONDS_PER_HOUR).astype(np.float64),
            history.since_s(at),
            (weekday(at) < 5).astype(np.float64),
            hour(at),
        ],
        axis=-1,
    )


def past(history: History, at: Floats) -> Floats:
    """The six features of the 59 minutes before each time, the oldest first."""
    minutes = MINUTE_S * np.arange(PAST_MINUTES, 0, -1, dtype=np.float64)
    return present(history, at[:, None] - minutes)


def encoded(records: Floats) -> Floats:
    """Features as models that add them up like them: prices as logarithms, since spikes are many times the price, and
    times too.
    """
    found = records.copy()
    found[..., :2] = np.log(records[..., :2])
    found[..., 3] = np.log1p(records[..., 3])
    return found


def weekday(at: Floats) -> Floats:
    """0 is Monday."""
    found: Floats = (at // DAY_S + 3) % 7  # the first of January 1970 was a Thursday
    return found


def hour(at: Floats) -> Floats:
    """0 to 23."""
    found: Floats = at % DAY_S // SECONDS_PER_HOUR
    return found


def border_bids(history: History, at: Floats) -> Floats:
    """Algorithm 2: the price, and on top of it what the price changes by in a minute: the mean over the past hour
    without the smallest and the largest 20%.

    Where the price changes in fewer than one minute of five all that is left is 0, and the bid is the price.
    """
    minutes = MINUTE_S * np.arange(PAST_MINUTES + 1, 0, -1, dtype=np.float64)
    deltas = np.sort(np.abs(np.diff(history.price(at[:, None] - minutes), axis=1)), axis=1)
    count = PAST_MINUTES
    kept = deltas[:, math.floor(TRIM * count) + 1 : math.ceil((1 - TRIM) * count)]
    bids: Floats = history.price(at) + kept.sum(axis=1) / ((1 - 2 * TRIM) * count)
    return bids


def random_bids(history: History, at: Floats, rng: np.random.Generator) -> Floats:
    """The price, and a random part of it on top."""
    found: Floats = history.price(at) * (1.0 + rng.uniform(LEAST_DELTA, MOST_DELTA, len(at)))
    return found


def rises_above(history: History, bids: Floats, at: Floats) -> NDArray[np.bool_]:
    """Whether the price is above the bid at any time in the next hour."""
    return history.highest(at, at + SECONDS_PER_HOUR) > bids
