"""Trials in several real processes, resized by a script: what a driver and its workers do, without the rest of it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from elastune.messages import Metrics
from elastune.worker.session import Context, Elastic, set_session

Train = Callable[[dict[str, Any]], Any]
Members = tuple[int, ...]
"""Workers by their numbers, in the order of their ranks."""


class Leave(BaseException):
    """Out of the user's code."""


@dataclass
class Trial:
    """What a worker needs to begin as a member of a trial."""

    train: Train
    config: dict[str, Any]
    context: Context
    script: Mapping[int, Members]
    """Who trains after a report, where that changes."""
    reload: bool = False
    """Whether workers that stay get the checkpoint as well."""
    checkpoint: bytes | None = None
    iteration: int = 0


class ScriptedSession:
    def __init__(self, worker: int, driver: Connection, trial: Trial) -> None:
        self._worker, self._driver, self._trial = worker, driver, trial
        self._iteration = trial.iteration
        self._elastic: Elastic | None = None
        self.context = trial.context
        self.reform_s: list[float] = []

    def attach(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def checkpoint(self) -> object:
        return None if self._trial.checkpoint is None else pickle.loads(self._trial.checkpoint)

    def preemption(self) -> None:
        return None

    def leave_if_preempted(self, checkpoint: object) -> None:
        pass

    def backing(self) -> None:
        return None

    def report(self, metrics: Metrics, checkpoint: object) -> None:
        assert checkpoint is None and self._elastic is not None
        self._iteration += 1
        if self.context.rank == 0:
            self._driver.send(("report", self._iteration, metrics))
        members = self._trial.script.get(self._iteration)
        if members is None:
            return
        if self.context.rank == 0:
            self._driver.send(("resize", self._iteration, pickle.dumps(self._elastic.save())))
        if self._worker not in members:
            raise Leave
        self.context, state = self._driver.recv()
        if self._trial.reload:
            cast(Any, self._elastic).load(pickle.loads(state))
        began = time.perf_counter()
        self._elastic.reform()
        self.reform_s.append(time.perf_counter() - began)

    def forget(self) -> None:
        self._trial.checkpoint = None


def _work(worker: int, driver: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while (trial := driver.recv()) is not None:
        set_session(ScriptedSession(worker, driver, trial))
        try:
            torch.manual_seed(0 if trial.context.rank == 0 else os.getpid())  # no two of them begin alike
            what, value = "done", trial.train(trial.config)
        except Leave:
            what, value = "left", None
        except Exception:
            what, value = "failed", traceback.format_exc()
        set_session(None)
        driver.send((what, worker, (value, torch.distributed.is_initialized())))


@dataclass
class Outcome:
    """What became of a trial: the reports of rank 0 by iteration, and what the training function returned by worker."""

    reports: dict[int, Metrics] = field(default_factory=dict)
    returned: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    still_connected: list[int] = field(default_factory=list)
    """Who was through and yet had a process group."""

    def note(self, what: str, worker: int, value: Any, is_connected: bool) -> None:
        if what == "done":
            self.returned[worker] = value
        if what == "failed":
            self.failed[worker] = value
        if is_connected:
            self.still_connected.append(worker)

    @property
    def losses(self) -> list[float]:
        return [float(self.reports[iteration]["loss"]) for iteration in sorted(self.reports)]


class Workers:
    """Warm processes that are members of one trial after the other."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(count)]
        self._connections = [ours for ours, _ in pipes]
        self.processes = [context.Process(target=_work, args=(n, theirs)) for n, (_, theirs) in enumerate(pipes)]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def close(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.send(None)
        for process in self.processes:
            process.join(60)
            process.kill()

    def run(
        self,
        train: Train,
        config: dict[str, Any],
        members: Members = (0,),
        script: Mapping[int, Members] | None = None,
        reload: bool = False,
    ) -> Outcome:
        outcome, script = Outcome(), script or {}
        trial = Trial(train, config, Context(), script, reload)
        busy = Counter(members)  # one may leave and join again before it was heard that it has left
        self._begin(trial, members, members)
        while +busy:
            heard = wait([self._connections[worker] for worker in +busy], timeout=60)
            assert heard, "nobody has said anything for a minute"
            for connection in heard:
                worker = self._connections.index(cast(Connection, connection))
                try:
                    what, number, value = self._connections[worker].recv()
                except EOFError:
                    del busy[worker]  # it is dead
                    continue
                if what == "report":
                    assert number not in outcome.reports, "an iteration was reported twice"
                    outcome.reports[number] = value
                elif what == "resize":
                    after, trial.checkpoint, trial.iteration = script[number], value, number
                    new = set(after) - set(members)
                    busy.update(new)
                    self._begin(trial, after, new)
                    members = after
                else:
                    busy[worker] -= 1
                    outcome.note(what, worker, *value)
        return outcome

    def _begin(self, trial: Trial, members: Members, new: Collection[int]) -> None:
        """Tell all members who they are now; those that are new start the training function."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            master = probe.getsockname()
        for rank, worker in enumerate(members):
            trial.context = Context("trial", rank, len(members), 7, master if len(members) > 1 else None)
            self._connections[worker].send(trial if worker in new else (trial.context, trial.checkpoint))
