"""K-fold cross-validation of the number of steps (Ultron-AutoML, section VIII-B), for data too few to hold some back.

K models of one configuration train side by side, each without one part of the data, its fold, by which it is judged. At
fixed intervals their metrics are averaged. The step with the best mean is chosen, and one more model trains on all the
data up to there: that one is wanted.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended, Reported, Verdict
from elastune.errors import SpecError
from elastune.messages import Config
from elastune.spec import Run, Stage, TrialGroup, require_int

FEWEST = 2
"""The mean of fewer folds is none."""


class KFold(Algorithm):
    """Trains `k` folds for `R` iterations each, compares their mean at every multiple of `every` and at R, and trains
    anew on all data until where it was best; of equal steps the earliest.

    A configuration says which it is: `fold` is 0 to k-1, or None for all data, `folds` is k. A fold that fails for good
    is left out; with fewer than two there is no mean, and the run has failed.
    """

    adds: ClassVar[tuple[str, ...]] = ("fold", "folds")

    def __init__(self, k: int, R: int, every: int = 1) -> None:
        require_int("k", k, FEWEST)
        require_int("R", R, 1)
        require_int("every", every, 1)
        if every > R:
            raise SpecError(f"every={every}, R={R}: folds train R iterations, so every must not be above R")
        self.k, self.R, self.every = k, R, every
        self._config: Config | None = None
        self._losses: dict[str, dict[int, float]] = {}
        """Of each fold that counts, by step."""
        self._train: set[str] = set()
        """The folds that are not done."""
        self._last: Run | None = None
        """That on all data."""
        self._over = False

    def stages(self) -> tuple[Stage, ...]:
        """The last one trains until the best step, which is R at most."""
        return (Stage(self.k, 0, self.R), Stage(1, 0, self.R))

    def configurations(self) -> int:
        return 1

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._config is not None or (new := self.new_trial()) is None:
            return []
        first, self._config = new
        configs = [self._config | {"fold": fold, "folds": self.k} for fold in range(self.k)]
        trials = [first, *(self.own_trial(config) for config in configs[1:])]
        self._losses = {trial: {} for trial in trials}
        self._train = set(trials)
        return [tuple(Run(trial, config, self.R, True) for trial, config in zip(trials, configs, strict=True))]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        match event:
            case Reported(trial=trial, iteration=step) if trial in self._losses:
                if step % self.every == 0 or step == self.R:
                    self._losses[trial][step] = event.loss
            case Ended(trial=trial) if trial in self._train and not self._over:
                return self._fold_ended(event)
            case Ended() if self._last is not None and event.trial == self._last.trial:
                return self._last_ended(event, self._last)
        return NOTHING

    def _fold_ended(self, event: Ended) -> Actions:
        self._train.discard(event.trial)
        if event.loss is None:
            del self._losses[event.trial]
        if len(self._losses) < FEWEST:
            return self._give_up(f"{self.k - len(self._losses)} of {self.k} folds failed: a mean needs {FEWEST}")
        return NOTHING if self._train else self._choose()

    def _choose(self) -> Actions:
        """The folds are done: the step that was best on the average, and a trial that trains until there."""
        curves = list(self._losses.values())
        steps = set(curves[0]).intersection(*curves[1:])
        if not steps:
            return self._give_up(
                f"there is no step that all folds have reported: they returned before every={self.every}"
            )
        loss, step = min((statistics.fmean(curve[step] for curve in curves), step) for step in steps)
        assert self._config is not None
        config = self._config | {"fold": None, "folds": self.k}
        self._last = Run(self.own_trial(config), config, step, final=True, stage=1)
        left_out = f", {self.k - len(curves)} failed" if len(curves) < self.k else ""
        why = f"the mean of {len(curves)} folds{left_out}; trained on all data"
        return Actions(((self._last,),), verdict=Verdict(self._last.trial, step, loss, why))

    def _last_ended(self, event: Ended, run: Run) -> Actions:
        if event.loss is None:
            return self._give_up(f"{run.trial}: the training on all data failed")
        if event.iteration != run.until:
            return self._give_up(
                f"{run.trial}: the training on all data returned after iteration {event.iteration}, and should have "
                f"come to {run.until}: it must not end before the folds do"
            )
        return NOTHING

    def _give_up(self, reason: str) -> Actions:
        self._over = True
        return Actions(gives_up=reason)
