"""The line a user watches while the run goes on."""

from __future__ import annotations

import math
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elastune.record.projection import RunView
from elastune.reporting.tables import best_text, cost_text, counts_text, used_text
from elastune.units import format_duration

BETWEEN_UPDATES_S = 0.2
BETWEEN_LINES_S = 10.0


class Progress:
    """Shows trials, the best so far, time and cost; call `update` as often as you like.

    On a terminal two lines are redrawn in place, a few times a second by the console's clock. Elsewhere (a log file) a
    plain line is printed now and then in the time of the run, so that a simulated day does not fill the disk.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._view: RunView | None = None
        self._shown_at_s = -math.inf
        self._shown = ""

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def update(self, view: RunView) -> None:
        self._view = view
        now_s = self._console.get_time() if self._live else view.at_s
        if now_s - self._shown_at_s >= (BETWEEN_UPDATES_S if self._live else BETWEEN_LINES_S):
            self._shown_at_s = now_s
            self._show(view)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._view is not None:
                self._show(self._view)
        finally:
            if self._live:
                self._live.stop()

    def _show(self, view: RunView) -> None:
        lines = progress_lines(view)
        if self._live:
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif (line := "; ".join(lines)) != self._shown:
            self._shown = line
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


def progress_lines(view: RunView) -> tuple[str, str]:
    deadline_s = view.started.deadline_s
    time = used_text(format_duration, view.at_s, deadline_s)
    if deadline_s is not None:
        time += f" ({format_duration(max(0.0, deadline_s - view.at_s))} left)"
    return f"trials: {counts_text(view)}; best: {best_text(view)}", f"time: {time}; cost: {cost_text(view)}"
