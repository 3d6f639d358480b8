"""BOHB (Falkner, Klein and Hutter 2018): the brackets of Hyperband over and over, with a model that suggests.

The model is a searcher of its own, "bohb". It learns while a bracket is still being filled: a trial is suggested only
when a device is free for it. Inside, brackets are synchronous; while one waits at its barrier, free devices begin the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Woken
from elastune.algorithm.halving import SuccessiveHalving, require_halving
from elastune.algorithm.hyperband import bracket_sizes
from elastune.spec import Run, TrialGroup, require_int


class Bracket(SuccessiveHalving):
    """Successive halving whose trials begin one by one, as devices are free."""

    def __init__(self, n: int, r: int, R: int, eta: int) -> None:
        super().__init__(n, r, R, eta)
        self._stage = 0
        self.missing = n
        """Trials of the first stage that are yet to begin."""
        self._rest: tuple[str, ...] = ()
        """Trials that are to be stopped, which `more` cannot say."""

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        first, wanted = self._stages[0], min(free, self.missing)
        runs = self.new_runs(wanted, first.until, final=len(self._stages) == 1)
        self._configs.update((run.trial, run.config) for run in runs)
        self._pending.update(run.trial for run in runs)
        self.missing -= wanted
        if len(runs) == wanted:
            return [runs]
        # The searcher has no more: those who have begun are all who meet at the barrier, and perhaps they wait there.
        self.missing = 0
        if not self._all_met():
            return [runs]
        promoted = self._promote()
        self._rest = promoted.stops
        return [runs, *promoted.groups]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        actions, rest = super().on(event, at_s), self._rest
        if not rest:
            return actions
        self._rest = ()
        return Actions(actions.groups, (*rest, *actions.stops))

    @property
    def over(self) -> bool:
        return not self.missing and super().over

    def _all_met(self) -> bool:
        return not self.missing and super()._all_met()


class Brackets(Algorithm):
    """Says of which size the next bracket is: those of Hyperband between `r` and `R` iterations over and over, with `n`
    trials in all (None: as many as the limits allow).
    """

    searcher: ClassVar[str] = "bohb"
    one_by_one: ClassVar[bool] = True

    def __init__(self, R: int, r: int = 1, eta: int = 3, n: int | None = None) -> None:
        require_halving(1, r, R, eta)
        if n is not None:
            require_int("n", n, 1)
        self.R, self.r, self.eta, self.n = R, r, eta, n
        self._sizes = bracket_sizes(R, r, eta)
        self._brackets = self._trials = 0
        """How many brackets have begun, and of how many trials they are."""

    def configurations(self) -> int | None:
        return self.n

    def _next_size(self) -> tuple[int, int] | None:
        """How many trials it begins, and with how many iterations each; None if no trial may begin any more."""
        if self._source.exhausted or self._trials == self.n:
            return None
        n, r = self._sizes[self._brackets % len(self._sizes)]
        n = n if self.n is None else min(n, self.n - self._trials)
        self._brackets += 1
        self._trials += n
        return n, r


class BOHB(Brackets):
    """Brackets of successive halving between `r` and `R` iterations, one after the other, with `n` trials in all (None:
    as many as the limits allow). With `max_concurrent` so many are under way at once, on however many devices.
    """

    def __init__(
        self, R: int, r: int = 1, eta: int = 3, n: int | None = None, max_concurrent: int | None = None
    ) -> None:
        super().__init__(R, r, eta, n)
        if max_concurrent is not None:
            require_int("max_concurrent", max_concurrent, 1)
        self.max_concurrent = max_concurrent
        self._filling: Bracket | None = None
        self._bracket_of: dict[str, Bracket] = {}
        self._promoted: list[Run] = []
        """Those that go on when there are not too many under way any more; without a limit they do so at once."""

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        groups = self._go_on(free)
        free -= sum(map(len, groups))
        while free > 0 and (bracket := self._open()) is not None:
            begun, *promoted = bracket.more(free, at_s)
            self._bracket_of.update((run.trial, bracket) for run in begun)
            free -= len(begun)
            groups += [begun, *self._within_limit(promoted)]
        return groups + self._go_on(free)

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Woken):
            return NOTHING
        actions = self._bracket_of[event.trial].on(event, at_s)
        if not actions.groups:
            return actions
        return Actions(tuple(self._within_limit(actions.groups)), actions.stops)

    def _within_limit(self, promoted: Sequence[TrialGroup]) -> Sequence[TrialGroup]:
        """Those who were promoted, or nobody, if they must wait until they are asked for."""
        if self.max_concurrent is None:
            return promoted
        self._promoted += [run for group in promoted for run in group]
        return ()

    def _go_on(self, free: int) -> list[TrialGroup]:
        group, self._promoted = tuple(self._promoted[:free]), self._promoted[free:]
        return [group] if group else []

    def _open(self) -> Bracket | None:
        """The bracket that takes new trials: the present one, or the next. None if no trial may begin any more."""
        if self._filling is None or not self._filling.missing:
            size = self._next_size()
            self._filling = None if size is None else Bracket(*size, self.R, self.eta)
            if self._filling is not None:
                self._filling.setup(self._source)
        return self._filling
