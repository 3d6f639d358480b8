"""Brings the states of trials to the checkpoint store, in the background where that is far away."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from elastune.messages import Checkpoint, StartTrial
from elastune.record.checkpoints import CheckpointStore, Draft
from elastune.saving import SavingRule
from elastune.units import format_duration

Tell = Callable[[Checkpoint], None]


class Saver:
    """One upload at a time, so that checkpoints become complete in the order in which they were made.

    What saving takes is known from the last time, whichever trial that was of: those of a run are much alike.
    """

    def __init__(self, store: CheckpointStore, rule: SavingRule) -> None:
        self._store, self._rule = store, rule
        self._thread = ThreadPoolExecutor(1, "elastune-upload")
        self._upload: Future[None] | None = None
        self._held_s = 0.0
        self.needed_s = 0.0
        """How long it takes until a state is safe; training waits for `held_s` of it."""
        self._size_bytes = 0
        self._warned = False

    @property
    def is_busy(self) -> bool:
        return self._upload is not None and not self._upload.done()

    @property
    def period_s(self) -> float:
        return self._rule.period_s(self._held_s, self._worst_s)

    @property
    def _worst_s(self) -> float:
        """An upload may just have begun when the newest state must be saved."""
        return self._held_s + 2 * max(0.0, self.needed_s - self._held_s)

    def warning(self) -> str | None:
        """What the user should know, once: a machine may be gone before its trial is saved."""
        if self._warned or self._rule.fits(self._worst_s):
            return None
        self._warned = True
        return (
            f"it takes up to {format_duration(self._worst_s)} to save a trial ({self._size_bytes / 1e6:.3g} MB), and "
            f"machines are taken away {format_duration(self._rule.notice_s or 0.0)} after their notice: what was "
            "learnt since the last checkpoint may be lost then. Give report() less to save (only what training needs "
            "to go on), or keep checkpoints= nearer to the machines"
        )

    def begin(self, value: object, trial: StartTrial, iteration: int, tell: Tell, midway: bool = False) -> None:
        """Save it, after what is under way. `tell` is called when it is complete, perhaps by another thread."""
        self.wait()
        begun_s = time.monotonic()
        keep = self._store.draft if self._store.is_remote else self._store.save
        kept = keep(
            value,
            trial=trial.trial,
            lineage=trial.lineage,
            iteration=iteration,
            attempt=trial.attempt,
            midway=midway,
        )
        self._held_s = time.monotonic() - begun_s
        if isinstance(kept, Draft):
            self._upload = self._thread.submit(self._bring, kept, begun_s, tell)
        else:
            self.needed_s, self._size_bytes = self._held_s, kept.size_bytes
            tell(kept)

    def save(self, value: object, trial: StartTrial, iteration: int, midway: bool = False) -> Checkpoint:
        """Save it, and come back when it is complete."""
        saved: list[Checkpoint] = []
        self.begin(value, trial, iteration, saved.append, midway)
        self.wait()
        return saved[0]

    def wait(self) -> None:
        """Until nothing is under way. Raises what has gone wrong with it."""
        if self._upload is not None:
            upload, self._upload = self._upload, None
            upload.result()

    def forget(self) -> None:
        """The trial is over: whatever becomes of what is under way is no fault of the next one."""
        self._upload = None

    def _bring(self, draft: Draft, begun_s: float, tell: Tell) -> None:
        checkpoint = self._store.upload(draft)
        self.needed_s, self._size_bytes = time.monotonic() - begun_s, checkpoint.size_bytes
        tell(checkpoint)
