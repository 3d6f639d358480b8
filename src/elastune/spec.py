"""What was asked for, validated and frozen: limits, stages, runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from numbers import Integral
from typing import Literal

import msgspec

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.space import LARGEST_INT
from elastune.units import parse_duration, parse_size

Mode = Literal["min", "max"]
Width = int | Fraction
"""Devices of a trial: a whole number of them, or 1/k of one that it shares with others."""

SMALLEST_SHARE = Fraction(1, 64)


def require_int(name: str, value: object, lowest: int) -> None:
    """Refuse what is not a whole number of at least `lowest`, one of NumPy (it cannot be journalled), and one that is
    not exact as a float.
    """
    if isinstance(value, Integral) and not isinstance(value, int):
        raise SpecError(f"{name}={value!r}: must be an int of Python: give int({value})")
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise SpecError(f"{name}={value!r}: must be a whole number of at least {lowest}")
    if value > LARGEST_INT:
        # Python does not write out what has thousands of digits.
        shown = value if value < 10**30 else f"2**{value.bit_length() - 1} or more"
        raise SpecError(f"{name}={shown}: must be at most {LARGEST_INT} (2**53)")


def require_number(name: str, value: object, *, zero: bool = False) -> None:
    """Refuse what is not a finite number above 0, or with `zero` of at least 0."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1
    # A comparison is false for NaN, and exact for whole numbers that are too large for a float.
    if not (0 < number <= sys.float_info.max or (zero and number == 0)):
        raise SpecError(f"{name}={value!r}: must be a number {'of at least' if zero else 'greater than'} 0")


def to_width(name: str, given: object) -> Width:
    """A width as a user may write it: 2, Fraction(1, 2), 0.5, "1/3". Refuse what is none."""
    if type(given) is int and given >= 1:  # nearly always
        return given
    width = _as_fraction(given)
    if width is not None and width >= 1 and width.denominator == 1:
        return width.numerator
    if width is not None and width.numerator == 1 and width >= SMALLEST_SHARE:
        return width
    raise SpecError(
        f"{name}={given!r}: must be a whole number of devices (1, 2, 4, ...) or the part of one that each of several "
        f"trials gets (1/2 or 0.5, '1/3', ..., '{SMALLEST_SHARE}')"
    )


def share_of(width: Width) -> Width:
    """The part of each of its devices that a trial of this width has."""
    return 1 if width >= 1 else width


def _as_fraction(given: object) -> Fraction | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, float) and 0 < given < 1:  # 1/3 as a float is not quite 1/3
        parts = round(1 / given)
        return Fraction(1, parts) if 1 / parts == given else None
    try:
        return Fraction(given) if isinstance(given, int | float | str | Fraction) else None
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run must end: a point in time and an amount of money. None: no limit."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    budget_device_s: float | None = None
    """The same as time on devices, whatever they cost."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an algorithm may know before the run: its limits, and the machines that can be had, at most `machines` of
    so many `devices`. They can be used `ready_s` after they were asked for; beginning a trial on them takes `start_s`,
    and a step on one device `step_s`, where that is known. No more trials can begin than there are `configurations`;
    None: as many as are wanted.
    """

    limits: Limits
    machines: int
    devices: int
    price_usd_per_device_hour: float = 0.0
    minimum_s: float = 0.0
    data_usd: float = 0.0
    ready_s: float = 0.0
    start_s: float = 0.0
    step_s: float | None = None
    speedup: Callable[[float], float] | None = None
    configurations: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints are kept: of a trial that may go on, the last ones (an older one replaces one that cannot be
    read) and its best; of trials that are over, only those of the best trials."""

    keep_last: int = 2
    keep_best: int = 3

    def __post_init__(self) -> None:
        for name, lowest in (("keep_last", 1), ("keep_best", 0)):
            require_int(name, getattr(self, name), lowest)


@dataclass(frozen=True, slots=True)
class Workers:
    """How the processes that train are treated.

    With `fresh_process` every run of a trial gets a new one. A trial that does not report for longer than
    `report_within` hangs: it is killed and goes on from its checkpoint. A process that has grown by more than
    `leak_limit` from its first trial to a later one is replaced.
    """

    fresh_process: bool = False
    report_within: str | float | timedelta | None = None
    leak_limit: str | float = "1GB"

    def __post_init__(self) -> None:
        if not isinstance(self.fresh_process, bool):
            raise SpecError(f"fresh_process={self.fresh_process!r}: must be true or false")
        _ = self.report_within_s, self.leak_bytes

    @property
    def report_within_s(self) -> float | None:
        return None if self.report_within is None else parse_duration(self.report_within, "report_within")

    @property
    def leak_bytes(self) -> float:
        return parse_size(self.leak_limit, "leak_limit")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller must know about an experiment, besides its algorithm and its allocator."""

    name: str
    metric: str
    mode: Mode
    limits: Limits = Limits()
    price_usd_per_device_hour: float = 0.0
    max_retries: int = 3
    grace_s: float = 30.0
    retention: Retention = Retention()


@dataclass(frozen=True, slots=True)
class Stage:
    """Part of a declared schedule: so many trials train from iteration `start` until iteration `until`."""

    trials: int
    start: int
    until: int
    bracket: int = 0

    @property
    def iterations(self) -> int:
        return self.until - self.start


class Run(msgspec.Struct, frozen=True, gc=False):
    """A trial shall train until an iteration, a time, or whichever comes first; with neither, until its function
    returns. Before its time no step is begun that would take longer, and one that still runs is abandoned. With `final`
    the trial will not go on. `stage` is its place in the algorithm's schedule, where there is one, and `width` the
    devices that the algorithm gives it, where that is not left to the allocator.

    With `start_from`, the id of another trial, it goes on from the newest checkpoint of that one, at its iteration,
    instead of its own; if there is none, from its own. The configuration may be another than in the run before.
    """

    trial: str
    config: Config
    until: int | None
    final: bool = False
    stage: int = 0
    until_s: float | None = None
    width: Width | None = None
    start_from: str | None = None


TrialGroup = tuple[Run, ...]
"""Runs that belong together: a stage, a bracket, a generation."""
