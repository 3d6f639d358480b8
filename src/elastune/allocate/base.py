"""The seam that says how many devices each trial gets, and which machines to hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What an allocator sees. `widths` has the trials that hold devices, `waiting` those that want some, in order."""

    free: int
    widths: Mapping[str, int]
    waiting: Iterable[str]


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted state: how many machines to hold, and the width of every trial that shall run.

    A running trial that is not named is paused. Controller and `place` turn the difference into commands.
    """

    machines: int
    widths: Mapping[str, int]


class Allocator(ABC):
    """Pure: no clock, no global randomness, picklable at any moment."""

    @abstractmethod
    def allocate(self, view: View, at_s: float) -> Target:
        """Asked whenever a trial came or went, or a machine did."""
