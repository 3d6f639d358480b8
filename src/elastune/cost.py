"""The one cost function: forecasts, simulated bills and real bills all go through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from elastune.messages import NodeBilled

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A machine that was, or is still, paid for, busy or not: from when it is billed until it was given back or lost.

    Its price is that of the whole machine. It is billed for `minimum_s` at least: what is missing of that at its first
    price, because a price that has risen since is why it is gone. It costs `data_usd` once, for the training data that
    it loads. One that is `revoked` before `refund_s` costs nothing.

    The price may change: it is what it is from `priced_s` on (None: from the beginning), and `earlier` has the prices
    before with the time until which each held, which came to `earlier_usd`.
    """

    node: str
    devices: int
    price_usd_per_hour: float
    from_s: float
    to_s: float = math.inf
    minimum_s: float = 0.0
    data_usd: float = 0.0
    refund_s: float = 0.0
    revoked: bool = False
    priced_s: float | None = None
    earlier: tuple[tuple[float, float], ...] = ()
    earlier_usd: float = 0.0

    @classmethod
    def of(cls, billed: NodeBilled) -> MachineUse:
        """From when it is paid for."""
        return cls(
            billed.node,
            billed.devices,
            billed.price_usd_per_hour,
            billed.billed_from_s,
            minimum_s=billed.minimum_s,
            data_usd=billed.data_usd,
            refund_s=billed.refund_s,
        )

    def repriced(self, at_s: float, price_usd_per_hour: float) -> MachineUse:
        """The same at another price from a time on."""
        at_s = max(at_s, self.from_s)
        more_usd = self.price_usd_per_hour * (at_s - self._priced_s) / SECONDS_PER_HOUR
        return replace(
            self,
            price_usd_per_hour=price_usd_per_hour,
            priced_s=at_s,
            earlier=(*self.earlier, (at_s, self.price_usd_per_hour)),
            earlier_usd=self.earlier_usd + more_usd,
        )

    def until(self, at_s: float, revoked: bool = False) -> MachineUse:
        """The part of it that was before a time. With `revoked` the cloud took it away then."""
        if self.to_s <= at_s:
            return self
        if at_s >= self._priced_s or not self.earlier:
            return replace(self, to_s=at_s, revoked=revoked)
        changes, prices = zip(*self.earlier, strict=True)
        past = replace(self, price_usd_per_hour=prices[0], to_s=at_s, priced_s=None, earlier=(), earlier_usd=0.0)
        for change_s, price in zip(changes, prices[1:], strict=False):
            if change_s < at_s:
                past = past.repriced(change_s, price)
        return replace(past, revoked=revoked)

    @property
    def _priced_s(self) -> float:
        return self.from_s if self.priced_s is None else self.priced_s

    @property
    def cost_usd(self) -> float:
        life_s = self.to_s - self.from_s
        if life_s < 0 or (self.revoked and life_s < self.refund_s):
            return 0.0
        if not self.earlier:
            paid_usd: float = life_usd(life_s, self.price_usd_per_hour, self.minimum_s)
            return paid_usd + self.data_usd
        last_usd = self.price_usd_per_hour * (self.to_s - self._priced_s) / SECONDS_PER_HOUR
        missing_usd = self.first_price * max(0.0, self.minimum_s - life_s) / SECONDS_PER_HOUR
        return self.earlier_usd + last_usd + missing_usd + self.data_usd

    @property
    def first_price(self) -> float:
        return self.earlier[0][1] if self.earlier else self.price_usd_per_hour

    @property
    def in_device_hours(self) -> MachineUse:
        """As if an hour of a device cost a dollar, and nothing else anything: for budgets in time on devices."""
        hour = MachineUse(self.node, self.devices, float(self.devices), self.from_s, self.to_s)
        return replace(hour, minimum_s=self.minimum_s)


def life_usd(life_s: Any, price_usd_per_hour: float, minimum_s: float, larger: Callable[..., Any] = max) -> Any:
    """What a machine costs for the time it was held; of many samples at once, with numpy's `larger`."""
    return price_usd_per_hour * larger(life_s, minimum_s) / SECONDS_PER_HOUR


def cost_usd(uses: Iterable[MachineUse]) -> float:
    """What the machines cost."""
    return sum(use.cost_usd for use in uses)


def reached_s(amount_usd: float, held: Iterable[MachineUse], at_s: float) -> float:
    """When machines that stay held from now on, `at_s`, will have cost an amount: now if they have already, infinity if
    they never will.
    """
    held = list(held)
    left_usd = amount_usd - cost_usd(use.until(at_s) for use in held)
    # A machine begins to cost more when its minimum is used up; before that, by as much as its price has risen.
    rises = []
    for use in held:
        early = max(0.0, use.price_usd_per_hour - use.first_price)
        rises += [(at_s, early), (max(at_s, use.from_s + use.minimum_s), use.price_usd_per_hour - early)]
    rises.sort()
    price_usd_per_hour = 0.0
    for rise_s, more_usd_per_hour in rises:
        spent_usd = price_usd_per_hour * (rise_s - at_s) / SECONDS_PER_HOUR
        if spent_usd >= left_usd:
            break
        left_usd, at_s = left_usd - spent_usd, rise_s
        price_usd_per_hour += more_usd_per_hour
    if left_usd <= 0:
        return at_s
    return at_s + left_usd / price_usd_per_hour * SECONDS_PER_HOUR if price_usd_per_hour > 0 else math.inf
