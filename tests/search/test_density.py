"""The vectorised estimate against the definition, kernel by kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elastune.search.density import Density, Layout
from elastune.search.vectors import Array, Vectors
from elastune.space import Space, choice, randint, uniform

SPACE = Space(
    {
        "x": uniform(-1, 1),
        "layers": randint(1, 5),
        "opt": choice([{"momentum": uniform(0, 0.9), "kind": choice(list("abc"))}, "adam", "lbfgs"]),
    }
)


def kernel(x: Array, centre: Array, density: Density) -> float:
    """The definition, axis by axis."""
    product, layout = 1.0, density._layout
    for h, at in zip(density._h, layout.numbers, strict=True):
        if not np.isnan(x[at]) and not np.isnan(centre[at]):
            product *= math.exp(-(((x[at] - centre[at]) / h) ** 2) / 2) / (h * math.sqrt(2 * math.pi))
    for h, k, at in zip(density._leave, layout.k, layout.choices, strict=True):
        if not np.isnan(x[at]):
            same = x[at] == centre[at]
            product *= 1 / k if np.isnan(centre[at]) else 1 - h if same else h / (k - 1)
    return product


def test_the_density_is_the_mean_of_the_kernels() -> None:
    vectors, rng = Vectors(SPACE), np.random.default_rng(0)
    observations = np.array([vectors.draw(rng) for _ in range(20)])
    asked = np.array([vectors.draw(rng) for _ in range(30)])
    assert np.isnan(observations).any() and np.isnan(asked).any()
    layout = Layout(vectors.axes)
    density = Density(layout, observations, 0.01)
    expected = [math.log(np.mean([kernel(x, centre, density) for centre in observations])) for x in asked]
    np.testing.assert_allclose(density.log(layout.features(asked)), expected, rtol=1e-9)


def test_bandwidths_follow_the_normal_reference_rule_down_to_their_floors() -> None:
    layout = Layout(Vectors(Space({"x": uniform(0, 1), "n": randint(0, 4), "act": choice(list("abc"))})).axes)
    rng = np.random.default_rng(0)
    x = rng.random(50)
    density = Density(layout, np.column_stack([x, np.full(50, 0.375), np.full(50, 1.0)]), 0.01)
    assert density._h == pytest.approx([1.06 * x.std() * 50 ** (-1 / 7), 0.125])
    assert density._leave == pytest.approx([2 / 53])
    assert Density(layout, np.full((50, 3), 0.375), 0.02)._h == pytest.approx([0.02, 0.125])
    mixed = Density(layout, np.column_stack([x, x, np.arange(50) % 3]), 0.01)
    assert mixed._leave == pytest.approx([1.06 * math.sqrt(2 / 3) * 50 ** (-1 / 7)], rel=1e-2)


def test_draws_are_spread_around_the_observations_and_stay_inside() -> None:
    vectors = Vectors(SPACE)
    layout = Layout(vectors.axes)
    vector = vectors.vector({"x": 0.96, "layers": 2, "opt": "adam"})
    assert vector is not None
    density = Density(layout, np.array([vector] * 9), 0.05)
    drawn = vectors.settle(density.draw(np.random.default_rng(0), 2000, 2.0))
    x, layers, opt, momentum, kind = drawn.T
    assert x.min() >= 0 and x.max() <= 1
    assert np.mean(1 - x) == pytest.approx(0.1 * math.sqrt(2 / math.pi), rel=0.1), "all on one side of 1, near 0.98"
    assert set(np.round(layers, 9)) == {0.125, 0.375, 0.625, 0.875}
    shares = np.bincount(opt.astype(int)) / 2000
    assert shares == pytest.approx([1 / 6, 2 / 3, 1 / 6], abs=0.04), "each of 3 options has 1/12, twice as wide 1/6"
    assert (np.isnan(momentum) == (opt != 0)).all() and (np.isnan(kind) == (opt != 0)).all()
    assert np.nanmean(momentum) == pytest.approx(0.5, abs=0.06), "of what was never observed nothing is assumed"
