"""All devices of a fixed cluster, shared out among the trials that are left: HyperSched's side of the allocation."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.place import machines_needed
from elastune.spec import Width

STEPS = 1001
"""How many steps the median is of: those before them are forgotten."""
GAIN = 1.1
"""A trial is made wider where it trains at least so many times as far until the end."""


@dataclass(slots=True)
class Standing:
    """What algorithm and allocator tell each other: how good the trials are, and how long steps on one device took."""

    losses: dict[str, float] = field(default_factory=dict)
    _steps_s: deque[float] = field(default_factory=deque)
    _ascending_s: list[float] = field(default_factory=list)
    """The same steps in order."""

    def best_first(self, trials: Iterable[str]) -> list[str]:
        return sorted(trials, key=lambda trial: (self.losses.get(trial, math.inf), trial))

    def stepped(self, seconds: float) -> None:
        if len(self._steps_s) == STEPS:
            del self._ascending_s[bisect_left(self._ascending_s, self._steps_s.popleft())]
        self._steps_s.append(seconds)
        insort(self._ascending_s, seconds)

    @property
    def median_step_s(self) -> float:
        return self._ascending_s[len(self._ascending_s) // 2] if self._ascending_s else 0.0


class SharedOut(Allocator):
    """Every trial has one device; what is left goes around, the best trial first, as long as there is something and it
    makes a trial faster. `machines` of so many `devices` are held until `end_s`. A trial begins with what has a place
    at once, and takes its share at its next report.
    """

    def __init__(
        self,
        machines: int,
        devices: int,
        end_s: float,
        start_s: float,
        speedup: Callable[[float], float],
        standing: Standing,
    ) -> None:
        self.machines, self.devices, self.end_s, self.start_s = machines, devices, end_s, start_s
        self._speedup, self._standing = speedup, standing
        self._held: dict[str, Width] = {}
        """What the trials had when they were last seen: who comes to a rung and goes on takes it again."""
        whole = range(2 * devices, machines * devices + 1, devices)
        self._usable = (*range(1, devices + 1), *whole)

    def stepped(self, steps: Steps) -> bool:
        if steps.width == 1:
            self._standing.stepped(max(0.0, steps.seconds - steps.first * self.start_s) / steps.number)
        return False

    def allocate(self, view: View, at_s: float) -> Target:
        waiting = sorted(view.waiting, key=lambda trial: -self._held.get(trial, 0))
        shares = self._shares([*view.widths, *waiting])
        left_s = self.end_s - at_s
        widths = {trial: self._resized(width, shares[trial], left_s) for trial, width in view.widths.items()}
        free = int(view.free)
        for trial in waiting:
            # Some machine has its part of all that is free, and what a trial has just left is together.
            has_a_place = max(min(self._held.get(trial, 0), free), -(-free // self.machines))
            if (width := self._at_most(min(has_a_place, shares[trial]))) > 0:
                widths[trial] = width
                free -= width
        self._held = dict(view.widths)
        return Target(self.machines, widths, again=bool(waiting))

    def _shares(self, trials: list[str]) -> dict[str, int]:
        places = dict.fromkeys(trials, 0)
        if len(trials) < self.machines * self.devices:
            counts = Counter({1: len(trials)})
            growing = self._standing.best_first(trials)
            while growing:
                growing = [trial for trial in growing if self._widen(places, trial, counts)]
        return {trial: self._usable[place] for trial, place in places.items()}

    def _widen(self, places: dict[str, int], trial: str, counts: Counter[int]) -> bool:
        """Give a trial the next larger width, if it is the faster for it and all have a place then."""
        place = places[trial]
        if place + 1 == len(self._usable):
            return False
        width, wider = self._usable[place : place + 2]
        if self._speedup(wider) <= self._speedup(width):
            return False
        grown = counts + Counter({wider: 1}) - Counter({width: 1})
        if machines_needed(grown, self.devices) > self.machines:
            return False
        counts.clear()
        counts.update(grown)
        places[trial] = place + 1
        return True

    def _resized(self, width: Width, share: int, left_s: float) -> Width:
        """Its share, if it is not wider than what the trial has or being resized pays; that takes as long as
        beginning.
        """
        if share <= width:
            return share
        pays = self._speedup(share) * (left_s - self.start_s) > GAIN * self._speedup(float(width)) * left_s
        return share if pays else width

    def _at_most(self, width: Width) -> int:
        return max((each for each in self._usable if each <= width), default=0)
