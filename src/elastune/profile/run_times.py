"""How long a step of a configuration takes, learnt from trials that were measured: batch size and layers matter.

The logarithm of a step's seconds is a linear function of the configuration: of its numbers, on a scale that is nearly
logarithmic, of their squares, and of which choice it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastune.messages import Config

RIDGE = 1.0
"""As many measured trials as it takes to believe half of what the configurations seem to tell."""
FURTHER = math.log(3.0)
FEW = 3
"""Fewer trials tell nothing about configurations."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """`mean` is that of all logarithms; a feature adds its weight for what it is above its usual value."""

    mean: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    seen: tuple[float, float] = (-math.inf, math.inf)
    """Nothing is taken to be much further out than what was measured."""

    @classmethod
    def fit(cls, configs: Sequence[Config], logs: Sequence[float]) -> RunTimes:
        """Ridge regression on features of zero mean and unit spread."""
        import numpy as np  # takes a while, and most who import this package do without

        mean = float(np.mean(logs))
        rows = [features(config) for config in configs]
        names = sorted({name for row in rows for name in row})
        if not names or len(rows) < FEW:
            return cls(mean)
        values = np.array([[row.get(name, 0.0) for name in names] for row in rows])
        centres, spreads = values.mean(axis=0), values.std(axis=0)
        varies = spreads > 1e-9
        scaled = (values[:, varies] - centres[varies]) / spreads[varies]
        gram = scaled.T @ scaled + RIDGE * np.eye(scaled.shape[1])
        solved = np.linalg.solve(gram, scaled.T @ (np.array(logs) - mean)) / spreads[varies]
        chosen = [name for name, each in zip(names, varies, strict=True) if each]
        return cls(
            mean,
            dict(zip(chosen, map(float, solved), strict=True)),
            dict(zip(chosen, map(float, centres[varies]), strict=True)),
            (min(logs) - FURTHER, max(logs) + FURTHER),
        )

    def log_s(self, config: Config) -> float:
        """The logarithm of the seconds of a step."""
        if not self.weights:
            return self.mean
        found, usual = features(config), self.usual
        told = self.mean + sum(w * (found.get(name, 0.0) - usual[name]) for name, w in self.weights.items())
        return min(max(told, self.seen[0]), self.seen[1])


def features(config: Config, prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in config.items():
        name = f"{prefix}{name}"
        if isinstance(value, dict):
            found |= features(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            size = math.asinh(value) if math.isfinite(value) else 0.0
            found |= {name: size, f"{name}^2": size * size}
        else:
            found[f"{name}={value}"] = 1.0
    return found
