"""What stands behind a trial that is one long step, as a `score` is: it saves meanwhile, and it knows scores.

Reports are where a trial is saved, paused and resized; such a trial has but one, at its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elastune import messages as m
from elastune.record.scores import Scores
from elastune.worker.reset import use_threads

if TYPE_CHECKING:
    from elastune.worker.process import Worker

GPUS = "CUDA_VISIBLE_DEVICES"


class Backing:
    """May be called by another thread than the one that trains."""

    def __init__(self, worker: Worker, command: m.StartTrial) -> None:
        self._worker, self._command = worker, command
        self._part = 0 if command.checkpoint is None else command.checkpoint.part
        setup = worker.setup
        known = setup.known_scores and not setup.reproducible  # which of two is first and trains is a matter of time
        self.scores = Scores.beside(setup.checkpoints.url) if known else None
        self.seed = worker.setup.experiment_seed(command.trial)

    @property
    def name(self) -> str:
        """Of the trial: no other has it, also not in another run."""
        return f"{self._worker.setup.checkpoints.url}/{self._command.trial}"

    def save(self, folder: Path, is_whole: Callable[[], bool]) -> bool:
        """Keep a folder as a state in the middle of the step. Come back when it is safe, or dropped, as it was changed
        meanwhile.
        """
        trial, part = self._command, self._part + 1
        saved = self._worker.setup.checkpoints.save(
            folder,
            trial=trial.trial,
            lineage=trial.lineage,
            iteration=trial.iteration,
            attempt=trial.attempt,
            part=part,
        )
        if not is_whole():
            self._worker.setup.checkpoints.drop(saved)
            return False
        self._part = part
        self._worker.tell(m.TrialCheckpointed(trial.trial, trial.attempt, saved))
        return True

    def warn(self, text: str) -> None:
        self._worker.tell(m.TrialWarned(self._command.trial, self._command.attempt, text))

    def take_devices(self) -> None:
        """All that the trial has on this machine, for this process alone. With one thread sums have one order."""
        here = [slot.device for slot in self._command.slots if slot.node == self._command.slots[0].node]
        if not self._worker.setup.reproducible:
            use_threads(self._worker.threads(self._command.share) * len(here))
        if GPUS in os.environ:
            os.environ[GPUS] = ",".join(map(str, here))
