"""The seam where the world is swapped: the same controller drives a simulated cluster and a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elastune.messages import AnyCommand, Inventory, Turn


class Cluster(Protocol):
    started_unix_s: float
    """When the run began, on the wall clock; 0 where there is none."""

    def poll(self, until_s: float | None) -> Turn:
        """Wait until something happens, or until a time. The turn's time is the only clock there is."""

    def submit(self, commands: Sequence[AnyCommand]) -> None:
        """Set commands going; what becomes of them are events. One that was carried out is not carried out again."""

    def inventory(self) -> Inventory:
        """What is there: a new driver compares it with its journal."""

    def wake(self) -> None:
        """Make `poll` return soon. Safe to call from a signal handler."""

    def close(self) -> None:
        """Give back everything."""
