"""First come, first served: the same width for every trial on a fixed number of machines, as today's tools do; but for
the runs for which the algorithm asks for another.
"""

from __future__ import annotations

from elastune.allocate.base import Allocator, Target, View
from elastune.spec import Width, require_int, to_width


class FirstComeFirstServed(Allocator):
    def __init__(self, machines: int = 1, width: Width = 1) -> None:
        require_int("machines", machines, 1)
        self.machines = machines
        self.width = to_width("width", width)

    def allocate(self, view: View, at_s: float) -> Target:
        widths, free = dict(view.widths), view.free
        for trial in view.waiting:
            asked = view.width(trial)
            width = self.width if asked is None else asked
            if width > free:  # nobody overtakes it
                break
            widths[trial] = width
            free -= width
        return Target(self.machines, widths)
