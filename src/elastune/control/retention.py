"""Which checkpoints are kept, and which may go."""

from __future__ import annotations

from bisect import insort
from collections import Counter

from elastune.control.answer import Answer
from elastune.control.state import Trial
from elastune.messages import Checkpoint, DropCheckpoint
from elastune.spec import Retention

MOST_REPORTED = 1000
"""Losses that a trial remembers for checkpoints that are yet to come, where it saves that rarely."""


class Keeper:
    """Knows the best trials of each experiment so far, and drops the checkpoints that are needed no longer."""

    def __init__(self, rules: Retention, answer: Answer) -> None:
        self._rules, self._answer = rules, answer
        self._heirs: Counter[str] = Counter()
        """How many trials hold a checkpoint, by path, besides one."""

    def rank(self, trial: Trial) -> str | None:
        """Count a new best loss of the trial. Returns the trial that is no longer among the best, if any."""
        assert trial.best_loss is not None
        best = trial.party.best
        if len(best) == self._rules.keep_best and (not best or trial.best_loss >= best[-1][0]):
            return None
        trial.party.best = best = [entry for entry in best if entry[1] != trial.id]
        insort(best, (trial.best_loss, trial.id))
        return best.pop()[1] if len(best) > self._rules.keep_best else None

    def remember(self, trial: Trial, loss: float) -> None:
        """The loss at its iteration, of which a checkpoint may come: later, or when it is trained again."""
        trial.reported[trial.lineage, trial.iteration] = loss
        if len(trial.reported) > MOST_REPORTED:
            del trial.reported[next(iter(trial.reported))]

    def keep(self, trial: Trial, checkpoint: Checkpoint | None) -> None:
        """A new checkpoint of the trial; it takes the place of an older one of the same iteration."""
        if checkpoint is None:
            return
        for old in trial.checkpoints:
            if _state(old) == _state(checkpoint) and old.path != checkpoint.path:
                self.drop(trial, old)
        trial.checkpoints = [*(old for old in trial.checkpoints if old.path != checkpoint.path), checkpoint]
        loss = trial.reported.get((checkpoint.lineage, checkpoint.iteration))
        if loss is not None and not checkpoint.midway:
            trial.losses[checkpoint.path] = loss
        self._forget(trial)
        self.tidy(trial)

    def _forget(self, trial: Trial) -> None:
        """What is older than the last checkpoints: they arrive in order, and a restart goes on from one of them."""
        since = min(checkpoint.iteration for checkpoint in trial.checkpoints[-self._rules.keep_last :])
        for lineage, iteration in list(trial.reported):
            if lineage != trial.lineage or iteration < since:
                del trial.reported[lineage, iteration]

    def hand_over(self, donor: Trial, trial: Trial) -> None:
        """The newest checkpoint of another trial is now the newest of this one too. Those before it are kept as usual:
        one of its own replaces it if it cannot be read.
        """
        newest = donor.checkpoints[-1]
        others = [kept for kept in trial.checkpoints if kept.path != newest.path]
        self._heirs[newest.path] += len(others) == len(trial.checkpoints)
        trial.checkpoints = [*others, newest]
        self.tidy(trial)

    def tidy(self, trial: Trial) -> None:
        if trial.over and not trial.slots:  # nothing more comes of it, and there may be very many
            trial.reported.clear()
        for checkpoint in self._superfluous(trial):
            self.drop(trial, checkpoint)

    def drop(self, trial: Trial, checkpoint: Checkpoint) -> None:
        """The trial needs it no longer; it goes when nobody does."""
        others = [kept for kept in trial.checkpoints if kept.path != checkpoint.path]
        if len(others) == len(trial.checkpoints):
            return
        trial.checkpoints = others
        trial.losses.pop(checkpoint.path, None)
        if self._heirs[checkpoint.path]:
            self._heirs[checkpoint.path] -= 1
            return
        del self._heirs[checkpoint.path]
        self._answer.order(DropCheckpoint, checkpoint)

    def _superfluous(self, trial: Trial) -> list[Checkpoint]:
        """Of a trial that holds slots the last is never among it: a restart needs it."""
        if trial.over and not trial.slots and all(best != trial.id for _, best in trial.party.best):
            return trial.checkpoints
        if len(trial.checkpoints) <= self._rules.keep_last:
            return []
        keep = {checkpoint.path for checkpoint in trial.checkpoints[-self._rules.keep_last :]}
        if trial.losses:
            newest_first = (kept.path for kept in reversed(trial.checkpoints) if kept.path in trial.losses)
            keep.add(min(newest_first, key=trial.losses.__getitem__))
        return [checkpoint for checkpoint in trial.checkpoints if checkpoint.path not in keep]


def _state(checkpoint: Checkpoint) -> tuple[str, int, int, int, bool]:
    """What it is a checkpoint of, whichever attempt has saved it."""
    return checkpoint.trial, checkpoint.lineage, checkpoint.iteration, checkpoint.part, checkpoint.midway
