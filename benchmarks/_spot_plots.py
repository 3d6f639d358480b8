"""Pictures of SpotTune's costs: bars of those compared, and what theta does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from _spot_tune import Outcome
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from elastune.reporting.plots import TRIAL_COLOURS, styled

Runs = Mapping[str, Sequence[Outcome]]


def save(folder: Path, compared: Mapping[str, Runs], thetas: Mapping[float, Runs]) -> None:
    folder.mkdir(exist_ok=True)
    bars(compared).savefig(folder / "spot_cost.png", dpi=120)
    by_theta(thetas).savefig(folder / "spot_theta.png", dpi=120)


@styled
def bars(compared: Mapping[str, Runs]) -> Figure:
    """Cost and hours by workload, after Figure 7."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    figure.suptitle("One run: 16 configurations", x=0.01, ha="left", weight="bold")
    workloads = list(next(iter(compared.values())))
    for number, (label, name) in enumerate((("dollars", "cost_usd"), ("hours", "hours")), 1):
        axes = figure.add_subplot(1, 2, number)
        width = 0.84 / len(compared)
        for place, (policy, runs) in enumerate(compared.items()):
            heights = [fmean(getattr(each, name) for each in runs[workload]) for workload in workloads]
            at = [x + (place - (len(compared) - 1) / 2) * width for x in range(len(workloads))]
            axes.bar(at, heights, width, color=TRIAL_COLOURS[place], label=policy if number == 1 else None)
        axes.set_xticks(range(len(workloads)), workloads)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


@styled
def by_theta(thetas: Mapping[float, Runs]) -> Figure:
    """Cost, hours and accuracy, after Figure 8."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    figure.suptitle("What theta does", x=0.01, ha="left", weight="bold")
    workloads = list(next(iter(thetas.values())))
    panels = (("dollars", "cost_usd"), ("hours", "hours"), ("the best is among three", "top_3"))
    for number, (label, name) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, number)
        for place, workload in enumerate(workloads):
            values = [fmean(getattr(each, name) for each in runs[workload]) for runs in thetas.values()]
            axes.plot(list(thetas), values, "o-", color=TRIAL_COLOURS[place], label=workload if number == 1 else None)
        axes.set_xlabel("theta")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=3)
    return figure
