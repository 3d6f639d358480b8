"""A picture of how busy the devices were: a heat map of each of them over time, and below it all of them together.

As Figures 2 and 6 of the Fluid paper. The more trials share a device, the darker is the shade of a busy one, so that
they can be told apart in a print in grey too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import (
    BEST_COLOUR,
    HELD_COLOUR,
    draw_limit,
    draw_message,
    name_machines,
    plural,
    styled,
    time_axis,
)

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from elastune.record.projection import RunView
from elastune.reporting.utilisation import (
    DeviceUse,
    Floats,
    Ints,
    Spans,
    Utilisation,
    Windows,
    average,
    divided,
    overlaps,
    utilisation,
)
from elastune.units import format_duration

MOST_ROWS = 64
"""More devices than that share rows."""
MOST_STEPS = 2000
"""A line of more steps is drawn as its average in each window."""
IDLE_COLOUR, LINE_COLOUR, TRIALS_COLOUR = "#e6e6e6", "#404040", "#b35806"
DASHES = (0, (3, 2))
BUSY_COLOURS = ("#2171b5", "#7a0177", "#1a1a1a")
"""Of a device that is busy all the time, with one trial on it, with two, and with more."""
LEVELS = [LinearSegmentedColormap.from_list("busy", (IDLE_COLOUR, colour)) for colour in BUSY_COLOURS]


@styled
def busy_devices(view: RunView) -> Figure:
    """The share of every window in which each device was busy, and how many were held and busy, and trials ran."""
    use = utilisation(view)
    per_row = _devices_per_row(use.devices)
    windows = use.windows(devices_per_row=per_row)
    rows = max(1, -(-len(use.devices) // per_row))
    heights = min(max(1.5, 0.5 + 0.26 * rows), 7.0), 2.2
    figure = Figure(figsize=(10, sum(heights) + 1.0), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=heights)
    unit_s = time_axis(below, view)
    above.set_title(_title(use))
    if use.devices:
        _draw_heat(figure, above, use, windows, per_row, unit_s)
    else:
        draw_message(above, "no machine is there yet")
    _draw_together(below, use, windows.edges_s, unit_s)
    draw_limit(below, view.started.deadline_s, view.at_s, unit_s, "deadline")
    figure.legend(handles=_handles(use), loc="outside lower right", ncols=4)
    return figure


def _title(use: Utilisation) -> str:
    devices = plural(len(use.devices), "device")
    they = "it was" if len(use.devices) == 1 else "they were"
    return devices if use.busy is None else f"{devices}: busy {use.busy:.0%} of the time {they} paid for"


def _devices_per_row(devices: Sequence[DeviceUse]) -> int:
    """Those of whole machines, or a machine in equal parts."""
    on_machine = 1 + max((device.device for device in devices), default=0)
    least = max(1, -(-len(devices) // MOST_ROWS))
    return next(number for number in itertools.count(least) if on_machine % number == 0 or number % on_machine == 0)


def _draw_heat(figure: Figure, axes: Axes, use: Utilisation, windows: Windows, per_row: int, unit_s: float) -> None:
    row_edges = np.minimum(np.arange(len(windows.busy_s) + 1) * per_row, len(use.devices)) - 0.5
    levels = _levels(windows)
    axes.pcolormesh(windows.edges_s / unit_s, row_edges, _colours(windows, levels), rasterized=True)
    _draw_absences(axes, use.devices, windows.edges_s, unit_s)
    axes.set_ylim(len(use.devices) - 0.5, -0.5)
    axes.grid(visible=False)
    name_machines(axes, [(device.machine, device.device) for device in use.devices])
    if per_row > 1:
        axes.set_ylabel(f"machine (a row is {plural(per_row, 'device')})")
    _key(figure, axes, int(levels.max(initial=0)), float(windows.edges_s[1] - windows.edges_s[0]))


def _levels(windows: Windows) -> Ints:
    """How many trials shared a device while it was busy: the place of their colours."""
    shared = np.nan_to_num(divided(windows.trial_s, windows.busy_s), nan=1.0)
    levels: Ints = np.clip(np.rint(shared).astype(int), 1, len(LEVELS)) - 1
    return levels


def _colours(windows: Windows, levels: Ints) -> Floats:
    """Of each cell. Where a machine boots or is not there is drawn over it, so only the rest of the time counts."""
    share = np.nan_to_num(divided(windows.busy_s, windows.held_s - windows.booting_s))
    colours = np.ones((*share.shape, 4))
    for level, colour_map in enumerate(LEVELS):
        colours[levels == level] = colour_map(np.clip(share[levels == level], 0.0, 1.0))
    return colours


def _draw_absences(axes: Axes, devices: Sequence[DeviceUse], edges_s: Floats, unit_s: float) -> None:
    """To the second, where the cells only know windows."""

    def boxes(times: list[tuple[int, float, float]]) -> list[Rectangle]:
        return [Rectangle((a / unit_s, row - 0.5), (b - a) / unit_s, 1) for row, a, b in times if b > a]

    before = [(row, float(edges_s[0]), use.from_s) for row, use in enumerate(devices)]
    after = [(row, use.to_s, float(edges_s[-1])) for row, use in enumerate(devices)]
    axes.add_collection(PatchCollection(boxes(before + after), facecolor="white", edgecolor="white", linewidth=0.3))
    booting = boxes([(row, use.from_s, use.ready_s) for row, use in enumerate(devices)])
    if booting:
        hatched = PatchCollection(booting, facecolor="white", edgecolor=LINE_COLOUR, linewidth=0, hatch="/////")
        axes.add_collection(hatched)


def _key(figure: Figure, axes: Axes, most: int, window_s: float) -> None:
    """A colour bar for every number of trials on a device that occurs, from left to right."""
    for level in reversed(range(most + 1)):  # the first one drawn is the last one to the right
        bar = figure.colorbar(ScalarMappable(Normalize(0, 1), LEVELS[level]), ax=axes, pad=0.01, aspect=18)
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        if most:
            bar.ax.set_title(f"{level + 1}{'+' * (level == len(LEVELS) - 1)}", fontsize=8)
        if level < most:
            bar.set_ticks([])
        else:
            share = f"share of {format_duration(window_s)} busy"
            bar.set_label(f"{share},\nby trials on it" if most else share)


def _draw_together(axes: Axes, use: Utilisation, edges_s: Floats, unit_s: float) -> None:
    from_s, to_s = np.array([(device.from_s, device.to_s) for device in use.devices]).reshape(-1, 2).T
    held, busy = overlaps(from_s, to_s), overlaps(use.on_devices.from_s, use.on_devices.to_s)
    looks: list[tuple[Spans, dict[str, Any]]] = [
        (held, {"color": HELD_COLOUR, "fill": True}),
        (held, {"color": LINE_COLOUR, "linewidth": 1.0, "baseline": None}),
        (busy, {"color": BEST_COLOUR, "linewidth": 1.8, "baseline": None}),
        (use.running, {"color": TRIALS_COLOUR, "linewidth": 1.2, "linestyle": DASHES, "baseline": None}),
    ]
    for spans, look in looks:
        heights, bounds_s = _stairs(spans, edges_s)
        axes.stairs(heights, bounds_s / unit_s, **look)
    axes.set_ylabel("how many")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))


def _stairs(spans: Spans, edges_s: Floats) -> tuple[Floats, Floats]:
    """How high a line is between which times: 0 where there is no span."""
    if len(spans.place) > MOST_STEPS:
        return average(spans, edges_s), edges_s
    bounds_s = np.unique(np.concatenate([edges_s[[0, -1]], spans.from_s, spans.to_s]))
    return average(spans, bounds_s), bounds_s


def _handles(use: Utilisation) -> list[Patch | Line2D]:
    booting = Patch(facecolor="white", edgecolor=LINE_COLOUR, hatch="/////", linewidth=0, label="booting")
    boots = any(device.booting_s > 0 for device in use.devices)
    return [
        *([booting] if boots else []),
        Patch(facecolor=HELD_COLOUR, edgecolor=LINE_COLOUR, label="devices held"),
        Line2D([], [], color=BEST_COLOUR, linewidth=1.8, label="devices busy"),
        Line2D([], [], color=TRIALS_COLOUR, linewidth=1.2, linestyle=DASHES, label="trials running"),
    ]
