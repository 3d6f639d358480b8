"""A trial in progress, as the process sees it that runs the user's code."""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from elastune import messages as m
from elastune.errors import ElastuneError, SpecError
from elastune.record.checkpoints import CheckpointStoreError
from elastune.worker import gang, objects, wire
from elastune.worker.backing import Backing
from elastune.worker.hourglass import Hourglass
from elastune.worker.reset import use_threads
from elastune.worker.session import Context, Elastic, PreemptionInfo

if TYPE_CHECKING:
    from elastune.worker.process import Worker

LONGEST_ERROR, LONGEST_TRACEBACK = 2_000, 20_000
FETCH_S = 60.0

Asked = m.PauseTrial | m.StopTrial | m.ResizeTrial


class Leave(BaseException):
    """Unwinds the user's code out of report(). Not an Exception: `except Exception` must not swallow it."""


class Lost(BaseException):
    """The trial cannot go on here, through no fault of its own: another of its processes has died."""


class TrialSession:
    """Its run travels with the start, so a report waits for nobody until the run is used up."""

    def __init__(self, worker: Worker, begin: wire.Begin) -> None:
        self._worker, self._setup, self._saver = worker, worker.setup, worker.saver
        self._gang: gang.Gang | None = None
        self._left = False
        self._checkpoint: object = None
        self._restored: Any = None
        self._elastic: Elastic | None = None
        self.context = Context(begin.command.trial, seed=self._setup.seed_of(begin.command.trial))
        self._glass = Hourglass(begin.until_unix_s)
        self._join(begin)
        self._saved_at = time.monotonic()
        self._iteration = self._saved_iteration = begin.command.iteration
        self._asked_for_checkpoint = not self._has_state

    def _join(self, begin: wire.Begin) -> None:
        """Take part in a gathering of the trial's workers."""
        self._begin, self._command = begin, begin.command
        self._glass.turn(begin.until_unix_s)
        self.context = replace(self.context, rank=begin.rank, world_size=len(begin.command.slots), master=None)

    def meet(self) -> None:
        if self.context.world_size > 1:
            try:
                self._gang = self._worker.form(self._begin)
            except OSError as error:
                raise Lost(f"its workers did not meet: {error}") from error
            self.context = replace(self.context, master=self._gang.master)

    def restore(self) -> None:
        if self._begin.state:
            try:
                self._restored = objects.fetch(self._begin.state, FETCH_S)
                return
            except Exception as error:  # whatever Ray raises
                saved = self._command.checkpoint
                if saved is None or saved.iteration != self._command.iteration:
                    raise Lost(f"its state went with the process that had it: {error}") from error
        if self._command.checkpoint is not None:
            self._restored = self._setup.checkpoints.load(self._command.checkpoint)

    @property
    def _has_state(self) -> bool:
        return bool(self._begin.state) or self._command.checkpoint is not None

    def tidy(self) -> None:
        """What was made for this trial only: the unpacked files of its checkpoint, the ties to its other members."""
        self._part()
        self._saver.forget()
        if isinstance(self._restored, Path):
            shutil.rmtree(self._restored.parent, ignore_errors=True)

    def _part(self) -> None:
        if self._gang is not None:
            self._gang.close()
            self._gang = None

    # ------------------------------------------------------------------------------------- what the user's code calls

    def checkpoint(self) -> object:
        self._asked_for_checkpoint = True
        return self._restored

    def attach(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def preemption(self) -> PreemptionInfo | None:
        """Rank 0 alone is told: members that took different ways would wait for each other for ever."""
        if self.context.world_size > 1 or self._left:
            return None
        self._worker.look()
        hurry, command = self._worker.hurry, self._command
        if hurry is None or (hurry.trial, hurry.attempt) != (command.trial, command.attempt):
            return None
        return PreemptionInfo(max(0.0, hurry.by_unix_s - time.time()))

    def leave_if_preempted(self, checkpoint: object) -> None:
        if self._left:
            raise Leave  # the user's code has swallowed it once
        if checkpoint is None or self.preemption() is None:
            return
        self._checkpoint = checkpoint
        command = self._command
        saved = self._saver.save(self._value(None), command, self._iteration, midway=True)
        self._worker.end(m.TrialPaused(command.trial, command.attempt, self._iteration, saved))
        self._leave()

    def backing(self) -> Backing:
        return Backing(self._worker, self._command)

    def report(self, metrics: m.Metrics, checkpoint: object) -> None:
        if self._left:
            raise Leave  # the user's code has swallowed it once
        self._iteration += 1
        self._glass.step_ends()
        self._checkpoint = self._elastic.save if checkpoint is None and self._elastic is not None else checkpoint
        if self.context.rank > 0:
            assert self._gang is not None
            word = self._gang.hear()
        else:
            word = self._speak(m.TrialReported(self._command.trial, self._command.attempt, self._iteration, metrics))
            if self._gang is not None:
                self._gang.tell(word)
        if word == gang.STEP_ASIDE:
            self._step_aside()
        elif word == gang.LEAVE:
            self._leave()
        self._glass.step_begins()

    # --------------------------------------------------------------------------------------------- rank 0 at a report

    def _speak(self, reported: m.TrialReported) -> bytes:
        """Send the report, with a checkpoint where one is due; then what all members shall do."""
        trial, attempt, iteration = reported.trial, reported.attempt, reported.iteration
        self._warn()
        self._glass.saves_in(self._saver.needed_s)
        asked = self._asked_to()
        # Who may go on in this process waits for it without unwinding.
        may_stay = self._elastic is not None or self.context.world_size == 1
        if isinstance(asked, m.PauseTrial | m.StopTrial) or self._used_up:
            saved = None if isinstance(asked, m.StopTrial) else self._save(reported)
            self._worker.end(reported, m.TrialPaused(trial, attempt, iteration, saved))
            return gang.STEP_ASIDE if may_stay and not self._command.final else gang.LEAVE
        if asked is not None and asked.slots == self._command.slots:
            self._use(asked.share)
            self._worker.tell(reported, m.TrialResized(trial, attempt, asked.slots, iteration, None))
            return gang.GO_ON
        if asked is not None:
            # Its machine may go as soon as the trial has left it, and with it what is in memory there.
            leaves = all(slot.node != self._command.slots[0].node for slot in asked.slots)
            state, saved = self._pass_on(reported, leaves)
            self._worker.tell(reported, m.TrialResized(trial, attempt, asked.slots, iteration, saved), state=state)
            return gang.STEP_ASIDE if self._elastic is not None else gang.LEAVE
        if not self._is_due(self._checkpoint):
            self._worker.tell(reported)
        elif self._setup.checkpoints.is_remote:
            self._worker.tell(reported)
            self._save_behind(lambda saved: self._worker.tell(m.TrialCheckpointed(trial, attempt, saved)))
        elif (saved := self._save(reported)) is not None:
            self._worker.tell(reported, m.TrialCheckpointed(trial, attempt, saved))
        return gang.GO_ON

    @property
    def _used_up(self) -> bool:
        until = self._command.until_iteration
        return (until is not None and self._iteration >= until) or self._glass.is_over

    def _asked_to(self) -> Asked | None:
        """What the driver wants by now. Leaving goes before moving; to move where the trial is, is to stay."""
        asked: Asked | None = None
        while (command := self._worker.next(wait=False)) is not None:
            if isinstance(command, wire.Begin) or command.attempt != self._command.attempt:
                continue
            if not isinstance(command, m.ResizeTrial):
                return command
            stays = (command.slots, command.share) == (self._command.slots, self._command.share)
            asked = None if stays else command
        return asked

    def _use(self, share: float) -> None:
        """From now on so much of the device."""
        self._command = msgspec.structs.replace(self._command, share=share)
        use_threads(self._worker.threads(share))

    def _is_due(self, checkpoint: object) -> bool:
        """A file may be gone when report() has returned, so it is saved at once; all else when it is time to, and the
        one before has arrived.
        """
        if checkpoint is None or isinstance(checkpoint, Path):
            return checkpoint is not None
        waited_s = time.monotonic() - self._saved_at
        return not self._saver.is_busy and (waited_s >= self._saver.period_s or self._glass.is_low)

    def _pass_on(self, reported: m.TrialReported, leaves: bool) -> tuple[bytes, m.Checkpoint | None]:
        """The state for the workers that come next: in the object store, and in the checkpoint store when it is time
        for that, when it cannot be in the other, or may be lost there.
        """
        if self._checkpoint is None:
            return b"", None
        value = self._value(reported)
        self._settle(reported)
        due = leaves or self._is_due(self._checkpoint)
        if isinstance(value, Path):
            return b"", self._keep(value, reported)
        try:
            state = self._worker.share(value)
        except Exception as error:  # the store is full, or this cannot be pickled, which the other store explains
            print(f"elastune: the object store cannot take the trial's state: {error}", file=sys.stderr)
            return b"", self._keep(value, reported)
        return state, self._keep(value, reported) if due else None

    def _save(self, reported: m.TrialReported | None) -> m.Checkpoint | None:
        return None if self._checkpoint is None else self._keep(self._value(reported), reported)

    def _value(self, reported: m.TrialReported | None) -> object:
        """What report() was given. If that fails, the report itself still counts."""
        try:
            return self._checkpoint() if callable(self._checkpoint) else self._checkpoint
        except Exception:
            self._still_report(reported)
            raise

    def _keep(self, value: object, reported: m.TrialReported | None) -> m.Checkpoint:
        """Come back when it is safe."""
        try:
            saved = self._saver.save(value, self._command, self._iteration)
        except Exception:
            self._still_report(reported)
            raise
        self._note_saved()
        return saved

    def _save_behind(self, tell: Callable[[m.Checkpoint], None]) -> None:
        """Train on while it is uploaded."""
        self._saver.begin(self._value(None), self._command, self._iteration, tell)
        self._note_saved()

    def _note_saved(self) -> None:
        self._saved_at, self._saved_iteration = time.monotonic(), self._iteration

    def _settle(self, reported: m.TrialReported | None) -> None:
        """Let what is under way arrive: the trial may be elsewhere when it does, and have newer checkpoints."""
        try:
            self._saver.wait()
        except Exception:
            self._still_report(reported)
            raise

    def _still_report(self, reported: m.TrialReported | None) -> None:
        if reported is not None:
            self._worker.tell(reported)

    def _warn(self) -> None:
        texts = [self._saver.warning()]
        if not self._asked_for_checkpoint:
            self._asked_for_checkpoint = True
            texts.append(
                "the trainable reports without having called get_checkpoint(): a trial that is resumed trains from zero"
            )
        for text in filter(None, texts):
            self._worker.tell(m.TrialWarned(self._command.trial, self._command.attempt, text))

    # ---------------------------------------------------------------------------------------------- leaving or staying

    def _leave(self) -> NoReturn:
        self._left = True
        raise Leave

    def _step_aside(self) -> None:
        """Off the books, but still warm: if the same trial is to go on here, it does, without being called again."""
        self._part()
        while not isinstance(begin := self._worker.next(wait=True), wire.Begin):
            pass
        if not self._can_go_on(begin):
            self._worker.put_back(begin)
            self._leave()
        self._join(begin)
        self._worker.begun(begin.gathering)
        use_threads(self._worker.threads(begin.command.share))
        self.meet()
        if self._elastic is not None:
            try:
                self._elastic.reform()
            except Exception as error:
                raise Lost(f"its workers could not be connected: {error}") from error

    def _can_go_on(self, begin: wire.Begin) -> bool:
        """Only from what is in memory here: who was not in the gathering before this one is called again."""
        new, old = begin.command, self._command
        if (new.trial, new.lineage, new.iteration, begin.after) != (
            old.trial,
            old.lineage,
            self._iteration,
            self._begin.gathering,
        ):
            return False
        return self._elastic is not None or len(new.slots) == self.context.world_size == 1

    def returned(self) -> None:
        if self._left or self.context.rank > 0:
            return
        command = self._command
        self._settle(None)
        saved = self._save(None) if self._iteration > self._saved_iteration else None
        self._worker.end(m.TrialReturned(command.trial, command.attempt, self._iteration, saved))

    def failed(self, error: BaseException) -> None:
        if self._left:
            return
        with suppress(Exception):
            self._saver.wait()
        command = self._command
        text = _plain("".join(traceback.format_exception(error)))
        with suppress(ValueError):  # the user's code may have closed it
            print(text, file=sys.stderr)
        what = _shown(error) if isinstance(error, ElastuneError) else f"{type(error).__name__}: {_shown(error)}"
        final, store = isinstance(error, SpecError), isinstance(error, CheckpointStoreError)
        failed = m.TrialFailed(command.trial, command.attempt, what, text[-LONGEST_TRACEBACK:], final, store)
        self._worker.end(failed, worn="a CUDA error" if "CUDA" in text else "")

    def lost(self, reason: str) -> None:
        with suppress(Exception):
            self._saver.wait()
        self._worker.tell(m.TrialLost(self._command.trial, self._command.attempt, reason, fault=False))


def _shown(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # it is the user's own
        return "(its text cannot be shown)"
    return _plain(text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "...")


def _plain(text: str) -> str:
    """What can be written down: Python allows halves of characters, UTF-8 does not."""
    return text.encode("utf-8", "replace").decode()
