"""A spot market that is made up, for examples and tests that need no data. The same seed gives the same prices.

"auction" is a market as it was until 2017, when whoever offered most got the machine. A market has a level of 10% to
30% of the on-demand price, around which the price goes up and down all the time, and surges that multiply it: most by
little, some to far above the on-demand price. "smooth" is a market as it is today: every some hours a small change.

How the two (50 markets; 60 days of auction, 200 smooth ones) compare with records of AWS: 60 days of 50 markets in
us-east-1 in early 2016, with the list prices of that time, and the last 800 records of 108 markets there up to 2026. A
rise is an hour in which the price rises above the one at its beginning by more than the difference between highest and
lowest price of the hour before; a spike is a rise above the on-demand price.

    mean over markets                   2016    auction    2024-2026    smooth
    level, as a part of on-demand       0.13    0.21       0.39         0.42
    changes per day                     142     151        3.5          3.2
    hours with a rise                   18%     24%        6.5%         5.8%
    hours with a rise of 10%            8.4%    7.1%       0.0%         0.0%
    spikes per day                      0.39    0.35       0            0
    part of the time above on-demand    6.3%    2.8%       0            0

The level is the median over time, and over markets: in 2016 some old types were above the on-demand price for weeks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from elastune.errors import SpecError, did_you_mean
from elastune.market.prices import Floats, Prices, PriceSeries, market_name
from elastune.spec import require_int, require_number

Style = Literal["auction", "smooth"]
STYLES: tuple[Style, ...] = ("auction", "smooth")
ZONES = ("us-east-1a", "us-east-1b")
BEGIN_UNIX_S = 1_735_689_600.0
"""2025-01-01, midnight in UTC: a market that is made up needs some time, and no clock is read for it."""
DAY_S = 86_400.0
MOST_DAYS = 3650

# Of an auction.
LEVEL = (0.10, 0.30)
CHANGES_PER_DAY, CHANGES_SPREAD = 100.0, 0.9
STEP, REVERSION = 0.012, 0.1
SURGES_PER_DAY, SURGE_S = 2.0, 2 * 3600.0
HIGHEST = 10.0
"""Times the on-demand price: more could not be offered."""

# Of a smooth market.
SMOOTH_LEVEL = (0.25, 0.55)
SMOOTH_CHANGES_PER_DAY = 3.5
SMOOTH_STEP, SMOOTH_REVERSION = 0.004, 0.002

LEAST = 1e-4
"""Dollars per hour: prices have four digits after the point."""


def synthetic_prices(
    types: Mapping[str, float],
    days: float = 7.0,
    zones: Sequence[str] = ZONES,
    seed: int = 0,
    style: Style = "auction",
) -> Prices:
    """Prices of machine types, given with their on-demand prices in dollars per hour, in every zone.

    A market does not depend on which others are asked for.
    """
    if not types or not zones:
        raise SpecError("synthetic prices: there must be at least one machine type and one zone")
    for kind, price in types.items():
        if not kind or "/" in kind:
            raise SpecError(f"machine type {kind!r}: must be a name such as m5.large; zones are named on their own")
        require_number(f"on-demand price of {kind}", price)
    require_number("days", days)
    if days > MOST_DAYS:
        raise SpecError(f"days={days:g}: must be at most {MOST_DAYS}, which are ten years")
    require_int("seed", seed, 0)
    if style not in STYLES:
        raise SpecError(f"style={style!r}: {did_you_mean(str(style), STYLES)}")
    found = {}
    for kind, on_demand in types.items():
        for zone in zones:
            market = market_name(kind, zone)
            rng = np.random.default_rng([seed, *market.encode()])
            draw = _auction if style == "auction" else _smooth
            found[market] = _recorded(market, *draw(rng, on_demand, days * DAY_S))
    return Prices(found)


def _auction(rng: np.random.Generator, on_demand: float, length_s: float) -> tuple[Floats, Floats]:
    level = on_demand * rng.uniform(*LEVEL)
    every_s = DAY_S / (CHANGES_PER_DAY * rng.lognormal(0.0, CHANGES_SPREAD))
    busy = rng.exponential()  # some markets are quiet, in others there is always somebody who offers more
    begins = _poisson(rng, DAY_S / (SURGES_PER_DAY * busy), length_s)
    ends = begins + rng.exponential(SURGE_S, len(begins))
    heights = 1.0 + rng.pareto(1.0, len(begins))
    times = np.sort(np.concatenate(([0.0], _poisson(rng, every_s, length_s), begins, ends[ends < length_s])))
    factors = np.ones(len(times))
    for begin, end, height in zip(begins, ends, heights, strict=True):
        during = slice(*np.searchsorted(times, (begin, end)))
        factors[during] = np.maximum(factors[during], height)
    prices = level * factors * np.exp(_wander(rng, len(times), STEP, REVERSION))
    return times, np.minimum(prices, HIGHEST * on_demand)


def _smooth(rng: np.random.Generator, on_demand: float, length_s: float) -> tuple[Floats, Floats]:
    level = on_demand * rng.uniform(*SMOOTH_LEVEL)
    times = np.sort(np.append(0.0, _poisson(rng, DAY_S / SMOOTH_CHANGES_PER_DAY, length_s)))
    prices = level * np.exp(_wander(rng, len(times), SMOOTH_STEP, SMOOTH_REVERSION))
    return times, np.minimum(prices, on_demand)


def _poisson(rng: np.random.Generator, every_s: float, length_s: float) -> Floats:
    """Times that come as if by chance, so far apart on average."""
    return rng.uniform(0.0, length_s, rng.poisson(length_s / every_s))


def _wander(rng: np.random.Generator, count: int, step: float, reversion: float) -> Floats:
    """Small steps, some of them larger, that are drawn back to 0."""
    steps, at, found = rng.laplace(0.0, step, count).tolist(), 0.0, []
    for each in steps:
        at = (1.0 - reversion) * at + each
        found.append(at)
    return np.array(found)


def _recorded(market: str, times: Floats, prices: Floats) -> PriceSeries:
    """What a cloud would tell: whole seconds, four digits, and a record only where the price changes."""
    whole, first = np.unique(np.floor(times), return_index=True)
    digits = np.maximum(np.round(prices[first], 4), LEAST)
    changed = np.append(True, digits[1:] != digits[:-1])
    return PriceSeries(market, BEGIN_UNIX_S + whole[changed], digits[changed])
