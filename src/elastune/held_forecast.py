"""What a run costs that holds the same machines from its beginning to its end, before anything is paid.

How long its trials take is not known, but when it must end is: at the deadline, or when the budget is used up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.cost import SECONDS_PER_HOUR, MachineUse, reached_s
from elastune.errors import SpecError
from elastune.forecast import as_text
from elastune.messages import ClockPlan
from elastune.profile.latency import Floats
from elastune.spec import Terms
from elastune.units import format_device_time, format_duration, format_money


def at_most(terms: Terms, instance: str | None, plan: ClockPlan) -> dict[str, Any]:
    """The limits, what a plan takes and costs at most, and the machines, for programs to read."""
    return {
        "deadline_s": terms.limits.deadline_s,
        "budget_usd": terms.limits.budget_usd,
        "budget_device_s": terms.limits.budget_device_s,
        "time_s": {"at_most": plan.finish_s},
        "cost_usd": {"at_most": plan.cost_usd},
        "device_s": {"at_most": plan.device_s},
        "machine": {
            "type": instance,
            "devices": terms.devices,
            "price_usd_per_hour": terms.price_usd_per_device_hour * terms.devices,
            "at_most": terms.machines,
            "ready_s": terms.ready_s,
        },
    }


@dataclass(frozen=True, slots=True)
class HeldForecast:
    """`grace_s` is how long trials have to save when the run must end; machines are paid for meanwhile."""

    terms: Terms
    machines: int
    grace_s: float = 0.0
    instance: str | None = None
    advice: str = ""

    def __post_init__(self) -> None:
        if self.until_s == np.inf:
            raise SpecError(
                "nothing says when the run must end: give a deadline, or a budget with a price or as "
                f"'80 device-minutes'{'; or ' * bool(self.advice)}{self.advice}"
            )

    @property
    def until_s(self) -> float:
        """When the run must end."""
        limits, machines = self.terms.limits, [self._use(np.inf)] * self.machines
        deadline_s = np.inf if limits.deadline_s is None else limits.deadline_s
        if limits.budget_usd is not None:
            return min(deadline_s, reached_s(limits.budget_usd, machines, 0.0))
        if limits.budget_device_s is not None:
            in_hours = [use.in_device_hours for use in machines]
            return min(deadline_s, reached_s(limits.budget_device_s / SECONDS_PER_HOUR, in_hours, 0.0))
        return deadline_s

    @property
    def time_s(self) -> Floats:
        """At most; one number, as the only sample."""
        return np.array([self.until_s + self.grace_s])

    @property
    def cost_usd(self) -> Floats:
        """At most; one number, as the only sample."""
        return np.array([self._cost_usd(self.until_s + self.grace_s)])

    @property
    def device_s(self) -> float:
        """Time on devices that is paid for, at most."""
        return self._device_s(self.until_s + self.grace_s)

    @property
    def affordable(self) -> int:
        """How many machines the budget would pay for until then."""
        limits = self.terms.limits
        each_usd, each_s = self._use(self.until_s).cost_usd, self._device_s(self.until_s) / self.machines
        if limits.budget_usd is not None and each_usd:
            return int(limits.budget_usd / each_usd + 1e-9)
        return self.machines if limits.budget_device_s is None else int(limits.budget_device_s / each_s + 1e-9)

    def recorded(self) -> ClockPlan:
        """For the journal."""
        return ClockPlan((), self.machines, float(self.time_s[0]), float(self.cost_usd[0]), self.device_s)

    def to_dict(self) -> dict[str, Any]:
        return {
            **at_most(self.terms, self.instance, self.recorded()),
            "grace_s": self.grace_s,
            "held": [{"until_s": self.until_s, "machines": self.machines}],
        }

    def tables(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_row("machines", self._machines())
        end_s = self.until_s + self.grace_s
        saving = f", and {format_duration(self.grace_s)} of grace for trials to save" if self.grace_s else ""
        more = (
            self._cost_usd(end_s) - self._cost_usd(self.until_s),
            self._device_s(end_s) - self._device_s(self.until_s),
        )
        paid = f", and {self._amount(*more)} for that" if self.grace_s else ""
        grid.add_row("time", f"at most {self._time()}{saving}")
        grid.add_row("cost", f"at most {self._cost()}{paid}")
        note = Text("at most: the run ends sooner if it has nothing left to train", "dim")
        return Group(grid, note, *(Text(hint, "yellow") for hint in self._hints()))

    def __str__(self) -> str:
        return as_text(self.tables())

    def save_plots(self, folder: str | Path) -> list[Path]:
        """None: there is nothing to see, as many machines are held from the beginning to the end."""
        return []

    def _machines(self) -> str:
        terms, each = self.terms, self.terms.price_usd_per_device_hour * self.terms.devices
        named = "" if self.instance is None else f"{self.instance}: "
        of = f"{self.machines} of {terms.devices} device{'s' * (terms.devices != 1)}"
        price = f", {format_money(each * self.machines)}/h together" if each else ""
        return f"{named}{of} from the beginning to the end{price}"

    def _time(self) -> str:
        deadline_s = self.terms.limits.deadline_s
        return format_duration(self.until_s) + ("" if deadline_s is None else f" of {format_duration(deadline_s)}")

    def _cost(self) -> str:
        limits, amount = self.terms.limits, self._amount(self._cost_usd(self.until_s), self._device_s(self.until_s))
        if limits.budget_device_s is not None:
            return f"{amount} of {format_device_time(limits.budget_device_s)}"
        return amount + ("" if limits.budget_usd is None else f" of {format_money(limits.budget_usd)}")

    def _amount(self, cost_usd: float, device_s: float) -> str:
        """As time on devices where the budget is given so, or where they have no price."""
        dollars = format_money(cost_usd)
        if self.terms.limits.budget_device_s is None and self.terms.price_usd_per_device_hour:
            return dollars
        return format_device_time(device_s) + (f" ({dollars})" if self.terms.price_usd_per_device_hour else "")

    def _hints(self) -> Iterator[str]:
        limits = self.terms.limits
        if limits.deadline_s is not None and self.until_s < limits.deadline_s:
            yield f"the budget is used up after {format_duration(self.until_s)}, before the deadline"
        elif self.affordable > self.machines:
            yield f"limited by machines={self.machines}: the budget would pay for {self.affordable}"
        if self.advice:
            yield f"how long trials take is not known: {self.advice}"

    def _use(self, until_s: float) -> MachineUse:
        terms = self.terms
        price = terms.price_usd_per_device_hour * terms.devices
        return MachineUse("", terms.devices, price, 0.0, until_s, terms.minimum_s, terms.data_usd)

    def _cost_usd(self, until_s: float) -> float:
        return self.machines * self._use(until_s).cost_usd

    def _device_s(self, until_s: float) -> float:
        return self.machines * self._use(until_s).in_device_hours.cost_usd * SECONDS_PER_HOUR
