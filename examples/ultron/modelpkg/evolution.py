"""A small evolutionary search with the interface of Ultron: it changes one hyperparameter of the best so far."""

from __future__ import annotations

import random
from typing import Any

Candidate = dict[str, Any]


class Evolution:
    def __init__(self, hp_ranges: dict[str, list[Any]], seed: int) -> None:
        self.ranges, self.rng = hp_ranges, random.Random(seed)
        self.best: list[tuple[float, Candidate]] = []

    def sample_hyperparameter_candidates(self, n: int) -> list[Candidate]:
        return [self._child() if self.best else self._anyone() for _ in range(n)]

    def update_state(self, hyperparameter_candidates: list[Candidate], validation_scores: list[float]) -> None:
        told = [*self.best, *zip(validation_scores, hyperparameter_candidates, strict=True)]
        self.best = sorted(told, key=lambda each: -each[0])[:4]

    def _anyone(self) -> Candidate:
        return {name: self.rng.choice(values) for name, values in self.ranges.items()}

    def _child(self) -> Candidate:
        parent, name = self.rng.choice(self.best)[1], self.rng.choice(list(self.ranges))
        return {**parent, name: self.rng.choice(self.ranges[name])}
