"""A picture of a plan by the clock: the devices over time, a strip for each trial.

Who goes on is not known before the run, so a strip is a place that some trial will have: in colour those that last
until the end, at the bottom, and on top of them in grey those that end before, the shortest last.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import HELD_COLOUR, LIMIT_COLOUR, TRIAL_COLOURS, save, styled, time_unit

# isort: split
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

Part = tuple[float, float, int]
"""From when, until when, how many devices."""
Strip = tuple[Sequence[Part], bool]
"""One trial, and whether it lasts until the end."""
Held = Sequence[tuple[float, int]]
"""Until when, how many devices."""

FINAL_COLOURS = TRIAL_COLOURS[:-1]  # the last is grey
ENDED_COLOUR, HELD_LINE = "#c4c4c4", "#404040"
THINNEST_POINTS = 2.5
"""Strips that would be thinner are drawn as one block, all that are alike."""
LABEL_POINTS = 7.0


@dataclass(frozen=True, slots=True)
class Block:
    """Trials that have the same devices at the same times, one on top of the other."""

    parts: tuple[Part, ...]
    final: bool
    trials: int

    def devices(self, at_s: float) -> int:
        """Of all its trials."""
        return self.trials * sum(devices for from_s, to_s, devices in self.parts if from_s <= at_s < to_s)


@dataclass(frozen=True, slots=True)
class Bar:
    """A block, or one trial of it, while its place does not change."""

    from_s: float
    to_s: float
    bottom: int
    height: int
    colour: str


@dataclass(frozen=True, slots=True)
class Label:
    """What is written into a block, or into one of its trials: the longest text that fits, or nothing."""

    at: Bar
    texts: tuple[str, str]


def save_timed_plan(folder: Path, strips: Sequence[Strip], held: Held, ready_s: float, deadline_s: float) -> list[Path]:
    return save(folder, {"plan": devices_over_time(strips, held, ready_s, deadline_s)})


@styled
def devices_over_time(strips: Sequence[Strip], held: Held, ready_s: float, deadline_s: float) -> Figure:
    """As Figure 1c of the SEER paper: the height of a strip is the number of devices that a trial has."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    unit_s, unit = time_unit(deadline_s)
    axes.set_xlim(0, deadline_s / unit_s * 1.02)
    axes.set_ylim(0, max(devices for _, devices in held) * 1.06)
    axes.set_xlabel(f"time since the start ({unit})")
    axes.set_ylabel("devices")
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axes.grid(visible=False)
    count = f"{len(strips):,} trial{'s' * (len(strips) != 1)}"
    axes.set_title(f"The plan: {count} begin, {sum(final for _, final in strips):,} train until the end")
    _draw_held(axes, held, ready_s, unit_s)
    axes.axvline(deadline_s / unit_s, color=LIMIT_COLOUR, linewidth=1.4, linestyle=(0, (5, 2)), zorder=5)
    figure.legend(handles=_handles(any(not final for _, final in strips)), loc="outside lower center", ncols=5)
    figure.draw_without_rendering()  # only the finished layout knows how high a device is
    _draw_bars(figure, axes, strips, unit_s)
    return figure


def _draw_held(axes: Axes, held: Held, ready_s: float, unit_s: float) -> None:
    """The devices of machines that are paid for, and hatched, while they cannot be used yet."""
    edges = [0.0, *(until_s / unit_s for until_s, _ in held)]
    devices = [devices for _, devices in held]
    axes.stairs(devices, edges, fill=True, color=HELD_COLOUR, zorder=1)
    axes.stairs(devices, edges, color=HELD_LINE, linewidth=1.2, zorder=4)
    booting = Rectangle((0, 0), ready_s / unit_s, devices[0], facecolor="white", edgecolor=HELD_LINE, linewidth=0)
    booting.set(hatch="/////", zorder=2)
    axes.add_patch(booting)


