"""The widths that the algorithm asks for, on as many machines as they need: for algorithms that plan both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elastune.allocate.base import Allocator, Target, View
from elastune.place import machines_needed
from elastune.spec import Width


class AsAsked(Allocator):
    """`devices` is how many a machine has, `at_least` how many machines to hold until when, whatever runs: those that
    will be needed after that. Of the others each is given back when its last trial has left.
    """

    all_at_once = True

    def __init__(self, devices: int, at_least: Sequence[tuple[float, int]]) -> None:
        self.devices, self.at_least = devices, tuple(at_least)

    def allocate(self, view: View, at_s: float) -> Target:
        until_s, fewest = next((each for each in self.at_least if at_s < each[0]), (None, 0))
        widths, failed = dict(view.widths), list(view.failed())
        for trial in sorted(view.waiting, key=lambda trial: -_width(view, trial)):  # the widest are placed first
            widths[trial] = _width(view, trial)
        if len(widths) > len(view.widths) or failed:
            wanted = Counter([*widths.values(), *(_width(view, trial) for trial in failed)])
            machines = machines_needed(wanted, self.devices)
        else:  # nobody moves just because others have left
            machines = sum(bool(machine.trials) for machine in view.machines(0))
        return Target(max(machines, fewest), widths, wake_s=until_s)


def _width(view: View, trial: str) -> Width:
    width = view.width(trial)
    assert width is not None
    return width
