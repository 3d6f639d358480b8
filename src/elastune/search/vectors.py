"""Configurations as vectors, for models that compute with numbers.

Every domain of the space is an axis. On a numeric axis a value lies between 0 and 1: on a logarithmic scale by its
logarithm, and where there are steps in the middle of its step, so that every step is equally wide. On the axis of a
choice the coordinate is the index of the option. Where a domain is not in use (it belongs to an option that was not
chosen), the coordinate is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastune.messages import Config
from elastune.space import Choice, Domain, Float, Integer, Space

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Axis:
    domain: Domain
    parent: int | None
    option: int
    """In use only where the axis `parent` has this coordinate."""
    steps: int
    """How many values there are; 0: any number of them."""
    low: float
    high: float
    """What 0 and 1 stand for, as logarithms where the scale is logarithmic. A step reaches half a step to either side
    of its value. Of no meaning for a choice.
    """

    @property
    def is_choice(self) -> bool:
        return isinstance(self.domain, Choice)

    def coordinate(self, value: Any) -> float:
        if isinstance(self.domain, Choice):
            return float(value)
        return ((math.log(value) if self.domain.log else value) - self.low) / (self.high - self.low)

    def value(self, coordinate: float) -> Any:
        domain = self.domain
        if isinstance(domain, Choice):
            return int(coordinate)
        if isinstance(domain, Float) and domain.q is not None:
            return domain.step(min(int(coordinate * self.steps), self.steps - 1))
        found = self.low + coordinate * (self.high - self.low)
        found = math.exp(found) if domain.log else found
        if isinstance(domain, Integer):
            return min(max(round(found), domain.low), domain.high - 1)
        return min(max(found, domain.low), domain.high)  # rounding may step over an end

    def snap(self, coordinates: Array) -> Array:
        """The coordinates of the values that these stand for."""
        domain = self.domain
        if isinstance(domain, Choice) or not self.steps:
            return coordinates
        if not domain.log:
            return (np.minimum(np.floor(coordinates * self.steps), self.steps - 1) + 0.5) / self.steps
        values = np.rint(np.exp(self.low + coordinates * (self.high - self.low)))
        snapped: Array = (np.log(np.clip(values, domain.low, domain.high - 1)) - self.low) / (self.high - self.low)
        return snapped


class Vectors:
    """A space whose configurations are vectors."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._at: dict[str, int] = {}
        axes: list[Axis] = []
        choices: dict[str, int] = {}
        for name, domain in space.domains().items():
            parent, option = _parent(name, choices)
            self._at[name] = len(axes)
            if isinstance(domain, Choice):
                choices[name] = len(axes)
            axes.append(Axis(domain, parent, option, *_scale(domain)))
        self.axes = tuple(axes)

    def vector(self, config: Config) -> Array | None:
        """None if the space does not hold the configuration."""
        answers = self._space.answers(config)
        if answers is None:
            return None
        vector = np.full(len(self.axes), np.nan)
        for name, answer in answers.items():
            at = self._at[name]
            vector[at] = self.axes[at].coordinate(answer)
        return vector

    def config(self, vector: Array) -> Config:
        coordinates: list[float] = vector.tolist()

        def choose(name: str, _: Domain) -> Any:
            at = self._at[name]
            return self.axes[at].value(coordinates[at])

        return self._space.resolve(choose)

    def draw(self, rng: np.random.Generator) -> Array:
        """A random configuration: what `Space.sample` would draw."""
        vectors = rng.random((1, len(self.axes)))
        for at, axis in enumerate(self.axes):
            if axis.is_choice:
                vectors[:, at] = np.floor(vectors[:, at] * axis.steps)
        vector: Array = self.settle(vectors)[0]
        return vector

    def settle(self, vectors: Array) -> Array:
        """The same with every coordinate where it belongs: in the middle of its step, or NaN if it is not in use."""
        for at, axis in enumerate(self.axes):
            if axis.parent is not None:  # which comes before it, and is NaN itself if it is not in use
                vectors[vectors[:, axis.parent] != axis.option, at] = np.nan
            if axis.steps:
                vectors[:, at] = axis.snap(vectors[:, at])
        return vectors


def _parent(name: str, choices: dict[str, int]) -> tuple[int | None, int]:
    """The innermost choice that a domain belongs to, and the option, by the domain's name."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (at := choices.get(".".join(parts[:end]))) is not None:
            return at, int(parts[end])
    return None, 0


def _scale(domain: Domain) -> tuple[int, float, float]:
    """The steps, low and high of an axis."""
    if isinstance(domain, Choice):
        return len(domain.options), 0.0, 0.0
    if isinstance(domain, Integer):
        steps, low, high = domain.high - domain.low, domain.low - 0.5, domain.high - 0.5
    elif domain.q is not None:
        steps = domain.steps + 1
        low, high = domain.low - domain.q / 2, domain.low + (steps - 0.5) * domain.q
    else:
        steps, low, high = 0, domain.low, domain.high
    return (steps, math.log(low), math.log(high)) if domain.log else (steps, low, high)
