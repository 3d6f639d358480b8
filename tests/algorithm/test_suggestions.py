"""What a searcher suggests is recorded as the trials get it, or refused."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elastune as et
from elastune.algorithm.base import DEEPEST, TrialSource
from elastune.errors import SpecError
from elastune.messages import Config, Suggested
from elastune.search import Searcher, make_searcher
from elastune.space import Space, uniform

SPACE = Space({"x": uniform(0, 1)})
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
PLAIN = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Gives(Searcher):
    def __init__(self, given: Any) -> None:
        self.given = given

    def suggest(self) -> Config | None:
        suggested: Config | None = self.given
        return suggested


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("not yet")


class Samples:
    """An HPO algorithm with Ultron's interface."""

    def __init__(self, candidate: Mapping[Any, Any]) -> None:
        self.candidate = candidate

    def sample_hyperparameter_candidates(self, n: int) -> list[Mapping[Any, Any]]:
        return [self.candidate] * n

    def update_state(self, candidates: Any, scores: Any) -> None: ...


def source(searcher: Searcher) -> TrialSource:
    searcher.setup(SPACE, "min", 0)
    return TrialSource("t", searcher, SPACE)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        10**5000,
        2**64,
        -(2**63) - 1,
        "half \ud800 of a pair",
        {"half \ud800 of a pair": 1},
        {1: 2},
        {None: 2},
        b"bytes",
        {1, 2},
        1j,
        len,
        enum.Enum("Size", ["small"]),
        np.int64(3),
        np.array([1.0]),
        Unprintable(),
        nested(DEEPEST + 1),
        nested(500),
        endless(),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("place", ["a value", "a nested one"])
def test_a_value_that_cannot_be_recorded_as_it_is_is_refused_by_name(value: Any, place: str) -> None:
    config = {"lr": 0.1, "x": value if place == "a value" else {"y": [0, value]}}
    with pytest.raises(SpecError, match=r"searcher Gives suggested .*as 'x.*finite float, str, list and dict"):
        source(Gives(config)).next()


@pytest.mark.parametrize("config", [5, "x", [], [{"x": 1}], ({"x": 1},), {1: 2}, Mapping], ids=str)
def test_what_is_no_dict_with_names_is_refused(config: Any) -> None:
    with pytest.raises(
        SpecError, match=r"searcher Gives suggested .*: a configuration is a dict whose names are texts"
    ):
        source(Gives(config)).next()


@pytest.mark.parametrize("candidate", [{1: 2}, {"x": math.nan}, {"x": np.float64("inf")}])
def test_candidates_of_an_hpo_algorithm_are_held_to_the_same(candidate: Any) -> None:
    with pytest.raises(SpecError, match=r"searcher UltronSearcher suggested "):
        source(make_searcher(Samples(candidate), 2)).next()


@given(st.dictionaries(st.text(), PLAIN))
def test_what_is_recorded_is_what_trials_get(config: Config) -> None:
    made = source(Gives(config)).next()
    assert made == ("t-00000", config)
    recorded = msgspec.json.decode(msgspec.json.encode(Suggested(*made)), type=Suggested)
    assert recorded == Suggested("t-00000", config)


def test_what_a_searcher_changes_later_is_not_changed_in_a_trial() -> None:
    given = {"x": [1, 2]}
    made = source(Gives(given)).next()
    given["x"].append(3)
    assert made == ("t-00000", {"x": [1, 2]})


@pytest.mark.parametrize("searcher", [Gives(5), Gives({1: 2}), Samples({1: 2})], ids=["5", "keys", "ultron"])
def test_a_run_with_such_a_searcher_ends(searcher: Any, tmp_path: Path) -> None:
    tuner = et.Tuner(
        None, space=SPACE.definition, metric="loss", algorithm=et.FIFO(n=2, R=2), searcher=searcher, storage=tmp_path
    )
    with pytest.raises(SpecError, match="suggested"):
        tuner.simulate(et.Simulation())
