"""How many trials at a time help an algorithm that begins them one by one: many narrow ones, or few wide ones.

The time to the best so far has two parts: until its configuration came up, which falls with what all devices train
together, and while that trial trained, which falls with its own speed. Packed trials train more together and each is
slower; spread ones the other way round. So each new best tells what matters, and the width is chosen by which the same
would have been found soonest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from elastune.allocate.overheads import Overheads
from elastune.allocate.pace import Pace
from elastune.spec import Width

MOST = 1 / 3
"""Early on the best trial has trained nearly all the time, which tells nothing: it counts for so much at most."""
GAIN = 0.05
"""The width changes, or another is tried, only if that should save so much."""
HOPED_FOR = {"packed": 0.75, "spread": 1.9}
"""How fast a trial may be beside one more than before, or on twice as many devices, for deciding whether to try."""


@dataclass(slots=True)
class Concurrency:
    """`trained_s` is how long the best trial has trained, as if on one device; `training` is that as a part of the time
    since the beginning.
    """

    width: Width = 1
    trained_s: float = 0.0
    training: float = 0.0

    def improved(self, trained_s: float, overheads: Overheads) -> None:
        """A trial is better than all before, and has trained so long for that."""
        self.trained_s = trained_s / overheads.factor(self.width)

    def choose(self, at_s: float, n: int, overheads: Overheads, usable: Sequence[int]) -> None:
        """How many of n devices each trial should have, or which part of one. If the next best trains as long as this
        one did, the rest of the time is for finding it.
        """
        self.training = min(MOST, self.trained_s / at_s) if at_s > 0 else 0.0
        wide: list[Width] = [w for w in usable if w <= min(n, overheads.d)]
        parts: list[Width] = [Fraction(1, k) for k in range(2, overheads.c + 1)]
        best = min((*wide, *parts), key=lambda width: self.takes(width, n, overheads))
        if self.takes(best, n, overheads) < (1 - GAIN) * self.takes(self.width, n, overheads):
            self.width = best

    def takes(self, width: Width, n: int, overheads: Overheads, speed: float | None = None) -> float:
        """The time to the same best with trials of this width and speed, as a part of that with one device each; for
        ever if there are not so many devices.
        """
        if width > n:
            return math.inf
        speed = 1 / overheads.factor(width) if speed is None else speed
        return (1 - self.training) * n / (n // width * speed) + self.training / speed

    def may_help(self, width: Width, n: int, pace: Pace) -> bool:
        """Whether a width that is not known yet could be better than what trials have, if it goes well."""
        before = width // 2 if width > 1 else Fraction(1, width.denominator - 1)
        best = HOPED_FOR["spread" if width > 1 else "packed"] / pace.overheads.factor(before)
        hoped = pace.hoped(width, best)
        return self.takes(width, n, pace.overheads, hoped) < (1 - GAIN) * self.takes(self.width, n, pace.overheads)
