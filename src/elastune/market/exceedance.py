"""How often, in the past, a machine with such a maximum price would have been taken away.

Two questions about the trailing day and week, asked of times that are twenty minutes apart: did the price of the hour
from then on pass the same multiple of what it began with, and was the price above the bid? Only what is over at the
time of asking counts, so nothing of the future is in the answers.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.market.features import DAY_S, History
from elastune.market.prices import MINUTE_S, Floats

GRID_S = 20 * MINUTE_S
DAY, WEEK = round(DAY_S / GRID_S), round(7 * DAY_S / GRID_S)
AT_ONCE = 2000
COLUMNS = ("passed_day", "passed_week", "above_day", "above_week", "hours_since_above")


class Exceedance:
    """The past of one market, on a grid of times."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._grid = np.arange(history.begin_unix_s, history.times[-1] + GRID_S, GRID_S)

    def of(self, bids: Floats, at: Floats) -> Floats:
        """A row for each bid and time, with the columns of `COLUMNS`: which share of the hours of the last day and week
        passed the same multiple of the price; in which share of the time the price was above the bid; and how many
        hours ago it last was, a week if it was not.
        """
        parts = [slice(begin, begin + AT_ONCE) for begin in range(0, len(at), AT_ONCE)]
        return np.concatenate([self._of(bids[part], at[part]) for part in parts])

    def _of(self, bids: Floats, at: Floats) -> Floats:
        passed, hours = _trailing(self._rises, self._over(at, SECONDS_PER_HOUR), bids / self._history.price(at))
        above, cells = _trailing(self._highest, self._over(at, GRID_S), bids)
        since = np.where(above.any(axis=1), above.argmax(axis=1), WEEK) * (GRID_S / SECONDS_PER_HOUR)
        shares = [_share(passed, hours, DAY), _share(passed, hours, WEEK)]
        return np.column_stack([*shares, _share(above, cells, DAY), _share(above, cells, WEEK), since])

    def _over(self, at: Floats, length_s: float) -> NDArray[np.intp]:
        """The newest time of the grid that is at least so long ago; -1 if there is none."""
        return np.floor((at - length_s - self._history.begin_unix_s) / GRID_S).astype(np.intp)

    @cached_property
    def _rises(self) -> Floats:
        """To which multiple of what it began with the price of each hour rose. After the last change that is 1."""
        highest = self._history.highest(self._grid, self._grid + SECONDS_PER_HOUR)
        return np.append(highest / self._history.price(self._grid), 1.0)

    @cached_property
    def _highest(self) -> Floats:
        """The highest price until the next time of the grid."""
        return np.append(self._history.highest(self._grid, self._grid + GRID_S), self._history.prices[-1])


def _trailing(values: Floats, newest: NDArray[np.intp], bounds: Floats) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which of the week's values up to the newest are above the bound, the newest first, and how many there are."""
    places = newest[:, None] - np.arange(WEEK)
    above = (values[np.clip(places, 0, len(values) - 1)] > bounds[:, None]) & (places >= 0)
    return above, newest + 1


def _share(found: NDArray[np.bool_], count: NDArray[np.intp], window: int) -> Floats:
    shares: Floats = found[:, :window].sum(axis=1) / np.clip(count, 1, window)
    return shares
