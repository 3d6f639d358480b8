"""A warm worker: a process that lives through many trials and runs the user's code in its main thread."""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import cloudpickle

from elastune import messages as m
from elastune.errors import ElastuneError, SpecError
from elastune.record.checkpoints import CheckpointDamagedError, CheckpointStore
from elastune.worker import gang, wire
from elastune.worker.session import Context, Elastic, Trainer, as_trainer, set_session


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker needs once for life. The user's code travels here, not with every trial."""

    trainable: bytes
    paths: tuple[str, ...]
    """Where the driver finds modules: the user's code may import its neighbours."""
    checkpoints: CheckpointStore
    logs: Path
    checkpoint_every_s: float
    seed: int


LONGEST_ERROR, LONGEST_TRACEBACK = 2_000, 20_000


class Leave(BaseException):
    """Unwinds the user's code out of report(). Not an Exception: `except Exception` must not swallow it."""


class DriverGone(BaseException):
    """Nobody listens any more: Ray ends this process."""


class Worker:
    def __init__(
        self, connection: wire.Wire, setup: WorkerSetup, trainer: Trainer, listener: socket.socket, secret: bytes
    ) -> None:
        self._wire, self._setup, self._trainer = connection, setup, trainer
        self._listener, self._secret = listener, secret
        self._inbox: list[wire.ToWorker] = []

    def run(self) -> None:
        """Train what comes, until the driver is gone."""
        while True:
            begin = self.next(wait=True)
            if isinstance(begin, wire.Begin):
                self._train(begin)

    def next(self, wait: bool) -> wire.ToWorker | None:
        """The next command; None if there is none and we shall not wait."""
        if not self._inbox:
            try:
                self._inbox = [wire.decode_command(frame) for frame in self._wire.receive(wait)]
            except EOFError as error:
                raise DriverGone from error
        return self._inbox.pop(0) if self._inbox else None

    def put_back(self, command: wire.ToWorker) -> None:
        self._inbox.insert(0, command)

    def tell(self, *events: m.AnyEvent) -> None:
        """Events that belong together arrive together."""
        try:
            self._wire.send(wire.encode(events))
        except OSError as error:
            raise DriverGone from error

    def _train(self, begin: wire.Begin) -> None:
        command = begin.command
        suffix = f".{begin.rank}" if begin.rank else ""
        with _own_log(self._setup.logs / f"{command.trial}{suffix}.log"):
            trial = TrialSession(self, self._setup, begin)
            try:
                if len(command.slots) > 1:
                    trial.meet(gang.form(begin, self._listener, self._secret))
                trial.restore()
                _reseed(trial.context.seed)
                set_session(trial)
                self._trainer(command.config)
                trial.returned()
            except Leave:
                pass
            except CheckpointDamagedError as error:
                assert command.checkpoint is not None
                self.tell(m.CheckpointDamaged(command.trial, command.attempt, command.checkpoint, str(error)))
            except DriverGone:
                raise
            except BaseException as error:  # also KeyboardInterrupt and the like: this process goes on
                trial.failed(error)
            finally:
                set_session(None)
                trial.tidy()


