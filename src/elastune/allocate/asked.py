"""The widths that the algorithm asks for, on as many machines as they need: for algorithms that plan both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elastune.allocate.base import Allocator, Target, View
from elastune.place import machines_needed
from elastune.spec import Width


class AsAsked(Allocator):
    """`devices` is how many a machine has, `plan` how many machines may be held in each stage. Those that the next one
    needs are held at least; of the others each is given back when its last trial has left. A stage is over when all its
    trials have left, which may be a moment after its time.
    """

    all_at_once = True

    def __init__(self, devices: int, plan: Sequence[int]) -> None:
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
        stage = min(map(view.stage, (*widths, *failed)), default=len(self.plan))
        most, fewest, *_ = (*self.plan[stage:], 0, 0)
        return Target(min(max(machines, fewest), most), widths)


def _width(view: View, trial: str) -> Width:
    width = view.width(trial)
    assert width is not None
    return width
