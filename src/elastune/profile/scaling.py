"""How much faster a trial trains on more devices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from elastune.errors import SpecError
from elastune.spec import require_int, require_number


class Scaling:
    """A speed-up for every width, from some that are known: in between it is interpolated, above the widest it stays,
    and below the narrowest it falls with the width (each of two trials that share a device trains half as fast).
    """

    def __init__(self, speedups: Mapping[float, float] | Mapping[int, float]) -> None:
        if not isinstance(speedups, Mapping):
            raise SpecError(f"scaling={speedups!r}: must map widths to speed-ups, such as {{1: 1, 2: 1.9}}")
        for width, factor in speedups.items():
            require_number("scaling width", width)
            require_number(f"scaling[{width}]", factor)
        if 1 not in speedups:
            raise SpecError(f"scaling={dict(speedups)!r}: must say the speed-up of width 1")
        self.speedups: dict[float, float] = dict(sorted(speedups.items()))
        self._widths, self._factors = list(self.speedups), list(self.speedups.values())

    def __call__(self, width: float) -> float:
        widths, factors = self._widths, self._factors
        above = bisect_right(widths, width)
        if above == 0:
            return float(factors[0] * width / widths[0])
        below = above - 1
        if above == len(widths) or widths[below] == width:
            return float(factors[below])
        share = (width - widths[below]) / (widths[above] - widths[below])
        return float(factors[below] + share * (factors[above] - factors[below]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaling) and self.speedups == other.speedups

    def __hash__(self) -> int:
        return hash(tuple(self.speedups.items()))

    def __repr__(self) -> str:
        return f"Scaling({self.speedups!r})"


def require_widths(name: str, given: object, what: str) -> dict[int, Any]:
    """A mapping from widths as one measures them, whole numbers of devices that increase from 1, to `what`."""
    if not isinstance(given, Mapping) or not given:
        raise SpecError(f"{name}={given!r}: must map numbers of devices to {what}, such as {{1: ..., 2: ...}}")
    for width in given:
        require_int(f"{name} width", width, 1)
    if list(given) != sorted(given):
        raise SpecError(f"{name}: the widths {', '.join(map(str, given))} must increase")
    if 1 not in given:
        raise SpecError(f"{name}={dict(given)!r}: must say the {what} of width 1")
    return dict(given)
