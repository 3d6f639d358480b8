"""A picture of whether what is said to be 30% likely happens in 30 of 100 cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import FAINT_COLOUR, TRIAL_COLOURS, save, styled

# isort: split
from matplotlib.figure import Figure

from elastune.market.evaluation import Evaluation


def save_calibration(folder: Path, found: Mapping[str, Evaluation]) -> list[Path]:
    return save(folder, {"calibration": calibration(found)})


@styled
def calibration(found: Mapping[str, Evaluation]) -> Figure:
    """A line for each model; the dots are the larger the more often such a probability was said."""
    figure = Figure(figsize=(6, 5.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=FAINT_COLOUR, linewidth=1, linestyle="dashed", label="calibrated")
    for place, (name, each) in enumerate(found.items()):
        predicted, observed = [bin.predicted for bin in each.curve], [bin.observed for bin in each.curve]
        total = sum(bin.samples for bin in each.curve)
        colour = TRIAL_COLOURS[place % len(TRIAL_COLOURS)]
        axes.plot(predicted, observed, color=colour, label=name)
        axes.scatter(predicted, observed, s=[12 + 150 * bin.samples / total for bin in each.curve], color=colour)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability of a revocation", ylabel="share that was revoked")
    axes.set_title("Calibration")
    axes.legend(loc="upper left")
    return figure
