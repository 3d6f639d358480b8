"""A warm worker: a process that lives through many trials and runs the user's code in its main thread."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any

import cloudpickle

from elastune import messages as m
from elastune.record.checkpoints import CheckpointDamagedError
from elastune.worker import gang, objects, wire
from elastune.worker.log import Logs, log_path
from elastune.worker.reset import Desk, end_children, limit_threads, memory_bytes
from elastune.worker.saver import Saver
from elastune.worker.session import Trainer, as_trainer, set_session
from elastune.worker.setup import WorkerSetup, add_paths
from elastune.worker.trial import Leave, Lost, TrialSession


class DriverGone(BaseException):
    """Nobody listens any more: Ray ends this process."""


class Worker:
    def __init__(
        self, connection: wire.Wire, setup: WorkerSetup, trainer: Trainer, listener: socket.socket, secret: bytes
    ) -> None:
        self._wire, self.setup, self._trainer = connection, setup, trainer
        self._listener, self._secret = listener, secret
        self._inbox: list[wire.Order] = []
        self.hurry: wire.Hurry | None = None
        """The last that was heard."""
        self.saver = Saver(setup.checkpoints, setup.saving)
        self._speaking = threading.Lock()
        self._logs, self._desk = Logs(), Desk(setup.reproducible)
        self._gathering = 0
        self._first_bytes: int | None = None
        self._shared: deque[Any] = deque(maxlen=2)
        """Keeps the states alive that this worker has passed on last."""

    def run(self) -> None:
        """Train what comes, until the driver is gone."""
        while True:
            begin = self.next(wait=True)
            if isinstance(begin, wire.Begin):
                self._train(begin)

    # ----------------------------------------------------------------------------------------------- for the session

    def next(self, wait: bool) -> wire.Order | None:
        """The next command; None if there is none and we shall not wait."""
        while not self._inbox:
            self.look(wait)
            if not wait:
                break
        return self._inbox.pop(0) if self._inbox else None

    def look(self, wait: bool = False) -> None:
        """Take in what the driver has sent."""
        try:
            heard = [wire.decode_command(frame) for frame in self._wire.receive(wait)]
        except EOFError as error:
            raise DriverGone from error
        for command in heard:
            if isinstance(command, wire.Hurry):
                self.hurry = command
            else:
                self._inbox.append(command)

    def begun(self, gathering: int) -> None:
        """From now on this process speaks as a member of that gathering; to say so is its first word there."""
        self._gathering = gathering
        self.tell()

    def put_back(self, command: wire.Order) -> None:
        self._inbox.insert(0, command)

    def tell(self, *events: m.AnyEvent, state: bytes = b"", worn: str = "") -> None:
        """Events that belong together arrive together. The thread that uploads speaks too."""
        try:
            with self._speaking:
                self._wire.send(wire.encode(wire.Said(self._gathering, events, state, worn)))
        except OSError as error:
            raise DriverGone from error

    def end(self, *events: m.AnyEvent, worn: str = "") -> None:
        """The last that is said of a run: this process may have to go with it."""
        self.tell(*events, worn=worn or self._worn())

    def share(self, value: object) -> bytes:
        reference, name = objects.share(value)
        self._shared.append(reference)
        return name

    def form(self, begin: wire.Begin) -> gang.Gang:
        return gang.form(begin, self._listener, self._secret)

    def threads(self, share: float) -> int:
        return max(1, int(self.setup.threads * share))

    def _worn(self) -> str:
        """Measured at the same point of every run, so that what the trial itself needs is in both figures."""
        if self.setup.fresh_process:
            return "every run gets a fresh process"
        now_bytes = memory_bytes()
        if self._first_bytes is None:
            self._first_bytes = now_bytes
        grown = now_bytes - self._first_bytes
        return f"it has grown by {grown / 1e6:.0f} MB" if grown > self.setup.leak_bytes else ""

    # -------------------------------------------------------------------------------------------------------- a trial

    def _train(self, begin: wire.Begin) -> None:
        command = begin.command
        self.begun(begin.gathering)
        with self._logs.to(log_path(self.setup.logs, command.trial, begin.rank)):
            trial = TrialSession(self, begin)
            try:
                self._desk.clear(trial.context.seed, self.threads(command.share))
                trial.meet()
                trial.restore()
                set_session(trial)
                self._trainer(command.config)
                trial.returned()
            except Leave:
                pass
            except CheckpointDamagedError as error:
                assert command.checkpoint is not None
                self.end(m.CheckpointDamaged(command.trial, command.attempt, command.checkpoint, str(error)))
            except Lost as error:
                trial.lost(str(error))
            except DriverGone:
                raise
            except BaseException as error:  # also KeyboardInterrupt and the like: the driver decides
                trial.failed(error)
            finally:
                set_session(None)
                trial.tidy()
                end_children()
                if begin.rank > 0 and (worn := self._worn()):
                    self.tell(worn=worn)


def work(
    address: tuple[str, int],
    secret: bytes,
    launch: int,
    setup: WorkerSetup,
    share: float = 1.0,
    gpu: int | None = None,
) -> None:
    """The whole life of a worker process. Its number tells it from one that was started in its place."""
    sys.stdout.flush()
    connection = wire.Wire(socket.create_connection(address))
    nonce = connection.sock.recv(wire.NONCE_BYTES, socket.MSG_WAITALL)
    error, trainer = "", None
    limit_threads(max(1, int(setup.threads * share)))
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
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
