"""One configuration on all devices from the beginning to the end: what a budget buys without any tuning."""

from __future__ import annotations

from elastune.algorithm.timed import Bracket, TimedStage, TimedStages, Window
from elastune.allocate.base import Allocator
from elastune.errors import Infeasible
from elastune.place import machines_needed
from elastune.spec import Terms


class SingleTrial(TimedStages):
    """The baseline that tells whether tuning is needed at all."""

    def __init__(self) -> None:
        super().__init__()

    def prepare(self, terms: Terms) -> Allocator:
        window = Window.of(terms, "SingleTrial")
        devices = terms.devices
        most = min(terms.machines * devices, int(window.device_s / window.seconds) + 1)
        widths = [width for width in range(1, most + 1) if width == window.usable(width)]
        plans = (
            (TimedStage(window.begin_s, window.end_s, (Bracket(1, width),), machines_needed({width: 1}, devices)),)
            for width in reversed(widths)
        )
        plan = next(filter(window.affords, plans), None)
        if plan is None:
            needed = window.cost([(window.end_s, 1)])
            raise Infeasible(
                f"the budget of {window.say(window.budget)} is too small for one machine until the deadline: it takes "
                f"{window.say(needed)}. Give a larger budget, or an earlier deadline"
            )
        self.plan = plan
        return self.allocator(devices)
