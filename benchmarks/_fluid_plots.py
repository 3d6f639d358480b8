"""Pictures of Fluid's experiments: bars of groups, and how the best value becomes better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from _fluid_tasks import Task
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastune.reporting.plots import TRIAL_COLOURS, styled

Bar = tuple[float, float]
"""A mean, and the standard deviation."""
Course = Sequence[tuple[float, float, float]]
"""Of one run: seconds, device-seconds, and the best value from then on."""
POINTS = 200


@styled
def bars(panels: Mapping[str, Mapping[str, Mapping[str, Bar]]], title: str, label: str, line: float | None) -> Figure:
    """By panel, group and series. With `line`, where nothing is gained."""
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    series = list(dict.fromkeys(name for groups in panels.values() for group in groups.values() for name in group))
    for number, (panel, groups) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        for place, name in enumerate(series):
            at = [(x, group[name]) for x, group in enumerate(groups.values()) if name in group]
            width = 0.8 / len(series)
            axes.bar(
                [x + (place - (len(series) - 1) / 2) * width for x, _ in at],
                [mean for _, (mean, _) in at],
                width,
                yerr=[deviation for _, (_, deviation) in at],
                color=TRIAL_COLOURS[place],
                label=name if number == 1 else None,
                error_kw={"elinewidth": 1, "capsize": 2},
            )
        axes.set_ylim(bottom=0)
        if line is not None:
            axes.axhline(line, color="#303030", linewidth=0.8)
        axes.set_xticks(range(len(groups)), list(groups), rotation=20 if len(groups) > 3 else 0)
        axes.set_title(panel)
        if number == 1:
            axes.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=len(series))
    return figure


@dataclass(frozen=True, slots=True)
class Panel:
    """The runs of each series, by time or by time on devices."""

    title: str
    courses: Mapping[str, Sequence[Course]]
    column: Literal[0, 1] = 0


@styled
def best_so_far(known: Task, panels: Sequence[Panel], title: str) -> Figure:
    """The mean over the runs of each, from when all of them have a value. All panels have the same series."""
    figure = Figure(figsize=(4.4 * len(panels), 3.8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), number)
        for place, (name, runs) in enumerate(panel.courses.items()):
            _mean(axes, runs, panel.column, name if number == 1 else None, TRIAL_COLOURS[place])
        axes.axhline(known.target, color="#303030", linewidth=0.8, linestyle="dotted")
        axes.set_title(panel.title)
        axes.set_xlabel(("hours", "device-hours")[panel.column])
        axes.set_xscale("log")
        if number == 1:
            axes.set_ylabel(f"best {known.metric}")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _mean(axes: Axes, runs: Sequence[Course], column: Literal[0, 1], name: str | None, colour: str) -> None:
    times = np.geomspace(max(run[0][column] for run in runs), max(run[-1][column] for run in runs), POINTS)
    values = [[step[2] for step in run] for run in runs]
    at = [np.searchsorted([step[column] for step in run], times, side="right") - 1 for run in runs]
    means = np.mean([np.array(each)[where.clip(0)] for each, where in zip(values, at, strict=True)], axis=0)
    axes.plot(times / 3600.0, means, color=colour, label=name)
