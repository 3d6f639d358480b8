"""What a turn leads to, as it comes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from elastune import messages as m


class Answer:
    """Decisions and commands, in order. Numbers go on from turn to turn: they name commands, and break ties."""

    def __init__(self) -> None:
        self._counter = 0
        self._advice: set[str] = set()
        self.at_s = 0.0
        self.begin(0.0)

    def begin(self, at_s: float) -> None:
        self.before_s, self.at_s = self.at_s, at_s
        """When the turn before was, and this one."""
        self.event = 0
        """The place in the turn of the event that is being handled."""
        self.changed = False
        """Whether trials or machines came or went: then the allocator is asked."""
        self.resuming = False
        """Whether a new driver takes over: that it finds a machine gone tells nothing about machines."""
        self.decisions: list[m.AnyDecision] = []
        self.commands: list[m.AnyCommand] = []

    def number(self) -> int:
        self._counter += 1
        return self._counter

    def order(self, command: Callable[..., m.AnyCommand], *fields: object) -> None:
        self.commands.append(command(self.number(), *fields))

    def hide(self, reason: Literal["retrained", "old attempt", "trial over"]) -> None:
        """The present event counts for nothing."""
        self.decisions.append(m.EventHidden(self.event, reason))

    def note(self, level: Literal["info", "warning", "error"], text: str) -> None:
        self.decisions.append(m.Note(level, text))

    def advise(self, text: str) -> None:
        """Tell the user, once."""
        if text not in self._advice:
            self._advice.add(text)
            self.note("warning", text)
