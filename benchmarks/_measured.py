"""What engine.py measures of ours and of its peers, in the same units."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of one run: how much of it was completed, and in which time."""

    trials: int
    reports: int
    span_s: float
    """From the start of the first trial to the last report."""
    fit_s: float
    """All that the user waits for: workers that start and what is written at the end are in it."""
    cpu_s: float
    """Of the driver's process in that time."""
    starts_ms: list[float]
    """From the end of one trial to the first report of the next: means something where only one is run at a time."""
    workers_ms: list[float] = field(default_factory=list)
    """The part of that from when a warm worker begins the trial."""

    @property
    def trials_per_s(self) -> float:
        return self.trials / self.span_s

    @property
    def reports_per_s(self) -> float:
        return self.reports / self.span_s


@dataclass(slots=True)
class Resizes:
    """When each step of a trial ended and with how many workers, and when each change of their number was asked for."""

    steps: list[tuple[float, int]] = field(default_factory=list)
    asked_s: list[float] = field(default_factory=list)

    def took_ms(self) -> list[float]:
        """From asking to the end of the first step with the new number of workers, less what such a step takes."""
        step_s = {width: self.step_s(width) for width in {width for _, width in self.steps}}
        first = [(at_s, width) for (_, before), (at_s, width) in pairwise(self.steps) if width != before]
        return [
            1000 * (at_s - asked_s - step_s[width]) for asked_s, (at_s, width) in zip(self.asked_s, first, strict=True)
        ]

    def step_s(self, width: int) -> float:
        return median(at_s - before_s for (before_s, v), (at_s, w) in pairwise(self.steps) if v == w == width)


def driver_cpu_s() -> float:
    """CPU seconds of this process so far, with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
