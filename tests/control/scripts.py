"""A controller that is told events by hand: what it answers is compared word for word."""

from __future__ import annotations

from typing import Any

from tests.worlds import started, world

from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.control.controller import Controller, Step
from elastune.spec import Retention


class Script:
    """Writes the journal down as the loop does, so that it can be replayed."""

    def __init__(self, algorithm: Algorithm, **arguments: Any) -> None:
        self.world = world(algorithm, **arguments)
        self.controller: Controller = self.world.experiment.controller()
        self.records: list[m.Record] = []
        self.first = self.at(0.0, started(self.world.experiment.settings))

    def at(self, at_s: float, *events: m.AnyEvent) -> Step:
        step = self.controller.handle(m.Turn(at_s, events))
        self.records.append(m.Record(at_s, events, step.decisions, step.commands))
        return step

    def config(self, trial: str) -> m.Config:
        return self.controller.trials[trial].config

    def start(
        self,
        number: int,
        trial: str,
        slot: tuple[str, int],
        until: int | None,
        *,
        attempt: int = 1,
        final: bool = True,
        checkpoint: m.Checkpoint | None = None,
    ) -> m.StartTrial:
        return m.StartTrial(
            id=number,
            trial=trial,
            attempt=attempt,
            lineage=0,
            config=self.config(trial),
            iteration=checkpoint.iteration if checkpoint else 0,
            checkpoint=checkpoint,
            until_iteration=until,
            final=final,
            slots=(m.Slot(*slot),),
        )


def ready(node: str, devices: int = 1, billed_from_s: float = 0.0, price: float = 0.0) -> m.NodeReady:
    return m.NodeReady(node, devices, billed_from_s, price)


def reported(trial: str, iteration: int, loss: m.Scalar, attempt: int = 1) -> m.TrialReported:
    return m.TrialReported(trial, attempt, iteration, {"loss": loss})


def saved(trial: str, iteration: int, attempt: int = 1) -> m.Checkpoint:
    return m.Checkpoint(trial, 0, iteration, f"{trial}/{iteration}-{attempt}", "", 0)


def checkpointed(trial: str, iteration: int, attempt: int = 1) -> m.TrialCheckpointed:
    return m.TrialCheckpointed(trial, attempt, saved(trial, iteration, attempt))


def paused(trial: str, iteration: int, attempt: int = 1, keep: bool = True) -> m.TrialPaused:
    return m.TrialPaused(trial, attempt, iteration, saved(trial, iteration, attempt) if keep else None)


def failed(trial: str, attempt: int = 1, error: str = "ValueError: no", final: bool = False) -> m.TrialFailed:
    return m.TrialFailed(trial, attempt, error, "Traceback ...", final)


def unsaved(trial: str, attempt: int = 1) -> m.TrialFailed:
    return m.TrialFailed(trial, attempt, "the store is full", "Traceback ...", store=True)


def drops(step: Step) -> list[str]:
    return [command.checkpoint.path for command in step.commands if isinstance(command, m.DropCheckpoint)]


def starts(step: Step) -> list[tuple[str, int, int]]:
    """Trial, attempt and the iteration it goes on from."""
    return [(c.trial, c.attempt, c.iteration) for c in step.commands if isinstance(c, m.StartTrial)]


def statuses(step: Step) -> list[tuple[str, str]]:
    return [(d.trial, d.status) for d in step.decisions if isinstance(d, m.StatusChanged)]


def ended(step: Step) -> tuple[str, str] | None:
    return next(((d.status, d.reason) for d in step.decisions if isinstance(d, m.RunEnded)), None)


def notes(step: Step) -> list[str]:
    return [d.text for d in step.decisions if isinstance(d, m.Note)]


KEEP_ALL = Retention(keep_last=100, keep_best=100)
