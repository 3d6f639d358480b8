"""Grid search: every combination of the grid_search values once."""

from __future__ import annotations

import random
from typing import ClassVar

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.search.base import Searcher
from elastune.space import Domain, Grid, Space
from elastune.spec import Mode


class GridSearcher(Searcher):
    """Goes through the grid points in order; all other domains, a plain `choice` too, are drawn anew for each point."""

    learns: ClassVar[bool] = False

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        if not space.has_grid:
            raise SpecError("searcher='grid': the space has no grid_search([...]); use it for at least one parameter")
        super().setup(space, mode, seed)
        self._rng = random.Random(seed)
        self._next = 0

    def count(self) -> int:
        """How many suggestions there are in total."""
        return self.space.grid_size

    def suggest(self) -> Config | None:
        if self._next >= self.count():
            return None
        point = self.space.grid_point(self._next)
        self._next += 1

        def choose(name: str, domain: Domain) -> object:
            return point[name] if isinstance(domain, Grid) else domain.sample(self._rng)

        return self.space.resolve(choose)
