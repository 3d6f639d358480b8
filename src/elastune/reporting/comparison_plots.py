"""A picture of algorithms side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import BEST_COLOUR, FAINT_COLOUR, save, styled

# isort: split
import numpy as np
from matplotlib.figure import Figure

from elastune.reporting.comparison import Row, Standing, standings
from elastune.spec import Mode


def save_comparison(folder: Path, rows: Sequence[Row], metric: str, mode: Mode) -> list[Path]:
    return save(folder, {"comparison": comparison(rows, metric, mode)})


@styled
def comparison(rows: Sequence[Row], metric: str, mode: Mode) -> Figure:
    """Every run as a dot; the mean of each algorithm with its standard error, the best at the top."""
    sign = 1.0 if mode == "min" else -1.0
    found = [(each, each.mean) for each in standings(rows, mode) if each.mean is not None]
    found.sort(key=lambda pair: (pair[0].without, sign * pair[1]))
    figure = Figure(figsize=(8, max(2.4, 1.4 + 0.42 * len(found))), layout="constrained")
    axes = figure.add_subplot()
    for place, (each, mean) in enumerate(found):
        values = [row.value for row in rows if row.algorithm == each.algorithm and row.value is not None]
        spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [0.0]
        axes.scatter(values, place + np.array(spread), s=14, color=FAINT_COLOUR, alpha=0.6, linewidths=0)
        colour = BEST_COLOUR if each.best else "#303030"
        axes.errorbar(mean, place, xerr=each.standard_error or 0.0, fmt="D", color=colour, markersize=6, capsize=4)
    axes.set_yticks(range(len(found)), [_label(each) for each, _ in found])
    axes.set_ylim(max(len(found), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{metric} ({'less' if mode == 'min' else 'more'} is better): runs, mean and standard error")
    seeds = len({row.seed for row in rows})
    axes.set_title(f"{rows[0].task}, {seeds} seed{'s' * (seeds != 1)}")
    return figure


def _label(each: Standing) -> str:
    return f"{each.algorithm} ({each.without} without a result)" if each.without else each.algorithm
