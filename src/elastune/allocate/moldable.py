"""Widths for a group of trials, nearly the best there are: what water-filling leaves is searched for.

Beyond the paper. Trials whose width can be chosen are known as moldable tasks. If all are to be done within some time,
each may as well have the width that takes least of the devices (width x time) among those that are fast enough; so
one number, that time, stands for the widths of all (Turek, Wolf and Yu, 1992). Several are tried, as list schedules in
a few orders, and in each the trial that is done last is made wider as long as that helps. The best of them, and of
StaticFluid's, is then changed one or two trials at a time. What is kept is always a schedule that was really found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from elastune.allocate.makespan import Devices, Placed, list_schedule, widest_first
from elastune.allocate.overheads import Overheads
from elastune.allocate.water_filling import ROUNDING, static_fluid
from elastune.spec import Width

Order = Callable[[Sequence[float], Sequence[float]], list[int]]
"""Which trials are placed first, by their durations and widths."""

TARGETS = 10
"""How many times that all may be done within are tried between the least and what StaticFluid takes, and below it."""
EFFORT, EFFORT_PER_TRIAL = 400, 40
"""How often a trial is placed before the search ends: some milliseconds."""


def longest_first(durations: Sequence[float], widths: Sequence[float]) -> list[int]:
    return sorted(range(len(durations)), key=lambda trial: -durations[trial])


def largest_first(durations: Sequence[float], widths: Sequence[float]) -> list[int]:
    return sorted(range(len(durations)), key=lambda trial: -durations[trial] * widths[trial])


ORDERS: tuple[Order, ...] = (widest_first, longest_first, largest_first)


@dataclass(frozen=True, slots=True)
class MoldablePlan:
    """The widths, which trials are placed first, and when all are done by that."""

    widths: list[Width]
    order: list[int]
    done_s: float


def best_plan(
    times: Sequence[float],
    n: int,
    overheads: Overheads,
    usable: Collection[int] | None = None,
    current: Sequence[Width | None] | None = None,
    resize_s: float = 0.0,
    orders: Sequence[Order] = ORDERS,
) -> MoldablePlan:
    """The best in any of the orders. A trial that has a width (`current`; None: it does not run) takes `resize_s` more
    with another one; that it is made to wait for others adds nothing. Of plans that are done at the same time the one
    that changes fewest is taken, then the narrowest.
    """
    static = static_fluid(times, n, overheads, usable)
    if n < 1 or not times:
        return MoldablePlan(static, list(range(len(static))), inf if times else 0.0)
    current = current or [None] * len(times)
    kept = [new if old is None or old > n else old for old, new in zip(current, static, strict=True)]
    whole = (width for width in range(1, min(overheads.d, n) + 1) if usable is None or width in usable)
    parts = (Fraction(1, k) for k in range(2, overheads.c + 1))
    search = _Search(times, n, overheads, {*whole, *parts, *static, *kept}, current, resize_s, orders)
    for widths in (static, kept):
        search.consider([search.widths.index(width) for width in widths], orders)
    for choice in search.starts():
        search.descend(choice)
    search.improve()
    search.narrow()
    return MoldablePlan([search.widths[number] for number in search.choice], search.placed_first, search.best[0])


class _Search:
    """Widths are numbered, the narrowest first; a choice has such a number for every trial."""

    def __init__(
        self,
        times: Sequence[float],
        n: int,
        overheads: Overheads,
        widths: Collection[Width],
        current: Sequence[Width | None],
        resize_s: float,
        orders: Sequence[Order],
    ) -> None:
        self.n, self.orders = n, orders
        self.effort = EFFORT + EFFORT_PER_TRIAL * len(times)
        self.widths = sorted(widths)
        self.sizes = [float(width) for width in self.widths]
        self.runs = [old is not None for old in current]
        self.current = [None if old is None or old not in widths else self.widths.index(old) for old in current]
        """None: it does not run, or there are no longer so many devices."""
        self.factors = [overheads.factor(width) for width in self.widths]
        self.durations = [[time * factor for factor in self.factors] for time in times]
        """By trial and width."""
        for durations, runs, old in zip(self.durations, self.runs, self.current, strict=True):
            if runs:
                durations[:] = [s if number == old else s + resize_s for number, s in enumerate(durations)]
        self.ladders = self._ladders(range(len(self.widths)))
        self.bound_s = self._bound_s()
        self.best: tuple[float, int, float] = (inf, 0, 0.0)
        """When all are done, how many widths change, and the sum of all."""
        self.choice: list[int] = []
        self.order: Order = orders[0]
        self.placed_first: list[int] = []

    # --------------------------------------------------------------------------------------------------------- choices

    def _ladders(self, numbers: Collection[int]) -> list[list[int]]:
        """For each trial those of the widths that can be of use to it, each faster than those before it, which take
        less of the devices; of equal ones the narrowest. It is the same for all that do not run.
        """
        common = self._ladder(self.factors, numbers)
        return [
            self._ladder(durations, numbers if old is None else {*numbers, old}) if runs else common
            for durations, runs, old in zip(self.durations, self.runs, self.current, strict=True)
        ]

    def _ladder(self, durations: Sequence[float], numbers: Iterable[int]) -> list[int]:
        areas = {number: self.sizes[number] * durations[number] for number in numbers}
        least = min(areas.values()) or 1.0
        ladder: list[int] = []
        for number in sorted(areas, key=lambda number: (round(areas[number] / least, 9), number)):
            if not ladder or durations[number] < durations[ladder[-1]] * (1 - ROUNDING):
                ladder.append(number)
        return ladder

    def _within(self, target_s: float, ladders: Sequence[Sequence[int]]) -> list[int]:
        """Of each trial the first on its ladder that is fast enough, or the fastest."""
        limit_s, choice = target_s * (1 + ROUNDING), []
        for durations, ladder in zip(self.durations, ladders, strict=True):
            at = bisect_left(ladder, -limit_s, hi=len(ladder) - 1, key=lambda number: -durations[number])
            choice.append(ladder[at])
        return choice

    def _area(self, choice: Sequence[int]) -> float:
        return sum(
            self.sizes[number] * durations[number] for durations, number in zip(self.durations, choice, strict=True)
        )

    def _bound_s(self) -> float:
        """Nothing is done sooner: the least that trials take of the devices, each fast enough, is more than there is by
        then.
        """
        low_s = max(durations[ladder[-1]] for durations, ladder in zip(self.durations, self.ladders, strict=True))
        high_s = self._area(self._within(low_s, self.ladders)) / self.n
        if high_s <= low_s:
            return low_s
        while high_s - low_s > 1e-3 * high_s:
            middle_s = (low_s + high_s) / 2
            if self._area(self._within(middle_s, self.ladders)) <= self.n * middle_s:
                high_s = middle_s
            else:
                low_s = middle_s
        return max(low_s, self._area(self._within(high_s, self.ladders)) / self.n)

    def starts(self) -> Iterator[list[int]]:
        """By the time to be done within: from the bound up to what was found, and below it for trials that run one
        after another. As a device is shared in equal parts, there are only such of one size in each.
        """
        parts = [number for number, width in enumerate(self.widths) if width < 1]
        whole = range(len(parts), len(self.widths))
        above_s = self.best[0] - self.bound_s
        seen: set[tuple[int, ...]] = set()
        for part in (*parts, None) if whole else parts:
            ladders = self._ladders(whole if part is None else [part, *whole])
            for step in range(TARGETS):
                for target_s in (self.bound_s + above_s * step / TARGETS, self.bound_s * (1 - step / TARGETS)):
                    choice = self._within(target_s, ladders)
                    if self._is_over():
                        return
                    if tuple(choice) not in seen:
                        seen.add(tuple(choice))
                        yield choice

    # ---------------------------------------------------------------------------------------------------------- search

    def _is_over(self) -> bool:
        return self.effort <= 0 or self.best[0] <= self.bound_s * (1 + ROUNDING)

    def consider(self, choice: list[int], orders: Iterable[Order]) -> bool:
        """Whether it is better than the best: then it is that."""
        self.effort -= 1
        limit_s = self.best[0] * (1 + ROUNDING)
        if self._area(choice) > self.n * limit_s:
            return False
        return max(self._try(choice, order, limit_s)[2] for order in orders)

    def descend(self, choice: list[int]) -> None:
        """Make the last wider, and then who is the last, until that does not help."""
        for order in self.orders:
            now, before_s = choice, inf
            while self._area(now) <= self.n * self.best[0]:
                done_s, last, _ = self._try(now, order)
                if done_s > before_s * (1 + ROUNDING):
                    break
                durations, narrow = self.durations[last], now[last]
                wider = (
                    number for number in range(narrow + 1, len(durations)) if durations[number] < durations[narrow]
                )
                now, before_s = [*now[:last], next(wider, narrow), *now[last + 1 :]], done_s
                if now[last] == narrow:
                    break

    def _try(self, choice: list[int], order: Order, limit_s: float = inf) -> tuple[float, int, bool]:
        """When all are done, who is the last, and whether that is the best so far; given up at the limit."""
        durations = [durations[number] for durations, number in zip(self.durations, choice, strict=True)]
        placed_first = order(durations, [self.sizes[number] for number in choice])
        devices, done_s, last = Devices(self.n), 0.0, placed_first[0]
        for trial in placed_first:
            self.effort -= 1
            start_s, _ = devices.take(self.widths[choice[trial]], durations[trial])
            end_s = start_s + durations[trial]
            if end_s > done_s:
                done_s, last = end_s, trial
                if done_s > limit_s:
                    return inf, last, False
        changes = sum(old not in (None, new) for old, new in zip(self.current, choice, strict=True))
        found = (done_s, changes, sum(self.sizes[number] for number in choice))
        sooner, later = done_s < self.best[0] * (1 - ROUNDING), done_s > self.best[0] * (1 + ROUNDING)
        better = sooner or (not later and found[1:] < self.best[1:])
        if better:
            self.best, self.choice, self.order, self.placed_first = found, choice, order, placed_first
        return done_s, last, better

    def improve(self) -> None:
        """One step after another, as long as there is one that makes it better."""
        while not self._is_over() and any(self.consider(choice, [self.order]) for choice in self._neighbours()):
            pass

    def _neighbours(self) -> Iterator[list[int]]:
        placed = self._placed()
        last = [trial for trial, each in enumerate(placed) if each.end_s >= self.best[0] * (1 - ROUNDING)]
        others = sorted({*range(len(placed))} - {*last}, key=lambda trial: -placed[trial].end_s)
        for moves in _moves(last, others):
            choice = self.choice.copy()
            for trial, step in moves:
                choice[trial] = min(max(choice[trial] + step, 0), len(self.widths) - 1)
            if self._is_over():
                return
            if choice != self.choice:
                yield choice

    def narrow(self) -> None:
        """Who has time keeps its width, or gets less: all at once, or else one after another."""
        choice = self.choice.copy()
        for trial, placed in enumerate(self._placed()):
            durations, old = self.durations[trial], self.current[trial]
            limit_s = self.best[0] * (1 + ROUNDING) - placed.start_s
            if old is not None and durations[old] <= limit_s:
                choice[trial] = old
            else:
                narrower = (number for number in range(choice[trial]) if durations[number] <= limit_s)
                choice[trial] = next(narrower, choice[trial])
        if choice == self.choice or self.consider(choice, [self.order]):
            return
        for trial, number in enumerate(choice):
            if self.effort > 0 and number != self.choice[trial]:
                self.consider([*self.choice[:trial], number, *self.choice[trial + 1 :]], [self.order])

    def _placed(self) -> list[Placed]:
        durations = [durations[number] for durations, number in zip(self.durations, self.choice, strict=True)]
        return list_schedule(durations, [self.widths[number] for number in self.choice], self.n, self.placed_first)


def _moves(last: Sequence[int], others: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Trials and by how many widths they change."""
    for step in (1, -1):
        yield [(trial, step) for trial in last]
    for trial in last:
        yield from ([(trial, step)] for step in (1, 2, -1))
    for other in others:
        yield from ([(other, step)] for step in (-1, 1))
        yield [*((trial, 1) for trial in last), (other, -1)]
    for other in others:
        yield from ([(last[0], step), (other, other_step)] for step in (2, 1, -1) for other_step in (2, 1, -1, -2))
