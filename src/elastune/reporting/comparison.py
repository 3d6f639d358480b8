"""Algorithms side by side: what each found on a task, seed by seed, as tables and as CSV."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.errors import SpecError
from elastune.reporting.tables import number
from elastune.spec import Mode
from elastune.units import format_amount, format_device_time, format_duration, format_money, unit_of_device_time


@dataclass(frozen=True, slots=True)
class Row:
    """One run. `value` is the best of all reports; None: there was none until the run had to end."""

    task: str
    algorithm: str
    seed: int
    value: float | None
    time_s: float
    deadline_s: float
    cost_usd: float
    budget_usd: float | None
    device_s: float
    """Time on devices that was paid for."""
    budget_device_s: float | None
    trials: int
    """That were begun."""
    iterations: int
    """Of all trials together."""


@dataclass(frozen=True, slots=True)
class Standing:
    """An algorithm on a task, over all seeds. The mean is that of the runs with a value; `without` counts the others.

    `wins`: on how many seeds nobody was better; those who tie all win. `best`: nobody has a better mean; who has fewer
    runs without a value goes first.
    """

    task: str
    algorithm: str
    runs: int
    without: int
    mean: float | None
    standard_error: float | None
    """Of the mean; None for fewer than two values."""
    wins: int
    best: bool
    time_s: float
    cost_usd: float
    device_s: float
    trials: float


def standings(rows: Sequence[Row], mode: Mode) -> list[Standing]:
    """Of the rows of one task: a line for each algorithm, in the order in which they come."""
    sign = 1.0 if mode == "min" else -1.0
    by_algorithm: dict[str, list[Row]] = {}
    for row in rows:
        by_algorithm.setdefault(row.algorithm, []).append(row)
    wins = _wins(rows, sign)
    ranks = {algorithm: _rank(ran, sign) for algorithm, ran in by_algorithm.items()}
    first = min(ranks.values(), default=None)
    found = []
    for algorithm, ran in by_algorithm.items():
        values = _values(ran)
        found.append(
            Standing(
                task=ran[0].task,
                algorithm=algorithm,
                runs=len(ran),
                without=len(ran) - len(values),
                mean=fmean(values) if values else None,
                standard_error=stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None,
                wins=wins[algorithm],
                best=bool(values) and ranks[algorithm] == first,
                time_s=fmean(row.time_s for row in ran),
                cost_usd=fmean(row.cost_usd for row in ran),
                device_s=fmean(row.device_s for row in ran),
                trials=fmean(row.trials for row in ran),
            )
        )
    return found


def _values(rows: Sequence[Row]) -> list[float]:
    return [row.value for row in rows if row.value is not None]


def _rank(rows: Sequence[Row], sign: float) -> tuple[int, float]:
    values = _values(rows)
    return len(rows) - len(values), sign * fmean(values) if values else math.inf


def _wins(rows: Sequence[Row], sign: float) -> Counter[str]:
    with_values = [(row, sign * row.value) for row in rows if row.value is not None]
    least: dict[int, float] = {}
    for row, loss in with_values:
        least[row.seed] = min(loss, least.get(row.seed, math.inf))
    return Counter(row.algorithm for row, loss in with_values if loss == least[row.seed])


def comparison_table(found: Sequence[Standing], rows: Sequence[Row], metric: str, mode: Mode) -> RenderableType:
    """The best first. What was paid is shown as time on devices where the budget is given so or they have no price."""
    first, seeds = rows[0], len({row.seed for row in rows})
    limits = f"by {format_duration(first.deadline_s)}"
    if first.budget_usd is not None:
        limits += f" and for {format_money(first.budget_usd)}"
    if first.budget_device_s is not None:
        limits += f" and for {format_device_time(first.budget_device_s)}"
    better = "less is better" if mode == "min" else "more is better"
    title = f"{first.task}: {metric} ({better}) {limits}, {seeds} seed{'s' * (seeds != 1)}"
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("algorithm")
    without = any(each.without for each in found)
    in_time = first.budget_device_s is not None or not any(row.cost_usd for row in rows)
    # In one unit, so that a column can be compared: that of the budget.
    unit_s, unit = unit_of_device_time(first.budget_device_s or max(each.device_s for each in found))
    paid = unit if in_time else "cost"
    for name in (f"mean {metric}", "std. error", "wins", *(["no result"] if without else []), "time", paid, "trials"):
        table.add_column(name, justify="right", no_wrap=True)
    sign = 1.0 if mode == "min" else -1.0
    for each in sorted(found, key=lambda each: (each.without, math.inf if each.mean is None else sign * each.mean)):
        table.add_row(
            Text(each.algorithm),
            number(each.mean),
            "-" if each.standard_error is None else f"{each.standard_error:.2g}",
            str(each.wins),
            *([str(each.without)] if without else []),
            format_duration(each.time_s),
            format_amount(each.device_s / unit_s) if in_time else format_money(each.cost_usd),
            f"{each.trials:.4g}",
            style="bold" if each.best else None,
        )
    return Group(Text(title), Text(), table)


def write_csv(path: Path, rows: Sequence[Row] | Sequence[Standing]) -> None:
    """A line for each, below a line with the names of the fields; what is None is left empty."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}; give another file") from None
