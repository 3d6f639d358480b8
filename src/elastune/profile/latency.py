"""How long something takes that does not always take the same time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elastune.errors import SpecError, did_you_mean
from elastune.spec import require_number

Floats = NDArray[np.float64]
Kind = Literal["constant", "normal", "lognormal", "empirical"]
KINDS: tuple[Kind, ...] = ("constant", "normal", "lognormal", "empirical")


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of durations, none of them below zero. Made by `constant`, `normal`, `lognormal` and `empirical`.

    `normal` is cut off at zero, so that its true mean lies above `mean_s` where `std_s` is large. `empirical` has what
    was measured, each value as likely as the others.
    """

    kind: Kind
    mean_s: float
    std_s: float = 0.0
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SpecError(f"latency {self.kind!r}: {did_you_mean(str(self.kind), KINDS)}")
        require_number("mean", self.mean_s, zero=self.kind in ("constant", "empirical"))
        require_number("std", self.std_s, zero=True)
        if (self.kind == "empirical") != bool(self.values):
            raise SpecError(
                f"latency {self.kind!r} with values={self.values!r}: an empirical one, and no other, has some"
            )
        if self.kind == "constant" and self.std_s:
            raise SpecError(
                f"latency 'constant' with std={self.std_s!r}: must be 0, or the latency normal or lognormal"
            )

    @property
    def expected_s(self) -> float:
        if self.kind != "normal" or not self.std_s:
            return self.mean_s
        cut = self.mean_s / self.std_s
        density = math.exp(-cut * cut / 2) / math.sqrt(2 * math.pi)
        return self.mean_s + self.std_s * density / (0.5 * math.erfc(-cut / math.sqrt(2)))

    @property
    def varies(self) -> bool:
        return self.std_s > 0

    def times(self, factor: float) -> Latency:
        """The same, slower or faster."""
        values = tuple(value * factor for value in self.values)
        return Latency(self.kind, self.mean_s * factor, self.std_s * factor, values)

    def plus(self, other: Latency) -> Latency:
        """One after the other."""
        if not self.varies and not other.varies:
            return constant(self.mean_s + other.mean_s)
        if not other.mean_s:
            return self
        rng = np.random.default_rng(20210426)
        return empirical(tuple(self.sample(rng, (1000,)) + other.sample(rng, (1000,))))

    def draw_s(self, seed: str) -> float:
        """One draw, always the same for the same text."""
        if not self.varies:
            return self.mean_s
        return float(self.sample(np.random.default_rng(list(seed.encode())), (1,))[0])

    def factors(self, number: int) -> list[float]:
        """Draws as multiples of what is expected; always the same ones."""
        if not self.varies:
            return [1.0]
        drawn = self.sample(np.random.default_rng(20210426), (number,))
        factors: list[float] = (drawn / drawn.mean()).tolist()
        return factors

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        if not self.varies:
            return np.full(shape, self.mean_s)
        if self.kind == "empirical":
            return rng.choice(np.array(self.values), shape)
        if self.kind == "lognormal":
            variance = 2 * math.log(math.hypot(1.0, self.std_s / self.mean_s))
            return rng.lognormal(math.log(self.mean_s) - variance / 2, math.sqrt(variance), shape)
        drawn = rng.normal(self.mean_s, self.std_s, shape)
        while (below := drawn <= 0).any():
            drawn[below] = rng.normal(self.mean_s, self.std_s, int(below.sum()))
        return drawn


def constant(seconds: float) -> Latency:
    return Latency("constant", seconds)


def normal(mean_s: float, std_s: float) -> Latency:
    return Latency("normal", mean_s, std_s)


def lognormal(mean_s: float, std_s: float) -> Latency:
    return Latency("lognormal", mean_s, std_s)


def empirical(values: tuple[float, ...]) -> Latency:
    """What was measured, at least one value."""
    if not values:
        raise SpecError("empirical latency: must have at least one value")
    for value in values:
        require_number("empirical value", value, zero=True)
    return Latency("empirical", float(np.mean(values)), float(np.std(values)), tuple(map(float, values)))


def require_latency(name: str, value: object) -> None:
    """Refuse a bare number, which Python would notice only when it is drawn from."""
    if not isinstance(value, Latency):
        raise SpecError(f"{name}={value!r}: must be a Latency, such as constant(2.5) or normal(2.5, 0.1)")


AT_ONCE = constant(0.0)
