"""Which checkpoints are kept, and which may go."""

from __future__ import annotations

from bisect import insort

from elastune.control.answer import Answer
from elastune.control.state import Trial
from elastune.messages import Checkpoint, DropCheckpoint
from elastune.spec import Retention


class Keeper:
    """Knows the best trials so far, and drops the checkpoints that are needed no longer."""

    def __init__(self, rules: Retention, answer: Answer) -> None:
        self._rules, self._answer = rules, answer
        self._best: list[tuple[float, str]] = []

    def rank(self, trial: Trial) -> str | None:
        """Count a new best loss of the trial. Returns the trial that is no longer among the best, if any."""
        assert trial.best_loss is not None
        if len(self._best) == self._rules.keep_best and (not self._best or trial.best_loss >= self._best[-1][0]):
            return None
        self._best = [entry for entry in self._best if entry[1] != trial.id]
        insort(self._best, (trial.best_loss, trial.id))
        return self._best.pop()[1] if len(self._best) > self._rules.keep_best else None

    def keep(self, trial: Trial, checkpoint: Checkpoint | None) -> None:
        """A new checkpoint of the trial; it takes the place of an older one of the same iteration."""
        if checkpoint is None:
            return
        for old in trial.checkpoints:
            if old.iteration == checkpoint.iteration and old.path != checkpoint.path:
                self.drop(trial, old)
        trial.checkpoints = [old for old in trial.checkpoints if old.path != checkpoint.path]
        insort(trial.checkpoints, checkpoint, key=lambda kept: kept.iteration)
        if trial.loss is not None and checkpoint.iteration == trial.iteration:
            trial.losses[checkpoint.iteration] = trial.loss
        self.tidy(trial)

    def tidy(self, trial: Trial) -> None:
        for checkpoint in self._superfluous(trial):
            self.drop(trial, checkpoint)

    def drop(self, trial: Trial, checkpoint: Checkpoint) -> None:
        trial.checkpoints = [kept for kept in trial.checkpoints if kept.path != checkpoint.path]
        trial.losses.pop(checkpoint.iteration, None)
        self._answer.order(DropCheckpoint, checkpoint)

    def _superfluous(self, trial: Trial) -> list[Checkpoint]:
        """Of a trial that holds slots the last is never among it: a restart needs it."""
        if trial.over and not trial.slots and all(best != trial.id for _, best in self._best):
            return trial.checkpoints
        if len(trial.checkpoints) <= self._rules.keep_last:
            return []
        keep = {checkpoint.iteration for checkpoint in trial.checkpoints[-self._rules.keep_last :]}
        if trial.losses:
            keep.add(min(trial.losses, key=lambda iteration: (trial.losses[iteration], -iteration)))
        return [checkpoint for checkpoint in trial.checkpoints if checkpoint.iteration not in keep]
