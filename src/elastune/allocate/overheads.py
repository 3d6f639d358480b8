"""What packing and spreading cost (Fluid, section 4.2.2).

h_{i,w} / h_{i,1}   `factor(w)`    how many times as long as on one device a trial takes
c                   `c`            the most trials that are packed on one device
d                   `d`            the most devices that one trial is spread over
alpha, beta         `law`          both as powers, as the paper's analysis has them
T^p                 `slowdowns`    seconds per iteration with p trials on a device
O^p, O_th           `most_packed`  what packing a p-th trial gains, and how much it must
Paleo               `paleo`        how training scales, until it is measured
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastune.errors import SpecError
from elastune.profile.scaling import Scaling
from elastune.spec import Width, require_int, require_number


@dataclass(frozen=True, slots=True)
class Overheads:
    """How many times as long a trial takes at a width as on one device: with k trials on a device the k-th of
    `slowdowns`, on w devices 1 / `speedups`(w), of which `d` are the most that pay.
    """

    slowdowns: tuple[float, ...]
    speedups: Scaling
    d: int

    def __post_init__(self) -> None:
        for slowdown in self.slowdowns:
            require_number("slowdowns", slowdown)
        if not self.slowdowns or self.slowdowns[0] != 1:
            raise SpecError(f"slowdowns={self.slowdowns!r}: the first must be 1, that of a trial alone on its device")
        require_int("d", self.d, 1)

    @classmethod
    def law(cls, alpha: float, beta: float, c: int, d: int) -> Overheads:
        """h(w) = h(1) alpha^(1/w - 1) for a part of a device and h(1) / w beta^(w - 1) for several."""
        slowdowns = tuple(float(alpha ** (k - 1)) for k in range(1, c + 1))
        return cls(slowdowns, Scaling({w: w / beta ** (w - 1) for w in range(1, d + 1)}), d)

    @property
    def c(self) -> int:
        return len(self.slowdowns)

    def factor(self, width: Width) -> float:
        """More trials on a device than are packed train no more together than the most that are."""
        k = width.denominator
        if k == 1:
            return 1 / self.speedups(width.numerator)
        return self.slowdowns[k - 1] if k <= self.c else self.slowdowns[-1] * k / self.c


def most_packed(slowdowns: Sequence[float], threshold: float) -> int:
    """c: packing goes on while the marginal benefit of one more, O^p = 1 - (p - 1) / p * T^p / T^(p-1), is above the
    threshold. It is the part by which the time per iteration and trial falls: 1/p if the others do not notice, 0 if
    the device was full.
    """
    for p in range(2, len(slowdowns) + 1):
        benefit = 1 - (p - 1) / p * slowdowns[p - 1] / slowdowns[p - 2]
        if not benefit > threshold:
            return p - 1
    return len(slowdowns)


def widest(speedups: Mapping[int, float], threshold: float) -> int:
    """d: a trial is spread wider while each added device, of those up to the next width that is known, brings at least
    the threshold of what the first one does: 1 if training scales perfectly, 0 if it gains nothing.
    """
    widths = sorted(speedups)
    for narrow, wide in pairwise(widths):
        benefit = (speedups[wide] - speedups[narrow]) / (wide - narrow) / speedups[1]
        if not benefit >= threshold:
            return narrow
    return widths[-1]


def paleo(step_s: float, sync_bytes: float, syncs_per_step: float, bandwidth_bytes_per_s: float, most: int) -> Scaling:
    """Synchronous data parallelism in Paleo's model: w devices share the computing of a step, and a ring passes what is
    summed around it twice, 2 (w - 1) / w of it over each link. From 1 to `most` devices, also where more are slower.
    """
    require_number("step_s", step_s)
    require_number("sync_bytes", sync_bytes, zero=True)
    require_number("syncs_per_step", syncs_per_step, zero=True)
    require_number("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    require_int("most", most, 1)
    sync_s = syncs_per_step * sync_bytes / bandwidth_bytes_per_s
    return Scaling({w: step_s / (step_s / w + 2 * (w - 1) / w * sync_s) for w in range(1, most + 1)})
