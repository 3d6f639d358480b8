"""The searcher of BOHB (Falkner, Klein and Hutter 2018): two kernel densities, of the good and of the bad.

With the paper's symbols: observations D_b of a budget b are split into the best gamma = 15% and the others, each of at
least N_min = d + 1 of the d axes (with few observations some count for both). l(x) is the density of the good, g(x)
that of the bad. N_s = 64 candidates are drawn from l with bandwidths b_w = 3 times as wide, and the one with the
largest l(x) / g(x) is suggested. The model is that of the largest budget with at least N_min + 2 observations. A
fraction rho = 1/3 of all suggestions is random.

Three things differ. The paper's budgets are the few rungs of Hyperband; here a budget is an octave of iterations (1, 2
to 3, 4 to 7, ...), so that trials which pause at any iteration can be compared too. Trials that failed are among the
bad of every larger budget as well. And no bandwidth is below N_b^(-3/4): with the paper's 1/1000, a few good ones that
happen to lie close together end the search there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np

from elastune.messages import Config
from elastune.search.base import Result, Searcher, refuse_grid
from elastune.search.density import Density, Layout
from elastune.search.vectors import Array, Vectors
from elastune.space import Space
from elastune.spec import Mode

GOOD = 0.15
RANDOM = 1 / 3
CANDIDATES = 64
WIDER = 3.0
MOST_GOOD, MOST_BAD = 64, 192
"""The model sees no more, so that a suggestion costs the same however many trials there were: the best of the good, and
of the bad every second, every third, ... by rank.
"""
LEAST_DENSITY = math.log(1e-32)
"""Where both densities are next to nothing, their ratio says nothing."""


class Budget:
    """The newest loss of every trial that was observed at this budget; that of a failed one is infinite."""

    def __init__(self) -> None:
        self._losses: dict[int, float] = {}
        self._ranked: list[tuple[float, int]] = []
        self.results = 0
        """Of trials that did not fail."""

    def put(self, number: int, loss: float) -> None:
        if (old := self._losses.get(number)) is not None:
            del self._ranked[bisect_left(self._ranked, (old, number))]
            self.results -= math.isfinite(old)
        self._losses[number] = loss
        insort(self._ranked, (loss, number))
        self.results += math.isfinite(loss)

    def failed(self) -> Iterator[int]:
        return (number for number, loss in self._losses.items() if loss == math.inf)

    def split(self, least: int) -> tuple[list[int], list[int]]:
        """The numbers of the good and of the bad trials, at least so many each."""
        count = len(self._ranked)
        good = min(max(least, int(GOOD * count)), self.results)
        bad = max(least, count - good)
        stride = math.ceil(bad / max(MOST_BAD, least))
        return (
            [number for _, number in self._ranked[: min(good, max(MOST_GOOD, least))]],
            [number for _, number in self._ranked[: -bad - 1 : -stride]],
        )


class BOHBSearcher(Searcher):
    """Suggests what is likely among good configurations and unlikely among bad ones."""

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        refuse_grid(space, "bohb")
        super().setup(space, mode, seed)
        self._rng = np.random.default_rng(seed)
        self._vectors = Vectors(space)
        self._layout = Layout(self._vectors.axes)
        self._least = len(self._vectors.axes) + 1
        self._rows = np.zeros((16, len(self._vectors.axes)))
        """The suggestions by number, with room to grow; a row of NaN is no configuration of this space."""
        self._count = 0
        self._budgets: dict[int, Budget] = {}
        self._model: tuple[Density, Density] | None = None
        self._changed = False

    def suggest(self) -> Config:
        vector = self._suggest()
        self._remember(vector)
        return self._vectors.config(vector)

    def resuggest(self, recorded: Config | None) -> None:
        if self.suggest() == recorded:
            return
        self._count -= 1
        if recorded is not None:
            vector = self._vectors.vector(recorded)
            self._remember(np.full(len(self._vectors.axes), np.nan) if vector is None else vector)

    def observe(self, result: Result) -> None:
        if np.isnan(self._rows[result.number]).all():
            return
        self._changed = True
        octave = max(result.iteration, 1).bit_length() - 1
        if result.value is not None and math.isfinite(result.value):
            self._budget(octave).put(result.number, result.value if self.mode == "min" else -result.value)
            return
        # What fails early would have failed at every larger budget.
        self._budget(octave)
        for larger, budget in self._budgets.items():
            if larger >= octave:
                budget.put(result.number, math.inf)

    def _budget(self, octave: int) -> Budget:
        if octave not in self._budgets:
            budget = self._budgets[octave] = Budget()
            below = max((smaller for smaller in self._budgets if smaller < octave), default=None)
            if below is not None:
                for number in self._budgets[below].failed():
                    budget.put(number, math.inf)
        return self._budgets[octave]

    def _suggest(self) -> Array:
        model = None if self._rng.random() < RANDOM else self._fitted()
        if model is None:
            return self._vectors.draw(self._rng)
        good, bad = model
        candidates = self._vectors.settle(good.draw(self._rng, CANDIDATES, WIDER))
        features = self._layout.features(candidates)
        ratio = np.maximum(good.log(features), LEAST_DENSITY) - np.maximum(bad.log(features), LEAST_DENSITY)
        best: Array = candidates[np.argmax(ratio)]
        return best

    def _fitted(self) -> tuple[Density, Density] | None:
        """The densities of the good and of the bad at the largest budget that has enough observations."""
        if self._changed:
            self._changed = False
            budget, self._model = self._largest(), None
            if budget is not None:
                good, bad = (self._rows[numbers] for numbers in budget.split(self._least))
                narrowest = budget.results**-0.75
                self._model = Density(self._layout, good, narrowest), Density(self._layout, bad, narrowest)
        return self._model

    def _largest(self) -> Budget | None:
        enough = (octave for octave, budget in self._budgets.items() if budget.results >= self._least + 2)
        octave = max(enough, default=None)
        return None if octave is None or not self._vectors.axes else self._budgets[octave]

    def _remember(self, vector: Array) -> None:
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._count] = vector
        self._count += 1
