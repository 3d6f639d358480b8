"""The course of the whole run: it begins, may be interrupted and resumed, and comes to its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from elastune import messages as m
from elastune.control.answer import Answer
from elastune.control.fleet import Fleet
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.units import format_duration

BY_USER = "interrupted by the user"
STORE_AGAIN_S, STORE_GONE_S = 10.0, 300.0
"""When the checkpoint store has failed, it is tried again after so long, and so long in all."""


class Course:
    """There is an `outcome` from when the run is to end; it is `done` when nothing runs any more."""

    def __init__(
        self, grace_s: float, trials: Mapping[str, Trial], fleet: Fleet, schedule: Schedule, answer: Answer
    ) -> None:
        self.outcome: tuple[m.RunStatus, str] | None = None
        self.done = False
        self.held_until_s = -math.inf
        """Nothing begins before."""
        self._store_failed_s: float | None = None
        """Since when no checkpoint could be saved."""
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

    def store_failed(self, reason: str) -> bool:
        """Its disk may be full, or it is out of reach. Trials that went on would only train what is lost; and machines
        that wait for it are paid for. Says whether it is news: since it failed before, it has worked.
        """
        at_s, since_s = self._answer.at_s, self._store_failed_s
        self.held_until_s = at_s + STORE_AGAIN_S
        if since_s is None:
            self._store_failed_s = at_s
            patience = format_duration(STORE_GONE_S)
            self._answer.note("warning", f"{reason}. Nothing begins until it can; after {patience} the run stops")
        elif at_s - since_s >= STORE_GONE_S:
            self.end("interrupted", reason)
        return since_s is None

    def store_works(self) -> None:
        if self._store_failed_s is not None:
            self._store_failed_s, self.held_until_s = None, -math.inf
            self._answer.note("info", "the checkpoint store works again")
            self._answer.changed = True

    def _on_started(self, event: m.RunStarted) -> None:
        self._answer.changed = True

    def _on_resumed(self, event: m.RunResumed) -> None:
        self._answer.changed = self._answer.resuming = True
        if self._interrupted:
            self.outcome, self.done = None, False
            self._store_failed_s, self.held_until_s = None, -math.inf

    def _on_interrupted(self, event: m.RunInterrupted) -> None:
        self.end("interrupted", BY_USER)

    @property
    def _interrupted(self) -> bool:
        return self.outcome is not None and self.outcome[0] == "interrupted"
