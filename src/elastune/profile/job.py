"""What was measured of a training job: how long a step takes, how it scales, what it costs to begin."""

from __future__ import annotations

from dataclasses import dataclass

from elastune.errors import SpecError
from elastune.profile.latency import AT_ONCE, Latency, require_latency
from elastune.profile.scaling import Scaling
from elastune.spec import require_number


@dataclass(frozen=True, slots=True)
class JobProfile:
    """`step` is one iteration on one device; on more it is divided by the speed-up.

    `start` is what it takes to begin a trial, or to go on with one, on workers that are warm: loading its checkpoint
    and forming its gang. `cold_start` comes on top of the boot of a new machine: its worker processes start, and the
    user's code is imported. `packed` is how fast each of 2, 3, ... trials on one device is, where 1 is alone.
    """

    step: Latency
    scaling: Scaling
    start: Latency = AT_ONCE
    cold_start: Latency = AT_ONCE
    packed: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("step", "start", "cold_start"):
            require_latency(name, getattr(self, name))
        if not isinstance(self.scaling, Scaling):
            raise SpecError(f"scaling={self.scaling!r}: must be a Scaling, such as Scaling({{1: 1, 2: 1.9}})")
        if min((self.step.mean_s, *self.step.values)) <= 0:
            raise SpecError(f"step={self.step!r}: an iteration must take time")
        for trials, speed in enumerate(self.packed, 2):
            require_number(f"packed[{trials}]", speed)
            if speed > 1:
                raise SpecError(
                    f"packed[{trials}]={speed}: each of {trials} trials on a device is at most as fast as alone: "
                    "give a number up to 1"
                )

    @property
    def with_parts(self) -> Scaling:
        """The scaling, and below one device what is packed: each of k trials has 1/k of it."""
        return Scaling({1 / trials: speed for trials, speed in enumerate(self.packed, 2)} | self.scaling.speedups)
