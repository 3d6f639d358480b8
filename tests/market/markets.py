"""Spot markets made up for tests, in which the probability of a revocation is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elastune.market.prices import Prices, PriceSeries

HOUR_S, DAY_S = 3600.0, 86400.0
BEGIN_UNIX_S = 1_456_704_000.0
"""A Monday, 29 February 2016, at midnight."""
SPIKE_S = 60.0
PER_HOUR, MEAN_HEIGHT = 0.5, 0.4


def spiky(market: str, days: float, seed: int, base_usd: float = 0.2) -> PriceSeries:
    """The price is the base but for spikes of a minute: on average one in two hours, by an exponential part above."""
    rng = np.random.default_rng(seed)
    gaps = SPIKE_S + 1.0 + rng.exponential(HOUR_S / PER_HOUR, int(3 * days * 24 * PER_HOUR))
    begins = np.cumsum(gaps)
    begins = begins[begins < days * DAY_S]
    times = np.sort(np.concatenate([[0.0], begins, begins + SPIKE_S]))
    prices = np.full(len(times), base_usd)
    prices[1::2] += base_usd * rng.exponential(MEAN_HEIGHT, len(begins))
    return PriceSeries(market, BEGIN_UNIX_S + times, prices)


def spiky_truth(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Asked at the base price: that a spike of the next hour is above so many times the price."""
    found: NDArray[np.float64] = 1.0 - np.exp(-PER_HOUR * np.exp(-(ratios - 1.0) / MEAN_HEIGHT))
    return found


def spiky_prices(days: float, markets: int) -> Prices:
    names = [f"m{place}.large/us-1a" for place in range(markets)]
    return Prices({name: spiky(name, days, place, 0.1 * 3**place) for place, name in enumerate(names)})
