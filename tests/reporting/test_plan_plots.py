"""The pictures of a plan show its figures."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D

from elastune.reporting.plan_plots import cost_by_deadline, machines_over_time


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def height(axes: Axes, bracket: int, minute: float) -> tuple[float, float]:
    """From where to where the area of a bracket reaches at a time."""
    area = axes.collections[bracket]
    assert isinstance(area, PolyCollection)
    (path,) = area.get_paths()
    inside = [step / 4 for step in range(100) if path.contains_point((minute, step / 4 + 0.125))]
    return (min(inside), max(inside) + 0.25) if inside else (0.0, 0.0)


def test_the_machines_that_are_held_at_every_time() -> None:
    """Three from the first minute on, two more from the fourth, and one until the end."""
    changes = [(60.0, 3), (240.0, 2), (300.0, -4), (600.0, -1)]
    (axes,) = machines_over_time([changes], [[300.0, 600.0]], 900.0).axes
    heights = [height(axes, 0, minute) for minute in (0.5, 1.5, 3.5, 4.5, 5.5, 9.5, 10.5)]
    assert heights == [(0, 0), (0, 3), (0, 3), (0, 5), (0, 1), (0, 1), (0, 0)]
    assert [points(line)[0][0] for line in axes.lines] == [5.0, 10.0, 15.0], "the ends of the stages, and the deadline"
    assert axes.get_xlabel() == "time (min)"


def test_brackets_stand_on_one_another() -> None:
    brackets = [[(0.0, 2), (300.0, -2)], [(0.0, 3), (120.0, -2), (600.0, -1)]]
    (axes,) = machines_over_time(brackets, [[300.0], [600.0]], None).axes
    assert [height(axes, 0, minute) for minute in (1, 4, 9)] == [(0, 2), (0, 2), (0, 0)]
    assert [height(axes, 1, minute) for minute in (1, 4, 9)] == [(2, 5), (2, 3), (0, 1)]


def test_what_every_deadline_costs_and_where_the_others_stand() -> None:
    (axes,) = cost_by_deadline(
        [(600.0, 9.0), (900.0, 5.0)], (900.0, 5.0), {"static cluster": (720.0, 8.0)}, 1000.0
    ).axes
    drawn = {str(line.get_label()): points(line) for line in axes.lines}
    assert drawn["cheapest plan"][:2] == [(10.0, 9.0), (15.0, 5.0)]
    assert drawn["this plan"] == [(15.0, 5.0)] and drawn["static cluster"] == [(12.0, 8.0)]
    assert [x for x, _ in drawn["deadline"]] == [1000.0 / 60] * 2
