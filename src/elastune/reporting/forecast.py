"""What was planned before the run, next to what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from rich.console import RenderableType
from rich.table import Table

from elastune.record.projection import RunView
from elastune.units import format_device_time, format_duration, format_money


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the plan at the start of a run expected; of a plan by the clock, what it allowed at most."""

    time_s: float
    cost_usd: float
    device_s: float | None = None
    """Time on devices that is paid for, where the plan says so."""


def forecast_of(view: RunView) -> Forecast | None:
    if (plan := view.started.plan) is not None:
        return Forecast(plan.finish_s, plan.cost_usd, plan.device_s)
    if not view.plans:
        return None
    _, first = view.plans[0]
    return Forecast(first.finish_s, first.cost_usd)


def forecast_text(view: RunView) -> str | None:
    """In one line, for the summary."""
    if (found := forecast_of(view)) is None:
        return None
    at_most = "at most " if view.started.plan is not None else ""
    amount = format_money(found.cost_usd)
    if found.device_s is not None and view.started.budget_device_s is not None:
        amount = f"{format_device_time(found.device_s)} ({amount})"
    return f"{at_most}{format_duration(found.time_s)}, {amount}"


def forecast_dict(view: RunView) -> dict[str, Any] | None:
    found, plan = forecast_of(view), view.started.plan
    if found is None:
        return None
    figures = {"time_s": found.time_s, "cost_usd": found.cost_usd}
    if plan is None:
        return figures
    rounds = [msgspec.structs.asdict(each) for each in plan.rounds]
    return {**figures, "device_s": plan.device_s, "machines": plan.machines, "rounds": rounds}


def forecast_tables(view: RunView) -> Iterator[RenderableType]:
    """Forecast and bill, then the plan, or every plan that was made."""
    if forecast_of(view) is not None:
        yield _forecast_table(view)
    if view.plans:
        yield _plans_table(view)
    if view.started.plan is not None and view.started.plan.rounds:
        yield _rounds_table(view)


class _Line(NamedTuple):
    name: str
    say: Callable[[float], str]
    planned: float
    actual: float


def _forecast_table(view: RunView) -> Table:
    found = forecast_of(view)
    assert found is not None
    lines = [_Line("time", format_duration, found.time_s, view.at_s)]
    if found.device_s is not None and view.started.budget_device_s is not None:
        lines.append(_Line("device time", format_device_time, found.device_s, view.paid_device_s()))
    if found.cost_usd or found.device_s is None:
        lines.append(_Line("cost", format_money, found.cost_usd, view.cost_usd()))
    at_most = view.started.plan is not None
    table = right_table("", "forecast (at most)" if at_most else "forecast", "actual", "off by")
    for name, say, planned, actual in lines:
        off = f"{actual / planned - 1:+.1%}" if planned else "-"
        table.add_row(name, say(planned), say(actual), off)
    return table


def _plans_table(view: RunView) -> Table:
    """Every plan that was made: the first, and at each barrier what was then expected of the whole run."""
    table = right_table("planned at", "done by", "cost", "machines")
    for at_s, plan in view.plans:
        machines = " + ".join(", ".join(str(stage.machines) for stage in stages) for stages in plan.brackets)
        table.add_row(format_duration(at_s), format_duration(plan.finish_s), format_money(plan.cost_usd), machines)
    return table


def _rounds_table(view: RunView) -> Table:
    """The rounds of a plan by the clock; machines are those of all brackets together."""
    plan = view.started.plan
    assert plan is not None
    several = any(each.bracket for each in plan.rounds)
    names = ("from", "to", *(["bracket"] if several else []), "trials", "devices per trial", "machines")
    table = right_table("planned round", *names)
    begun: set[float] = set()
    for each in plan.rounds:
        table.add_row(
            str(each.round),
            format_duration(each.begin_s),
            format_duration(each.end_s),
            *([str(each.bracket)] if several else []),
            str(each.trials),
            str(each.devices_per_trial),
            "" if each.begin_s in begun else str(each.machines),
        )
        begun.add(each.begin_s)
    return table


def right_table(first: str, *others: str) -> Table:
    """Plain columns, all but the first aligned to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
