"""First come, first served: one device per trial on a fixed number of machines, as today's tools do."""

from __future__ import annotations

from itertools import islice

from elastune.allocate.base import Allocator, Target, View
from elastune.spec import require_int


class FirstComeFirstServed(Allocator):
    def __init__(self, machines: int = 1) -> None:
        require_int("machines", machines, 1)
        self.machines = machines

    def allocate(self, view: View, at_s: float) -> Target:
        widths = dict(view.widths)
        widths.update((trial, 1) for trial in islice(view.waiting, view.free))
        return Target(self.machines, widths)
