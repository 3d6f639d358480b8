"""A picture of how the best configuration so far becomes better, after Ultron's Figure 12."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from elastune.reporting.plots import TRIAL_COLOURS, styled

Floats = NDArray[np.float64]


@styled
def best_so_far(regrets: Mapping[str, Floats], title: str) -> Figure:
    """Regrets by run and configuration: the median of the runs, and between which the middle half of them lie."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, runs) in enumerate(regrets.items()):
        tried = np.arange(1, runs.shape[1] + 1)
        low, middle, high = np.quantile(runs, (0.25, 0.5, 0.75), axis=0)
        colour = TRIAL_COLOURS[number]
        axes.fill_between(tried, low, high, step="post", color=colour, alpha=0.13, linewidth=0)
        axes.step(tried, middle, where="post", color=colour, label=name, linewidth=1.8, zorder=3 - number / 100)
    axes.set_yscale("log")
    axes.set_xlim(1, tried[-1])
    axes.set_xlabel("configurations tried")
    axes.set_ylabel("regret: loss above the best of the table")
    axes.set_title(title)
    axes.legend(title="median, and the middle half of the runs", alignment="left")
    return figure
