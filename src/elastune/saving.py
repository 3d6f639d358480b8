"""How often to save: what a checkpoint costs against what a failure loses.

After Young (1974) and Daly (2006). With C the seconds that training is held up by a checkpoint and M the mean time
between failures, training τ = sqrt(2 C M) between two checkpoints wastes the least; Daly adds the terms that matter
where C is not small against M. What a save takes in the background counts for nothing here: it moves every checkpoint
back by the same time, and the best distance between them stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

USUAL_FAILURE_MEAN_S = 24 * 3600.0
"""Where nothing is known: one a day. Machines that are not taken away last longer, training code may not. It enters by
its root only: four times as much doubles the period.
"""


@dataclass(frozen=True, slots=True)
class SavingRule:
    """When a running trial saves its state.

    With `notice_s` machines are taken away with a notice, on average once in `noticed_mean_s`. A trial that can be
    saved within the notice loses nothing by that; otherwise it is a failure like any other.
    """

    every_s: float | None = None
    """None: as is best for what a checkpoint costs."""
    failure_mean_s: float = USUAL_FAILURE_MEAN_S
    notice_s: float | None = None
    noticed_mean_s: float = math.inf
    longest_s: float = math.inf
    """What is trained must be saved after so long, whatever is best: a deadline reckons with it."""

    def period_s(self, held_s: float, needed_s: float) -> float:
        """How long to train between two checkpoints that hold training up for `held_s`, and are complete after
        `needed_s`.
        """
        if self.every_s is not None:
            return self.every_s
        rate = 1 / self.failure_mean_s
        if not self.fits(needed_s):
            rate += 1 / self.noticed_mean_s
        return min(daly_period_s(held_s, 1 / rate), self.longest_s)

    def fits(self, needed_s: float) -> bool:
        """Whether a trial can be saved once it has been told that its machine goes."""
        return self.notice_s is None or needed_s <= self.notice_s


def daly_period_s(cost_s: float, failure_mean_s: float) -> float:
    """τ: the training time between checkpoints that cost C each, with M between failures.

    From C = 2 M on nothing helps any more, and τ is M.
    """
    if cost_s >= 2 * failure_mean_s:
        return failure_mean_s
    ratio = cost_s / (2 * failure_mean_s)
    return math.sqrt(2 * cost_s * failure_mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s
