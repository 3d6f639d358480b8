"""How many trials at a time help an algorithm that begins them one by one: many narrow ones, or few wide ones.

The time to the best so far has two parts: until its configuration came up, which falls with what all devices train
together, and while that trial trained, which falls with its own speed. Packed trials train more together and each is
slower; spread ones the other way round. So each new best tells what matters, and the width is chosen by which the same
would have been found soonest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from elastune.allocate.overheads import Overheads
from elastune.spec import Width

MOST = 1 / 3
"""Early on the best trial has trained nearly all the time, which tells nothing: it counts for so much at most."""
GAIN = 0.05
"""The width changes only if that should save so much."""


@dataclass(slots=True)
class Concurrency:
    """`trained_s` is how long the best trial has trained, as if on one device."""

    width: Width = 1
    trained_s: float = 0.0

    def improved(self, trained_s: float, overheads: Overheads) -> None:
        """A trial is better than all before, and has trained so long for that."""
        self.trained_s = trained_s * speed(self.width, overheads)

    def choose(self, at_s: float, n: int, overheads: Overheads, usable: Sequence[int]) -> None:
        """How many of n devices each trial should have, or which part of one. If the next best trains as long as this
        one did, the rest of the time is for finding it.
        """
        training = min(MOST, self.trained_s / at_s) if at_s > 0 else 0.0

        def takes(width: Width) -> float:
            """The time to the same best, as a part of that with one device for each trial."""
            return (1 - training) / throughput(width, n, overheads) + training / speed(width, overheads)

        wide: list[Width] = [w for w in usable if w <= min(n, overheads.d)]
        parts: list[Width] = [Fraction(1, k) for k in range(2, overheads.c + 1)]
        best = min((*wide, *parts), key=takes)
        if takes(best) < (1 - GAIN) * takes(self.width):
            self.width = best


def speed(width: Width, overheads: Overheads) -> float:
    """Of one trial."""
    return 1 / overheads.factor(width)


def throughput(width: Width, n: int, overheads: Overheads) -> float:
    """Of one of n devices, if all trials have this width."""
    return (n // width) * speed(width, overheads) / n
