"""What was measured of a training job: how long a step takes, how it scales, what it costs to begin."""

from __future__ import annotations

from dataclasses import dataclass

from elastune.errors import SpecError
from elastune.profile.latency import AT_ONCE, Latency, require_latency
from elastune.profile.scaling import Scaling


@dataclass(frozen=True, slots=True)
class JobProfile:
    """`step` is one iteration on one device; on more it is divided by the speed-up.

    `start` is what it takes to begin a trial, or to go on with one, on workers that are warm: loading its checkpoint
    and forming its gang. `cold_start` comes on top of the boot of a new machine: its worker processes start, and the
    user's code is imported.
    """

    step: Latency
    scaling: Scaling
    start: Latency = AT_ONCE
    cold_start: Latency = AT_ONCE

    def __post_init__(self) -> None:
        for name in ("step", "start", "cold_start"):
            require_latency(name, getattr(self, name))
        if not isinstance(self.scaling, Scaling):
            raise SpecError(f"scaling={self.scaling!r}: must be a Scaling, such as Scaling({{1: 1, 2: 1.9}})")
        if min((self.step.mean_s, *self.step.values)) <= 0:
            raise SpecError(f"step={self.step!r}: an iteration must take time")
