"""What spot machines have cost: a price for every market, a machine type in a zone, that holds until it changes.

Clouds record changes only, at irregular times. A price is therefore a step function of time; no value is made up
between two records. Where people want rows at equal distances, `minutes` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.errors import SpecError, did_you_mean

Floats = NDArray[np.float64]
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class PriceSeries:
    """The prices of one market. `changed_unix_s` increases strictly; a price is finite and greater than 0."""

    market: str
    """The machine type and the zone, as in m4.4xlarge/us-east-1a."""
    changed_unix_s: Floats
    usd_per_hour: Floats

    def __post_init__(self) -> None:
        times, prices = self.changed_unix_s, self.usd_per_hour
        if len(times) != len(prices) or not len(times):
            raise SpecError(
                f"prices of {self.market}: {len(times)} times and {len(prices)} prices: give as many, not 0"
            )
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise SpecError(f"prices of {self.market}: times must increase: sort them, and keep one price for each")
        if not (np.isfinite(prices).all() and (prices > 0).all()):
            wrong = prices[~(np.isfinite(prices) & (prices > 0))][0]
            raise SpecError(f"prices of {self.market}: {wrong:g}: must be dollars per hour, greater than 0")

    @property
    def begin_unix_s(self) -> float:
        return float(self.changed_unix_s[0])

    @property
    def end_unix_s(self) -> float:
        """When the last change was; that price is taken to hold for ever."""
        return float(self.changed_unix_s[-1])

    def at(self, unix_s: float) -> float:
        """The price at a time; before the first record it is that of the first."""
        return float(self.usd_per_hour[self._place(unix_s)])

    def mean(self, from_unix_s: float, to_unix_s: float) -> float:
        """The average over some time, each price by how long it held."""
        if to_unix_s <= from_unix_s:
            return self.at(from_unix_s)
        first, last = self._place(from_unix_s), self._place(to_unix_s)
        edges = np.concatenate(([from_unix_s], self.changed_unix_s[first + 1 : last + 1], [to_unix_s]))
        return float(np.diff(edges) @ self.usd_per_hour[first : last + 1]) / (to_unix_s - from_unix_s)

    def changes(self, after_unix_s: float, to_unix_s: float = math.inf) -> Iterator[tuple[float, float]]:
        """When the price changes, and what it is from then on."""
        first = int(np.searchsorted(self.changed_unix_s, after_unix_s, side="right"))
        for place in range(first, len(self.changed_unix_s)):
            if self.changed_unix_s[place] > to_unix_s:
                return
            yield float(self.changed_unix_s[place]), float(self.usd_per_hour[place])

    def first_above(self, usd_per_hour: float, from_unix_s: float) -> float:
        """When the price is first above an amount; infinity if it never is."""
        return self._first(self.usd_per_hour > usd_per_hour, from_unix_s)

    def first_at_most(self, usd_per_hour: float, from_unix_s: float) -> float:
        """When the price is first no more than an amount; infinity if it never is."""
        return self._first(self.usd_per_hour <= usd_per_hour, from_unix_s)

    def highest(self, from_unix_s: Floats, to_unix_s: Floats) -> Floats:
        """The highest price in each of many stretches of time, both ends included."""
        spans = np.column_stack((self._places(from_unix_s), self._places(to_unix_s) + 1))
        padded = np.append(self.usd_per_hour, 0.0)  # a stretch may end with the last record
        found: Floats = np.maximum.reduceat(padded, spans.ravel())[::2]
        return found

    def minutes(self, to_unix_s: float, count: int) -> Floats:
        """The price at so many times, a minute apart, the last of them `to_unix_s`."""
        times: Floats = to_unix_s - MINUTE_S * np.arange(count - 1, -1, -1, dtype=np.float64)
        return self.usd_per_hour[self._places(times)]

    def _first(self, wanted: NDArray[np.bool_], from_unix_s: float) -> float:
        place = self._place(from_unix_s)
        if wanted[place]:
            return from_unix_s
        later = int(np.argmax(wanted[place:])) + place
        return float(self.changed_unix_s[later]) if wanted[later] else math.inf

    def _place(self, unix_s: float) -> int:
        return max(0, int(np.searchsorted(self.changed_unix_s, unix_s, side="right")) - 1)

    def _places(self, times: Floats) -> NDArray[np.intp]:
        return np.maximum(np.searchsorted(self.changed_unix_s, times, side="right") - 1, 0)


class Prices(Mapping[str, PriceSeries]):
    """The series of several markets, by name."""

    def __init__(self, series: Mapping[str, PriceSeries]) -> None:
        if not series:
            raise SpecError("prices: there is no market in them")
        self._series = dict(sorted(series.items()))

    def __getitem__(self, market: str) -> PriceSeries:
        if market not in self._series:
            raise SpecError(f"market {market!r}: there are no prices of it; {did_you_mean(market, self._series)}")
        return self._series[market]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __contains__(self, market: object) -> bool:
        return market in self._series


def sorted_series(market: str, times: Floats, prices: Floats) -> tuple[PriceSeries, int]:
    """Of records in any order. One that is there twice counts once; of several prices at one time the last counts, and
    the number that is given back says how many others there were.
    """
    order = np.argsort(times, kind="stable")
    times, prices = times[order], prices[order]
    last = np.append(times[1:] != times[:-1], True)
    counted = prices[last][np.cumsum(last) - last]
    return PriceSeries(market, times[last], prices[last]), int((prices != counted).sum())


def gaps(series: PriceSeries, longer_than_s: float) -> list[tuple[float, float]]:
    """From when to when there is no record for so long. The price is taken to have held; it may be unknown as well."""
    times = series.changed_unix_s
    long = np.flatnonzero(np.diff(times) > longer_than_s)
    return [(float(times[place]), float(times[place + 1])) for place in long]


def market_name(kind: str, zone: str) -> str:
    """The market of a machine type in a zone; of the type alone where the zone is empty."""
    return f"{kind}/{zone}" if zone else kind


def split_market(market: str) -> tuple[str, str]:
    """The machine type and the zone of a market; the zone is empty where none is named."""
    kind, _, zone = market.partition("/")
    return kind, zone


def format_date(unix_s: float) -> str:
    """In UTC, as dates are given."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M}"


def format_date_from(unix_s: float) -> str:
    """The first whole minute that is not before a time: who gives the date that was named must not be refused."""
    return format_date(MINUTE_S * math.ceil(unix_s / MINUTE_S))


def spent_usd(series: PriceSeries, from_unix_s: float, to_unix_s: float) -> float:
    """What a machine costs at the prices of its market, by the second."""
    return series.mean(from_unix_s, to_unix_s) * max(0.0, to_unix_s - from_unix_s) / SECONDS_PER_HOUR
