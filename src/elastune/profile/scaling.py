"""How much faster a trial trains on more devices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from elastune.errors import SpecError
from elastune.spec import require_number


class Scaling:
    """A speed-up for every width, from some that are known: in between it is interpolated, above the widest it stays,
    and below the narrowest it falls with the width (each of two trials that share a device trains half as fast).
    """

    def __init__(self, speedups: Mapping[float, float]) -> None:
        if not isinstance(speedups, Mapping):
            raise SpecError(f"scaling={speedups!r}: must map widths to speed-ups, such as {{1: 1, 2: 1.9}}")
        for width, factor in speedups.items():
            require_number("scaling width", width)
            require_number(f"scaling[{width}]", factor)
        if 1 not in speedups:
            raise SpecError(f"scaling={dict(speedups)!r}: must say the speed-up of width 1")
        self.speedups = dict(sorted(speedups.items()))
        self._widths, self._factors = list(self.speedups), list(self.speedups.values())

    def __call__(self, width: float) -> float:
        if width < self._widths[0]:
            return self._factors[0] * width / self._widths[0]
        return float(np.interp(width, self._widths, self._factors))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaling) and self.speedups == other.speedups

    def __hash__(self) -> int:
        return hash(tuple(self.speedups.items()))

    def __repr__(self) -> str:
        return f"Scaling({self.speedups!r})"
