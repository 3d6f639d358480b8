"""The seam that says how many devices each trial gets, and which machines to hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elastune.spec import Width


@dataclass(frozen=True, slots=True)
class View:
    """What an allocator sees. `widths` has the trials that hold devices, `waiting` those that want some, in order.

    `free` is what nobody holds: whole devices, and what is left of those that trials share.
    """

    free: Width
    widths: Mapping[str, Width]
    waiting: Iterable[str]


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted state: how many machines to hold, and the width of every trial that shall run.

    A width is a number of devices, or Fraction(1, k) of one. A running trial that is not named is paused. Controller
    and `place` turn the difference into commands; a trial that there is no place for yet keeps what it has, or waits.
    """

    machines: int
    widths: Mapping[str, Width]


class Allocator(ABC):
    """Pure: no clock, no global randomness, picklable at any moment."""

    width: Width = 1
    """What a new trial gets: the algorithm is asked for as many as there is a place for."""

    @abstractmethod
    def allocate(self, view: View, at_s: float) -> Target:
        """Asked whenever a trial came or went, or a machine did."""
