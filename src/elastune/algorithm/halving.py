"""Successive halving (Jamieson and Talwalkar 2016), as RubberBand schedules it.

SHA(n, r, R, eta): stage k trains floor(n / eta^k) trials for r * eta^k more iterations each; then the best 1/eta go on.
The last stage is the first that has one trial or that reaches R; it trains until R.
"""

from __future__ import annotations

from elastune.algorithm.stages import Stages
from elastune.errors import SpecError
from elastune.spec import Stage, require_int


def halving_stages(n: int, r: int, R: int, eta: int) -> tuple[Stage, ...]:
    """The stages of SHA(n, r, R, eta): how many trials each trains, from where, until where."""
    stages: list[Stage] = []
    trials, start, more = n, 0, r
    while True:
        last = trials == 1 or start + more >= R
        until = R if last else start + more
        stages.append(Stage(trials, start, until))
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


class SuccessiveHalving(Stages):
    """Trains `n` configurations briefly and the best of them longer, stage by stage."""

    def __init__(self, n: int, r: int, R: int, eta: int = 3) -> None:
        require_halving(n, r, R, eta)
        super().__init__((stage.trials, stage.iterations) for stage in halving_stages(n, r, R, eta))
        self.n, self.r, self.R, self.eta = n, r, R, eta
