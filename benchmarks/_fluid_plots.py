"""Pictures of Fluid's experiments: bars of groups, and how the best value becomes better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from _fluid_tasks import Task
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastune.reporting.plots import DASHES, TRIAL_COLOURS, styled

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
        if line is not None:
            axes.axhline(line, color="#303030", linewidth=0.8)
        axes.set_xticks(range(len(groups)), list(groups), rotation=20 if len(groups) > 3 else 0)
        axes.set_title(panel)
        if number == 1:
            axes.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=len(series))
    return figure


@styled
def best_so_far(known: Task, courses: Mapping[str, Sequence[Course]], title: str, *, device_time: bool) -> Figure:
    """The mean over the runs of each, from when all of them have a value; by time, and by time on devices."""
    axes_by: tuple[Literal[0, 1], ...] = (0, 1) if device_time else (0,)
    figure = Figure(figsize=(5.2 * len(axes_by), 3.8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    for number, column in enumerate(axes_by, 1):
        axes = figure.add_subplot(1, len(axes_by), number)
        for place, (name, runs) in enumerate(courses.items()):
            _mean(axes, runs, column, name if number == 1 else None, place)
        axes.axhline(known.target, color="#303030", linewidth=0.8, linestyle="dotted")
        axes.set_xlabel("hours" if column == 0 else "device-hours")
        axes.set_ylabel(f"best {known.metric}")
        axes.set_xscale("log")
    figure.legend(loc="outside lower center", ncols=min(len(courses), 4))
    return figure


def _mean(axes: Axes, runs: Sequence[Course], column: Literal[0, 1], name: str | None, place: int) -> None:
    times = np.geomspace(max(run[0][column] for run in runs), max(run[-1][column] for run in runs), POINTS)
    values = [[step[2] for step in run] for run in runs]
    at = [np.searchsorted([step[column] for step in run], times, side="right") - 1 for run in runs]
    means = np.mean([np.array(each)[where.clip(0)] for each, where in zip(values, at, strict=True)], axis=0)
    colour, dashes = TRIAL_COLOURS[place % len(TRIAL_COLOURS)], DASHES[place // len(TRIAL_COLOURS) % len(DASHES)]
    axes.plot(times / 3600.0, means, color=colour, linestyle=dashes, label=name)
