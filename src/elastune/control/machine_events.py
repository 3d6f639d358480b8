"""What the events of machines lead to: they boot, are ready, are taken away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastune import messages as m
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.fleet import Fleet
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.trial_runs import TrialRuns

LOST_BEFORE_GIVING_UP = 3
"""So many machines in a row may be lost before one is ready."""


class MachineEvents:
    """Of a machine that was given back, or was never asked for, nothing is heard any more."""

    def __init__(
        self,
        trials: Mapping[str, Trial],
        fleet: Fleet,
        schedule: Schedule,
        runs: TrialRuns,
        course: Course,
        answer: Answer,
    ) -> None:
        self._trials, self._fleet, self._schedule, self._runs = trials, fleet, schedule, runs
        self._course, self._answer = course, answer
        self._never_ready = 0

    @property
    def handlers(self) -> dict[type[m.AnyEvent], Callable[[Any], None]]:
        return {
            m.NodeBilled: self._on_billed,
            m.NodeReady: self._on_ready,
            m.NodePriced: self._on_priced,
            m.NodeNotice: self._on_notice,
            m.NodeStray: self._on_stray,
            m.NodeLost: self._on_lost,
        }

    def _on_billed(self, event: m.NodeBilled) -> None:
        if event.node in self._fleet.nodes:
            self._fleet.billed(event)

    def _on_ready(self, event: m.NodeReady) -> None:
        node = self._fleet.nodes.get(event.node)
        if node is not None and not node.devices:  # a machine that a new driver found again is ready already
            self._fleet.ready(event)
            self._never_ready = 0
            self._answer.changed = True

    def _on_priced(self, event: m.NodePriced) -> None:
        if event.node in self._fleet.nodes:
            self._fleet.priced(event)

    def _on_notice(self, event: m.NodeNotice) -> None:
        if event.node in self._fleet.nodes:
            self._fleet.drain(event.node, event.gone_at_s)
            for trial_id in sorted(self._fleet.nodes[event.node].trials):
                self._schedule.pause(self._trials[trial_id], max(0.0, event.gone_at_s - self._answer.at_s))
            self._answer.changed = True

    def _on_stray(self, event: m.NodeStray) -> None:
        if event.node not in self._fleet.nodes:
            self._fleet.release_stray(event.node)

    def _on_lost(self, event: m.NodeLost) -> None:
        if event.node not in self._fleet.nodes:
            return
        until_s = self._answer.at_s if event.billed_until_s is None else event.billed_until_s
        node = self._fleet.drop(event.node, until_s, event.revoked)
        if not event.revoked:  # spot machines go all the time
            self._answer.note("warning", f"machine {node.id} is gone: {event.reason}")
        for trial_id in sorted(node.trials):
            trial = self._trials[trial_id]
            if all(slot.node != node.id for slot in trial.slots):  # it was only about to come here
                self._schedule.stay(trial)
                continue
            self._runs.left(trial)
            if not trial.over:
                self._runs.go_on_later(trial)
        self._answer.changed = True
        if node.devices or event.revoked or self._answer.resuming:
            return
        self._never_ready += 1
        if self._never_ready > LOST_BEFORE_GIVING_UP:
            self._course.end(
                "failed", f"{self._never_ready} machines in a row were lost before one was ready: {event.reason}"
            )
