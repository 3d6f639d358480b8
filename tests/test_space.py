from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.space import (
    Choice,
    Domain,
    Grid,
    Space,
    choice,
    grid_search,
    lograndint,
    loguniform,
    quniform,
    randint,
    uniform,
)

# ------------------------------------------------------------------------------------------------------ random spaces

names = st.text("abcxyz_", min_size=1, max_size=4)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("abc", max_size=3)
floats = st.tuples(st.floats(0.01, 1), st.floats(2, 100))
ints = st.tuples(st.integers(1, 5), st.integers(6, 99))
numeric = st.one_of(
    floats.map(lambda ends: uniform(*ends)),
    floats.map(lambda ends: loguniform(*ends)),
    floats.map(lambda ends: quniform(*ends, 0.1)),
    ints.map(lambda ends: randint(*ends)),
    ints.map(lambda ends: lograndint(*ends)),
)


def grow(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Two keys: a dict with a single one might by chance be spelled like a function.
    dicts = st.dictionaries(names, nodes, min_size=2, max_size=3)
    return dicts | st.lists(nodes, max_size=2) | st.lists(nodes, min_size=1, max_size=3).map(choice)


nodes = st.recursive(scalars | numeric, grow, max_leaves=8)
spaces = st.dictionaries(names, nodes, min_size=1, max_size=4).map(Space)
grid_nodes = st.lists(nodes, min_size=1, max_size=3).map(grid_search)
grid_spaces = st.dictionaries(names, nodes | grid_nodes, min_size=1, max_size=4).map(Space)


@given(grid_spaces)
def test_a_described_space_is_read_back_as_the_same_space(space: Space) -> None:
    assert Space(json.loads(json.dumps(space.describe()))) == space


@given(grid_spaces, st.integers())
def test_a_sample_depends_only_on_the_generator_and_lies_in_the_space(space: Space, seed: int) -> None:
    config = space.sample(random.Random(seed))
    assert config == space.sample(random.Random(seed))
    assert space.answers(config) is not None
    assert json.loads(json.dumps(config)) == config


@given(spaces, st.integers())
def test_answers_are_the_inverse_of_resolve(space: Space, seed: int) -> None:
    config = space.sample(random.Random(seed))
    answers = space.answers(config)
    assert answers is not None
    assert space.resolve(lambda name, _: answers[name]) == config


@given(grid_spaces, st.integers())
def test_every_domain_that_is_asked_for_is_among_the_domains_in_that_order(space: Space, seed: int) -> None:
    rng, asked = random.Random(seed), []

    def choose(name: str, domain: Domain) -> Any:
        asked.append((name, domain))
        return domain.sample(rng)

    space.resolve(choose)
    names = dict(asked)
    assert [(name, domain) for name, domain in space.domains().items() if name in names] == asked


@given(grid_spaces)
def test_every_grid_point_comes_once(space: Space) -> None:
    points = [tuple(point.items()) for point in map(space.grid_point, range(space.grid_size))]
    assert len(points) == len(set(points)) == space.grid_size


# ------------------------------------------------------------------------------------------------------------ sampling


def draws(domain: Domain, n: int = 2000) -> list[Any]:
    rng, space = random.Random(0), Space({"x": domain})
    return [space.sample(rng)["x"] for _ in range(n)]


def test_uniform_is_even_and_loguniform_is_even_in_the_logarithm() -> None:
    values = draws(uniform(0, 10))
    assert all(0 <= value <= 10 for value in values)
    assert sum(value < 5 for value in values) / len(values) == pytest.approx(0.5, abs=0.05)
    values = draws(loguniform(1e-4, 1))
    assert all(1e-4 <= value <= 1 for value in values)
    assert sum(value < 1e-2 for value in values) / len(values) == pytest.approx(0.5, abs=0.05)


def test_quniform_counts_in_clean_steps_from_low_up_to_high() -> None:
    assert sorted(set(draws(quniform(0.1, 0.55, 0.1)))) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert 0.25 not in quniform(0.1, 0.55, 0.1)


def test_whole_numbers_leave_out_high() -> None:
    assert Counter(draws(randint(0, 3))).keys() == {0, 1, 2}
    assert Counter(draws(lograndint(1, 4))).keys() == {1, 2, 3}
    assert sum(value < 32 for value in draws(lograndint(1, 1024))) / 2000 == pytest.approx(0.56, abs=0.05)


def test_an_option_may_hold_domains_and_brings_them_only_when_it_is_chosen() -> None:
    space = Space(
        {"opt": choice([{"kind": "sgd", "momentum": uniform(0, 0.9)}, {"kind": "adam"}]), "n": choice([2, 3])}
    )
    asked: list[str] = []

    def first(name: str, domain: Domain) -> Any:
        asked.append(name)
        return 0 if isinstance(domain, Choice) else 0.5

    assert space.resolve(first) == {"opt": {"kind": "sgd", "momentum": 0.5}, "n": 2}
    assert asked == ["opt", "opt.0.momentum", "n"]
    assert space.resolve(lambda name, domain: 1) == {"opt": {"kind": "adam"}, "n": 3}


def test_nested_names_are_joined_by_dots() -> None:
    space = Space({"model": {"layers": randint(1, 3), "sizes": [randint(1, 3), 7]}, "x": choice([uniform(0, 1), None])})
    asked: list[str] = []

    def note(name: str, domain: Domain) -> Any:
        asked.append(name)
        return domain.sample(random.Random(1))

    space.resolve(note)
    assert asked == ["model.layers", "model.sizes.0", "x", "x.0"]


def test_configurations_share_nothing_with_the_definition() -> None:
    sizes = [1, 2]
    space = Space({"sizes": sizes})
    sizes.append(3)
    space.sample(random.Random(0))["sizes"].append(4)
    assert space.sample(random.Random(0)) == {"sizes": [1, 2]}


def test_grid_points_go_through_nested_grids_with_the_last_changing_fastest() -> None:
    space = Space({"a": grid_search([1, {"b": grid_search([2, 3]), "c": 0}]), "n": {"d": grid_search([4, 5])}, "e": 6})
    points = [space.grid_point(index) for index in range(space.grid_size)]
    configs = [space.resolve(lambda name, _, point=point: point[name]) for point in points]  # type: ignore[misc]
    assert [(config["a"], config["n"]["d"]) for config in configs] == [
        (1, 4),
        (1, 5),
        ({"b": 2, "c": 0}, 4),
        ({"b": 2, "c": 0}, 5),
        ({"b": 3, "c": 0}, 4),
        ({"b": 3, "c": 0}, 5),
    ]
    assert space.has_grid
    assert not Space({"a": choice([1])}).has_grid


# -------------------------------------------------------------------------------------------------------------- refusal


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(1, 0), r"uniform\(1, 0\): low must be below high"),
        (lambda: uniform(1, 1), "low must be below high"),
        (lambda: uniform("a", 1), r"uniform\('a', 1\): must be finite numbers"),  # type: ignore[arg-type]
        (lambda: uniform(True, 2), "must be finite numbers"),
        (lambda: uniform(0, math.inf), "must be finite numbers"),
        (lambda: uniform(0, 10**400), "must be finite numbers"),
        (lambda: uniform(-1.5e308, 1.5e308), "must be finite numbers"),
        (lambda: loguniform(0, 1), r"loguniform\(0, 1\): low must be above 0"),
        (lambda: quniform(0, 1, 0), r"quniform\(0, 1, 0\): q must be above 0 and at most high - low"),
        (lambda: quniform(0, 1, 2), "q must be above 0 and at most high - low"),
        (lambda: quniform(0, 1, math.nan), "must be finite numbers"),
        (lambda: quniform(0, 1e30, 1), r"must have at most 2\*\*53 steps"),
        (lambda: randint(0, 0), r"randint\(0, 0\): low must be below high, which is itself excluded"),
        (lambda: randint(0, 2.5), r"randint\(0, 2.5\): must be whole numbers"),  # type: ignore[arg-type]
        (lambda: randint(0, 2**60), "must be whole numbers"),
        (lambda: lograndint(0, 5), r"lograndint\(0, 5\): low must be at least 1"),
        (lambda: choice([]), r"choice\(\[\]\): needs at least one option"),
        (lambda: grid_search([]), r"grid_search\(\[\]\): needs at least one option"),
        (lambda: choice("abc"), r"choice\('abc'\): must be a list of options"),
        (lambda: choice({"a", "b"}), "must be a list of options"),
        (lambda: choice([1, object()]), r"choice option 1=<object"),
        (lambda: choice([grid_search([1])]), "an option holds a grid_search"),
        (lambda: choice([{"a": [grid_search([1])]}]), "an option holds a grid_search"),
    ],
)
def test_a_domain_that_cannot_be_is_refused_where_it_is_made(make: Callable[[], Domain], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({}, "space is empty: give at least one parameter"),
        ([uniform(0, 1)], "must be a dict"),
        ({1: 2}, "the name 1 must be a non-empty text"),
        ({"": 2}, "the name '' must be"),
        ({"a": {"b.c": 1, "d": 2}}, r"space.a: the name 'b.c' must be a non-empty text without '.'"),
        ({"a": random.random}, r"space\.a=.*a function is not sampled"),
        ({"a": math.nan}, r"space\.a=nan: a configuration holds"),
        ({"a": 2**64}, r"space\.a=18446744073709551616: a configuration holds .*int of 64 bits"),
        ({"a": {"choice": [1, -(2**63) - 1]}}, r"a configuration holds .*int of 64 bits"),
        ({"a": [1, {2}]}, r"space\.a\.1=\{2\}: a configuration holds"),
        ({"lr": {"logunifrom": [1e-4, 0.1]}}, "space.lr: unknown domain 'logunifrom': did you mean 'loguniform'"),
        ({"x": {"int": [1, 5]}}, "space.x: unknown domain 'int': take randint or lograndint, whose end is excluded"),
        ({"x": {"int": [5]}}, "unknown domain 'int'"),
        ({"x": {"categorical": ["a", "b"]}}, "unknown domain 'categorical': take choice; allowed: uniform, "),
        ({"x": {"normal": [0, 1]}}, "unknown domain 'normal': there is no normal distribution"),
        ({"x": {"qrandint": (1, 9, 2)}}, "unknown domain 'qrandint': take randint, .* or quniform"),
        ({"x": {"one_of": ["a", "b"]}}, "unknown domain 'one_of': .*constant list, write {one_of: {choice: "),
        ({"m": {"n": 1, "x": {"sizes": [[3, 3], [5, 5]]}}}, "space.m.x: unknown domain 'sizes'"),
        ({"x": {"choice": [{"sizes": [64, 32]}]}}, "space.x: choice option 0: unknown domain 'sizes'"),
        ({"lr": {"loguniform": [0, 1]}}, r"space.lr: loguniform\(0, 1\): low must be above 0"),
        ({"lr": {"uniform": [0, 1, 2]}}, r"space.lr: uniform: \[0, 1, 2\]: must be the list \[low, high\]"),
        ({"lr": {"uniform": [0, 1], "log": True}}, r"space\.lr=\{.*\}: a domain is a mapping with one name"),
        ({"lr": {"log": True, "choice": [1]}}, "must not be named 'choice'; domains: uniform, .*grid_search"),
        ({"a": [{"uniform": [0, 1], "choice": [1]}]}, r"space\.a\.0=\{.*\}: a domain is a mapping with one name"),
        ({"lr": {"quniform": 3}}, r"must be the list \[low, high, q\]"),
        ({"lr": {"choice": 3}}, r"space.lr: choice\(3\): must be a list of options"),
    ],
)
def test_a_space_that_cannot_be_is_refused(definition: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Space(definition)


def test_the_form_of_yaml_is_read() -> None:
    space = Space(
        {
            "lr": {"loguniform": ["1e-4", 0.1]},  # how YAML 1.1 reads 1e-4
            "layers": {"choice": [2, 3, 4]},
            "opt": {"choice": [{"kind": "sgd", "momentum": {"uniform": [0, 0.9]}}, {"kind": "adam"}]},
            "seed": {"grid_search": [0, 1]},
            "epochs": 50,
        }
    )
    assert space == Space(
        {
            "lr": loguniform(1e-4, 0.1),
            "layers": choice([2, 3, 4]),
            "opt": choice([{"kind": "sgd", "momentum": uniform(0, 0.9)}, {"kind": "adam"}]),
            "seed": grid_search([0, 1]),
            "epochs": 50,
        }
    )
    assert isinstance(space.definition["seed"], Grid)


def test_other_dicts_stay_what_they_are() -> None:
    definition = {"a": {"names": [1]}, "b": {"choices": "x", "log": True}, "choice": [1, 2], "c": {"d": [1, 2], "e": 3}}
    assert Space(definition).sample(random.Random(0)) == definition


def test_a_list_with_a_domain_in_it_may_stand_alone_in_a_nested_space() -> None:
    space = Space({"model": {"widths": [{"randint": [1, 2]}, 64]}, "data": {"crop": {"choice": [[224, 224]]}}})
    assert space.sample(random.Random(0)) == {"model": {"widths": [1, 64]}, "data": {"crop": [224, 224]}}


@pytest.mark.timeout(20)
def test_however_deep_lists_are_nested_each_is_read_once() -> None:
    definition: Any = {"uniform": [0, 1]}
    for _ in range(40):
        definition = {"a": [definition, 1]}
    assert len(Space({"x": definition}).domains()) == 1


def test_a_configuration_outside_the_space_has_no_answers() -> None:
    space = Space({"x": uniform(0, 1), "n": randint(0, 3), "c": choice(["a", [1]]), "k": 1})
    inside = {"x": 0.5, "n": 2, "c": [1], "k": 1}
    assert space.answers(inside) == {"x": 0.5, "n": 2, "c": 1}
    for change in ({"x": 2.0}, {"x": "a"}, {"n": 3}, {"n": True}, {"c": "b"}, {"c": [1, 2]}, {"k": True}, {"new": 1}):
        assert space.answers(inside | change) is None
