"""The contract of every searcher: in the space, the same for the same seed, picklable at any moment, hard to upset."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.search import GridSearcher, OptunaSearcher, RandomSearcher, Result, Searcher, make_searcher
from elastune.search.bohb import BOHBSearcher
from elastune.search.remaade import ReMAADESearcher
from elastune.space import Space, choice, grid_search, lograndint, loguniform, quniform, randint, uniform

MIXED = {
    "x": uniform(-1, 1),
    "lr": loguniform(1e-4, 1e-1),
    "drop": quniform(0, 0.55, 0.1),
    "layers": randint(1, 5),
    "width": lograndint(8, 129),
    "act": choice(["relu", "tanh", None]),
    "opt": choice([{"kind": "sgd", "momentum": uniform(0, 0.9)}, {"kind": "adam", "betas": [0.9, 0.99]}]),
    "epochs": 50,
}
GRID = MIXED | {"seed": grid_search([0, 1, 2]), "size": grid_search(["s", {"custom": randint(3, 9), "of": "m"}])}
SPACES = {
    name: Space(GRID if name == "grid" else MIXED)
    for name in ("random", "grid", "bohb", "remaade", "tpe", "gp", "cmaes", "qmc")
}


def make(name: str, seed: int = 0) -> Searcher:
    searcher = make_searcher(name)
    searcher.setup(SPACES[name], "min", seed)
    return searcher


def result(number: int, config: Config, iteration: int = 9, final: bool = True, value: float | None = None) -> Result:
    worth = config["x"] ** 2 + math.log10(config["lr"]) if value is None else value
    return Result(number, config, iteration, worth, final)


def rounds(searcher: Searcher, n: int) -> list[Config | None]:
    """What it suggests when every suggestion is observed before the next one."""
    configs = []
    for number in range(n):
        configs.append(config := searcher.suggest())
        if config is not None:
            searcher.observe(result(number, config))
    return configs


every_searcher = pytest.mark.parametrize("name", SPACES)


@every_searcher
def test_suggestions_lie_in_the_space_and_are_plain_values(name: str) -> None:
    for config in filter(None, rounds(make(name), 11)):
        assert SPACES[name].answers(config) is not None
        assert json.loads(json.dumps(config)) == config


@every_searcher
def test_the_same_seed_gives_the_same_suggestions_and_another_seed_others(name: str) -> None:
    first = rounds(make(name), 6)
    assert rounds(make(name), 6) == first
    assert rounds(make(name, seed=1), 6) != first


@every_searcher
def test_failures_and_values_that_are_no_numbers_do_not_upset_it(name: str) -> None:
    searcher = make(name)
    configs = [config for config in (searcher.suggest() for _ in range(6)) if config is not None]
    for number, (config, value) in enumerate(zip(configs, [math.nan, math.inf, -math.inf], strict=False)):
        searcher.observe(result(number, config, value=value))
    searcher.observe(Result(3, configs[3], iteration=0, value=None, final=True))
    searcher.observe(Result(4, configs[4], iteration=0, value=None, final=False))
    searcher.observe(result(4, configs[4], iteration=3))
    assert searcher.suggest() is None or name != "grid"


@every_searcher
def test_a_replayed_searcher_goes_on_as_the_original(name: str) -> None:
    original, replayed = make(name), make(name)
    for number in range(4):
        config = original.suggest()
        replayed.resuggest(config)
        assert config is not None
        for searcher in (original, replayed):
            searcher.observe(result(number, config))
    assert original.suggest() == replayed.suggest()


@pytest.mark.parametrize("name", ["random", "grid", "bohb", "remaade", "tpe", "qmc"])
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_pickling_after_any_event_changes_nothing(name: str, data: st.DataObject) -> None:
    original, copied = make(name), make(name)
    suggested: list[Config] = []
    for kind in data.draw(st.lists(st.sampled_from(["suggest", "pause", "finish", "fail"]), min_size=5, max_size=25)):
        if kind == "suggest" or not suggested:
            config = original.suggest()
            assert copied.suggest() == config
            suggested += [config] if config is not None else []
        else:
            number = data.draw(st.integers(0, len(suggested) - 1))
            value = None if kind == "fail" else data.draw(st.floats(-9, 9))
            event = Result(number, suggested[number], data.draw(st.integers(0, 20)), value, kind != "pause")
            original.observe(event)
            copied.observe(event)
        copied = pickle.loads(pickle.dumps(copied))
    for _ in range(2):
        assert original.suggest() == copied.suggest()


@pytest.mark.parametrize("name", ["gp", "cmaes"])
def test_pickling_changes_nothing_once_the_sampler_has_a_model(name: str) -> None:
    original = make(name)
    rounds(original, 11)
    copied = pickle.loads(pickle.dumps(original))
    assert original.suggest() == copied.suggest()


def test_the_grid_searcher_tries_every_point_once_and_draws_the_rest() -> None:
    searcher = make("grid")
    assert isinstance(searcher, GridSearcher)
    assert searcher.count() == 6
    configs = rounds(searcher, 8)
    assert configs[6:] == [None, None]
    points = [(config["seed"], config["size"] == "s") for config in configs if config is not None]
    assert points == list(itertools.product([0, 1, 2], [True, False]))
    assert len({config["x"] for config in configs if config is not None}) == 6


@pytest.mark.parametrize("name", ["random", "bohb", "remaade", "tpe"])
def test_only_the_grid_searcher_takes_a_space_with_a_grid(name: str) -> None:
    with pytest.raises(SpecError, match=f"searcher='{name}': cannot go through a grid_search; use 'grid'"):
        make_searcher(name).setup(Space(GRID), "min", 0)


def test_the_grid_searcher_needs_a_grid() -> None:
    with pytest.raises(SpecError, match="the space has no grid_search"):
        GridSearcher().setup(Space(MIXED), "min", 0)


def test_an_own_searcher_needs_only_suggest() -> None:
    class Halves(Searcher):
        def suggest(self) -> Config:
            return {"x": 0.5 * self.seed}

    searcher = make_searcher(Halves())
    searcher.setup(Space({"x": uniform(0, 1)}), "max", 1)
    searcher.resuggest({"x": 0.5})
    searcher.observe(Result(0, {"x": 0.5}, 1, 1.0, final=True))
    assert searcher.suggest() == {"x": 0.5}


def test_of_a_searcher_class_every_run_has_an_object_of_its_own() -> None:
    first, second = make_searcher(RandomSearcher), make_searcher(RandomSearcher)
    assert type(first) is type(second) is RandomSearcher and first is not second


def test_searchers_are_made_by_name() -> None:
    assert isinstance(make_searcher("random"), RandomSearcher)
    assert isinstance(make_searcher("grid"), GridSearcher)
    assert isinstance(make_searcher("tpe"), OptunaSearcher)
    assert isinstance(make_searcher("bohb"), BOHBSearcher)
    assert isinstance(make_searcher("remaade"), ReMAADESearcher)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make_searcher("tpp"),
            "searcher='tpp': did you mean 'tpe'\\? allowed: bohb, cmaes, gp, grid, qmc, random, remaade, tpe",
        ),
        (lambda: OptunaSearcher("cma"), "searcher='cma': did you mean 'cmaes'"),
        (lambda: make_searcher(Searcher), "searcher Searcher: it cannot be made: TypeError: .* must need no arguments"),
        (lambda: make_searcher(3), "searcher=3: must be a name"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_searcher_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call()


def test_optuna_is_not_imported_before_it_is_used() -> None:
    code = "import elastune.search as s, sys; s.make_searcher('tpe'); sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
