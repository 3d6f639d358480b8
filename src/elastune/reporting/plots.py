"""Pictures of a run: who was on which device, how the best value came about, how the trials learnt.

The figures are made with matplotlib's objects, never with pyplot, so no global state is left behind. The same
run always gives the same bytes. Shades differ in lightness too, so that a print in grey can be read.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from elastune.cost import MachineUse, cost_usd
from elastune.errors import ElastuneError, SpecError
from elastune.record.projection import Busy, RunView, TrialView
from elastune.reporting.tables import number, ranked
from elastune.reporting.utilisation import utilisation
from elastune.units import format_duration, format_money

try:
    import matplotlib as mpl
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise ElastuneError('plots need matplotlib, which is not installed: pip install "elastune[report]"') from error

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": "#808080",
    "axes.labelcolor": "#303030",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.8,
    "xtick.color": "#505050",
    "ytick.color": "#505050",
    "legend.frameon": False,
    "text.parse_math": False,  # two dollar signs are money here, not a formula
    "svg.hashsalt": "elastune",
}
DOTS_PER_INCH = 144
TIME_UNITS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
MOST_NAMES, MOST_DEVICE_NAMES = 40, 12
FEW = 8  # up to so many trials have a colour and a line in the legend of their own
SHADES = ("#081d58", "#225ea8", "#1d91c0", "#41b6c4", "#a8dcc0", "#e3e8a0")  # from best to worst
DASHES = ("solid", "dashed", "dashdot", "dotted")
TRIAL_COLOURS = ("#08519c", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c510a", "#b2abd2", "#636363")
BEST_COLOUR, FAINT_COLOUR, HELD_COLOUR, LIMIT_COLOUR = "#08519c", "#9a9a9a", "#eeeeee", "#b2182b"
OTHERS_COLOUR = "#cccccc"
END_MARKS = {"failed": ("D", "failed"), "lost": ("X", "lost with its worker or machine")}
LABEL_POINTS = 7.0
Colour = tuple[float, float, float]
Device = tuple[str, int]

P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


@styled
def timeline(view: RunView) -> Figure:
    """Which trial was on which device, and when; a machine is grey while it is held and has nothing to do. Of one
    experiment of several the trials of the others are there too, in a darker grey.
    """
    rows = _device_rows(view)
    figure = Figure(figsize=(10, min(max(2.4, 1.5 + 0.3 * len(rows)), 9.5)), layout="constrained")
    axes = figure.add_subplot()
    unit_s = time_axis(axes, view)
    held = [
        Rectangle((use.from_s / unit_s, rows[use.node, 0] - 0.5), (use.to_s - use.from_s) / unit_s, use.devices)
        for use in view.machines
        if use.devices > 0
    ]
    axes.add_collection(PatchCollection(held, facecolor=HELD_COLOUR, edgecolor="none"))
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    name_machines(axes, list(rows))
    bars = _bars(view, rows)
    shown = {bar.busy.trial for bar in bars}
    colours = dict.fromkeys(shown, to_rgb(OTHERS_COLOUR)) | _colours(view, figure, axes, shown)
    _draw_bars(axes, bars, colours, unit_s)
    _mark_ends(figure, axes, bars, unit_s, shared=any(bar.busy.trial not in view.trials for bar in bars))
    draw_limit(axes, view.started.deadline_s, view.at_s, unit_s, "deadline")
    _label_bars(figure, axes, bars, colours, unit_s)
    busy = utilisation(view).busy
    who = f"{plural(len(view.trials), 'trial')} on {plural(len(rows), 'device')}"
    axes.set_title(who if busy is None else f"{who}: {busy:.0%} busy")
    if not bars:
        draw_message(axes, "no trial has started yet")
    return figure


@styled
def best_so_far(view: RunView, against: Literal["time", "cost"] = "time") -> Figure:
    """The best value by time or by cost, and every report that led there."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    points = view.best_so_far
    unit = time_axis(axes, view) if against == "time" else _cost_axis(axes, view)
    if not points:
        axes.set_title(f"Best {view.started.metric} so far")
        draw_message(axes, f"no {view.started.metric} has been reported yet")
        return figure
    reports = [r for trial in view.trials.values() for r in _counted(view, trial)]
    at_s, _, values = np.array(reports).T
    x = at_s / unit if against == "time" else _costs(view, at_s)
    size = 7 if len(reports) > 300 else 18
    axes.scatter(x, values, s=size, color=FAINT_COLOUR, alpha=0.45, linewidths=0, label="report of any trial")
    steps = [p.at_s / unit if against == "time" else p.cost_usd for p in points]
    now = view.at_s / unit if against == "time" else view.cost_usd()
    best = [p.value for p in points]
    axes.step([*steps, now], [*best, best[-1]], where="post", color=BEST_COLOUR, linewidth=2, label="best so far")
    axes.plot(steps[-1], best[-1], "o", color=BEST_COLOUR, markersize=6)
    _value_axis(axes, view, values)
    if against == "time":
        draw_limit(axes, view.started.deadline_s, view.at_s, unit, "deadline")
    else:
        draw_limit(axes, view.started.budget_usd, now, 1.0, "budget")
    figure.legend(loc="outside lower right", ncols=2, markerscale=1.8)
    last = points[-1]
    after = f"after {format_duration(last.at_s)} for {format_money(last.cost_usd)}"
    axes.set_title(f"Best {view.started.metric} {number(last.value)} by {last.trial} {after}")
    return figure


