"""What a run is expected to take and to cost, before anything is paid: for people, for machines and as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.allocate.planned import Planned
from elastune.cost import SECONDS_PER_HOUR
from elastune.plan.dag import dot, to_dag
from elastune.plan.estimate import Estimate, estimate
from elastune.plan.exact import frontier
from elastune.plan.greedy import greedy
from elastune.plan.model import Candidate, Job, cheapest
from elastune.plan.naive import naive_plans
from elastune.plan.static import static_plans
from elastune.profile.latency import Floats
from elastune.units import format_duration, format_money

MOST_DEADLINES = 8
"""How many points of the frontier the table has."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The plan that was chosen, bracket by bracket, what it is expected to do, and what others would."""

    jobs: tuple[Job, ...]
    chosen: tuple[Candidate, ...]
    expected: tuple[Estimate, ...]
    deadline_s: float | None
    others: dict[str, tuple[float, float] | None]
    """Time and cost of static, naive elastic and greedy plans by the same deadline; None: they miss it."""
    deadlines: tuple[tuple[float, float], ...]
    """The cheapest cost for every deadline at which it changes."""

    @property
    def time_s(self) -> Floats:
        """Of every sample."""
        latest: Floats = np.max([_spread(each.time_s, self._draws) for each in self.expected], axis=0)
        return latest

    @property
    def cost_usd(self) -> Floats:
        total: Floats = np.sum([_spread(each.cost_usd, self._draws) for each in self.expected], axis=0)
        return total

    @property
    def _draws(self) -> int:
        return max(len(each.time_s) for each in self.expected)

    def stages(self) -> list[dict[str, Any]]:
        """Row by row: what each stage gets, how long it takes and what it costs."""
        rows = []
        for number, (job, candidate, expected) in enumerate(zip(self.jobs, self.chosen, self.expected, strict=True)):
            begins_s = [0.0, *(float(end_s.mean()) for end_s in expected.end_s)]
            for place, stage in enumerate(candidate.plan.stages):
                rows.append(
                    {
                        "bracket": number,
                        "stage": place,
                        "trials": stage.trials,
                        "iterations": stage.iterations,
                        "devices_per_trial": stage.width,
                        "machines": stage.machines,
                        "at_once": min(stage.trials, stage.devices // stage.width),
                        "asked_for_ahead": stage.ask_s is not None,
                        "begin_s": begins_s[place],
                        "end_s": begins_s[place + 1],
                        "cost_usd": _stage_usd(job, candidate, expected, place),
                    }
                )
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "deadline_s": self.deadline_s,
            "time_s": _figures(self.time_s),
            "cost_usd": _figures(self.cost_usd),
            "stages": self.stages(),
            "others": {
                name: None if found is None else {"time_s": found[0], "cost_usd": found[1]}
                for name, found in self.others.items()
            },
            "frontier": [{"time_s": time_s, "cost_usd": cost_usd} for time_s, cost_usd in self.deadlines],
        }

    def tables(self) -> RenderableType:
        return Group(self._stage_table(), "", self._summary(), "", self._comparison(), "", self._deadline_table())

    def __str__(self) -> str:
        return as_text(self.tables())

    def save_plots(self, folder: str | Path) -> list[Path]:
        """The machines over time, and the cheapest cost for every deadline, as PNG and SVG."""
        from elastune.reporting.plan_plots import save_plan

        peers = {name: found for name, found in self.others.items() if found is not None}
        ours = (float(self.time_s.mean()), float(self.cost_usd.mean()))
        machines = [each.changes for each in self.expected]
        ends = [[float(end_s.mean()) for end_s in each.end_s] for each in self.expected]
        return save_plan(Path(folder), machines, ends, self.deadlines, ours, peers, self.deadline_s)

    def dot(self) -> str:
        """The execution model as graphs for graphviz: machines asked for and booting, trials, barriers."""
        graphs = zip(self.jobs, self.chosen, strict=True)
        return "\n".join(dot(to_dag(job, candidate.plan)) for job, candidate in graphs)

    def _stage_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        several = len(self.jobs) > 1
        for name in (*(["bracket"] if several else []), "stage", "trials", "iterations", "devices per trial"):
            table.add_column(name, justify="right")
        for name in ("machines", "minutes", "dollars"):
            table.add_column(name, justify="right")
        table.add_column("")
        for row in self.stages():
            queued = row["trials"] - row["at_once"]
            notes = [f"{row['at_once']} at once"] * (queued > 0) + ["asked for ahead"] * row["asked_for_ahead"]
            table.add_row(
                *([str(row["bracket"])] if several else []),
                *(str(row[name]) for name in ("stage", "trials", "iterations", "devices_per_trial", "machines")),
                f"{(row['end_s'] - row['begin_s']) / 60:.1f}",
                format_money(row["cost_usd"]).removeprefix("$"),
                Text(", ".join(notes), "dim"),
            )
        rest_usd = float(self.cost_usd.mean()) - sum(row["cost_usd"] for row in self.stages())
        if rest_usd >= 0.005 * float(self.cost_usd.mean()):
            rest = format_money(rest_usd).removeprefix("$")
            table.add_row(*[""] * (6 + several), rest, Text("data, minimum charges", "dim"))
        return table

    def _summary(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        margin = "" if self.deadline_s is None else f" of {format_duration(self.deadline_s)}"
        grid.add_row("time", _span(format_duration, self.time_s) + margin)
        grid.add_row("cost", _span(format_money, self.cost_usd))
        cloud = self.jobs[0].cloud
        price = f"{cloud.devices} device{'s' * (cloud.devices != 1)}, {format_money(cloud.price_usd_per_hour)}/h"
        grid.add_row("machines", f"{cloud.instance}: {price}")
        return grid

    def _comparison(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("instead of this plan")
        for name in ("time", "cost", ""):
            table.add_column(name, justify="right")
        ours = float(self.cost_usd.mean())
        for name, found in self.others.items():
            if found is None:
                table.add_row(name, "-", "-", Text(f"not in time with {self.jobs[0].machines} machines", "dim"))
            else:
                ratio = f"{found[1] / ours:.2f}x" if ours else ""
                table.add_row(name, format_duration(found[0]), format_money(found[1]), ratio)
        return table

    def _deadline_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("done by", justify="right")
        table.add_column("cheapest", justify="right")
        table.add_column("")
        step = max(1, -(-len(self.deadlines) // MOST_DEADLINES))
        ours = _together(self.chosen)
        assert ours is not None
        others = {point for point in {*self.deadlines[::step], self.deadlines[-1]} if not np.allclose(point, ours)}
        for point in sorted({*others, ours}):
            note = Text("this plan" if point == ours else "", "dim")
            table.add_row(format_duration(point[0]), format_money(point[1]), note)
        return table


def as_text(tables: RenderableType) -> str:
    console = Console(width=100)
    with console.capture() as text:
        console.print(tables)
    return text.get()


def forecast(allocator: Planned) -> Forecast:
    """Plan what the allocator is about to carry out. Raises Infeasible where it cannot be."""
    goal, jobs = allocator.goal, allocator.jobs()
    chosen = allocator.prepare()
    done_s = max(candidate.time_s for candidate in chosen)
    deadline_s = done_s if goal.deadline_s is None else goal.deadline_s
    fronts = [frontier(job, early_release=goal.early_release, boot_ahead=goal.boot_ahead) for job in jobs]
    others = {
        "static cluster": _together([cheapest(static_plans(job), deadline_s) for job in jobs]),
        "naive elastic": _together([cheapest(naive_plans(job), deadline_s) for job in jobs]),
        "greedy (RubberBand)": _together([greedy(job, deadline_s) for job in jobs]),
    }
    expected = tuple(estimate(job, candidate.plan) for job, candidate in zip(jobs, chosen, strict=True))
    return Forecast(tuple(jobs), tuple(chosen), expected, goal.deadline_s, others, _deadlines(fronts))


def _together(found: Sequence[Candidate | None]) -> tuple[float, float] | None:
    """Side by side: the latest end, and all costs; None if one misses the deadline."""
    plans = [candidate for candidate in found if candidate is not None]
    if len(plans) < len(found):
        return None
    return max(plan.time_s for plan in plans), sum(plan.cost_usd for plan in plans)


def _deadlines(fronts: Sequence[list[Candidate]]) -> tuple[tuple[float, float], ...]:
    points: list[tuple[float, float]] = []
    for time_s in sorted({candidate.time_s for front in fronts for candidate in front}):
        total = _together([cheapest(front, time_s) for front in fronts])
        if total is not None and (not points or total[1] < points[-1][1]):
            points.append((time_s, total[1]))
    return tuple(points)


def _stage_usd(job: Job, candidate: Candidate, expected: Estimate, place: int) -> float:
    """What is paid between two barriers; minimum charges and data are not in it."""
    if job.cloud.billing == "function":
        return float(job.busy_usd(place, candidate.plan.stages[place].width).mean())
    begin_s = float(expected.end_s[place - 1].mean()) if place else 0.0
    end_s = float(expected.end_s[place].mean())
    machine_s, held, since_s = 0.0, 0, begin_s
    for when_s, count in (*expected.changes, (end_s, 0)):
        until_s = min(max(when_s, begin_s), end_s)
        machine_s, since_s = machine_s + held * (until_s - since_s), until_s
        held += count
    return machine_s * job.cloud.price_usd_per_hour / SECONDS_PER_HOUR


def _spread(values: Floats, draws: int) -> Floats:
    """Where nothing varies one sample stands for all."""
    return values if len(values) == draws else np.full(draws, values[0])


def _figures(values: Floats) -> dict[str, float]:
    low, median, high = (float(value) for value in np.quantile(values, (0.05, 0.5, 0.95)))
    return {"mean": float(values.mean()), "std": float(values.std()), "p5": low, "p50": median, "p95": high}


def _span(say: Any, values: Floats) -> str:
    figures = _figures(values)
    if not figures["std"]:
        return str(say(figures["mean"]))
    return f"{say(figures['mean'])} (90% of the time {say(figures['p5'])} to {say(figures['p95'])})"
