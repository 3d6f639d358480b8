"""The course of the whole run: it begins, may be interrupted and resumed, and comes to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastune import messages as m
from elastune.control.answer import Answer
from elastune.control.fleet import Fleet
from elastune.control.schedule import Schedule
from elastune.control.state import Trial


class Course:
    """There is an `outcome` from when the run is to end; it is `done` when nothing runs any more."""

    def __init__(
        self, grace_s: float, trials: Mapping[str, Trial], fleet: Fleet, schedule: Schedule, answer: Answer
    ) -> None:
        self.outcome: tuple[m.RunStatus, str] | None = None
        self.done = False
        self._grace_s = grace_s
        self._trials, self._fleet, self._schedule, self._answer = trials, fleet, schedule, answer

    @property
    def handlers(self) -> dict[type[m.AnyEvent], Callable[[Any], None]]:
        return {
            m.RunStarted: self._on_started,
            m.RunResumed: self._on_resumed,
            m.RunInterrupted: self._on_interrupted,
        }

    @property
    def over(self) -> bool:
        """The run has ended and can never go on; one that was interrupted can."""
        return self.done and not self._interrupted

    def end(self, status: m.RunStatus, reason: str) -> None:
        """No more starts: every running trial is checkpointed and leaves; then the run is over."""
        self._answer.changed = True
        if self.outcome is None:
            self.outcome = (status, reason)
            for trial_id in self._schedule.widths:
                self._schedule.pause(self._trials[trial_id], self._grace_s)

    def finish(self, status: m.RunStatus, reason: str) -> None:
        """Nothing runs any more: all machines are given back."""
        self.done = True
        self.outcome = (status, reason)
        self._answer.decisions.append(m.RunEnded(status, reason))
        for node_id in list(self._fleet.nodes):
            self._fleet.release(node_id)

    def _on_started(self, event: m.RunStarted) -> None:
        self._answer.changed = True

    def _on_resumed(self, event: m.RunResumed) -> None:
        self._answer.changed = self._answer.resuming = True
        if self._interrupted:
            self.outcome, self.done = None, False

    def _on_interrupted(self, event: m.RunInterrupted) -> None:
        self.end("interrupted", "interrupted by the user")

    @property
    def _interrupted(self) -> bool:
        return self.outcome is not None and self.outcome[0] == "interrupted"
