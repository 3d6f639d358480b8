"""A cluster driven by hand: commands go in, events are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from elastune import messages as m
from elastune.cluster.ray import RayCluster
from elastune.provider import Here
from elastune.record.checkpoints import CheckpointStore
from elastune.worker.setup import WorkerSetup

Train = Callable[[Mapping[str, Any]], None]
E = TypeVar("E", bound=m.Event)


class Driver:
    """One machine with so many devices."""

    def __init__(
        self,
        trainable: object,
        folder: Path,
        devices: int = 3,
        lanes: int = 1,
        silence_s: float | None = None,
        **setup: Any,
    ) -> None:
        store = CheckpointStore(str(folder / "saved"))
        told = {"paths": (), "checkpoint_every_s": 60.0, "seed": 0, **setup}
        self.setup = WorkerSetup(cloudpickle.dumps(trainable), checkpoints=store, logs=folder / "logs", **told)
        self.cluster = RayCluster(self.setup, Here(devices, 0.0), lanes=lanes, silence_s=silence_s)
        self.events: list[m.AnyEvent] = []
        self._number = 0
        self.send(m.AddNode, "n0")
        self.until(m.NodeReady)

    def send(self, command: Any, *fields: object) -> None:
        self._number += 1
        self.cluster.submit([command(self._number, *fields)])

    def start(
        self,
        slots: tuple[m.Slot, ...],
        until: int | None,
        attempt: int = 1,
        saved: m.Checkpoint | None = None,
        trial: str = "t",
        final: bool = True,
        config: Mapping[str, Any] | None = None,
        share: float = 1.0,
        until_s: float | None = None,
    ) -> None:
        done, given = saved.iteration if saved else 0, dict(config or {})
        self.send(m.StartTrial, trial, attempt, 0, given, done, saved, until, final, slots, share, until_s)

    def until(self, kind: type[E], within_s: float = 60.0) -> E:
        """Wait for a new event of a kind; all events are kept."""
        seen = sum(isinstance(event, kind) for event in self.events)
        limit_s = time.monotonic() + within_s
        while time.monotonic() < limit_s:
            self.events += self.cluster.poll(self.cluster.now_s() + 1.0).events
            if len(found := [event for event in self.events if isinstance(event, kind)]) > seen:
                return found[seen]
        raise AssertionError(f"no {kind.__name__} within {within_s:g} s, but {self.events[-3:]}")

    def wait(self, for_s: float) -> None:
        limit_s = self.cluster.now_s() + for_s
        while self.cluster.now_s() < limit_s:
            self.events += self.cluster.poll(limit_s).events

    def reports(self, trial: str = "t") -> list[m.TrialReported]:
        return [event for event in self.events if isinstance(event, m.TrialReported) and event.trial == trial]


def slots(*devices: int) -> tuple[m.Slot, ...]:
    return tuple(m.Slot("n0", device) for device in devices)
