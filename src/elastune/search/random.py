"""Random search: every configuration is drawn on its own."""

from __future__ import annotations

import random
from typing import ClassVar

from elastune.messages import Config
from elastune.search.base import Searcher, refuse_grid
from elastune.space import Space
from elastune.spec import Mode


class RandomSearcher(Searcher):
    """Draws configurations from the space, without end."""

    learns: ClassVar[bool] = False

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        refuse_grid(space, "random")
        super().setup(space, mode, seed)
        self._rng = random.Random(seed)

    def suggest(self) -> Config:
        return self.space.sample(self._rng)
