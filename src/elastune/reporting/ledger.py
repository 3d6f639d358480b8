"""What was paid, and for what: per machine, per trial, and next to what was forecast."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group, RenderableType

from elastune.cost import SECONDS_PER_HOUR, MachineUse
from elastune.record.projection import RunView
from elastune.reporting.forecast import forecast_dict, forecast_tables, right_table
from elastune.units import format_money

MOST_TRIALS = 10
NOTHING_OF_TOTAL, NOTHING_USD = 1e-6, 1e-9
"""What is less than both is left over from rounding."""


@dataclass(frozen=True, slots=True)
class Paid:
    """Dollars for one machine. `minimum` is what was charged for time in which it was gone already."""

    machine: str
    training: float
    idle: float
    booting: float
    minimum: float
    data: float

    @property
    def total(self) -> float:
        return self.training + self.idle + self.booting + self.minimum + self.data


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that was paid, machine by machine, and the part of it that each trial trained for."""

    machines: tuple[Paid, ...]
    trials: dict[str, float]

    @property
    def total(self) -> float:
        return sum(paid.total for paid in self.machines)

    def sums(self) -> dict[str, float]:
        names = ("training", "idle", "booting", "minimum", "data")
        return {name: sum(getattr(paid, name) for paid in self.machines) for name in names}


def ledger(view: RunView) -> Ledger:
    device_s: dict[str, float] = defaultdict(float)
    trials: dict[str, float] = defaultdict(float)
    machines = dict(zip((use.node for use in view.machines), view.machines, strict=True))
    for busy in view.segments():
        seconds = max(0.0, busy.to_s - busy.from_s) * busy.share
        device_s[busy.slot.node] += seconds
        if busy.trial in view.trials and (use := machines.get(busy.slot.node)) is not None:
            trials[busy.trial] += seconds * _rate(use) / use.devices
    least_usd = min(NOTHING_OF_TOTAL * view.cost_usd(), NOTHING_USD)
    paid = tuple(
        _paid(use, ready_s, device_s[use.node], least_usd)
        for use, ready_s in zip(view.machines, view.ready_s, strict=True)
    )
    dearest = sorted(trials.items(), key=lambda item: -item[1])
    return Ledger(paid, {trial: _above(usd, least_usd) for trial, usd in dearest})


def _paid(use: MachineUse, ready_s: float, busy_device_s: float, least_usd: float) -> Paid:
    rate, life_s = _rate(use), max(0.0, use.to_s - use.from_s)
    booting_s = min(max(0.0, ready_s - use.from_s), life_s)
    training = min(busy_device_s / use.devices, life_s - booting_s) * rate
    data_usd = min(use.data_usd, use.cost_usd)
    charged = use.cost_usd - data_usd
    amounts = (
        training,
        (life_s - booting_s) * rate - training,
        booting_s * rate,
        max(0.0, charged - life_s * rate),
        data_usd,
    )
    return Paid(use.node, *(_above(usd, least_usd) for usd in amounts))


def _above(usd: float, least_usd: float) -> float:
    return 0.0 if abs(usd) < least_usd else usd


def _rate(use: MachineUse) -> float:
    """Dollars per second on the average, without the minimum; what was refunded cost nothing."""
    if not use.earlier and not use.revoked:
        return use.price_usd_per_hour / SECONDS_PER_HOUR
    life_s = use.to_s - use.from_s
    return replace(use, minimum_s=0.0, data_usd=0.0).cost_usd / life_s if life_s > 0 else 0.0


def ledger_table(view: RunView) -> RenderableType:
    """Forecast and bill, then the bill by purpose, machine and trial; what cost nothing is left out."""
    books = ledger(view)
    sums = {purpose: usd for purpose, usd in books.sums().items() if usd}
    by_machine = right_table("machine", *sums, "total")
    for paid in books.machines:
        if paid.total:
            cells = (*(getattr(paid, purpose) for purpose in sums), paid.total)
            by_machine.add_row(paid.machine, *map(format_money, cells))
    by_machine.add_row("all", *map(format_money, (*sums.values(), books.total)), style="bold")
    by_trial = right_table("trial", "trained for")
    for trial, usd in list(books.trials.items())[:MOST_TRIALS]:
        if usd:
            by_trial.add_row(trial, format_money(usd))
    parts: list[RenderableType] = [part for table in forecast_tables(view) for part in (table, "")]
    parts.append(by_machine)
    if by_trial.rows:
        parts += ["", by_trial]
    return Group(*parts)


def ledger_dict(view: RunView) -> dict[str, Any]:
    books = ledger(view)
    return {
        "forecast": forecast_dict(view),
        "paid_usd": {**books.sums(), "total": books.total},
        "machines": [{**asdict(paid), "total": paid.total} for paid in books.machines],
        "trials": books.trials,
    }
