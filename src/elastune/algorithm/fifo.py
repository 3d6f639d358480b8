"""First in, first out: every configuration is trained to its end. With the random searcher this is random search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from elastune.algorithm.base import Algorithm
from elastune.spec import Run, Stage, TrialGroup, require_int


class FIFO(Algorithm):
    """Trains `n` configurations, each for `R` iterations, or until its function returns; at most `max_concurrent` of
    them at once, where that is given.
    """

    whole: ClassVar[bool] = True

    def __init__(self, n: int, R: int | None = None, max_concurrent: int | None = None) -> None:
        require_int("n", n, 1)
        if R is not None:
            require_int("R", R, 1)
        if max_concurrent is not None:
            require_int("max_concurrent", max_concurrent, 1)
        self.n, self.R, self.max_concurrent = n, R, max_concurrent
        self._begun = 0

    def stages(self) -> tuple[Stage, ...] | None:
        return None if self.R is None else (Stage(self.n, 0, self.R),)

    def configurations(self) -> int:
        return self.n

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        runs: list[Run] = []
        # One by one: after each the searcher may have to wait for results before it can give another.
        while len(runs) < min(free, self.n - self._begun) and self._source.ready(1):
            if not (new := self.new_runs(1, self.R, final=True)):
                break
            runs += new
        self._begun += len(runs)
        return [tuple(runs)]
