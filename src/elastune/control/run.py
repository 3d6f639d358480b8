"""The loop: poll, handle, append, submit. And resuming: snapshot, tail, inventory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import cloudpickle

from elastune.cluster.base import Cluster
from elastune.control.controller import Controller
from elastune.messages import (
    AnyEvent,
    NodeLost,
    Record,
    RunInterrupted,
    RunResumed,
    RunStarted,
    Turn,
    decode_record,
    encode_record,
)
from elastune.record.journal import Journal

Observer = Callable[[Record], None]
FIRST_SNAPSHOT = 1000
"""Turns until the first snapshot. Each later one waits until the journal has grown by half, so that all snapshots
together cost no more than a constant share of the run, and a resume replays at most a third of it."""


class Loop:
    """Drives a controller on a cluster and writes every turn down before its commands take effect."""

    def __init__(
        self,
        controller: Controller,
        cluster: Cluster,
        journal: Journal,
        seq: int = 0,
        snapshot_key: str | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._controller, self._cluster, self._journal = controller, cluster, journal
        self._seq = seq
        self._snapshot_key = snapshot_key
        self._next_snapshot = max(FIRST_SNAPSHOT, seq + seq // 2)
        self._observers = tuple(observers)
        self._interrupted = False

    def start(self, started: RunStarted) -> None:
        self.turn(Turn(0.0, (started,)))

    def resume(self) -> None:
        """Take over from a driver that is gone: what its journal believes in and the cluster does not have is lost."""
        turn = self._cluster.poll(0.0)
        there = self._cluster.inventory().nodes
        gone = (NodeLost(node, "its driver ended") for node in self._controller.fleet.nodes if node not in there)
        events: tuple[AnyEvent, ...] = (*turn.events, RunResumed(), *gone)
        self.turn(Turn(turn.at_s, events))

    def run(self) -> None:
        while not self._controller.done:
            turn = self._cluster.poll(self._controller.wake_s)
            if self._interrupted:
                self._interrupted = False
                turn = Turn(turn.at_s, (*turn.events, RunInterrupted()))
            self.turn(turn)

    def interrupt(self) -> None:
        """Ask for an orderly end. Safe to call from a signal handler."""
        self._interrupted = True
        self._cluster.wake()

    def turn(self, turn: Turn) -> None:
        step = self._controller.handle(turn)
        record = Record(turn.at_s, turn.events, step.decisions, step.commands)
        self._journal.append(self._seq, encode_record(record))
        self._seq += 1
        self._cluster.submit(step.commands)
        for observe in self._observers:
            observe(record)
        if self._snapshot_key is not None and self._seq >= self._next_snapshot:
            self._journal.save_snapshot(self._seq, self._snapshot_key, cloudpickle.dumps(self._controller))
            self._next_snapshot = self._seq + self._seq // 2


def recover(journal: Journal, fresh: Controller, snapshot_key: str | None) -> tuple[Controller, list[Record]]:
    """The controller as the journal leaves it, and all records. A snapshot saves replaying the turns before it."""
    records = [decode_record(body) for body in journal.read()]
    snapshot = journal.newest_snapshot(snapshot_key) if snapshot_key is not None else None
    controller, done = fresh, 0
    if snapshot is not None and snapshot[0] <= len(records):
        done, controller = snapshot[0], pickle.loads(snapshot[1])
    for record in records[done:]:
        controller.replay(record)
    return controller, records
