from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.test_space import spaces

from elastune.search.vectors import Vectors
from elastune.space import Space, lograndint, loguniform, quniform, randint, uniform


@settings(deadline=None)
@given(spaces, st.integers(0, 99))
def test_a_vector_is_its_configuration(space: Space, seed: int) -> None:
    vectors, rng = Vectors(space), np.random.default_rng(seed)
    config = vectors.config(vector := vectors.draw(rng))
    assert space.answers(config) is not None
    np.testing.assert_allclose(vectors.settle(vector[None].copy())[0], vector, atol=1e-9)
    sampled = space.sample(random.Random(seed))
    again = vectors.vector(sampled)
    assert again is not None
    assert _near(vectors.config(again), sampled)


def _near(one: object, other: object) -> bool:
    """Equal but for what a float loses on the way through a logarithm."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near, one, other))
    if isinstance(one, float) and isinstance(other, int | float):  # 1 may be an option of its own or of uniform(0, 2)
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


@pytest.mark.parametrize(
    "domain", [uniform(-1, 3), loguniform(1e-3, 1), quniform(0, 1, 0.25), randint(2, 6), lograndint(1, 40)], ids=str
)
def test_vectors_are_drawn_as_the_space_draws(domain: object) -> None:
    space, source, rng = Space({"x": domain}), random.Random(0), np.random.default_rng(0)
    vectors = Vectors(space)
    drawn = np.array([vectors.config(vectors.draw(rng))["x"] for _ in range(4000)])
    sampled = np.array([space.sample(source)["x"] for _ in range(4000)])
    for value in sampled[:50]:
        assert np.mean(drawn <= value) == pytest.approx(np.mean(sampled <= value), abs=0.04)
