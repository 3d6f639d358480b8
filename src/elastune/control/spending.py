"""What has been spent, and when the limits will be reached."""

from __future__ import annotations

import math
from collections.abc import Collection

from elastune.cost import SECONDS_PER_HOUR, MachineUse, cost_usd, reached_s
from elastune.messages import NodeBilled, RunStatus
from elastune.spec import Limits
from elastune.units import format_device_time, format_duration, format_money

ALL_BUT_ROUNDING = 1 + 1e-9
"""What is owed to the last cent, for the least time that machines are paid, is not more than there is."""


class Spending:
    """Follows the machines that are paid for."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._past_usd = self._past_device_h = 0.0
        self._held: dict[str, MachineUse] = {}

    def begin(self, billed: NodeBilled) -> None:
        """Told once or twice: of a machine that boots, and that it is ready."""
        if billed.node not in self._held:
            self._held[billed.node] = MachineUse.of(billed)

    def reprice(self, node: str, at_s: float, price_usd_per_hour: float) -> None:
        if node in self._held:
            self._held[node] = self._held[node].repriced(at_s, price_usd_per_hour)

    def end(self, node: str, at_s: float, revoked: bool = False) -> None:
        if node in self._held:
            use = self._held.pop(node).until(at_s, revoked)
            self._past_usd += use.cost_usd
            self._past_device_h += use.in_device_hours.cost_usd

    def spent_usd(self, at_s: float, without: Collection[str] = ()) -> float:
        """On all machines but some."""
        held = (use.until(at_s) for node, use in self._held.items() if node not in without)
        return self._past_usd + cost_usd(held)

    def spent_device_s(self, at_s: float) -> float:
        """The time on devices that was paid for."""
        held_h = cost_usd(use.until(at_s).in_device_hours for use in self._held.values())
        return (self._past_device_h + held_h) * SECONDS_PER_HOUR

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
            used_up_s = reached_s(self.limits.budget_usd * ALL_BUT_ROUNDING - self._past_usd, self._held.values(), at_s)
            if used_up_s < found[0]:
                found = (used_up_s, "budget", f"the budget of {format_money(self.limits.budget_usd)} is used up")
        if self.limits.budget_device_s is not None:
            left_h = self.limits.budget_device_s * ALL_BUT_ROUNDING / SECONDS_PER_HOUR - self._past_device_h
            used_up_s = reached_s(left_h, (use.in_device_hours for use in self._held.values()), at_s)
            if used_up_s < found[0]:
                found = (
                    used_up_s,
                    "budget",
                    f"the budget of {format_device_time(self.limits.budget_device_s)} is used up",
                )
        return found
