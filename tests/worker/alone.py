"""A real worker process, and a driver by hand at the other end of its wire."""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import time
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from elastune import messages as m
from elastune.record.checkpoints import CheckpointStore
from elastune.worker import wire
from elastune.worker.process import work
from elastune.worker.setup import WorkerSetup

E = TypeVar("E", bound=m.Event)
WITHIN_S = 60.0


class WorkerAlone:
    def __init__(self, trainable: object, folder: Path, store: CheckpointStore, **setup: Any) -> None:
        told = {"paths": (), "checkpoint_every_s": 0.0, "seed": 0, "logs": folder / "logs", **setup}
        self.store, self.events = store, list[m.AnyEvent]()
        self._unread: list[m.AnyEvent] = []
        self._gathering = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.process = multiprocessing.get_context("spawn").Process(
                target=work,
                args=(
                    listener.getsockname(),
                    b"secret",
                    0,
                    WorkerSetup(cloudpickle.dumps(trainable), checkpoints=store, **told),
                ),
            )
            self.process.start()
            listener.settimeout(WITHIN_S)
            connection, _ = listener.accept()
        connection.settimeout(WITHIN_S)
        self.wire = wire.Wire(connection)
        connection.sendall(secrets.token_bytes(wire.NONCE_BYTES))
        hello = wire.decode_hello(self.wire.receive(wait=True)[0])
        assert hello.error == ""

    def begin(
        self,
        until: int | None = None,
        saved: m.Checkpoint | None = None,
        attempt: int = 1,
        trial: str = "t",
        final: bool = True,
    ) -> None:
        self._gathering += 1
        done = 0 if saved is None else saved.iteration
        start = m.StartTrial(0, trial, attempt, 0, {}, done, saved, until, final, (m.Slot("n0", 0),))
        self.send(wire.Begin(start, 0, ("", 0), self._gathering))

    def notice(self, in_s: float, attempt: int = 1, trial: str = "t") -> None:
        self.send(wire.Hurry(trial, attempt, time.time() + in_s))
        self.send(m.PauseTrial(0, trial, attempt, in_s))

    def send(self, command: wire.ToWorker) -> None:
        self.wire.send(wire.encode(command))

    def until(self, kind: type[E]) -> E:
        """Wait for the next event of a kind; all events up to it are kept."""
        while True:
            while not self._unread:
                for frame in self.wire.receive(wait=True):
                    self._unread += wire.decode_said(frame).events
            self.events.append(event := self._unread.pop(0))
            if isinstance(event, kind):
                return event

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.wire.close()
