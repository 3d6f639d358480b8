"""All decisions: a turn of events comes in, decisions and commands come out. Pure, so that a replay gives the same
again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elastune import messages as m
from elastune.allocate.base import Allocator
from elastune.control.allocation import Allocation
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.fleet import Fleet
from elastune.control.machine_events import MachineEvents
from elastune.control.party import Party
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.trial_events import TrialEvents
from elastune.control.trial_runs import TrialRuns
from elastune.errors import JournalDamaged
from elastune.spec import Settings


@dataclass(frozen=True, slots=True)
class Step:
    decisions: tuple[m.AnyDecision, ...]
    commands: tuple[m.AnyCommand, ...]


class Controller:
    """Holds the whole state of a run. `handle` is its only way to change: events first, then what the clock brings,
    then the limits; and if trials or machines came or went, devices are allocated anew.

    Limits and machines are those of all `parties`; what their trials report is their own.
    """

    def __init__(self, settings: Settings, parties: Sequence[Party], allocator: Allocator) -> None:
        self.settings = settings
        self.parties = parties
        self.trials: dict[str, Trial] = {}
        self._answer = answer = Answer()
        self.fleet = fleet = Fleet(settings.limits, answer, allocator.apart)
        schedule = Schedule(parties, self.trials, fleet, answer)
        self._course = course = Course(settings.grace_s, self.trials, fleet, schedule, answer)
        self._runs = runs = TrialRuns(settings, parties, self.trials, schedule, course, answer)
        self._allocation = Allocation(allocator, self.trials, fleet, schedule, runs, course, answer)
        machine_events = MachineEvents(self.trials, fleet, schedule, runs, course, answer)
        self._trial_events = TrialEvents(settings, allocator, self.trials, fleet, schedule, runs, course, answer)
        self._handlers = course.handlers | machine_events.handlers | self._trial_events.handlers

    def handle(self, turn: m.Turn) -> Step:
        answer, course, allocation = self._answer, self._course, self._allocation
        answer.begin(turn.at_s)
        for party in self.parties:
            party.source.decisions = answer.decisions
        self._trial_events.begin(turn.events)
        for index, event in enumerate(turn.events):
            answer.event = index
            self._handlers[type(event)](event)
        if turn.at_s >= self._runs.timers.next_s:
            self._runs.fire_timers()
        if turn.at_s >= allocation.ask_again_s:
            answer.changed = True
        limit_s, status, reason = self.fleet.limit
        if course.outcome is None and turn.at_s >= limit_s and not allocation.nothing_left():
            course.end(status, reason)
        if answer.changed:
            allocation.fill()
        return Step(tuple(answer.decisions), tuple(answer.commands))

    def replay(self, record: m.Record) -> None:
        """Go through a recorded turn again. What was suggested is taken from the record; all else must come out the
        same.
        """
        suggested = [decision for decision in record.decisions if isinstance(decision, m.Suggested)]
        for party in self.parties:
            party.source.recorded = deque(d for d in suggested if m.experiment_of(d.trial) == party.name)
        self._allocation.recorded = deque(d for d in record.decisions if isinstance(d, m.Planned))
        chosen = {d.trial: d for d in record.decisions if isinstance(d, m.Chosen)}
        self._allocation.recorded_choices = chosen
        step = self.handle(m.Turn(record.at_s, record.events))
        for party in self.parties:
            party.source.recorded = None
        self._allocation.recorded.clear()
        self._allocation.recorded_choices = {}
        for kind, recorded, again in (
            ("decision", record.decisions, step.decisions),
            ("command", record.commands, step.commands),
        ):
            if recorded != again:
                raise JournalDamaged(_difference(kind, record.at_s, recorded, again))

    @property
    def done(self) -> bool:
        return self._course.done

    @property
    def over(self) -> bool:
        """The run has ended and can never go on; one that was interrupted can."""
        return self._course.over

    @property
    def wake_s(self) -> float | None:
        """When the controller wants a turn even if nothing happens."""
        if self._course.outcome is not None:
            return None
        wake_s = min(self._runs.timers.next_s, self.fleet.limit[0], self._allocation.ask_again_s)
        return None if wake_s == math.inf else wake_s


def _difference(kind: str, at_s: float, recorded: tuple[object, ...], again: tuple[object, ...]) -> str:
    pairs = [pair for pair in zip(recorded, again, strict=False) if pair[0] != pair[1]]
    first = pairs[0] if pairs else (f"{len(recorded)} of them", f"{len(again)} of them")
    return (
        f"the journal cannot be replayed: at {at_s:g} s the recorded {kind} is {first[0]}, this version "
        f"makes {first[1]}. Resume with the version of Elastune and of the code that wrote it"
    )
