"""The one cost function: forecasts, simulated bills and real bills all go through it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A machine that was, or is still, paid for, busy or not: from when it is billed until it was given back or lost.

    Its price is that of the whole machine.
    """

    node: str
    devices: int
    price_usd_per_hour: float
    from_s: float
    to_s: float = math.inf

    def until(self, at_s: float) -> MachineUse:
        """The part of it that was before a time."""
        return self if self.to_s <= at_s else replace(self, to_s=at_s)


def cost_usd(uses: Iterable[MachineUse]) -> float:
    """What the machines cost."""
    return sum(use.price_usd_per_hour * max(0.0, use.to_s - use.from_s) for use in uses) / SECONDS_PER_HOUR


def reached_s(amount_usd: float, held: Iterable[MachineUse], at_s: float) -> float:
    """When machines that stay held from now on, `at_s`, will have cost an amount: now if they have already, infinity if
    they never will.
    """
    held = list(held)
    left_usd = amount_usd - cost_usd(use.until(at_s) for use in held)
    if left_usd <= 0:
        return at_s
    price_usd_per_hour = sum(use.price_usd_per_hour for use in held)
    return at_s + left_usd / price_usd_per_hour * SECONDS_PER_HOUR if price_usd_per_hour > 0 else math.inf
