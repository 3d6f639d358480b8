"""The seam that says where a trial will be: a learning curve goes in, a loss further on comes out."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

FURTHEST = sys.float_info.max
"""No prediction is further off than numbers go."""


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """The loss that is expected, and how far off it may be: one standard deviation."""

    loss: float
    std: float


class Extrapolator(ABC):
    """Predicts the loss of a trial from those it has reported. A pure function: the same curve, the same prediction.

    It ranks trials that have trained for different lengths, so it answers for any curve that has a point: with too
    little to go by it predicts the loss as it is. Losses are turned so that less is better, and are finite.
    """

    @abstractmethod
    def predict(self, iterations: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
        """The loss at an iteration from the last one on; `iterations` increase, with or without gaps."""

    def has_plateaued(self, iterations: Sequence[int], losses: Sequence[float], until: float) -> bool:
        """Whether the curve has come to rest, so that training on until an iteration is pointless."""
        return False
