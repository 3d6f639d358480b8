"""Which configurations to try."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from elastune.errors import SpecError, did_you_mean
from elastune.search.base import Result, Searcher
from elastune.search.grid import GridSearcher
from elastune.search.optuna import SAMPLERS, OptunaSearcher
from elastune.search.random import RandomSearcher
from elastune.search.ultron import HPOAlgorithm, UltronSearcher, is_hpo

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

NAMES = ("bohb", "grid", "random", "remaade", *SAMPLERS)

__all__ = [
    "GridSearcher",
    "HPOAlgorithm",
    "OptunaSearcher",
    "RandomSearcher",
    "Result",
    "Searcher",
    "UltronSearcher",
    "make_searcher",
]


def make_searcher(
    value: str | Searcher | type[Searcher] | BaseSampler | HPOAlgorithm | type[HPOAlgorithm], parallel: int = 1
) -> Searcher:
    """The searcher that a name, an Optuna sampler, a searcher, its class or an HPO algorithm of Ultron stands for; its
    `setup` is still to be called. `parallel` is how many trials run at once.
    """
    if inspect.isclass(value) and issubclass(value, Searcher):
        return _made(value)
    if isinstance(value, Searcher):
        return value
    if isinstance(value, str):
        return _by_name(value)
    if is_hpo(value):
        return UltronSearcher(value, parallel)
    from optuna.samplers import BaseSampler  # whoever has a sampler has paid for this import

    if isinstance(value, BaseSampler):
        return OptunaSearcher(value)
    raise SpecError(
        f"searcher={value!r}: must be a name ({', '.join(NAMES)}), a Searcher class or an object of it, an Optuna "
        "sampler, or a class or an object with sample_hyperparameter_candidates(n) and update_state(candidates, scores)"
    )


def _made(kind: type[Searcher]) -> Searcher:
    try:
        return kind()
    except Exception as error:
        raise SpecError(
            f"searcher {kind.__name__}: it cannot be made: {type(error).__name__}: {error}; its class must need no "
            "arguments, or give an object of it"
        ) from error


def _by_name(name: str) -> Searcher:
    if name == "random":
        return RandomSearcher()
    if name == "grid":
        return GridSearcher()
    if name == "bohb":
        from elastune.search.bohb import BOHBSearcher  # imports numpy, which a worker does without

        return BOHBSearcher()
    if name == "remaade":
        from elastune.search.remaade import ReMAADESearcher  # imports torch, which not everyone has

        return ReMAADESearcher()
    if name in SAMPLERS:
        return OptunaSearcher(name)
    raise SpecError(f"searcher={name!r}: {did_you_mean(name, NAMES)}")
