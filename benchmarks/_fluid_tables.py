"""What the tables of fluid.py are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from _fluid_plots import Bar
from _fluid_runs import DEFAULT, Ran


def of(rans: Iterable[Ran], **wanted: object) -> list[Ran]:
    return [ran for ran in rans if all(getattr(ran.case, name) == value for name, value in wanted.items())]


def spread(values: Sequence[float]) -> Bar:
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def ratios(rans: Sequence[Ran], executor: str) -> list[float]:
    """Seconds under the default executor over those under this one, run by run."""
    seconds = {ran.case: ran.outcome.seconds for ran in rans}
    return [seconds[replace(case, executor=DEFAULT)] / s for case, s in seconds.items() if case.executor == executor]


def print_head(title: str, columns: Sequence[str], first: str = "") -> None:
    print(f"\n{title}\n{first:32}" + "".join(f"{column:>26}" for column in columns))


def print_line(name: str, cells: Sequence[str]) -> None:
    print(f"{name:32}" + "".join(f"{cell:>26}" for cell in cells))


def told(values: Bar, digits: int = 0) -> str:
    return f"{values[0]:,.{digits}f} ± {values[1]:,.{digits}f}"
