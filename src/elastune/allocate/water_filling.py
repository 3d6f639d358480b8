"""Algorithms 1 and 2 of Fluid: devices by water-filling.

    A, h_{i,1}   `times`      what is left of the trials of a group, in seconds on one device
    n            `n`          devices: the idle ones in Algorithm 1, all in Algorithm 2
    w_i, w_i'    `widths`     devices of a trial now, and by the formula
    c, d         `overheads`  the most trials on one device, the most devices of one trial
    h_{i,w}                   `times[i] * overheads.factor(w)`
    epsilon      `resize_s`   what it takes to change a trial's width

Two things are ours. Machines may not offer every width: with `usable`, whole widths are rounded down to one of them.
And widths only change if that helps the group: those of Algorithm 2 may leave no place for a trial that it made wider,
because another stays as wide as it is, and a trial that becomes narrower may become the last.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from fractions import Fraction

from elastune.allocate.makespan import durations, list_schedule, makespan
from elastune.allocate.overheads import Overheads
from elastune.spec import Width

ROUNDING = 1e-9
"""Relative: a share of 2.9999999999 devices is 3, and a gain below it is none."""


def static_fluid(
    times: Sequence[float], n: Width, overheads: Overheads, usable: Collection[int] | None = None
) -> list[Width]:
    """Algorithm 1. The order in which the paper sorts matters for starting them, see `makespan`, not for the widths."""
    if not any(times):  # all are done, and so all are alike
        times = [1.0] * len(times)
    total = sum(times)
    return [_width(time / total * n, overheads, usable) for time in times]


def _width(water: float, overheads: Overheads, usable: Collection[int] | None) -> Width:
    """min(max(floor(water), 1/c), d)."""
    whole = min(math.floor(water * (1 + ROUNDING)), overheads.d)
    if usable is not None:
        whole = max((width for width in usable if width <= whole), default=0)
    if whole >= 1:
        return whole
    return Fraction(1, overheads.c) if overheads.c > 1 else 1


def dynamic_fluid(
    times: Sequence[float],
    widths: Sequence[Width],
    n: int,
    overheads: Overheads,
    resize_s: float,
    usable: Collection[int] | None = None,
) -> list[Width]:
    """Algorithm 2, for when nobody waits: the widths of all that run."""
    wanted = static_fluid(times, n, overheads, usable)
    changed: dict[int, Width] = {}
    for trial, (time, old, new) in enumerate(zip(times, widths, wanted, strict=True)):
        if pays(time, old, new, overheads, resize_s):
            changed[trial] = new
    _drop_those_without_a_place(changed, times, widths, n)
    updated = [changed.get(trial, width) for trial, width in enumerate(widths)]
    if updated == list(widths):
        return updated
    present_s, updated_s = durations(times, widths, overheads), durations(times, updated, overheads)
    for trial in changed:
        updated_s[trial] += resize_s
    later = makespan(updated_s, updated, n) > makespan(present_s, widths, n) * (1 + ROUNDING)
    return list(widths) if later else updated


def pays(time: float, old: Width, new: Width, overheads: Overheads, resize_s: float) -> bool:
    """The test of Algorithm 2: wider it must be done sooner, narrower it must take less of the devices."""
    old_s, new_s = time * overheads.factor(old), time * overheads.factor(new) + resize_s
    return (new > old and _less(new_s, old_s)) or (new < old and _less(new * new_s, old * old_s))


def _less(one: float, other: float) -> bool:
    return one < other * (1 - ROUNDING)


def _drop_those_without_a_place(
    changed: dict[int, Width], times: Sequence[float], widths: Sequence[Width], n: int
) -> None:
    """All go on at once: of those to be made wider the shortest stay as they are, so that there is a place for all."""
    wider = sorted((trial for trial in changed if changed[trial] > widths[trial]), key=lambda trial: -times[trial])

    def too_many(kept: int) -> bool:
        updated = [changed.get(trial, width) for trial, width in enumerate(widths)]
        for trial in wider[kept:]:
            updated[trial] = widths[trial]
        return any(placed.start_s > 0 for placed in list_schedule([1.0] * len(updated), updated, n))

    for trial in wider[max(0, bisect_left(range(len(wider) + 1), True, key=too_many) - 1) :]:
        del changed[trial]
