"""Which checkpoints may go."""

from __future__ import annotations

import math
from bisect import insort

from elastune.control.state import Trial
from elastune.messages import Checkpoint
from elastune.spec import Retention


class Keeper:
    """Knows the best trials so far, and says which checkpoints of a trial are needed no longer."""

    def __init__(self, rules: Retention) -> None:
        self._rules = rules
        self._best: list[tuple[float, str]] = []

    def rank(self, trial: Trial) -> str | None:
        """Count a new best loss of the trial. Returns the trial that is no longer among the best, if any."""
        assert trial.best_loss is not None
        if len(self._best) == self._rules.keep_best and (not self._best or trial.best_loss >= self._best[-1][0]):
            return None
        self._best = [entry for entry in self._best if entry[1] != trial.id]
        insort(self._best, (trial.best_loss, trial.id))
        return self._best.pop()[1] if len(self._best) > self._rules.keep_best else None

    def superfluous(self, trial: Trial) -> list[Checkpoint]:
        """What can be dropped. Of a trial that holds slots the last is never among it: a restart needs it."""
        if trial.over and not trial.slots and all(best != trial.id for _, best in self._best):
            return list(trial.checkpoints)
        if len(trial.checkpoints) <= self._rules.keep_last:
            return []
        keep = {checkpoint.iteration for checkpoint in trial.checkpoints[-self._rules.keep_last :]}
        if trial.losses:
            keep.add(min(trial.losses, key=lambda iteration: (trial.losses[iteration], -iteration)))
        return [checkpoint for checkpoint in trial.checkpoints if checkpoint.iteration not in keep]


def remember(trial: Trial, checkpoint: Checkpoint) -> list[Checkpoint]:
    """A new checkpoint of the trial. Returns the older ones of the same iteration: it takes their place."""
    same = [old for old in trial.checkpoints if old.iteration == checkpoint.iteration]
    trial.checkpoints = [old for old in trial.checkpoints if old not in same]
    insort(trial.checkpoints, checkpoint, key=lambda kept: kept.iteration)
    return [old for old in same if old.path != checkpoint.path]


def forget(trial: Trial, checkpoint: Checkpoint) -> None:
    trial.checkpoints = [kept for kept in trial.checkpoints if kept.path != checkpoint.path]
    trial.losses.pop(checkpoint.iteration, math.inf)
