"""The last line of every benchmark: its figures as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A claim, measured: ours, the peer's in the same run, their ratio, and the goal it is held against."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    goal: str
    met: bool


def print_figures(figures: list[Figure]) -> None:
    print(json.dumps([asdict(figure) for figure in figures]))
