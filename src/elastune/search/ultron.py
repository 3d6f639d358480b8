"""Ultron's interface for HPO algorithms as a searcher: `sample_hyperparameter_candidates(n)` gives n configurations,
`update_state(candidates, scores)` learns from them.

The user's object sees what it would see in Ultron: a batch is asked for, all of it is tried, its scores come in one
call, and only then the next batch is asked for. Candidates that failed are left out of the call. So the last trials of
a batch leave devices idle; `FIFO` waits for them. An algorithm that asks for more while scores are missing gets another
batch, and several are then under way: each is told when all of its own scores are in.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.search.base import Result, Searcher
from elastune.space import Choice, Space
from elastune.spec import Mode

SAMPLE, UPDATE = "sample_hyperparameter_candidates", "update_state"


class HPOAlgorithm(Protocol):
    """What the user writes."""

    def sample_hyperparameter_candidates(self, n: int, /) -> Any: ...

    def update_state(self, candidates: Any, scores: Any, /) -> Any: ...


def is_hpo(value: object) -> TypeGuard[HPOAlgorithm | type[HPOAlgorithm]]:
    return callable(getattr(value, SAMPLE, None)) and callable(getattr(value, UPDATE, None))


@dataclass(slots=True)
class _Batch:
    waiting: deque[Config]
    """Not yet suggested."""
    tried: dict[int, Config] = field(default_factory=dict)
    """Suggested, by the number of the suggestion."""
    scores: dict[int, float | None] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting and len(self.scores) == len(self.tried)


class UltronSearcher(Searcher):
    """Suggests what an HPO algorithm of the user's own samples, `batch` candidates at a time.

    A class is made an object of in every run, with the arguments `hp_ranges` (names and their lists of values) and
    `seed` where it has them. The object is pickled with the searcher.
    """

    def __init__(self, hpo: HPOAlgorithm | type[HPOAlgorithm], batch: int) -> None:
        self.batch = batch
        self._hpo: Any = hpo
        self._name = hpo.__name__ if inspect.isclass(hpo) else type(hpo).__name__

    def __repr__(self) -> str:
        return f"{self._name} in batches of {self.batch}"

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        super().setup(space, mode, seed)
        if inspect.isclass(self._hpo):
            self._hpo = self._make(self._hpo)
        self._batches: list[_Batch] = []
        self._count = 0

    def ready(self) -> int:
        waiting = sum(len(batch.waiting) for batch in self._batches)
        return waiting if self._batches else self.batch

    def suggest(self) -> Config | None:
        batch = next((batch for batch in self._batches if batch.waiting), None)
        if batch is None:
            batch = _Batch(deque(self._sample()))
            if not batch.waiting:
                return None
            self._batches.append(batch)
        config = batch.tried[self._count] = batch.waiting.popleft()
        self._count += 1
        return config

    def resuggest(self, recorded: Config | None) -> None:
        """The recorded one takes the place of what is sampled now, and its score is told of it."""
        if self.suggest() is None:
            if recorded is not None:  # sampled no more, it is a batch of its own
                self._batches.append(_Batch(deque(), {self._count: recorded}))
                self._count += 1
        elif recorded is not None:
            number = self._count - 1
            next(batch for batch in self._batches if number in batch.tried).tried[number] = recorded

    def observe(self, result: Result) -> None:
        batch = next((batch for batch in self._batches if result.number in batch.tried), None)
        if batch is None or result.trains:
            return  # its batch was told of already, or it will be observed again
        failed = result.value is None or not math.isfinite(result.value)
        batch.scores[result.number] = None if failed else result.value
        if batch.is_complete:
            self._batches.remove(batch)
            self._update(batch)

    def _sample(self) -> list[Config]:
        sampled = self._call(SAMPLE, self.batch)
        if not isinstance(sampled, Iterable) or isinstance(sampled, str | Mapping):
            raise self._refused(sampled)
        candidates = list(sampled)
        if not all(isinstance(candidate, Mapping) for candidate in candidates):
            raise self._refused(candidates)
        return [_plain(candidate) for candidate in candidates]

    def _update(self, batch: _Batch) -> None:
        known = {number: score for number, score in batch.scores.items() if score is not None}
        if known:
            numbers = sorted(known)
            tried = copy.deepcopy([batch.tried[number] for number in numbers])  # theirs, to be changed as they like
            self._call(UPDATE, tried, [known[number] for number in numbers])

    def _call(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self._hpo, method)(*arguments)
        except Exception as error:
            raise SpecError(f"searcher {self._name}: its {method} failed: {type(error).__name__}: {error}") from error

    def _refused(self, sampled: object) -> SpecError:
        return SpecError(
            f"searcher {self._name}: {SAMPLE}({self.batch}) gave {sampled!r}: must be a list of dicts, such as "
            "[{'lr': 0.1}]"
        )

    def _make(self, hpo: type) -> object:
        asked = inspect.signature(hpo).parameters
        given: dict[str, object] = {"seed": self.seed} if "seed" in asked else {}
        if "hp_ranges" in asked:
            given["hp_ranges"] = self._ranges()
        try:
            return hpo(**given)
        except Exception as error:
            raise SpecError(
                f"searcher {self._name}: it cannot be made: {type(error).__name__}: {error}; of arguments it may have "
                "hp_ranges and seed, and others that have defaults"
            ) from error

    def _ranges(self) -> dict[str, list[Any]]:
        ranges = {}
        for name, domain in self.space.definition.items():
            if not isinstance(domain, Choice):
                raise SpecError(f"searcher {self._name}: hp_ranges has lists of values, so {name} must be a choice")
            ranges[name] = list(domain.options)
        return ranges


def _plain(value: Any) -> Any:
    """As Python has it: whoever draws with NumPy gets its numbers."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value