@styled
def learning_curves(view: RunView) -> Figure:
    """The metric of every trial by iteration; the best trial stands out, a dot is where a trial is now or ended."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    curves = {trial.id: [r[1:] for r in found] for trial in ranked(view) if (found := _counted(view, trial))}
    if view.best is None:
        axes.set_title(f"Learning curves of {view.started.metric}")
        draw_message(axes, f"no {view.started.metric} has been reported yet")
        return figure
    values = np.array([value for curve in curves.values() for _, value in curve])
    axes.set_xlim(0, max(iteration for curve in curves.values() for iteration, _ in curve) * 1.02 + 0.2)
    if view.best.id in curves:  # who was judged to be the best may not have reported yet
        axes.plot(*np.array(curves.pop(view.best.id)).T, color=BEST_COLOUR, linewidth=2.4, zorder=3)
    top = view.best_so_far[-1]
    axes.plot(top.iteration, top.value, "o", color=BEST_COLOUR, markersize=7, zorder=4)
    handles = [Line2D([], [], color=BEST_COLOUR, linewidth=2.4, label=f"{view.best.id} (best)")]
    if len(curves) < FEW:
        looks = zip(TRIAL_COLOURS[1:], itertools.cycle(DASHES), strict=False)
        for (trial, curve), (colour, dash) in zip(curves.items(), looks, strict=False):
            handles += axes.plot(*np.array(curve).T, color=colour, linewidth=1.4, linestyle=dash, label=trial)
            axes.plot(*curve[-1], "o", color=colour, markersize=4)
    else:
        axes.add_collection(LineCollection(list(curves.values()), colors=FAINT_COLOUR, linewidths=0.7, alpha=0.5))
        last_x, last_y = zip(*(curve[-1] for curve in curves.values()), strict=True)
        axes.scatter(last_x, last_y, s=5, color=FAINT_COLOUR, alpha=0.7, linewidths=0)
        handles.append(Line2D([], [], color=FAINT_COLOUR, label=f"the other {len(curves)} trials"))
    _value_axis(axes, view, values)
    figure.legend(handles=handles, loc="outside lower right", ncols=4)
    where = f"{view.started.metric} {number(top.value)} at iteration {top.iteration}"
    axes.set_title(f"{top.trial} is the best of {plural(len(view.trials), 'trial')}: {where}")
    return figure


@styled
def save_all(view: RunView, folder: str | Path) -> list[Path]:
    """Every plot as PNG and as SVG; the same run gives the same bytes."""
    from elastune.reporting.utilisation_plots import busy_devices  # it draws with what is defined here

    figures = {
        "timeline": timeline(view),
        "utilisation": busy_devices(view),
        "best_by_time": best_so_far(view, "time"),
        "best_by_cost": best_so_far(view, "cost"),
        "learning_curves": learning_curves(view),
    }
    return save(Path(folder), figures)


def save(folder: Path, figures: Mapping[str, Figure]) -> list[Path]:
    """Each as PNG and as SVG."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder}: no folder for pictures: {error.strerror}; give another one") from None
    written = []
    for name, figure in figures.items():
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            path = folder / f"{name}.{ending}"
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)
            written.append(path)
    return written


