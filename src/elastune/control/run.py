"""The loop: poll, handle, append, submit. And resuming: snapshot, tail, inventory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import cloudpickle

from elastune.cluster.base import Cluster
from elastune.control.controller import Controller
from elastune.messages import (
    NodeLost,
    NodeStray,
    Record,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TrialLost,
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

    def resume(self, last_s: float) -> None:
        """Take over from a driver that is gone: what its journal believes in and the cluster does not have is lost. A
        machine that the cluster has and the journal does not know of is given back.

        Machines that went with the driver are paid for until its last turn. Of a run that is over only stray machines
        are left.
        """
        turn = self._cluster.poll(0.0)
        there = self._cluster.inventory()
        nodes = self._controller.fleet.nodes
        strays = [NodeStray(node) for node in sorted(there.nodes) if node not in nodes]
        if self._controller.over:
            if strays:
                self.turn(Turn(turn.at_s, (*turn.events, *strays)))
            return
        # Of those that were to be taken away it is known who ended them, and when.
        gone = [
            NodeLost(
                name,
                "its driver ended",
                max(last_s, min(node.gone_at_s, turn.at_s)) if node.draining else last_s,
                revoked=node.draining,
            )
            for name, node in nodes.items()
            if name not in there.nodes
        ]
        lost = [
            TrialLost(trial.id, trial.attempt, "its driver ended", fault=False)
            for trial in self._controller.trials.values()
            if trial.slots and trial.slots[0].node in there.nodes and there.trials.get(trial.id) != trial.attempt
        ]
        self.turn(Turn(turn.at_s, (RunResumed(), *turn.events, *strays, *gone, *lost)))

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


def recover(journal: Journal, fresh: Controller, snapshot_key: str | None, observe: Observer) -> tuple[Controller, int]:
    """The controller as the journal leaves it, and the number of the next record. A snapshot saves replaying the turns
    before it; `observe` sees all of them.
    """
    controller, done = _snapshot(journal, snapshot_key) or (fresh, 0)
    seq = 0
    for body in journal.read():
        record = decode_record(body)
        observe(record)
        if seq >= done:
            controller.replay(record)
        seq += 1
    return controller, seq


def _snapshot(journal: Journal, key: str | None) -> tuple[Controller, int] | None:
    snapshot = journal.newest_snapshot(key) if key is not None else None
    if snapshot is None:
        return None
    try:
        return pickle.loads(snapshot[1]), snapshot[0]
    except Exception:  # whatever a pickle may raise: replaying from the beginning is always right
        return None
