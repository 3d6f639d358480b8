"""Synchronous BOHB: one bracket at a time, as Fluid (Yu et al. 2021) evaluates it next to the asynchronous form.

A bracket begins when the one before is completely done, and all its configurations are suggested together by a model
that has seen all of it. Inside, each stage waits for its last trial. Devices idle at every barrier: that is what an
allocator that widens trials, as Fluid's, makes use of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from elastune.algorithm.base import NOTHING, Actions, AlgorithmEvent, Woken
from elastune.algorithm.bohb import Brackets
from elastune.algorithm.halving import SuccessiveHalving
from elastune.spec import TrialGroup


class SyncBOHB(Brackets):
    """Brackets of successive halving between `r` and `R` iterations, each begun when the one before is done, with `n`
    trials in all (None: as many as the limits allow).
    """

    one_by_one: ClassVar[bool] = False

    def __init__(self, R: int, r: int = 1, eta: int = 3, n: int | None = None) -> None:
        super().__init__(R, r, eta, n)
        self._bracket: SuccessiveHalving | None = None

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        before = self._bracket
        if (before is not None and not before.over) or (size := self._next_size()) is None:
            return []
        self._bracket = SuccessiveHalving(*size, self.R, self.eta)
        self._bracket.setup(self._source)
        if before is not None:
            self._bracket.first_place = before.first_place + len(before.stages())
        return self._bracket.more(free, at_s)

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Woken) or self._bracket is None:
            return NOTHING
        return self._bracket.on(event, at_s)
