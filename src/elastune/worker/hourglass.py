"""How much time a run has left, and whether another step fits into it."""

from __future__ import annotations

import time


class Hourglass:
    """The next step is taken to last as long as the one before. The first after the user's code was called has its
    imports and its data in it, and tells nothing.
    """

    def __init__(self, until_unix_s: float | None) -> None:
        self._until_unix_s = until_unix_s
        self._began_s: float | None = None
        self._step_s: float | None = None
        self._save_s = 0.0

    def turn(self, until_unix_s: float | None) -> None:
        """The same code goes on with another run."""
        self._until_unix_s = until_unix_s

    def step_ends(self) -> None:
        if self._began_s is not None:
            self._step_s = time.monotonic() - self._began_s

    def step_begins(self) -> None:
        self._began_s = time.monotonic()

    def saves_in(self, seconds: float) -> None:
        """How long it takes to save the trial."""
        self._save_s = seconds

    @property
    def is_over(self) -> bool:
        """No other step fits, with saving what it has learnt."""
        return self._step_s is not None and self._step_s > self._left_s

    @property
    def is_low(self) -> bool:
        """The next step may not be in time: what was learnt so far is worth saving."""
        return self._until_unix_s is not None and (self._step_s is None or 2 * self._step_s > self._left_s)

    @property
    def _left_s(self) -> float:
        return float("inf") if self._until_unix_s is None else self._until_unix_s - time.time() - self._save_s
