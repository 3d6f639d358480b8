"""Hyperband (Li et al. 2018): successive halving at every trade-off between many short trials and few long ones.

Bracket s of s_max, ..., 0 begins ceil((s_max + 1) / (s + 1) * eta^s) trials with R / eta^s iterations each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, TrialSource, Woken
from elastune.algorithm.halving import SuccessiveHalving, require_halving
from elastune.spec import Stage, TrialGroup


def bracket_sizes(R: int, r: int, eta: int) -> list[tuple[int, int]]:
    """For every bracket, from s_max down to 0: how many trials it begins, and with how many iterations each."""
    s_max = 0
    while r * eta ** (s_max + 1) <= R:
        s_max += 1
    # Rounded up in whole numbers: floats would add a trial here and there.
    return [(-(-(s_max + 1) * eta**s // (s + 1)), R // eta**s) for s in range(s_max, -1, -1)]


class Hyperband(Algorithm):
    """All brackets of successive halving between `r` and `R` iterations; one begins as soon as devices are free."""

    def __init__(self, R: int, r: int = 1, eta: int = 3) -> None:
        require_halving(1, r, R, eta)
        self.R, self.r, self.eta = R, r, eta
        self.brackets = tuple(SuccessiveHalving(n, first, R, eta) for n, first in bracket_sizes(R, r, eta))
        for before, bracket in pairwise(self.brackets):
            bracket.first_place = before.first_place + len(before.stages())
        self._begun = 0
        self._bracket_of: dict[str, SuccessiveHalving] = {}

    def setup(self, source: TrialSource) -> None:
        super().setup(source)
        for bracket in self.brackets:
            bracket.setup(source)

    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(stage.trials, stage.start, stage.until, index)
            for index, bracket in enumerate(self.brackets)
            for stage in bracket.stages()
        )

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._begun == len(self.brackets):
            return []
        bracket = self.brackets[self._begun]
        self._begun += 1
        groups = bracket.more(free, at_s)
        self._bracket_of.update((run.trial, bracket) for group in groups for run in group)
        return groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        return NOTHING if isinstance(event, Woken) else self._bracket_of[event.trial].on(event, at_s)
