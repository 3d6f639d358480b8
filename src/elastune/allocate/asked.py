"""The widths that the algorithm asks for, on as many machines as they need: for algorithms that plan both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from elastune.allocate.base import Allocator, Target, View
from elastune.place import machines_needed
from elastune.spec import Width


class AsAsked(Allocator):
    """`devices` is how many a machine has, `plan` how many machines may be held until when; those that are needed after
    that are held at least. Of the others each is given back when its last trial has left.
    """

    all_at_once = True

    def __init__(self, devices: int, plan: Sequence[tuple[float, int]]) -> None:
        self.devices, self.plan = devices, tuple(plan)

    def allocate(self, view: View, at_s: float) -> Target:
        widths, failed = dict(view.widths), list(view.failed())
        for trial in sorted(view.waiting, key=lambda trial: -_width(view, trial)):  # the widest are placed first
            widths[trial] = _width(view, trial)
        machines = sum(bool(machine.trials) for machine in view.machines(0))  # nobody moves because others have left
        if len(widths) > len(view.widths) or failed:
            wanted = Counter([*widths.values(), *(_width(view, trial) for trial in failed)])
            wanted.subtract(view.widths[trial] for trial in view.leaving())  # others can have their places
            machines = max(machines, machines_needed(wanted, self.devices))
        until_s, most, fewest = self._planned(at_s)
        return Target(min(max(machines, fewest), most), widths, wake_s=until_s)

    def _planned(self, at_s: float) -> tuple[float | None, int, int]:
        """Until when, at most and at least."""
        for now, later in pairwise((*self.plan, (math.inf, 0))):
            if at_s < now[0]:
                return now[0], now[1], later[1]
        return None, self.plan[-1][1], 0


def _width(view: View, trial: str) -> Width:
    width = view.width(trial)
    assert width is not None
    return width
