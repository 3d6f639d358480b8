"""ReMAADE (Krishna et al. 2020): a policy over the search space, learnt by REINFORCE.

With the paper's symbols: the policy p_θ(x) = Π p_θ(x_i | x_<i) is the density of `attention.py` over the bins of
`bins.py`. It is not one order of the axes but an ensemble of them with shared θ: every suggestion is drawn in a random
order of its own, in which a choice comes before what belongs to its options. When `BATCH` results are in, θ follows the
gradient of the mean of R(x) log p_θ(x) + β H, once, with Adam. H is the entropy of the policy along the way to x, and
its weight β falls with the number t of updates, as 1 / (1 + t / `HALVING`).

Three things are our own. The reward R is no accuracy but a rank: from 1 for the best to -1 for the worst of the last
`MEMORY` results; their median, 0, is the baseline. Hence it makes no difference whether losses span one
order of magnitude or ten. Trials are compared with those that trained about as long, from one power of two to the next.
And a trial that failed has the reward -1.

A trial teaches once, by the first result it has when it pauses or ends: those that are trained further are the good
ones, and against each other half of them would count as bad. Nobody waits for results that are late: suggestions go on
from the policy as it is, and what comes later is part of a later batch, as if the policy of then had drawn it.

`BATCH`, `RATE`, `ENTROPY` and `MEMORY`, ranks as rewards, and that a batch is used once, were chosen on made-up
functions with 5 to 10 axes of all kinds, with effects of single axes and of pairs, noise, and 100 trials, 8 at a time.
So was that neighbouring bins share. Near these values the differences were within the noise; `HALVING`, and the width
and bins of the density, are first guesses, and others did as well.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.search.base import Result, Searcher, refuse_grid
from elastune.search.bins import UNUSED, Bins, Row
from elastune.search.vectors import Vectors
from elastune.space import Space
from elastune.spec import Mode

try:
    import torch

    from elastune.search.attention import MaskedAttention, Tables
except ImportError as error:
    raise SpecError(
        "searcher='remaade': needs PyTorch, which is not installed; run: pip install 'elastune[torch]'"
    ) from error

BATCH = 8
RATE = 0.15
ENTROPY = 0.2
HALVING = 8
MEMORY = 24
WORST = -1.0


class ReMAADESearcher(Searcher):
    """Draws configurations from a policy that makes those likely which are like the good ones."""

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        refuse_grid(space, "remaade")
        super().setup(space, mode, seed)
        self._rng = np.random.default_rng(seed)
        self._vectors = Vectors(space)
        axes = self._vectors.axes
        self._bins = Bins(axes)
        self._depths = np.zeros(len(axes))
        """How many choices an axis is inside of."""
        for at, axis in enumerate(axes):
            if axis.parent is not None:
                self._depths[at] = self._depths[axis.parent] + 1
        self._count = 0
        self._open: dict[int, tuple[Row, Row]] = {}
        """The suggestions without a result, by number: their bins, and the place of each axis in the order."""
        self._losses: dict[int, deque[float]] = {}
        """The last ones of each octave of iterations."""
        self._batch: list[tuple[Row, Row, int, float]] = []
        """Bins, places, octave and loss."""
        self._updates = 0
        self._tables: Tables | None = None
        """Of the policy as it is; None: to be computed."""
        if axes:
            self._policy = MaskedAttention(self._bins.shares, [not axis.is_choice for axis in axes], self._rng)
            self._optimizer = torch.optim.Adam(self._policy.parameters(), RATE)

    def suggest(self) -> Config:
        # Random among those of the same depth: a choice is before what belongs to its options.
        places: Row = np.argsort(np.argsort(self._depths + self._rng.random(len(self._depths))))
        row = self._draw(np.argsort(places).tolist())
        self._open[self._count] = row, places
        self._count += 1
        return self._vectors.config(self._vectors.settle(self._bins.vector(row, self._rng)[None])[0])

    def resuggest(self, recorded: Config | None) -> None:
        if self.suggest() == recorded:
            return
        self._count -= 1
        _, places = self._open.pop(self._count)
        if recorded is not None:
            if (vector := self._vectors.vector(recorded)) is not None:
                self._open[self._count] = self._bins.row(vector), places
            self._count += 1

    def observe(self, result: Result) -> None:
        if result.trains or result.number not in self._open:
            return
        octave, loss = max(result.iteration, 1).bit_length() - 1, math.inf
        if result.value is not None and math.isfinite(result.value):
            loss = result.value if self.mode == "min" else -result.value
            self._losses.setdefault(octave, deque(maxlen=MEMORY)).append(loss)
        self._batch.append((*self._open.pop(result.number), octave, loss))
        if len(self._batch) == BATCH:
            if self._vectors.axes:
                self._learn()
            self._batch = []

    def _draw(self, order: list[int]) -> Row:
        """x, one axis after the other."""
        rows = torch.full((1, len(order)), UNUSED)
        with torch.no_grad():
            if self._tables is None and order:
                self._tables = self._policy.tables()
            for at in order:
                axis = self._vectors.axes[at]
                if axis.parent is not None and rows[0, axis.parent] != axis.option:
                    continue
                assert self._tables is not None
                logits = self._tables.logits(slice(at, at + 1), rows, (rows != UNUSED)[:, None])[0, 0]
                upto = logits[: len(self._bins.shares[at])].double().softmax(0).cumsum(0).numpy()
                rows[0, at] = int(np.searchsorted(upto[:-1], self._rng.random(), side="right"))
        row: Row = rows[0].numpy()
        return row

    def _reward(self, octave: int, loss: float) -> float:
        """R(x): the rank among the last results of trials that trained about as long."""
        if not math.isfinite(loss):
            return WORST
        others = np.array(self._losses[octave])
        return (int((others > loss).sum()) - int((others < loss).sum())) / len(others)

    def _learn(self) -> None:
        """A step along the gradient of R(x) log p(x) + β H."""
        rows = torch.from_numpy(np.stack([row for row, *_ in self._batch]))
        places = torch.from_numpy(np.stack([places for _, places, *_ in self._batch]))
        rewards = torch.tensor([self._reward(octave, loss) for *_, octave, loss in self._batch])
        used = rows != UNUSED
        before = (places[:, None, :] < places[:, :, None]) & used[:, None, :]
        logs = self._policy.tables().logits(slice(None), rows, before).log_softmax(dim=2)
        log_p = (logs.gather(2, rows.clamp(min=0)[..., None])[..., 0] * used).sum(dim=1)
        # Bins that an axis does not have are -inf, which times their probability of 0 would be no number.
        entropy = -((logs.exp() * logs.clamp(min=-1e3)).sum(dim=2) * used).sum(dim=1)
        beta = ENTROPY / (1 + self._updates / HALVING)
        self._optimizer.zero_grad()
        (-(rewards * log_p + beta * entropy).mean()).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._updates += 1
        self._tables = None