# ------------------------------------------------------------------------------------------------- axes of all plots


def time_unit(longest_s: float) -> tuple[float, str]:
    """The one that gives handy numbers: its length in seconds, and its name."""
    return next(unit for unit in TIME_UNITS if longest_s >= 3 * unit[0] or unit[1] == "s")


def time_axis(axes: Axes, view: RunView) -> float:
    """Label the x axis with the unit that gives handy numbers; the answer is its length in seconds."""
    unit_s, name = time_unit(view.at_s)
    axes.set_xlabel(f"time since the start ({name})")
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.set_xlim(0, (view.at_s / unit_s or 1.0) * 1.02)
    return unit_s


def _cost_axis(axes: Axes, view: RunView) -> float:
    axes.set_xlabel("cost so far ($)")
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.set_xlim(0, (view.cost_usd() or 1.0) * 1.02)
    return 1.0


def _value_axis(axes: Axes, view: RunView, values: np.ndarray) -> None:
    """Logarithmic where values span magnitudes; else a few hopeless reports must not squeeze all others flat."""
    sign = 1.0 if view.started.mode == "min" else -1.0
    axes.set_ylabel(view.started.metric)
    if values.min() > 0 and values.max() / values.min() > 50:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(visible=False, axis="y", which="minor")
        return
    badness = values * sign
    best, usual, worst = badness.min(), np.percentile(badness, 95), badness.max()
    if worst - best > 2.5 * (usual - best) > 0:
        beyond = int((badness > usual + 0.1 * (usual - best)).sum())
        axes.set_ylabel(f"{view.started.metric} ({plural(beyond, 'report')} beyond the axis)")
        worst = usual + 0.1 * (usual - best)
    margin = 0.05 * (worst - best) or 0.05 * abs(best) or 1.0
    bottom, top = sorted((sign * (best - margin), sign * (worst + margin)))
    axes.set_ylim(bottom, top)


def draw_limit(axes: Axes, limit: float | None, now: float, unit: float, name: str) -> None:
    """A line at the deadline or budget, unless it is so far off that it would squeeze the run into a corner."""
    if limit is None:
        return
    if limit > 2 * now:
        amount = format_money(limit) if name == "budget" else format_duration(limit)
        axes.set_xlabel(f"{axes.get_xlabel()}; the {name} of {amount} is beyond this chart")
        return
    right = max(limit, now) / unit
    axes.set_xlim(0, right * 1.04)
    axes.axvline(limit / unit, color=LIMIT_COLOUR, linewidth=1.4, linestyle=(0, (5, 2)), zorder=5)
    axes.annotate(
        name, (limit / unit, 0.5), xycoords=("data", "axes fraction"), xytext=(3, 0), textcoords="offset points",
        rotation=90, ha="left", va="center", color=LIMIT_COLOUR, fontsize=8, zorder=6,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
    )  # fmt: skip


