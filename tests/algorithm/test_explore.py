from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.algorithm.explore import explore, perturbed
from elastune.space import Float, Integer, Space, choice, lograndint, loguniform, quniform, randint, uniform

SPACE = Space(
    {
        "lr": loguniform(1e-4, 1e-1),
        "momentum": uniform(-0.5, 0.9),
        "dropout": quniform(0.0, 0.5, 0.1),
        "layers": randint(1, 6),
        "batch": lograndint(8, 257),
        "opt": choice(
            [{"kind": "sgd", "nesterov": choice([True, False])}, {"kind": "adam", "beta": uniform(0.8, 1)}, 3]
        ),
        "epochs": 50,
    }
)


@given(seed=st.integers(0, 10**6), resample=st.sampled_from([0.0, 0.25, 1.0]), factor=st.floats(0.1, 10.0))
def test_what_comes_out_is_a_configuration_of_the_space(seed: int, resample: float, factor: float) -> None:
    rng = random.Random(seed)
    config = SPACE.sample(rng)
    for _ in range(5):
        config = explore(SPACE, config, rng, resample, (factor, 0.8))
        assert SPACE.answers(config) is not None


@pytest.mark.parametrize(
    ("domain", "value", "factor", "expected"),
    [
        (Float(0.0, 1.0), 0.5, 1.2, 0.6),
        (Float(0.0, 1.0), 0.9, 1.2, 1.0),
        (Float(-1.0, 1.0), -0.5, 1.2, -0.6),
        (Float(0.1, 0.5, q=0.1), 0.3, 1.4, 0.4),
        (Float(0.1, 0.5, q=0.1), 0.3, 1.01, 0.4),
        (Float(0.1, 0.5, q=0.1), 0.3, 0.99, 0.2),
        (Float(0.1, 0.5, q=0.1), 0.5, 2.0, 0.5),
        (Integer(1, 11), 10, 0.8, 8),
        (Integer(1, 11), 2, 1.2, 3),
        (Integer(1, 11), 2, 0.8, 1),
        (Integer(1, 11), 1, 0.8, 1),
        (Integer(-5, 5), -2, 1.2, -3),
        (Integer(1, 11), 7, 1.0, 7),
        (Integer(0, 11), 0, 1.2, 1),
        (Integer(0, 11), 0, 0.8, 0),
        (Integer(-5, 5), 0, 0.8, -1),
        (Integer(-5, 5), 0, 1.0, 0),
        (Float(0.0, 2.0), 0.0, 1.2, 0.4),
        (Float(-1.0, 1.0), 0.0, 0.8, -0.4),
        (Integer(1, 11), 7, 1e308, 10),
        (Float(0.0, 200.0, q=100.0), 100.0, 1e308, 200.0),
        (Float(0.0, 0.5, q=0.1), 0.0, 1.2, 0.1),
    ],
)
def test_numbers_are_multiplied_and_stay_in_their_domain_and_on_their_steps(
    domain: Float | Integer, value: float, factor: float, expected: float
) -> None:
    new = perturbed(domain, value, factor)
    assert new == pytest.approx(expected) and new in domain and type(new) is type(expected)


def test_of_a_choice_a_neighbour_is_taken() -> None:
    space, rng = Space({"x": choice(["a", "b", "c", "d"])}), random.Random(0)

    def found(option: str) -> set[str]:
        return {explore(space, {"x": option}, rng, 0.0, (1.2,))["x"] for _ in range(50)}

    assert (found("b"), found("a"), found("d")) == ({"a", "c"}, {"a", "b"}, {"c", "d"})


def test_each_hyperparameter_is_drawn_anew_with_the_given_probability() -> None:
    space, rng = Space({"x": uniform(0, 1), "y": uniform(0, 1)}), random.Random(0)
    news = [explore(space, {"x": 0.5, "y": 0.5}, rng, 0.25, (0.8, 1.2)) for _ in range(2000)]
    drawn = [[value not in (0.4, 0.6) for value in new.values()] for new in news]
    assert sum(map(sum, drawn)) / 4000 == pytest.approx(0.25, abs=0.02)
    assert any(sum(each) == 1 for each in drawn), "one without the other"


def test_a_configuration_that_is_not_of_the_space_stays() -> None:
    assert explore(SPACE, {"mine": 1}, random.Random(0), 1.0, (2.0,)) == {"mine": 1}