class TrialSession:
    """A trial in progress. Its run travels with the start, so a report waits for nobody until the run is used up."""

    def __init__(self, worker: Worker, setup: WorkerSetup, begin: wire.Begin) -> None:
        command = begin.command
        self._worker, self._setup, self._command = worker, setup, command
        self._gang: gang.Gang | None = None
        self._iteration = command.iteration
        self._saved_iteration = command.iteration
        self._saved_at = time.monotonic()
        self._left = False
        self._checkpoint: object = None
        self._restored: object = None
        self._elastic: Elastic | None = None
        self._asked = command.checkpoint is None
        seed = zlib.crc32(f"{setup.seed} {command.trial}".encode())
        self.context = Context(command.trial, begin.rank, len(command.slots), seed)

    def meet(self, members: gang.Gang) -> None:
        self._gang = members
        self.context = replace(self.context, master=members.master)

    def restore(self) -> None:
        if self._command.checkpoint is not None:
            self._restored = self._setup.checkpoints.load(self._command.checkpoint)

    def tidy(self) -> None:
        """What was made for this trial only: the unpacked files of its checkpoint, the ties to its other members."""
        if self._gang is not None:
            self._gang.close()
        if isinstance(self._restored, Path):
            shutil.rmtree(self._restored.parent, ignore_errors=True)

    def checkpoint(self) -> object:
        self._asked = True
        return self._restored

    def attach(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def report(self, metrics: m.Metrics, checkpoint: object) -> None:
        if self._left:
            raise Leave  # the user's code has swallowed it once
        self._iteration += 1
        self._checkpoint = self._elastic.save if checkpoint is None and self._elastic is not None else checkpoint
        if self.context.rank > 0:
            assert self._gang is not None
            if not self._gang.goes_on():
                self._leave()
            return
        reported = m.TrialReported(self._command.trial, self._command.attempt, self._iteration, metrics)
        if not self._asked:
            self._warn_about_ignored_checkpoint()
        if self._goes_on(reported, self._asked_to()):
            if self._gang is not None:
                self._gang.tell(go_on=True)
        elif self._gang is not None or self._command.final:
            self._leave()
        else:
            self._hold()

    def _goes_on(self, reported: m.TrialReported, asked: m.PauseTrial | m.StopTrial | m.ResizeTrial | None) -> bool:
        """Send the report, with a checkpoint where one is due. Whether the trial goes on here after it."""
        trial, attempt, iteration = reported.trial, reported.attempt, reported.iteration
        if isinstance(asked, m.PauseTrial | m.StopTrial) or iteration == self._command.until_iteration:
            saved = None if isinstance(asked, m.StopTrial) else self._save(reported)
            self._worker.tell(reported, m.TrialPaused(trial, attempt, iteration, saved))
            return False
        if asked is not None:
            self._worker.tell(reported, m.TrialResized(trial, attempt, asked.slots, iteration, self._save(reported)))
            self._leave()
        if (saved := self._save(reported) if self._is_due(self._checkpoint) else None) is not None:
            self._worker.tell(reported, m.TrialCheckpointed(trial, attempt, saved))
        else:
            self._worker.tell(reported)
        return True

    def _leave(self) -> NoReturn:
        self._left = True
        if self._gang is not None and self.context.rank == 0:
            self._gang.tell(go_on=False)
        raise Leave

    def returned(self) -> None:
        if self._left or self.context.rank > 0:
            return
        command = self._command
        saved = self._save(None) if self._iteration > self._saved_iteration else None
        self._worker.tell(m.TrialReturned(command.trial, command.attempt, self._iteration, saved))

    def _is_due(self, checkpoint: object) -> bool:
        """A file may be gone when report() has returned, so it is saved at once; all else when it is time to."""
        if checkpoint is None:
            return False
        return isinstance(checkpoint, Path) or time.monotonic() - self._saved_at >= self._setup.checkpoint_every_s

    def failed(self, error: BaseException) -> None:
        if self._left:
            return
        command = self._command
        text = _plain("".join(traceback.format_exception(error)))
        with suppress(ValueError):  # the user's code may have closed it
            print(text, file=sys.stderr)
        what = _shown(error) if isinstance(error, ElastuneError) else f"{type(error).__name__}: {_shown(error)}"
        final = isinstance(error, SpecError)
        self._worker.tell(m.TrialFailed(command.trial, command.attempt, what, text[-LONGEST_TRACEBACK:], final))

    def _asked_to(self) -> m.PauseTrial | m.StopTrial | m.ResizeTrial | None:
        """What the driver wants by now. Leaving goes before moving; to move where the trial is, is to stay."""
        asked: m.PauseTrial | m.StopTrial | m.ResizeTrial | None = None
        while (command := self._worker.next(wait=False)) is not None:
            if isinstance(command, wire.Begin) or command.attempt != self._command.attempt:
                continue
            if not isinstance(command, m.ResizeTrial):
                return command
            asked = command if command.slots != self._command.slots else None
        return asked

    def _save(self, reported: m.TrialReported | None) -> m.Checkpoint | None:
        """Save what report() was given. If that fails, the report itself still counts."""
        if self._checkpoint is None:
            return None
        command = self._command
        try:
            value = self._checkpoint() if callable(self._checkpoint) else self._checkpoint
            saved = self._setup.checkpoints.save(
                value, trial=command.trial, lineage=command.lineage, iteration=self._iteration, attempt=command.attempt
            )
        except Exception:
            if reported is not None:
                self._worker.tell(reported)
            raise
        self._saved_at, self._saved_iteration = time.monotonic(), self._iteration
        return saved

    def _hold(self) -> None:
        """Off the books, but still warm: if the same trial is to go on here, it does, without unwinding or restoring.

        Only as its very next attempt: after one elsewhere, what is in memory here is out of date.
        """
        while True:
            begin = self._worker.next(wait=True)
            if not isinstance(begin, wire.Begin):
                continue
            before, command = self._command, begin.command
            same = (command.trial, command.lineage, command.attempt) == (
                before.trial,
                before.lineage,
                before.attempt + 1,
            )
            if same and len(command.slots) == 1:
                self._command, self._saved_at = command, time.monotonic()
                return
            self._worker.put_back(begin)
            self._leave()

    def _warn_about_ignored_checkpoint(self) -> None:
        self._asked = True
        text = "the trainable reports without having called get_checkpoint(): a trial that is resumed trains from zero"
        self._worker.tell(m.TrialWarned(self._command.trial, self._command.attempt, text))


def _shown(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # it is the user's own
        return "(its text cannot be shown)"
    return _plain(text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "...")


def _plain(text: str) -> str:
    """What can be written down: Python allows halves of characters, UTF-8 does not."""
    return text.encode("utf-8", "replace").decode()


def work(address: tuple[str, int], secret: bytes, launch: int, setup: WorkerSetup) -> None:
    """The whole life of a worker process. Its number tells it from one that was started in its place."""
    sys.stdout.flush()
    connection = wire.Wire(socket.create_connection(address))
    nonce = connection.sock.recv(wire.NONCE_BYTES, socket.MSG_WAITALL)
    error, trainer = "", None
    add_paths(setup.paths)
    try:
        trainer = as_trainer(cloudpickle.loads(setup.trainable))
    except Exception as failure:
        error = f"the training code cannot be loaded in a worker: {type(failure).__name__}: {failure}"
    listener = socket.create_server((connection.sock.getsockname()[0], 0))
    port = listener.getsockname()[1]
    connection.send(wire.encode(wire.Hello(wire.proof(secret, nonce), launch, port, error)))
    if trainer is not None:
        with suppress(DriverGone):
            Worker(connection, setup, trainer, listener, secret).run()


def add_paths(paths: Iterable[str]) -> None:
    sys.path.extend(path for path in paths if path not in sys.path)


@contextmanager
def _own_log(path: Path) -> Iterator[None]:
    """Send this process's output, also that of C code and of children, to the trial's own file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _flush()
    kept = os.dup(1), os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        _flush()
        for saved, stream in zip(kept, (1, 2), strict=True):
            os.dup2(saved, stream)
            os.close(saved)


def _flush() -> None:
    """Also mends what the user's code has closed: the next trial prints too."""
    for name, stream in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name).closed:
            setattr(sys, name, os.fdopen(os.dup(stream), "w", buffering=1))
        getattr(sys, name).flush()


def _reseed(seed: int) -> None:
    """Every trial begins from its own seed, whatever ran in this process before."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
