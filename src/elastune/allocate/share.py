"""The devices that are for one experiment, and what its trials get of them: by formulas of the paper, and by search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from elastune.allocate.base import View
from elastune.allocate.makespan import forecast, list_schedule
from elastune.allocate.moldable import ORDERS, Order, best_plan
from elastune.allocate.overheads import Overheads
from elastune.allocate.pace import Pace
from elastune.allocate.water_filling import dynamic_fluid, pays, static_fluid
from elastune.spec import Width

WINDOW = 64
"""So many trials are searched for widths for, and so many of those that wait are looked at: the others come later."""
TURN_S, TURN = 60.0, 0.1
"""Where experiments take turns on too few devices, one has them until it is so much ahead, or such a part of all that
was used: trials that cannot be saved begin anew with every turn, and must be done in one some day."""
GAIN = 0.02
"""Widths of trials that run are changed only for a forecast that is so much earlier."""


@dataclass(slots=True)
class Share:
    """Devices and the trials of an experiment that they are for: `n` of them, of which trials are on
    `held`, and `idle` are not used.
    """

    name: str
    view: View
    pace: Pace
    usable: list[int]
    one_by_one: bool
    running: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    n: int = 0
    held: int = 0
    idle: int = 0

    def take_stock(self, n: int) -> None:
        """So many devices are for it. What others have too of those that its trials are on counts in part."""
        widths, view = self.view.widths, self.view
        parts = sum(1 / view.sharing(trial) for trial in self.running if widths[trial] < 1)
        self.n, self.held = n, math.ceil(parts - 1e-9) + sum(int(widths[trial]) for trial in self.running)
        self.idle = n - self.held

    def claim(self, n: int) -> Claim:
        """What it wants of n devices. Who runs goes on for a while before it is the turn of another."""
        view = self.view
        asked = [view.width(trial) for trial in (*self.running, *self.waiting)]
        least = min(n, max(math.ceil(width or 1) for width in asked))
        most = max(least, sum(self.overheads.d if width is None else math.ceil(width) for width in asked))
        used_s = view.used_s.get(self.name, 0.0)
        if self.running:
            used_s -= max(TURN_S, TURN * sum(view.used_s.values()))
        return Claim(view.priorities.get(self.name, 1.0), most, least, used_s)

    def shrunk(self) -> dict[str, Width]:
        """What those that run get on fewer devices than they have."""
        found = static_fluid(self.times(self.running), self.n, self.overheads, self.usable)
        widths = {
            trial: min(width, self.view.widths[trial]) if self.view.width(trial) is None else self.view.widths[trial]
            for trial, width in zip(self.running, found, strict=True)
        }
        for trial in sorted(widths, key=lambda trial: -widths[trial]):  # the formula rounds up what is below one
            over = math.ceil(sum(widths.values())) - self.n
            if over > 0 and widths[trial] >= 1 and self.view.width(trial) is None:
                narrower = [w for w in self.usable if w <= max(1, widths[trial] - over) and w < widths[trial]]
                widths[trial] = max(narrower, default=part_of(self.overheads.c))
        return widths

    def surplus(self, widths: Mapping[str, Width]) -> list[str]:
        """Those for which there is no place beside the others: they were started last, and go on later."""
        found: list[str] = []
        room: Width = self.n
        for trial in self.running:
            if widths[trial] > room:
                found.append(trial)
            else:
                room -= widths[trial]
        return found

    @property
    def overheads(self) -> Overheads:
        return self.pace.overheads

    @property
    def few(self) -> bool:
        """So few that looking at all widths of all of them costs little, and may help."""
        if len(self.running) + len(self.waiting) > min(WINDOW, 2 * self.n * self.overheads.c):
            return False
        return all(self.view.width(trial) is None for trial in (*self.running, *self.waiting))

    def times(self, trials: Sequence[str]) -> list[float]:
        """h: what is left of each on one device. A trial that ends by itself is taken to have as many steps left as the
        others.
        """
        lefts = [self.view.left(trial) for trial in trials]
        known = [left for left in lefts if left is not None]
        usual = sum(known) / len(known) if known else 1.0
        return [
            self.pace.step_s(trial) * (usual if left is None else left)
            for trial, left in zip(trials, lefts, strict=True)
        ]

    def narrowed(self) -> dict[str, Width]:
        """Those that run on more devices than Algorithm 1 gives to each if all devices are for all trials, and are to
        have so many by the test of Algorithm 2.
        """
        if all(self.view.widths[trial] <= 1 for trial in self.running):
            return {}
        trials = [*self.running, *self.waiting]
        times = self.times(trials)
        found = static_fluid(times, self.n, self.overheads, self.usable)
        narrower: dict[str, Width] = {}
        for trial, time, new in zip(self.running, times, found, strict=False):
            old = self.view.widths[trial]
            narrow = new < old and old > 1 and self._can_change(trial)
            if narrow and pays(time, old, new, self.overheads, self.pace.resize_s):
                narrower[trial] = new
        return narrower

    def static(self) -> dict[str, Width]:
        """Algorithm 1: those that wait, on the devices that are idle, the widest first and the longest of these."""
        idle, part = self.idle, part_of(self.overheads.c)
        times = self.times(self.waiting)
        wanted = static_fluid(times, idle, self.overheads, self.usable) if idle else [part] * len(times)
        lanes = (self.view.free - self.view.idle()) // part if part < 1 else 0
        # What is left of the devices of others is not ours.
        room = self.n - sum(self.view.widths[trial] for trial in self.running)
        started: dict[str, Width] = {}
        for _, _, trial, width in sorted(
            ((-width, -time, trial, width) for trial, width, time in zip(self.waiting, wanted, times, strict=True)),
            key=lambda entry: entry[:2],
        ):
            asked = self.view.width(trial)
            width = width if asked is None else asked
            if width <= idle or (width < 1 <= idle):
                idle -= max(1, int(width))
                lanes += 0 if width >= 1 else part.denominator - 1
            elif width < 1 <= lanes and width <= room:
                lanes -= 1
            else:
                break
            room -= width
            started[trial] = width
        return started

    def dynamic(self) -> dict[str, Width]:
        """Algorithm 2: all that run, on all devices."""
        trials = [trial for trial in self.running if self._can_change(trial)]
        if not trials:
            return {}
        others = sum(self._effective(trial) for trial in self.running if not self._can_change(trial))
        present = [self._effective(trial) for trial in trials]
        n = self.n - int(-(-others // 1))
        found = dynamic_fluid(self.times(trials), present, n, self.overheads, self.pace.resize_s, self.usable)
        return {trial: new for trial, old, new in zip(trials, present, found, strict=True) if old != new}

    def search(self) -> dict[str, Width] | None:
        """Widths for all, running and waiting: those by which all are done soonest, or those of the paper if they are
        not clearly later. None if that leaves too many waiting to plan for them now.
        """
        trials = [*self.running, *self.waiting]
        times = self.times(trials)
        current = [self._effective(trial) for trial in self.running] + [None] * len(self.waiting)
        resize_s = self.pace.resize_s + GAIN * sum(times) / self.n
        plan = best_plan(times, self.n, self.overheads, self.usable, current, resize_s, self._running_first())
        otherwise = self.static() if self.waiting else self.dynamic()
        widths = [otherwise.get(t, old or part_of(self.overheads.c)) for t, old in zip(trials, current, strict=True)]
        many = len(trials) > self.n
        if plan.done_s > forecast(times, widths, self.n, self.overheads) * (1 - GAIN):
            return None if many and any(trial not in otherwise for trial in self.waiting) else otherwise
        placed = list_schedule(
            [time * self.overheads.factor(width) for time, width in zip(times, plan.widths, strict=True)],
            plan.widths,
            self.n,
            plan.order,
        )
        now = [place.start_s == 0 for place in placed]
        full = {device for place, runs in zip(placed, now, strict=True) if runs for device in place.devices}
        if not all(now[: len(self.running)]) or (not all(now) and (many or len(full) < self.n)):
            return None  # nobody waits for others beside idle devices, and of many who comes later is better seen later
        found: dict[str, Width] = {}
        for trial, old, new, runs in zip(trials, current, plan.widths, now, strict=True):
            if runs and (old is None or (new != old and self._can_change(trial))):
                found[trial] = new
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))  # the widest are placed first

    def _running_first(self) -> list[Order]:
        count = len(self.running)

        def first(order: Order) -> Order:
            return lambda durations, widths: sorted(order(durations, widths), key=lambda trial: trial >= count)

        return [first(order) for order in ORDERS]

    def _effective(self, trial: str) -> Width:
        """What it has of its device at the moment: who is alone there has all of it."""
        width = self.view.widths[trial]
        return width if width >= 1 else part_of(self.view.sharing(trial))

    def _can_change(self, trial: str) -> bool:
        """A change comes with the next report: who leaves then keeps what it has. So do the first that were ever
        resized, until it is known what that took.
        """
        left = self.view.left(trial)
        if self.pace.tries_resize(trial, self.view.widths[trial]):
            return False
        return self.view.width(trial) is None and (left is None or left > 1)


class Claim(NamedTuple):
    """How many devices are of use, `least` if any are to be, and how many device-seconds it has had before."""

    weight: float
    most: int
    least: int = 1
    used_s: float = 0.0


def divide(n: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """So many devices among claims: in proportion to their weights, but what one cannot use goes to the others, and
    everybody gets its least. If there are too few for that, who has had least so far comes first: they take turns.
    """
    if len(claims) < 2:
        return dict.fromkeys(claims, n)
    given = dict.fromkeys(claims, 0)
    for name in sorted(claims, key=lambda name: (claims[name].used_s / claims[name].weight, -claims[name].weight)):
        if claims[name].least <= n:
            given[name] = claims[name].least
            n -= given[name]
    for _ in range(n):
        # The next device goes to whoever has least for its weight.
        able = [name for name, claim in claims.items() if 0 < given[name] < claim.most]
        if not able:
            break
        given[min(able, key=lambda name: (given[name] / claims[name].weight, -claims[name].weight))] += 1
    return given


def part_of(k: int) -> Width:
    return Fraction(1, k) if k > 1 else 1
