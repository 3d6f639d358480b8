"""Which configurations to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastune.errors import SpecError, did_you_mean
from elastune.search.base import Result, Searcher
from elastune.search.grid import GridSearcher
from elastune.search.optuna import SAMPLERS, OptunaSearcher
from elastune.search.random import RandomSearcher

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

NAMES = ("bohb", "grid", "random", *SAMPLERS)

__all__ = ["GridSearcher", "OptunaSearcher", "RandomSearcher", "Result", "Searcher", "make_searcher"]


def make_searcher(value: str | Searcher | BaseSampler) -> Searcher:
    """The searcher that a name, an Optuna sampler or a searcher stands for; its `setup` is still to be called."""
    if isinstance(value, Searcher):
        return value
    if isinstance(value, str):
        return _by_name(value)
    from optuna.samplers import BaseSampler  # whoever has a sampler has paid for this import

    if isinstance(value, BaseSampler):
        return OptunaSearcher(value)
    raise SpecError(
        f"searcher={value!r}: must be a name ({', '.join(NAMES)}), an object of a Searcher class, or an Optuna sampler"
    )


def _by_name(name: str) -> Searcher:
    if name == "random":
        return RandomSearcher()
    if name == "grid":
        return GridSearcher()
    if name == "bohb":
        from elastune.search.bohb import BOHBSearcher  # imports numpy, which a worker does without

        return BOHBSearcher()
    if name in SAMPLERS:
        return OptunaSearcher(name)
    raise SpecError(f"searcher={name!r}: {did_you_mean(name, NAMES)}")
