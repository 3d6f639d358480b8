"""First come, first served: the same width for every trial on a fixed number of machines, as today's tools do."""

from __future__ import annotations

from itertools import islice

from elastune.allocate.base import Allocator, Target, View
from elastune.spec import Width, require_int, to_width


class FirstComeFirstServed(Allocator):
    def __init__(self, machines: int = 1, width: Width = 1) -> None:
        require_int("machines", machines, 1)
        self.machines = machines
        self.width = to_width("width", width)

    def allocate(self, view: View, at_s: float) -> Target:
        widths = dict(view.widths)
        widths.update((trial, self.width) for trial in islice(view.waiting, view.free // self.width))
        return Target(self.machines, widths)
