"""The one cost function: forecasts, simulated bills and real bills all go through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A machine that was, or is still, paid for, busy or not: from when it is billed until it was given back or lost.

    Its price is that of the whole machine. It is billed for `minimum_s` at least, and costs `data_usd` once, for the
    training data that it loads.
    """

    node: str
    devices: int
    price_usd_per_hour: float
    from_s: float
    to_s: float = math.inf
    minimum_s: float = 0.0
    data_usd: float = 0.0

    def until(self, at_s: float) -> MachineUse:
        """The part of it that was before a time."""
        return self if self.to_s <= at_s else replace(self, to_s=at_s)

    @property
    def cost_usd(self) -> float:
        life_s = self.to_s - self.from_s
        if life_s < 0:
            return 0.0
        paid_usd: float = life_usd(life_s, self.price_usd_per_hour, self.minimum_s)
        return paid_usd + self.data_usd

    @property
    def in_device_hours(self) -> MachineUse:
        """As if an hour of a device cost a dollar, and nothing else anything: for budgets in time on devices."""
        return replace(self, price_usd_per_hour=float(self.devices), data_usd=0.0)


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
    # A machine begins to cost more when its minimum is used up.
    rises = sorted((max(at_s, use.from_s + use.minimum_s), use.price_usd_per_hour) for use in held)
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
