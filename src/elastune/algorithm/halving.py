"""Successive halving (Jamieson and Talwalkar 2016), as RubberBand schedules it.

SHA(n, r, R, eta): stage k trains floor(n / eta^k) trials for r * eta^k more iterations each; then the best 1/eta go on.
The last stage is the first that has one trial or that reaches R; it trains until R.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended
from elastune.errors import SpecError
from elastune.messages import Config
from elastune.spec import Run, Stage, TrialGroup, require_int


def halving_stages(n: int, r: int, R: int, eta: int, bracket: int = 0) -> tuple[Stage, ...]:
    """The stages of SHA(n, r, R, eta): how many trials each trains, from where, until where."""
    stages: list[Stage] = []
    trials, start, more = n, 0, r
    while True:
        last = trials == 1 or start + more >= R
        until = R if last else start + more
        stages.append(Stage(trials, start, until, bracket))
        if last:
            return tuple(stages)
        trials, start, more = max(trials // eta, 1), until, more * eta


def require_halving(n: int, r: int, R: int, eta: int) -> None:
    require_int("n", n, 1)
    require_int("r", r, 1)
    require_int("R", R, 1)
    require_int("eta", eta, 2)
    if r > R:
        raise SpecError(f"r={r}, R={R}: the first stage trains r iterations of at most R, so r must not be above R")


class SuccessiveHalving(Algorithm):
    """Trains `n` configurations briefly and the best of them longer, stage by stage."""

    def __init__(self, n: int, r: int, R: int, eta: int = 3) -> None:
        require_halving(n, r, R, eta)
        self.n, self.r, self.R, self.eta = n, r, R, eta
        self._stages = halving_stages(n, r, R, eta)
        self._stage = -1
        self.first_place = 0
        """Of its first stage in the schedule that it is a part of."""
        self._configs: dict[str, Config] = {}
        self._pending: set[str] = set()
        self._ended: list[Ended] = []

    def stages(self) -> tuple[Stage, ...]:
        return self._stages

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._stage >= 0:
            return []
        runs = self.new_runs(self.n, self._stages[0].until, final=len(self._stages) == 1, stage=self.first_place)
        return self._begin(runs).groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if not isinstance(event, Ended):
            return NOTHING
        self._pending.discard(event.trial)
        self._ended.append(event)
        if self._pending or self._stage == len(self._stages) - 1:
            return NOTHING
        return self._promote()

    def _begin(self, group: TrialGroup) -> Actions:
        self._stage += 1
        self._configs = {run.trial: run.config for run in group}
        self._pending = set(self._configs)
        self._ended = []
        return Actions(groups=(group,) if group else ())

    def _promote(self) -> Actions:
        """All trials have met at the barrier: the best go on, the others never train again."""
        stage = self._stages[self._stage + 1]
        able = [ended for ended in self._ended if ended.loss is not None and not ended.over]
        able.sort(key=lambda ended: (math.inf if ended.loss is None else ended.loss, ended.trial))
        best, rest = able[: stage.trials], able[stage.trials :]
        final = self._stage + 1 == len(self._stages) - 1
        place = self.first_place + self._stage + 1
        group = tuple(Run(ended.trial, self._configs[ended.trial], stage.until, final, place) for ended in best)
        return Actions(self._begin(group).groups, stops=tuple(ended.trial for ended in rest))
