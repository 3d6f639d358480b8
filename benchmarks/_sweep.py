"""A picture of how good algorithms are as the deadline or the budget grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastune.reporting.comparison import Standing
from elastune.reporting.plots import DASHES, TRIAL_COLOURS, styled
from elastune.spec import Mode

MARKERS = "os^DvPX*h"


@styled
def sweep(
    points: Mapping[float, Sequence[Standing]], across: str, metric: str, mode: Mode, title: str, order: Sequence[str]
) -> Figure:
    """The mean of every algorithm, with its standard error, at each of the points of a logarithmic axis. `order` gives
    the algorithms their colours, so that they have the same in several pictures.
    """
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_ylabel(metric)
    for number, algorithm in enumerate(order):
        at = [
            (point * 1.015 ** (number - len(order) / 2), each.mean, each.standard_error or 0.0)
            for point, found in sorted(points.items())  # shifted, so that bars do not hide each other
            for each in found
            if each.algorithm == algorithm and each.mean is not None
        ]
        if at:
            x, means, errors = zip(*at, strict=True)
            axes.errorbar(
                x, means, yerr=errors, color=TRIAL_COLOURS[number % len(TRIAL_COLOURS)], label=algorithm,
                marker=MARKERS[number % len(MARKERS)], linestyle=DASHES[number // len(TRIAL_COLOURS) % len(DASHES)],
                linewidth=2.2 if number == 0 else 1.4, elinewidth=1, capsize=2.5, markersize=5, zorder=3 - number / 100,
            )  # fmt: skip
    _leave_out_the_hopeless(axes, [each for found in points.values() for each in found], metric, mode)
    axes.set_xscale("log")
    axes.set_xticks(sorted(points), [f"{point:g}" for point in sorted(points)])
    axes.minorticks_off()
    axes.set_xlabel(across)
    axes.set_title(title)
    figure.legend(loc="outside right upper", title="mean ± standard error", alignment="left")
    return figure


def _leave_out_the_hopeless(axes: Axes, found: Sequence[Standing], metric: str, mode: Mode) -> None:
    """They would squeeze all others flat; how many points are not shown is said."""
    sign = 1.0 if mode == "min" else -1.0
    means = np.array([(sign * each.mean, each.standard_error or 0.0) for each in found if each.mean is not None])
    badness = means[:, 0]
    best, usual = badness.min(), np.percentile(badness, 75)
    hopeless = badness > usual + (usual - best)
    if not hopeless.any() or usual == best:
        return
    low, high = (means[:, 0] - means[:, 1]).min(), (means[:, 0] + means[:, 1])[~hopeless].max()
    margin = 0.05 * (high - low)
    axes.set_ylim(*sorted((sign * (low - margin), sign * (high + margin))))
    beyond = int(hopeless.sum())
    axes.set_ylabel(f"{metric} ({beyond} mean{'s' * (beyond != 1)} beyond the axis)")
