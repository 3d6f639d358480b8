"""A cloud whose spot machines come and go as they once did: it plays back prices, or how many could be had.

Simulations and rehearsals ask it what happens and when. Whoever decides sees the present and the past of it only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from elastune.errors import SpecError, did_you_mean
from elastune.market.prices import Floats, Prices, PriceSeries
from elastune.messages import Offer
from elastune.spec import require_int, require_number

HOUR_S, WEEK_S = 3600.0, 7 * 86_400.0
BID = 1.25
ROUNDING_S = 1e-3
"""What is due but for rounding has happened."""
NO_END = 1 << 30


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine type: what an hour of it costs for certain, and how fast a trial that has all of it trains, next to
    the others.
    """

    on_demand_usd_per_hour: float
    speed: float = 1.0
    devices: int = 1

    def __post_init__(self) -> None:
        require_number("on_demand_usd_per_hour", self.on_demand_usd_per_hour, zero=True)
        require_number("speed", self.speed)
        require_int("devices", self.devices, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """How many spot machines could be had: `counts[i]` from i times `gap_s` seconds on; the last one stays. Its time
    begins with 0, so that the `begin_unix_s` of a cloud says how much of it is left out.
    """

    gap_s: float
    counts: Floats
    spot_usd_per_hour: float

    def __post_init__(self) -> None:
        require_number("gap_s", self.gap_s)
        require_number("spot_usd_per_hour", self.spot_usd_per_hour, zero=True)
        if not len(self.counts) or not np.isfinite(self.counts).all() or (self.counts < 0).any():
            raise SpecError("capacity: counts must be numbers of machines, at least one of them, and none negative")

    def at(self, trace_s: float) -> int:
        return int(self.counts[min(max(0, int(trace_s // self.gap_s)), len(self.counts) - 1)])

    def next_change_s(self, trace_s: float) -> float:
        """When there is next another number of them; infinity if there never is."""
        place = min(max(0, int(trace_s // self.gap_s)), len(self.counts) - 1)
        others = np.flatnonzero(self.counts[place:] != self.counts[place])
        return float((place + others[0]) * self.gap_s) if len(others) else math.inf


@dataclass(frozen=True, slots=True)
class PlayedCloud:
    """`kinds` has the machines that can be had, by market (m4.4xlarge/us-east-1a). What happened there from
    `begin_unix_s` on happens again, `pace` times as fast. Where there are `prices` a spot machine is taken away when
    its price is above what is offered, after a notice; where there is `capacity`, when there are too many.

    A machine that is taken away before `refund_s` costs nothing: so it was once with AWS for the first hour, and is not
    today.
    """

    kinds: Mapping[str, Kind]
    prices: Prices | None = None
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    begin_unix_s: float = 0.0
    pace: float = 1.0
    notice_s: float = 120.0
    refund_s: float = 0.0
    minimum_s: float = 60.0
    boot_s: float = 0.0

    def __post_init__(self) -> None:
        require_number("pace", self.pace)
        for name in ("notice_s", "refund_s", "minimum_s", "boot_s"):
            require_number(name, getattr(self, name), zero=True)
        if not self.kinds:
            raise SpecError("kinds={}: must name at least one machine type")
        for market in self.kinds:
            if market not in self.capacity and (self.prices is None or market not in self.prices):
                known = [*self.capacity, *(self.prices or ())]
                raise SpecError(
                    f"market {market!r}: neither prices nor capacity are known; {did_you_mean(market, known)}"
                )

    def kind(self, market: str) -> Kind:
        if market not in self.kinds:
            raise SpecError(f"machine type {market!r}: {did_you_mean(market, self.kinds)}")
        return self.kinds[market]

    def unix_s(self, at_s: float) -> float:
        """The time of the market at a time of the run."""
        return self.begin_unix_s + at_s * self.pace + ROUNDING_S

    def at_s(self, unix_s: float) -> float:
        return (unix_s - self.begin_unix_s) / self.pace

    # ------------------------------------------------------------------------------- what can be known at a time

    def price(self, offer: Offer, at_s: float) -> float:
        """Of an hour, in the time of the run: played twice as fast, a machine costs twice as much."""
        return self.pace * self._price(offer, at_s)

    def _price(self, offer: Offer, at_s: float) -> float:
        if offer.market == "on-demand":
            return self.kind(offer.type).on_demand_usd_per_hour
        if offer.type in self.capacity:
            return self.capacity[offer.type].spot_usd_per_hour
        usd = self._series(offer.type).at(self.unix_s(at_s))
        # Nobody pays more than was offered, also while the machine is being taken away.
        return usd if offer.max_usd_per_hour is None else min(usd, offer.max_usd_per_hour)

    def mean_price(self, market: str, at_s: float) -> float:
        """Of a spot machine over the past hour of the market."""
        if market in self.capacity:
            return self.capacity[market].spot_usd_per_hour
        now = self.unix_s(at_s)
        return self._series(market).mean(now - HOUR_S, now)

    def mean_life_s(self) -> float:
        """How long a spot machine has lasted in the week before the run, in the time of the market: the median over
        its kinds, offered a quarter more than the price when it was taken.
        """
        lives = []
        for market in self.kinds.keys() - self.capacity.keys():
            series, now = self._series(market), self.begin_unix_s
            begins = np.linspace(max(series.begin_unix_s, now - WEEK_S), now, 50, endpoint=False)
            ends = [min(series.first_above(BID * series.at(begin), begin), now) for begin in begins]
            ended = sum(end < now for end in ends)
            lives.append(float(sum(ends) - sum(begins)) / ended if ended else math.inf)
        return median(lives) if lives else math.inf

    def available(self, market: str, at_s: float) -> int:
        """How many spot machines could be had, as many as are wanted where only the price counts."""
        return self.capacity[market].at(self.unix_s(at_s)) if market in self.capacity else NO_END

    # ------------------------------------------------------------------------------------------------ what happens

    def served_s(self, offer: Offer, at_s: float) -> float:
        """When a request that is made now is served by the price that is offered; infinity: never."""
        if offer.market == "on-demand" or offer.type in self.capacity or offer.max_usd_per_hour is None:
            return at_s
        return self._back(self._series(offer.type).first_at_most(offer.max_usd_per_hour, self.unix_s(at_s)), at_s)

    def taken_s(self, offer: Offer, at_s: float) -> float:
        """When the price of a machine that is held is first above what is offered; infinity: never."""
        if offer.market == "on-demand" or offer.type in self.capacity or offer.max_usd_per_hour is None:
            return math.inf
        return self._back(self._series(offer.type).first_above(offer.max_usd_per_hour, self.unix_s(at_s)), at_s)

    def next_price_s(self, offer: Offer, at_s: float) -> float:
        """When its price is next another; infinity: never."""
        if offer.market == "on-demand" or offer.type in self.capacity:
            return math.inf
        change = next(self._series(offer.type).changes(self.unix_s(at_s)), None)
        return math.inf if change is None else self._back(change[0], at_s)

    def next_capacity_s(self, market: str, at_s: float) -> float:
        if market not in self.capacity:
            return math.inf
        return self._back(self.capacity[market].next_change_s(self.unix_s(at_s)), at_s)

    def _back(self, unix_s: float, now_s: float) -> float:
        """A time of the run again, from now on."""
        return now_s if unix_s <= self.unix_s(now_s) else self.at_s(unix_s)

    def _series(self, market: str) -> PriceSeries:
        assert self.prices is not None
        return self.prices[market]
