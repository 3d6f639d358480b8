"""What has been spent, and when the limits will be reached."""

from __future__ import annotations

import math

from elastune.cost import MachineUse, cost_usd
from elastune.messages import RunStatus
from elastune.spec import Limits
from elastune.units import format_duration, format_money


class Spending:
    """Follows the machines that are paid for."""

    def __init__(self, limits: Limits, price_usd_per_device_hour: float) -> None:
        self.limits = limits
        self._price = price_usd_per_device_hour
        self._past_usd = 0.0
        self._held: dict[str, tuple[int, float]] = {}

    def begin(self, node: str, devices: int, from_s: float) -> None:
        self._held[node] = (devices, from_s)

    def end(self, node: str, at_s: float) -> None:
        if node in self._held:
            devices, from_s = self._held.pop(node)
            self._past_usd += cost_usd([MachineUse(node, devices, from_s, at_s)], self._price)

    def spent_usd(self, at_s: float) -> float:
        uses = [MachineUse(node, devices, from_s, at_s) for node, (devices, from_s) in self._held.items()]
        return self._past_usd + cost_usd(uses, self._price)

    def limit(self, at_s: float) -> tuple[float, RunStatus, str]:
        """When the first limit is reached if the machines stay as they are, which it is, and how to say it."""
        found: tuple[float, RunStatus, str] = (math.inf, "succeeded", "")
        if self.limits.deadline_s is not None:
            found = (
                self.limits.deadline_s,
                "deadline",
                f"the deadline of {format_duration(self.limits.deadline_s)} is reached",
            )
        if self.limits.budget_usd is not None:
            rate_usd_per_s = self.spent_usd(at_s + 1.0) - self.spent_usd(at_s)
            left_usd = self.limits.budget_usd - self.spent_usd(at_s)
            reached_s = math.inf
            if left_usd <= 0:
                reached_s = at_s
            elif rate_usd_per_s > 0:
                reached_s = at_s + left_usd / rate_usd_per_s
            if reached_s < found[0]:
                found = (reached_s, "budget", f"the budget of {format_money(self.limits.budget_usd)} is used up")
        return found