def draw_message(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#707070")
    axes.set_yticks([])


def _costs(view: RunView, at_s: np.ndarray) -> np.ndarray:
    """The cost at many times: it grows evenly between the times at which a machine comes or goes."""
    turns = sorted({0.0, view.at_s, *(t for use in view.machines for t in (use.from_s, use.to_s))})
    coming, held = deque(sorted(view.machines, key=lambda use: use.from_s)), list[MachineUse]()
    gone_usd, paid_usd = 0.0, list[float]()
    for turn_s in turns:
        while coming and coming[0].from_s <= turn_s:
            held.append(coming.popleft())
        gone_usd += cost_usd(use for use in held if use.to_s <= turn_s)
        held = [use for use in held if use.to_s > turn_s]
        paid_usd.append(gone_usd + cost_usd(use.until(turn_s) for use in held))
    costs: np.ndarray = np.interp(at_s, turns, paid_usd)
    return costs


def _counted(view: RunView, trial: TrialView) -> list[tuple[float, int, float]]:
    """(at_s, iteration, value) of the reports that have one."""
    return [(r.at_s, r.iteration, value) for r in trial.reports if (value := view.metric_of(r.metrics)) is not None]


def plural(n: int, name: str) -> str:
    return f"{n:,} {name}{'' if n == 1 else 's'}"


# ----------------------------------------------------------------------------------------------- parts of a timeline


class _Bar:
    """A trial on neighbouring devices for the same time: drawn as one, so that its width can be seen. One that shares
    its device has the part of the row that is its lane's.
    """

    def __init__(self, busy: Busy, top: float, rows: float) -> None:
        self.busy, self.top, self.rows = busy, top, rows

    @property
    def middle(self) -> float:
        return self.top + self.rows / 2


def _device(busy: Busy) -> Device:
    return busy.slot.node, busy.slot.device


def _device_rows(view: RunView) -> dict[Device, int]:
    devices = dict.fromkeys((use.node, device) for use in view.machines for device in range(use.devices))
    return {device: row for row, device in enumerate(devices)}


def _lanes(segments: list[Busy]) -> dict[Device, int]:
    """How many trials there were at once on the devices that were ever shared."""
    lanes: dict[Device, int] = {}
    for busy in segments:
        if busy.share < 1:
            lanes[_device(busy)] = max(busy.slot.lane + 1, lanes.get(_device(busy), 1))
    return lanes


def _bars(view: RunView, rows: dict[Device, int]) -> list[_Bar]:
    bars: list[_Bar] = []
    known = [busy for busy in view.segments() if _device(busy) in rows]
    lanes = _lanes(known)
    for busy in sorted(known, key=lambda b: (b.trial, b.from_s, b.to_s, b.end, rows[_device(b)])):
        last, top = bars[-1] if bars else None, rows[_device(busy)] - 0.5
        same = last and (last.busy.trial, last.busy.from_s, last.busy.to_s) == (busy.trial, busy.from_s, busy.to_s)
        if busy.share < 1:
            part = 1 / lanes[_device(busy)]
            bars.append(_Bar(busy, top + busy.slot.lane * part, part))
        elif last and same and last.top + last.rows == top and last.busy.slot.node == busy.slot.node:
            last.rows += 1
        else:
            bars.append(_Bar(busy, top, 1))
    return bars


def name_machines(axes: Axes, rows: Sequence[Device]) -> None:
    """Every device by name if they are few, else one name per machine; a thin line between machines."""
    by_node = itertools.groupby(range(len(rows)), key=lambda row: rows[row][0])
    groups = [(node, list(places)) for node, places in by_node]
    every = -(-len(groups) // MOST_NAMES)
    if len(rows) <= MOST_DEVICE_NAMES:
        axes.set_yticks(range(len(rows)), [f"{node} / {device}" for node, device in rows])
        axes.set_ylabel("machine / device")
    elif groups:
        named = groups[::every]
        axes.set_yticks([(places[0] + places[-1]) / 2 for _, places in named], [node for node, _ in named])
        axes.set_ylabel("machine (a row per device)")
    axes.tick_params(axis="y", length=0)
    if every == 1:
        for _, places in groups[1:]:
            axes.axhline(places[0] - 0.5, color="#b0b0b0", linewidth=0.6, zorder=2.5)


def _colours(view: RunView, figure: Figure, axes: Axes, shown: set[str]) -> dict[str, Colour]:
    """A colour of its own for each of a few trials; for many, the darker the better."""
    order = [trial for trial in ranked(view) if trial.id in shown]
    if len(order) <= FEW:
        own = dict(zip((trial.id for trial in order), TRIAL_COLOURS, strict=False))
        handles = [Patch(color=own[t.id], label=f"{t.id}: {number(t.best_value)}") for t in order]
        if handles:
            title = f"best {view.started.metric}"
            figure.legend(handles=handles, title=title, loc="outside right upper", alignment="left")
        return {trial: to_rgb(colour) for trial, colour in own.items()}
    values = [trial.best_value for trial in order if trial.best_value is not None]
    low, high = np.percentile(values, (0, 90) if view.started.mode == "min" else (10, 100)) if values else (0.0, 1.0)
    norm = Normalize(float(low), float(high), clip=True)
    shades = SHADES if view.started.mode == "min" else SHADES[::-1]
    colour_map = LinearSegmentedColormap.from_list("elastune", shades)
    bar = figure.colorbar(ScalarMappable(norm, colour_map), ax=axes, pad=0.015, aspect=40, fraction=0.04)
    bar.set_label(f"best {view.started.metric}")
    return {t.id: to_rgb(FAINT_COLOUR if t.best_value is None else colour_map(norm(t.best_value))) for t in order}


def _draw_bars(axes: Axes, bars: list[_Bar], colours: dict[str, Colour], unit_s: float) -> None:
    rectangles = [
        Rectangle((b.busy.from_s / unit_s, b.top + gap), (b.busy.to_s - b.busy.from_s) / unit_s, b.rows - 2 * gap)
        for b in bars
        for gap in [0.08 * min(b.rows, 1)]
    ]
    faces = [colours[bar.busy.trial] for bar in bars]
    axes.add_collection(PatchCollection(rectangles, facecolor=faces, edgecolor="white", linewidth=0.4, zorder=3))


def _mark_ends(figure: Figure, axes: Axes, bars: list[_Bar], unit_s: float, shared: bool) -> None:
    handles: list[Patch | Line2D] = [Patch(color=HELD_COLOUR, label="held, nothing to do")]
    if shared:
        handles.append(Patch(color=OTHERS_COLOUR, label="other experiments"))
    for end, (marker, label) in END_MARKS.items():
        places = [(b.busy.to_s / unit_s, b.middle) for b in bars if b.busy.end == end]
        if places:
            x, y = zip(*places, strict=True)
            mark = Line2D(x, y, linestyle="none", marker=marker, color=LIMIT_COLOUR, label=label, zorder=6)
            mark.set(markersize=6.5, markeredgecolor="white", markeredgewidth=0.6)
            handles.append(axes.add_line(mark))
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles))


def _label_bars(figure: Figure, axes: Axes, bars: list[_Bar], colours: dict[str, Colour], unit_s: float) -> None:
    """Write the trial into its bar where it fits: only the finished layout knows how long a bar is."""
    figure.draw_without_rendering()
    box = axes.get_window_extent()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    points_wide, points_high = box.width * 72 / figure.dpi, box.height * 72 / figure.dpi
    for bar in bars:
        name, from_x, to_x = bar.busy.trial, bar.busy.from_s / unit_s, bar.busy.to_s / unit_s
        wide = (to_x - from_x) / (right - left) * points_wide
        high = bar.rows / (bottom - top) * points_high
        if wide > (len(name) + 1) * 0.64 * LABEL_POINTS and high > 1.3 * LABEL_POINTS:
            red, green, blue = colours[name]
            ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"
            place = ((from_x + to_x) / 2, bar.middle)
            axes.text(*place, name, ha="center", va="center", fontsize=LABEL_POINTS, color=ink, zorder=4)
