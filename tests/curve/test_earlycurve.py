"""Stages are found where the learning rate is lowered, and only the last one counts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.curve.earlycurve import EarlyCurve, change_rates, drops, jumps
from elastune.curve.slaq import SLAQ


def staged(noise: float = 0.0, seed: int = 0, calmer: float = 30.0) -> list[float]:
    """Sixty losses; after forty the learning rate is lowered."""
    rng = random.Random(seed)
    first = [1.0 + 1 / (0.5 * k**2 + 0.3) + rng.gauss(0, noise) for k in range(1, 41)]
    second = [0.2 + 0.04 / k + rng.gauss(0, noise / calmer) for k in range(1, 21)]
    return first + second


def test_rates_are_in_parts_of_the_loss_before_whatever_its_sign() -> None:
    assert change_rates(np.array([2.0, 1.0, -1.0, -1.5])).tolist() == [0.5, 2.0, 0.5]


def test_equation_7_holds_after_five_steady_steps_and_not_after_four() -> None:
    steady = [3.0, *[1.0] * 6, 0.4, 0.4]
    assert jumps(np.array(steady)).tolist() == [7]
    assert jumps(np.array([3.0, *[1.0] * 5, 0.4, 0.4])).tolist() == []
    assert jumps(np.array([3.0, *[1.0] * 6, 0.5, 0.5])).tolist() == []  # one half is not above one half
    assert jumps(np.array([3.0, *[1.0] * 4, 1.011, 1.0, 0.4, 0.4])).tolist() == []
    assert jumps(np.array([*[1.0] * 6, 2.0])).tolist() == [6]  # it counts both ways
    assert jumps(np.array([*[-1.0] * 6, -2.0])).tolist() == [6]


def test_a_drop_is_found_in_noise_where_equation_7_sees_none() -> None:
    curves = [staged(noise=0.1, seed=seed) for seed in range(50)]
    assert all(EarlyCurve(drops=False).last_stage(losses) == 0 for losses in curves)
    assert sum(abs(EarlyCurve().last_stage(losses) - 40) <= 2 for losses in curves) >= 35


@given(
    first=st.floats(0.5, 50),
    power=st.floats(0.2, 3),
    level=st.floats(-5, 5),
    count=st.integers(1, 80),
    sign=st.booleans(),
)
def test_a_smooth_curve_has_no_drop(first: float, power: float, level: float, count: int, sign: bool) -> None:
    losses = np.array([level + (1 if sign else -1) * (k + first) ** -power for k in range(count)])
    assert drops(losses).tolist() == []


def test_noise_that_goes_on_has_hardly_any_drop() -> None:
    rng = np.random.default_rng(0)
    found = sum(len(drops(1.0 + 0.1 * rng.standard_normal(60))) for _ in range(200))
    assert found < 20


def test_a_calm_that_does_not_last_is_no_stage() -> None:
    losses = np.array([1.0, 1.2] * 6 + [0.9] * 6)
    assert drops(losses).tolist() == [12]
    assert drops(np.append(losses, [1.0, 0.8] * 6)).tolist() == []


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_after_a_drop_the_last_stage_is_followed_and_the_whole_curve_misleads(noise: float) -> None:
    truth = 0.2 + 0.04 / 60
    losses = staged(noise)[:52]
    early = abs(EarlyCurve().predict(range(1, 53), losses, 100).loss - truth)
    assert early < 0.02
    assert early < abs(SLAQ().predict(range(1, 53), losses, 100).loss - truth) / 2


def test_what_came_before_a_stage_changes_nothing_of_where_it_goes() -> None:
    """Its steps are counted from where the stage before ended."""
    last = [0.2 + 1 / (0.02 * k**2 + 0.3 * k + 5.0) for k in range(1, 13)]
    alone = EarlyCurve().predict(range(1, 13), last, 60)
    for steady in (7, 40):
        whole = [3.0, *[1.0] * steady, *last]
        assert EarlyCurve().last_stage(whole) == steady + 1
        assert EarlyCurve().predict(range(1, len(whole) + 1), whole, 60 + steady + 1) == alone


def test_a_stage_that_has_just_begun_is_where_it_is() -> None:
    losses = [3.0, *[1.0] * 6, 0.4, 0.3]
    assert EarlyCurve().predict(range(1, 10), losses, 30).loss == 0.3


@given(a1=st.floats(0.01, 1), a3=st.floats(0, 1), count=st.integers(1, 60))
def test_a_curve_of_one_stage_is_predicted_as_slaq_does(a1: float, a3: float, count: int) -> None:
    losses = [1 / (a1 * k + 0.5) + a3 for k in range(1, count + 1)]
    iterations = range(1, count + 1)
    assert EarlyCurve().predict(iterations, losses, 100) == SLAQ().predict(iterations, losses, 100)


@given(losses=st.lists(st.integers(-300, 300).map(lambda cents: cents / 100), min_size=1, max_size=60))
def test_the_last_stage_begins_within_the_curve(losses: list[float]) -> None:
    assert 0 <= EarlyCurve().last_stage(losses) < len(losses)


def test_what_is_constant_has_come_to_rest_but_not_before_five_steps() -> None:
    assert EarlyCurve().has_plateaued(range(1, 7), [0.5] * 6, 100)
    assert not EarlyCurve().has_plateaued(range(1, 6), [0.5] * 5, 100)


def test_a_curve_that_has_converged_has_come_to_rest_and_one_that_falls_has_not() -> None:
    converged = [0.3 + 2.0**-k for k in range(1, 31)]
    assert EarlyCurve().has_plateaued(range(1, 31), converged, 100)
    assert not EarlyCurve().has_plateaued(range(1, 7), converged[:6], 100)


def test_a_slow_descent_is_no_plateau() -> None:
    """Every step is below a hundredth, and yet most of the way is ahead."""
    losses = [2.0 - 0.005 * k for k in range(1, 31)]
    assert not EarlyCurve().has_plateaued(range(1, 31), losses, 300)


def test_an_accuracy_that_grows_by_less_than_a_hundredth_is_no_plateau() -> None:
    losses = [-0.95 + 1 / (0.3 * k + 1) for k in range(1, 31)]
    assert change_rates(np.array(losses[-6:])).max() < 0.012
    assert not EarlyCurve().has_plateaued(range(1, 31), losses, 300)


def test_a_jump_just_now_is_no_plateau() -> None:
    assert not EarlyCurve().has_plateaued(range(1, 9), [*[1.0] * 7, 0.4], 100)
