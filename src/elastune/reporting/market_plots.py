"""A picture of what a run on a market takes and costs, by the moment at which it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import BEST_COLOUR, FAINT_COLOUR, LIMIT_COLOUR, save, styled, time_unit
from elastune.reporting.price_plots import as_dates, date_axis

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastune.market.prices import Floats
from elastune.spec import Limits


def save_plays(
    folder: Path,
    begins: Sequence[float],
    time_s: Floats,
    cost_usd: Floats,
    on_demand_usd: Floats,
    limits: Limits,
    cut_short: Sequence[bool],
) -> list[Path]:
    return save(folder, {"market": by_moment(begins, time_s, cost_usd, on_demand_usd, limits, cut_short)})


@styled
def by_moment(
    begins: Sequence[float],
    time_s: Floats,
    cost_usd: Floats,
    on_demand_usd: Floats,
    limits: Limits,
    cut_short: Sequence[bool],
) -> Figure:
    """What was cut short by a limit is a ring: nobody knows what all of it would have taken."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    top, bottom = figure.subplots(2, sharex=True)
    dates, cut = as_dates(np.array(begins)), np.array(cut_short, dtype=bool)
    top.vlines(dates, cost_usd, on_demand_usd, color=FAINT_COLOUR, linewidth=0.8)
    top.plot(dates, cost_usd, "o", color=BEST_COLOUR, label="this run")
    top.plot(dates, on_demand_usd, "_", color=FAINT_COLOUR, markersize=12, label="the same machines on demand")
    _limit(top, limits.budget_usd, "budget", "dashed")
    top.set_ylabel("dollars")
    top.set_title("Cost and time, by the moment at which the run begins")
    unit_s, unit = time_unit(max(*time_s, limits.deadline_s or 0.0))
    bottom.plot(dates, time_s / unit_s, "o", color=BEST_COLOUR)
    _limit(bottom, None if limits.deadline_s is None else limits.deadline_s / unit_s, "deadline", "solid")
    bottom.set_ylabel(f"time ({unit})")
    for axes, ends in ((top, cost_usd), (bottom, time_s / unit_s)) if cut.any() else ():
        label = "cut short" if axes is top else None
        axes.plot(dates[cut], ends[cut], "o", color=BEST_COLOUR, markerfacecolor="white", label=label)
    for axes in (top, bottom):
        axes.set_ylim(0, 1.08 * axes.dataLim.y1 or 1.0)  # else what is all alike would be cut off at the edge
    date_axis(bottom)
    figure.legend(loc="outside lower center", ncols=5)
    return figure


def _limit(axes: Axes, limit: float | None, name: str, style: str) -> None:
    if limit is not None:
        axes.axhline(limit, color=LIMIT_COLOUR, linewidth=1.2, linestyle=style, label=name)
