"""SpotTune's way of searching (Cai, Wang et al., ICPP 2020): train all for a part of their steps, foretell where they
would end, and finish only the best.

    HPs                  `n` configurations
    max_trial_steps      `R`
    theta                `theta`: the part of the steps after which the end is foretold
    mcnt                 `mcnt`: how many are trained to the end
    EarlyCurve           `rank`: any extrapolator; a curve that has come to rest waits until all are compared

Which machine each trial gets is up to the allocator: `allocate/cheapest_step.py` has the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended, Reported
from elastune.curve import Extrapolator, make_extrapolator
from elastune.errors import SpecError
from elastune.messages import Config
from elastune.spec import Run, Stage, TrialGroup, require_int


class SpotTune(Algorithm):
    """`n` trials train for `theta` of `R` iterations, and the `mcnt` that should be best after `R` to the end."""

    def __init__(
        self, n: int, R: int, theta: float = 0.7, mcnt: int = 3, rank: str | Extrapolator = "earlycurve"
    ) -> None:
        for name, value in (("n", n), ("R", R), ("mcnt", mcnt)):
            require_int(name, value, 1)
        if mcnt > n:
            raise SpecError(f"mcnt={mcnt}: must be at most n={n}, for only those can be trained to the end")
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < theta <= 1:
            raise SpecError(f"theta={theta!r}: must be a number greater than 0, and at most 1")
        self.n, self.R, self.theta, self.mcnt, self.rank = n, R, theta, mcnt, rank
        self._extrapolator = make_extrapolator(rank)
        self._configs: dict[str, Config] = {}
        self._curves: dict[str, tuple[list[int], list[float]]] = {}
        self._ends: dict[str, float | None] = {}
        """What those that have come to the end of their first run will be worth; None: they have failed."""
        self._over: set[str] = set()
        """Those that cannot go on."""
        self._resting: set[str] = set()

    @property
    def first_until(self) -> int:
        """theta x max_trial_steps."""
        return max(1, math.ceil(self.theta * self.R - 1e-9))

    def stages(self) -> tuple[Stage, ...] | None:
        first = Stage(self.n, 0, self.first_until)
        if self.first_until == self.R:
            return (first,)
        return (first, Stage(self.mcnt, self.first_until, self.R))

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._configs:
            return ()
        group = self.new_runs(self.n, self.first_until, final=self.first_until == self.R)
        self._configs = {run.trial: run.config for run in group}
        return (group,)

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        match event:
            case Reported():
                return self._reported(event)
            case Ended() if event.trial not in self._ends:
                return self._ended(event)
        return NOTHING

    def _reported(self, event: Reported) -> Actions:
        iterations, losses = self._curves.setdefault(event.trial, ([], []))
        iterations.append(event.iteration)
        losses.append(event.loss)
        first = event.trial not in self._ends and event.trial not in self._resting
        if (
            first
            and event.iteration < self.first_until < self.R
            and self._extrapolator.has_plateaued(iterations, losses, self.R)
        ):
            self._resting.add(event.trial)
            return Actions(pauses=(event.trial,))
        return NOTHING

    def _ended(self, event: Ended) -> Actions:
        self._ends[event.trial] = None if event.loss is None else self._foretold(event)
        if event.over:
            self._over.add(event.trial)
        if len(self._ends) < len(self._configs):
            return NOTHING
        ranked = sorted((end, trial) for trial, end in self._ends.items() if end is not None)
        best = [trial for _, trial in ranked[: self.mcnt] if trial not in self._over]
        if self.first_until == self.R:
            return NOTHING
        stops = tuple(trial for trial in self._configs if trial not in best and trial not in self._over)
        runs = tuple(Run(trial, self._configs[trial], self._until(trial), final=True, stage=1) for trial in best)
        return Actions(groups=(runs,) if runs else (), stops=stops)

    def _until(self, trial: str) -> int:
        """One that has come to rest early trains on no longer than the others: what will be trained at the most is told
        before the run (`stages`).
        """
        iterations, _ = self._curves.get(trial, ([], []))
        return min(self.R, (iterations[-1] if iterations else 0) + self.R - self.first_until)

    def _foretold(self, event: Ended) -> float:
        """EarlyCurve(hp, max_trial_steps). Where there is nothing to foretell it is what was reported."""
        assert event.loss is not None
        iterations, losses = self._curves.get(event.trial, ([], []))
        if event.over or not losses or iterations[-1] >= self.R:
            return event.loss
        return self._extrapolator.predict(iterations, losses, self.R).loss
