"""EarlyCurve (SpotTune, Li et al., ICPP 2020, section III-C): a curve of stages, of which the last one is followed.

Where the learning rate is lowered the loss falls at once, and what came before says nothing about what comes. So the
curve is cut into stages, and 1 / (a0 k**2 + a1 k + a2) + a3 (equation 4, `inverse_quadratic.py`) is fitted to the last
one, with k counted from where the stage before ended. A curve of one stage is predicted as SLAQ does.

| paper | here |
| --- | --- |
| zeta_i, the changing rate of the loss at step i | `change_rates` |
| xi = 0.5, epsilon = 0.01, five steps (equation 7) | `XI`, `EPSILON`, `STEADY` |
| l of the last stage | `last_stage` |
| the metric comes to a plateau before theta * max_trial_steps | `has_plateaued` |

Equation 7, a change above one half after five below a hundredth each, is made for a loss without noise. While the
learning rate is high a validation loss goes up and down by more than a hundredth from epoch to epoch, and equation 7
never holds; where the rate is lowered the loss comes to rest, at once, at a lower level. So a second rule stands beside
it, which `drops=False` leaves out: a stage also begins where a loss that went up and down becomes lower, and calm
from then on. It is found five losses later.

A rate is the change in parts of the loss before, whatever its sign: for a metric that is maximised, and whose loss is
its negative, it is that of the metric.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from elastune.curve.base import Extrapolator, Prediction
from elastune.curve.inverse_quadratic import follow

XI = 0.5
"""A new stage begins at a rate of change above this."""
EPSILON = 0.01
"""A step is steady if its rate of change is below this."""
STEADY = 5
"""So many steps before a new stage, or at a plateau, are steady."""
CALM = 3.0
"""A loss becomes calm where its changes are so many times smaller than before."""
TO_AND_FRO = 0.5
"""It went up and down before that if all changes together came to less than this part of their sizes."""
TINY = 1e-300

Floats = NDArray[np.float64]


class EarlyCurve(Extrapolator):
    """The loss falls on as it does since the last sudden change; without `drops` only those of the paper count."""

    def __init__(self, drops: bool = True) -> None:
        self.drops = drops

    def predict(self, iterations: Sequence[int], losses: Sequence[float], at: float) -> Prediction:
        begin = self.last_stage(losses)
        ended = iterations[begin - 1] if begin else 0
        return follow([k - ended for k in iterations[begin:]], losses[begin:], at - ended)

    def last_stage(self, losses: Sequence[float]) -> int:
        """The index of its first loss."""
        values = np.array(losses, dtype=float)
        begins = jumps(values)
        if self.drops:
            begins = np.union1d(begins, drops(values))
        return int(begins[-1]) if len(begins) else 0

    def has_plateaued(self, iterations: Sequence[int], losses: Sequence[float], until: float) -> bool:
        """Whether training on until then is pointless: the last five steps were steady, and what the loss is predicted
        to fall yet is less than a hundredth of what it has changed in this stage.

        The first alone would stop a slow descent, and any metric whose values are large beside their differences. A
        learning rate that will be lowered later is foreseen by neither.
        """
        if len(losses) <= STEADY or not bool((change_rates(np.array(losses[-STEADY - 1 :])) < EPSILON).all()):
            return False
        stage = losses[self.last_stage(losses) :]
        fall = (
            self.predict(iterations, losses, iterations[-1]).loss / 2 - self.predict(iterations, losses, until).loss / 2
        )
        return fall <= EPSILON * (max(stage) / 2 - min(stage) / 2)


def change_rates(losses: Floats) -> Floats:
    """Of every loss but the first, in parts of the one before."""
    halves = losses / 2  # because a difference may be more than a float can be
    with np.errstate(over="ignore"):
        return np.abs(np.diff(halves)) / np.maximum(np.abs(halves[:-1]), TINY)


def jumps(losses: Floats) -> NDArray[np.intp]:
    """Equation 7: the indices at which the loss changes suddenly after a steady time."""
    if len(losses) < STEADY + 2:
        return np.empty(0, dtype=np.intp)
    rates = change_rates(losses)
    steady = sliding_window_view(rates[:-1] < EPSILON, STEADY).all(axis=1)
    return np.flatnonzero(steady & (rates[STEADY:] > XI)) + STEADY + 1


def drops(losses: Floats) -> NDArray[np.intp]:
    """The indices from which on a loss that went up and down for five steps is lower, for five, and calm since."""
    if len(losses) < 2 * STEADY + 1:
        return np.empty(0, dtype=np.intp)
    scaled = losses / (2 * CALM * len(losses))  # because a sum may be more than a float can be
    changes = np.abs(np.diff(scaled))
    before, after = sliding_window_view(scaled[:-STEADY], STEADY + 1), sliding_window_view(scaled[STEADY + 1 :], STEADY)
    moved = sliding_window_view(changes[:-STEADY], STEADY).mean(axis=1)
    moves = (np.cumsum(changes[::-1]) / np.arange(1, len(scaled)))[::-1]  # from here on, the mean
    restless = np.abs(before[:, -1] - before[:, 0]) < TO_AND_FRO * STEADY * moved
    lower = after.max(axis=1) < np.median(before, axis=1)
    calm = CALM * moves[STEADY + 1 :][: len(after)] < moved
    found = restless & lower & calm
    found[1:] &= ~found[:-1]  # of several in a row the first
    return np.flatnonzero(found) + STEADY + 1
