"""The seam for those who choose configurations: `suggest` the next one, `observe` what became of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.space import Space
from elastune.spec import Mode


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial is worth so far.

    `number` says which suggestion this is about, counted from 0. `value` is the metric as the user reports it, or None
    where the trial failed. A result that is not `final` is of a trial that has not trained to its end: it may go on and
    be observed again. While it `trains` it will be, with this iteration or a higher one.
    """

    number: int
    config: Config
    iteration: int
    value: float | None
    final: bool
    trains: bool = False


class Searcher(ABC):
    """Says which configurations to try. One method is enough: `suggest`.

    A searcher may be pickled at any moment, and the copy must go on as the original would.
    """

    learns: ClassVar[bool] = True
    """Whether what it suggests depends on what it observes. If not, it may be asked for many at once."""

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        """Called once before everything else. All randomness must come from the seed."""
        self.space = space
        self.mode = mode
        self.seed = seed

    @abstractmethod
    def suggest(self) -> Config | None:
        """The next configuration; None if there are no more. It holds what JSON does: None, bool, int of 64 bits,
        finite float, str, list and dict.
        """

    def ready(self) -> int | None:
        """How many it would suggest before it must learn of those that it has suggested; None: any number. `FIFO` asks
        for no more than that, and devices wait; other algorithms ask for what they need.
        """
        return None

    def observe(self, result: Result) -> None:  # noqa: B027  a searcher need not learn
        """Learn from a result."""

    def resuggest(self, recorded: Config | None) -> None:
        """Called instead of `suggest` when a run is resumed: move on as it did, but `recorded` is what stands."""
        self.suggest()


def refuse_grid(space: Space, searcher: str) -> None:
    """For searchers that cannot promise to try every value of a grid_search."""
    if space.has_grid:
        raise SpecError(f"searcher={searcher!r}: cannot go through a grid_search; use 'grid', or choice instead")
