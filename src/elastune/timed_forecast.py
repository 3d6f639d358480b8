"""What a run that is planned by the clock will do, before anything is paid: its rounds, machines and cost.

Time and cost are upper limits: rounds end by the clock at the latest, and machines that have become empty are given
back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.algorithm.elastic_hyperband import ByTheClock, ElasticHyperband, machines_held
from elastune.algorithm.seer import SEER
from elastune.algorithm.timed import TimedStage, Window
from elastune.cost import SECONDS_PER_HOUR
from elastune.forecast import as_text
from elastune.held_forecast import at_most
from elastune.messages import ClockPlan, PlannedRound
from elastune.profile.latency import Floats
from elastune.spec import Terms
from elastune.units import format_device_time, format_duration, format_money

Rounds = tuple[TimedStage, ...]


@dataclass(frozen=True, slots=True)
class TimedForecast:
    """Rounds one after the other, or several such sequences side by side, and the machines that they hold."""

    window: Window
    rounds: tuple[Rounds, ...]
    held: tuple[tuple[float, int], ...]
    """How many machines until when, all of them from the beginning."""
    instance: str | None
    limited_by_machines: bool = False
    """More would be held, if there were more."""
    races: bool = False
    """Whether others begin in place of those that fall behind."""

    @property
    def time_s(self) -> Floats:
        """At most; one number, as the only sample."""
        return np.array([self.held[-1][0] + self.window.closing_s])

    @property
    def cost_usd(self) -> Floats:
        """At most; one number, as the only sample."""
        terms = self.window.terms
        dollars = replace(self.window, price=terms.price_usd_per_device_hour, data=terms.data_usd)
        return np.array([dollars.cost(self.held)])

    @property
    def device_s(self) -> float:
        """Time on devices that is paid for."""
        return replace(self.window, price=1.0, data=0.0).cost(self.held) * SECONDS_PER_HOUR

    @property
    def unspent(self) -> float:
        """What the budget does not buy, in the unit that it is given in."""
        return self.window.budget - self.window.cost(self.held)

    @property
    def trials(self) -> int:
        return sum(rounds[0].trials for rounds in self.rounds)

    @property
    def finalists(self) -> int:
        """The trials that train until the end."""
        return sum(rounds[-1].trials for rounds in self.rounds)

    def rows(self) -> list[PlannedRound]:
        """As they begin."""
        rows, first = [], 0
        for rounds in self.rounds:
            for number, stage in enumerate(rounds):
                machines = next(held for until_s, held in self.held if until_s > stage.begin_s)
                for place, bracket in enumerate(stage.brackets):
                    go_on = None if number == len(rounds) - 1 else bracket.keep
                    what = (bracket.trials, bracket.width, machines, go_on, stage.begin_s, stage.until_s)
                    rows.append(PlannedRound(number, first + place, *what))
            first += len(rounds[0].brackets)
        return sorted((row for row in rows if row.trials), key=lambda row: (row.begin_s, row.bracket))

    def recorded(self) -> ClockPlan:
        """For the journal."""
        bill = float(self.time_s[0]), float(self.cost_usd[0]), self.device_s
        return ClockPlan(tuple(self.rows()), self.held[0][1], *bill)

    def to_dict(self) -> dict[str, Any]:
        terms = self.window.terms
        in_time = terms.limits.budget_device_s is not None
        return {
            **at_most(terms, self.instance, self.recorded()),
            "unspent_device_s" if in_time else "unspent_usd": self.unspent * (SECONDS_PER_HOUR if in_time else 1),
            "configurations": terms.configurations,
            "trials": self.trials,
            "finalists": self.finalists,
            "stages": [msgspec.structs.asdict(row) for row in self.rows()],
            "held": [{"until_s": until_s, "machines": machines} for until_s, machines in self.held],
            "limited_by_machines": self.limited_by_machines,
        }

    def tables(self) -> RenderableType:
        note = Text("at most: a round may end sooner, and a machine is given back when it is empty", "dim")
        hints = (Text(hint, "yellow") for hint in self._hints())
        return Group(self._stage_table(), "", self._summary(), note, *hints)

    def __str__(self) -> str:
        return as_text(self.tables())

    def save_plots(self, folder: str | Path) -> list[Path]:
        """The devices over time, trial by trial, as PNG and SVG."""
        from elastune.reporting.timed_plots import save_timed_plan

        window, devices = self.window, self.window.terms.devices
        held = [(until_s, machines * devices) for until_s, machines in self.held]
        strips = [strip for rounds in self.rounds for strip in _strips(rounds)]
        assert window.terms.limits.deadline_s is not None
        return save_timed_plan(Path(folder), strips, held, window.begin_s, window.terms.limits.deadline_s)

    def _stage_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        rows = self.rows()
        several = any(row.bracket for row in rows)
        for name in ("round", "from", "to", *(["bracket"] if several else [])):
            table.add_column(name, justify="right")
        for name in ("trials", "devices per trial", "machines", "go on"):
            table.add_column(name, justify="right")
        begun: set[float] = set()
        for row in rows:
            table.add_row(
                str(row.round),
                format_duration(row.begin_s),
                format_duration(row.end_s),
                *([str(row.bracket)] if several else []),
                str(row.trials),
                str(row.devices_per_trial),
                "" if row.begin_s in begun else str(row.machines),
                "" if row.go_on is None else str(row.go_on),
            )
            begun.add(row.begin_s)
        return table

    def _summary(self) -> Table:
        window, terms = self.window, self.window.terms
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        others = ", more as some fall behind" if self.races else ""
        if self.trials == terms.configurations:
            others = ", all that the grid has"
        grid.add_row("trials", f"{self.trials} begin{others}; {self.finalists} train until the end")
        deadline = format_duration(terms.limits.deadline_s or 0.0)
        grid.add_row("time", f"at most {format_duration(float(self.time_s[0]))} of {deadline}")
        grid.add_row("cost", f"at most {self._cost()} of {window.say(window.budget)}")
        grid.add_row("unspent", window.say(self.unspent))
        grid.add_row("machines", f"{self._machine()}; at most {self.held[0][1]} at once, of {terms.machines}")
        return grid

    def _cost(self) -> str:
        in_time = self.window.terms.limits.budget_device_s is not None
        dollars = format_money(float(self.cost_usd[0]))
        if not in_time:
            return dollars
        return format_device_time(self.device_s) + (f" ({dollars})" if self.cost_usd[0] else "")

    def _machine(self) -> str:
        terms = self.window.terms
        price_usd = terms.price_usd_per_device_hour * terms.devices
        price = f", {format_money(price_usd)}/h" if price_usd else ""
        named = "" if self.instance is None else f"{self.instance}: "
        return f"{named}{terms.devices} device{'s' * (terms.devices != 1)}{price}"

    def _hints(self) -> Iterator[str]:
        if self.limited_by_machines:
            terms = self.window.terms
            yield f"limited by machines={terms.machines}: more would allow more trials, or wider ones"


def timed_forecast(algorithm: ByTheClock, terms: Terms, instance: str | None) -> TimedForecast:
    """What an algorithm has planned with these terms, and whether it would with more machines."""
    more = copy.deepcopy(algorithm)
    more.prepare(replace(terms, machines=2 * terms.machines))
    limited = _held(more, terms.devices)[0][1] > terms.machines
    return replace(as_planned(algorithm, terms, instance), limited_by_machines=limited)


def as_planned(algorithm: ByTheClock, terms: Terms, instance: str | None = None) -> TimedForecast:
    """The same without a second plan to compare with."""
    window = Window.of(terms, type(algorithm).__name__)
    races = isinstance(algorithm, SEER) and algorithm.race
    return TimedForecast(window, _rounds(algorithm), _held(algorithm, terms.devices), instance, races=races)


def paths(rounds: Rounds) -> list[tuple[int, ...]]:
    """For each trial its bracket in every round that it is in, as far as that can be said before: whoever goes on is
    taken to stay in its bracket, where that has had room.
    """
    found: list[tuple[int, ...]] = []
    for stage in reversed(rounds):
        room = [bracket.trials for bracket in stage.brackets]
        going_on, found = found, []
        for path in going_on:
            here = path[0] if path[0] < len(room) and room[path[0]] else next(i for i, left in enumerate(room) if left)
            room[here] -= 1
            found.append((here, *path))
        found += [(place,) for place, left in enumerate(room) for _ in range(left)]
    return found


def _strips(rounds: Rounds) -> Iterator[tuple[Sequence[tuple[float, float, int]], bool]]:
    """From when to when each trial has how many devices, and whether it trains until the end."""
    for path in paths(rounds):
        stages = zip(rounds, path, strict=False)
        parts = [(stage.begin_s, stage.until_s, stage.brackets[place].width) for stage, place in stages]
        yield parts, len(path) == len(rounds)


def _rounds(algorithm: ByTheClock) -> tuple[Rounds, ...]:
    if isinstance(algorithm, ElasticHyperband):
        return tuple(bracket.plan for bracket in algorithm.brackets)
    return (algorithm.plan,)


def _held(algorithm: ByTheClock, devices: int) -> tuple[tuple[float, int], ...]:
    """Machines that a later round needs are held from the beginning."""
    rounds = _rounds(algorithm)
    if len(rounds) == 1:
        ends = [(stage.until_s, stage.machines) for stage in rounds[0]]
    else:
        ends = machines_held(rounds, devices)
    return tuple((until_s, max(machines for _, machines in ends[place:])) for place, (until_s, _) in enumerate(ends))
