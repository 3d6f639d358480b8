"""Width by width, for some time each: how a training job is measured.

All devices are kept busy at every width, as they are in a run, so that what is measured has the same neighbours.
Half-way through all trials leave and begin again, as they do between two stages.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.plan.model import machines_for
from elastune.spec import Width, require_number, to_width

LEAST_STEPS = 3
"""A width is measured until all its trials together have made so many steps for each of them, however long that takes:
one may have made fewer, if others made more."""

MEASURED = "every width was measured"
"""How it ends when all went well."""


def widths_on(machines: int, devices: int) -> tuple[int, ...]:
    """1, 2, 4, ..., as wide as there is a place for."""
    widths, width = [], 1
    while width <= machines * devices:
        if width <= devices or width % devices == 0:
            widths.append(width)
        width *= 2
    return tuple(widths)


class Stepwise(Allocator):
    def __init__(self, machines: int, devices: int, seconds: float, widths: Sequence[Width]) -> None:
        require_number("seconds", seconds)
        self.machines, self.devices, self.seconds = machines, devices, seconds
        self.widths = tuple(to_width("width", width) for width in widths)
        self._phase = -1
        self._until_s = 0.0
        self._steps = 0
        self._begun_again = False

    @property
    def width(self) -> Width:  # type: ignore[override]
        """Trials that share devices are as many as that makes."""
        return min(1, self.widths[max(0, self._phase)]) if self._phase < len(self.widths) else 1

    def stepped(self, steps: Steps) -> bool:
        if 0 <= self._phase < len(self.widths) and steps.width == self.widths[self._phase]:
            # Of those that share a device once all are there: their processes may have to start.
            self._steps += steps.number if steps.width >= 1 or steps.sharing == steps.width.denominator else 0
        return False

    def allocate(self, view: View, at_s: float) -> Target:
        if self._phase < 0 and len(view.machines(0)) < self.machines:
            return Target(self.machines, {})
        while self._phase < 0 or (at_s >= self._until_s and self._steps >= LEAST_STEPS * self._side_by_side()):
            self._phase, self._until_s, self._steps = self._phase + 1, at_s + self.seconds, 0
            self._begun_again = False
            if self._phase == len(self.widths):
                return Target(0, {}, done=MEASURED)
        if self._steps == 0:  # time begins with the first step: importing a framework may take longer than all of it
            self._until_s = at_s + self.seconds
        half_s = self._until_s - self.seconds / 2
        if at_s >= half_s and not self._begun_again:
            if view.widths:
                return Target(self.machines, {})
            self._begun_again = True
        trials = [*view.widths, *view.waiting][: self._side_by_side()]
        wake_s = next((when_s for when_s in (half_s, self._until_s) if at_s < when_s), at_s + self.seconds / 4)
        return Target(self.machines, dict.fromkeys(trials, self.widths[self._phase]), wake_s)

    def _side_by_side(self) -> int:
        """As many trials as have a place."""
        width = self.widths[self._phase]
        if width < 1:
            return self.machines * self.devices * width.denominator
        width = int(width)
        return self.machines // machines_for(1, width, self.devices) * (max(1, self.devices // width))
