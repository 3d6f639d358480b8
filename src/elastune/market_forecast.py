"""What a run on spot machines is expected to take and to cost: it is played, from several moments of the prices on.

The first is where the run itself begins; the last leaves as much of the record as that one took. A model of
revocation was trained on prices before the first, so none of them has been seen by it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.allocate.cheapest_step import CheapestStep
from elastune.allocate.in_time import InTime
from elastune.driver import Driver
from elastune.errors import RunFailed, SpecError
from elastune.experiment import Experiment
from elastune.forecast import as_text
from elastune.market.prices import format_date
from elastune.messages import RunStatus
from elastune.profile.latency import Floats
from elastune.reporting.spot import spot_dict
from elastune.spec import Limits
from elastune.units import format_device_time, format_duration, format_money

if TYPE_CHECKING:
    from elastune.simulation import Simulation

MOMENTS = 10


@dataclass(frozen=True, slots=True)
class Play:
    """The run as it would have gone, had it begun at a moment of the record. `on_demand_usd` is what the same machines
    would have cost on demand; `status` says whether it was done, or cut short by a limit.
    """

    begin_unix_s: float
    time_s: float
    cost_usd: float
    on_demand_usd: float
    machines: int
    on_demand_machines: int
    taken_away: int
    status: RunStatus
    reason: str


@dataclass(frozen=True, slots=True)
class MarketForecast:
    plays: tuple[Play, ...]
    limits: Limits
    endless: bool = False
    """Whether it trains until a limit ends it, so that being ended is not being cut short."""

    @property
    def time_s(self) -> Floats:
        """Of every play."""
        return np.array([play.time_s for play in self.plays])

    @property
    def cost_usd(self) -> Floats:
        return np.array([play.cost_usd for play in self.plays])

    @property
    def within_limits(self) -> bool:
        """Whether at least one play was done before a limit was reached."""
        return len(self._cut_short()) < len(self.plays)

    def to_dict(self) -> dict[str, Any]:
        return {
            "deadline_s": self.limits.deadline_s,
            "budget_usd": self.limits.budget_usd,
            "budget_device_s": self.limits.budget_device_s,
            **{name: _spread(self._all(name)) for name in ("time_s", "cost_usd", "on_demand_usd")},
            "cut_short": len(self._cut_short()),
            "plays": [asdict(play) for play in self.plays],
        }

    def tables(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("", style="bold")
        for name in ("least", "median", "most"):
            table.add_column(name, justify="right")
        rows: list[tuple[str, str, Callable[[float], str]]] = [
            ("time", "time_s", format_duration),
            ("cost", "cost_usd", format_money),
            ("the same on demand", "on_demand_usd", format_money),
            ("machines", "machines", "{:.0f}".format),
            ("  taken away", "taken_away", "{:.0f}".format),
            ("  on demand", "on_demand_machines", "{:.0f}".format),
        ]
        for label, name, text in rows:
            spread = _spread(self._all(name))
            table.add_row(label, *(text(spread[part]) for part in ("least", "median", "most")))
        return Group(table, "", *self._notes())

    def __str__(self) -> str:
        return as_text(self.tables())

    def save_plots(self, folder: str | Path) -> list[Path]:
        """Time and cost by the moment at which the run begins, as PNG and SVG."""
        from elastune.reporting.market_plots import save_plays

        begins = [play.begin_unix_s for play in self.plays]
        on_demand = np.array(self._all("on_demand_usd"))
        cut_short = [play in self._cut_short() for play in self.plays]
        return save_plays(Path(folder), begins, self.time_s, self.cost_usd, on_demand, self.limits, cut_short)

    def _notes(self) -> list[Text]:
        first, last = (format_date(self.plays[place].begin_unix_s) for place in (0, -1))
        when = f"{len(self.plays)} times, begun between {first} and {last}"
        if len(self.plays) == 1:
            when = f"once, begun on {first}: the record is too short for more"
        notes = [Text(f"played {when}; how long steps take is what simulation says", "dim")]
        cut_short = self._cut_short()
        if (limits := _limits(self.limits)) and not self.endless:
            kept = len(self.plays) - len(cut_short)
            notes.append(Text(f"{limits}: enough in {kept} of {len(self.plays)}"))
        for reason, number in Counter(play.reason for play in cut_short).items():
            notes.append(Text(f"cut short in {number} of {len(self.plays)}: {reason}", "yellow"))
        return notes

    def _cut_short(self) -> list[Play]:
        return [play for play in self.plays if play.status != "succeeded" and not self.endless]

    def _all(self, name: str) -> list[float]:
        return [getattr(play, name) for play in self.plays]


def market_forecast(experiment: Experiment, simulation: Simulation | None) -> MarketForecast:
    """Play the run, and write nothing."""
    if simulation is None or simulation.workload is None:
        raise SpecError(
            "market: what a run costs depends on how long its steps take: say it in the experiment file, simulation: "
            "{workload: {synthetic: {step: 5m}}}, or in Python, plan(Simulation(workload=Synthetic(...)))"
        )
    cloud = experiment.market
    assert cloud is not None and cloud.prices is not None
    first = _play(experiment, simulation, cloud.begin_unix_s)
    last_unix_s = max(cloud.prices[market].end_unix_s for market in cloud.kinds) - first.time_s * cloud.pace
    later = np.linspace(cloud.begin_unix_s, last_unix_s, MOMENTS)[1:] if last_unix_s > cloud.begin_unix_s else ()
    plays = (first, *(_play(experiment, simulation, float(begin)) for begin in later))
    endless = any(getattr(experiment.algorithm, name, 1) is None for name in ("n", "R"))
    return MarketForecast(plays, experiment.settings.limits, endless)


def _play(experiment: Experiment, simulation: Simulation, begin_unix_s: float) -> Play:
    """The run as it goes when it begins then. Models of revocation stay as they were trained."""
    allocator = copy.copy(experiment.allocator)
    assert isinstance(allocator, CheapestStep | InTime) and experiment.market is not None
    allocator.cloud = replace(experiment.market, begin_unix_s=begin_unix_s)
    begun = replace(experiment, allocator=allocator, market=allocator.cloud)
    view = Driver(begun, None, Path(), None).play(simulation)
    assert view.status != "running"
    if view.status == "interrupted":
        raise KeyboardInterrupt
    if view.status == "failed":
        raise RunFailed(f"begun on {format_date(begin_unix_s)} the run fails: {view.reason}")
    bill = spot_dict(view) or {"on_demand_usd": 0.0, "spot_machines": 0, "on_demand_machines": 0, "taken_away": 0}
    return Play(
        begin_unix_s=begin_unix_s,
        time_s=view.at_s,
        cost_usd=view.cost_usd(),
        on_demand_usd=bill["on_demand_usd"],
        machines=bill["spot_machines"] + bill["on_demand_machines"],
        on_demand_machines=bill["on_demand_machines"],
        taken_away=bill["taken_away"],
        status=view.status,
        reason=view.reason,
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"least": min(values), "median": float(np.median(values)), "most": max(values)}


def _limits(limits: Limits) -> str:
    told = [] if limits.deadline_s is None else [f"deadline {format_duration(limits.deadline_s)}"]
    if limits.budget_device_s is not None:
        told.append(f"budget {format_device_time(limits.budget_device_s)}")
    elif limits.budget_usd is not None:
        told.append(f"budget {format_money(limits.budget_usd)}")
    return " and ".join(told)
