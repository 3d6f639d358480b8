"""Pictures of a plan: the machines over time, and what every deadline would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import BEST_COLOUR, FAINT_COLOUR, LIMIT_COLOUR, TRIAL_COLOURS, save, styled, time_unit
from elastune.spec import Width

# isort: split
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Changes = Sequence[tuple[float, int]]
Point = tuple[float, float]


def save_plan(
    folder: Path,
    machines: Sequence[Changes],
    ends_s: Sequence[Sequence[float]],
    deadlines: Sequence[Point],
    ours: Point,
    others: Mapping[str, Point],
    deadline_s: float | None,
) -> list[Path]:
    return save(
        folder,
        {
            "plan": machines_over_time(machines, ends_s, deadline_s),
            "frontier": cost_by_deadline(deadlines, ours, others, deadline_s),
        },
    )


@styled
def machines_over_time(
    machines: Sequence[Changes], ends_s: Sequence[Sequence[float]], deadline_s: float | None
) -> Figure:
    """How many machines are held, one area on top of the other for brackets that run side by side."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    last_s = max(max(ends) for ends in ends_s)
    unit_s, unit = time_unit(max(last_s, deadline_s or 0.0))
    times = sorted({0.0, last_s, *(when_s for changes in machines for when_s, _ in changes)})
    below = [0.0] * len(times)
    for number, changes in enumerate(machines):
        held = [sum(count for when_s, count in changes if when_s <= time_s) for time_s in times]
        top = [low + count for low, count in zip(below, held, strict=True)]
        label = f"bracket {number}" if len(machines) > 1 else None
        colour = TRIAL_COLOURS[number % len(TRIAL_COLOURS)]
        axes.fill_between(
            [time_s / unit_s for time_s in times], below, top, step="post", color=colour, alpha=0.75, lw=0, label=label
        )
        below = top
    for end_s in ends_s[0] if len(ends_s) == 1 else ():
        axes.axvline(end_s / unit_s, color=FAINT_COLOUR, lw=0.8, ls="dotted")
    if deadline_s is not None:
        axes.axvline(deadline_s / unit_s, color=LIMIT_COLOUR, lw=1.2, label="deadline")
    if len(machines) > 1 or deadline_s is not None:
        axes.legend(loc="upper center")
    axes.set_ylim(0, max(below) * 1.08)
    axes.set_xlim(0, max(last_s, deadline_s or 0.0) / unit_s * 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("machines")
    axes.set_title("Machines held" + ("" if len(machines) > 1 else "; stages end at the dotted lines"))
    return figure


@styled
def cost_by_deadline(
    deadlines: Sequence[Point], ours: Point, others: Mapping[str, Point], deadline_s: float | None
) -> Figure:
    """The cheapest plan for every deadline, and where the others stand."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    longest_s = max(deadlines[-1][0], deadline_s or 0.0, *(time_s for time_s, _ in others.values()), ours[0]) * 1.05
    unit_s, unit = time_unit(longest_s)
    times = [*(time_s for time_s, _ in deadlines), longest_s]
    costs = [*(cost_usd for _, cost_usd in deadlines), deadlines[-1][1]]
    axes.step([time_s / unit_s for time_s in times], costs, where="post", color=BEST_COLOUR, label="cheapest plan")
    axes.plot(ours[0] / unit_s, ours[1], "o", color=BEST_COLOUR, label="this plan")
    for number, (name, (time_s, cost_usd)) in enumerate(others.items()):
        axes.plot(time_s / unit_s, cost_usd, "sD^"[number % 3], color=TRIAL_COLOURS[number + 1], label=name)
    if deadline_s is not None:
        axes.axvline(deadline_s / unit_s, color=LIMIT_COLOUR, lw=1.2, label="deadline")
    axes.set_ylim(0, max(*costs, *(cost_usd for _, cost_usd in others.values()), ours[1]) * 1.1)
    axes.set_xlim(0, longest_s / unit_s)
    axes.set_xlabel(f"done by ({unit})")
    axes.set_ylabel("expected cost ($)")
    axes.set_title("What every deadline costs")
    axes.legend()
    return figure


def save_profile_plot(
    folder: Path, steps: Mapping[Width, Sequence[float]], speedups: Mapping[float, float]
) -> list[Path]:
    return save(folder, {"profile": scaling(steps, speedups)})


@styled
def scaling(steps: Mapping[Width, Sequence[float]], speedups: Mapping[float, float]) -> Figure:
    """Every step that was measured, and the speed-up that was made of them."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    widths = sorted(steps)
    left.boxplot([steps[width] for width in widths], tick_labels=[str(width) for width in widths], whis=(5, 95), sym="")
    left.set_ylim(bottom=0)
    left.set_xlabel("devices")
    left.set_ylabel("seconds per step")
    left.set_title("Steps: median, quartiles, 90%")
    known = sorted(speedups)
    right.plot(known, known, color=FAINT_COLOUR, ls="dashed", label="perfect")
    right.plot(known, [speedups[width] for width in known], "o-", color=BEST_COLOUR, label="measured")
    right.set_xlim(left=0)
    right.set_ylim(bottom=0)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel("devices")
    right.set_title("Speed-up")
    right.legend()
    return figure