def _handles(some_end: bool) -> list[Patch | Line2D]:
    ended = [Patch(color=ENDED_COLOUR, label="ends before that")]
    return [
        Patch(color=FINAL_COLOURS[0], label="trains until the end (any colour)"),
        *(ended if some_end else []),
        Patch(facecolor=HELD_COLOUR, edgecolor=HELD_LINE, linewidth=1.2, label="machines held"),
        Patch(facecolor="white", edgecolor=HELD_LINE, hatch="/////", linewidth=0, label="they boot"),
        Line2D([], [], color=LIMIT_COLOUR, linestyle=(0, (5, 2)), label="deadline"),
    ]


def blocks(strips: Sequence[Strip]) -> list[Block]:
    """From the bottom to the top: those that last longest first, and of these the widest."""
    alike = sorted(
        ((tuple(parts), final) for parts, final in strips),
        key=lambda strip: (not strip[1], -strip[0][-1][1], [-devices for _, _, devices in reversed(strip[0])]),
    )
    return [Block(parts, final, len(list(same))) for (parts, final), same in itertools.groupby(alike)]


def bars(strips: Sequence[Strip], thin: bool) -> tuple[list[Bar], list[Label]]:
    """What is to be drawn: trial by trial, or where they are too thin, block by block."""
    made: list[Bar] = []
    labels: list[Label] = []
    cycle = itertools.cycle(FINAL_COLOURS)
    stack = blocks(strips)
    for number, block in enumerate(stack):
        rows = 1 if thin else block.trials
        colours = [next(cycle) if block.final else ENDED_COLOUR for _ in range(rows)]
        for from_s, to_s, bottom, width in _steps(block, stack[:number]):
            high = block.trials * width
            each = [
                Bar(from_s, to_s, bottom + row * high // rows, high // rows, colour)
                for row, colour in enumerate(colours)
            ]
            made += each
            if block.final and not thin:
                labels += [Label(bar, _texts(1, width)) for bar in each]
            else:
                labels.append(Label(Bar(from_s, to_s, bottom, high, colours[0]), _texts(block.trials, width)))
    return made, labels


def _texts(trials: int, width: int) -> tuple[str, str]:
    devices = f"{width} device{'s' * (width != 1)}"
    return (devices, str(width)) if trials == 1 else (f"{trials:,} x {devices}", f"{trials:,} x {width}")


def _steps(block: Block, below: Sequence[Block]) -> list[tuple[float, float, int, int]]:
    """From when, until when, on top of how many devices, and how many each trial has; those that are alike as one."""
    steps: list[tuple[float, float, int, int]] = []
    for from_s, to_s, width in block.parts:
        bottom = sum(other.devices(from_s) for other in below)
        if steps and steps[-1][2:] == (bottom, width):
            from_s = steps.pop()[0]
        steps.append((from_s, to_s, bottom, width))
    return steps


def _draw_bars(figure: Figure, axes: Axes, strips: Sequence[Strip], unit_s: float) -> None:
    box = axes.get_window_extent()
    wide, high = box.width * 72 / figure.dpi / axes.get_xlim()[1], box.height * 72 / figure.dpi / axes.get_ylim()[1]
    drawn, labels = bars(strips, thin=high < THINNEST_POINTS)
    rectangles = [Rectangle((b.from_s / unit_s, b.bottom), (b.to_s - b.from_s) / unit_s, b.height) for b in drawn]
    faces = [bar.colour for bar in drawn]
    axes.add_collection(PatchCollection(rectangles, facecolor=faces, edgecolor="white", linewidth=0.5, zorder=3))
    for label in labels:
        bar = label.at
        points = (bar.to_s - bar.from_s) / unit_s * wide
        text = next((text for text in label.texts if points > len(text) * 0.56 * LABEL_POINTS), None)
        if text is not None and bar.height * high > 1.4 * LABEL_POINTS:
            red, green, blue = to_rgb(bar.colour)
            ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"
            place = ((bar.from_s + bar.to_s) / 2 / unit_s, bar.bottom + bar.height / 2)
            behind = {"facecolor": bar.colour, "edgecolor": "none", "pad": 1.0}  # between strips there are lines
            axes.text(*place, text, ha="center", va="center", fontsize=LABEL_POINTS, color=ink, bbox=behind, zorder=3.5)
