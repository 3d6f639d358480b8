"""The one cost function: forecasts, simulated bills and real bills all go through it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A machine that was, or is still, paid for: from when it is billed until it was given back or lost."""

    node: str
    devices: int
    from_s: float
    to_s: float


def cost_usd(uses: Iterable[MachineUse], price_usd_per_device_hour: float) -> float:
    """What the machines cost: every device of a held machine is paid for, busy or not."""
    device_s = sum(use.devices * max(0.0, use.to_s - use.from_s) for use in uses)
    return device_s * price_usd_per_device_hour / SECONDS_PER_HOUR
