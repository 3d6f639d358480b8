"""The curve of SLAQ and EarlyCurve finds itself, through noise, and stays sensible where there is none."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.curve.inverse_quadratic import follow
from elastune.curve.slaq import SLAQ

coefficients = st.tuples(st.floats(0, 0.05), st.floats(0.02, 0.5), st.floats(0.1, 2.0), st.floats(0, 2.0))


def law(k: float, a: tuple[float, float, float, float]) -> float:
    return 1 / (a[0] * k**2 + a[1] * k + a[2]) + a[3]


@given(a=coefficients, count=st.integers(15, 80), times=st.floats(1.1, 3.0), gap=st.sampled_from([1, 100]))
def test_the_law_is_followed(a: tuple[float, float, float, float], count: int, times: float, gap: int) -> None:
    losses = [law(k, a) for k in range(1, count + 1)]
    steps = [gap * k for k in range(1, count + 1)]
    fall = losses[-1] - law(times * count, a)
    missed = follow(steps, losses, gap * times * count).loss - law(times * count, a)
    assert abs(missed) <= (0.4 if count < 30 else 0.25) * fall + 0.002 * (losses[0] - losses[-1])


@given(a=coefficients, factor=st.sampled_from([1e-200, 1e-6, 1e6, 1e200]))
def test_tiny_and_huge_losses_are_followed_alike(a: tuple[float, float, float, float], factor: float) -> None:
    losses = [law(k, a) for k in range(1, 31)]
    plain = follow(range(1, 31), losses, 60)
    scaled = follow(range(1, 31), [factor * loss for loss in losses], 60)
    assert scaled.loss / factor == pytest.approx(plain.loss, rel=1e-6)


def test_noise_is_averaged_out() -> None:
    rng, a = random.Random(0), (0.0, 0.1, 0.5, 0.4)
    truth = law(60, a)
    missed = []
    for _ in range(50):
        losses = [law(k, a) + rng.gauss(0, 0.02) for k in range(1, 43)]
        missed.append(abs(follow(range(1, 43), losses, 60).loss - truth))
    assert fmean(missed) < 0.03


def test_the_deviation_covers_what_is_missed() -> None:
    rng, a = random.Random(1), (0.0, 0.1, 0.5, 0.4)
    covered = 0
    for _ in range(100):
        losses = [law(k, a) + rng.gauss(0, 0.02) for k in range(1, 61)]
        predicted = follow(range(1, 43), losses[:42], 60)
        covered += abs(predicted.loss - losses[-1]) <= predicted.std
    assert 60 <= covered <= 98


@given(level=st.floats(-5, 5), rise=st.floats(0.01, 2), power=st.floats(0.2, 3), count=st.integers(4, 60))
def test_a_curve_that_rises_is_predicted_no_fall(level: float, rise: float, power: float, count: int) -> None:
    losses = [level + rise * k**power for k in range(1, count + 1)]
    predicted = follow(range(1, count + 1), losses, 3 * count).loss
    assert losses[count // 3] <= predicted <= losses[-1] + 1e-9


@given(losses=st.lists(st.floats(0.01, 10), min_size=4, max_size=40))
def test_a_positive_loss_stays_so(losses: list[float]) -> None:
    assert follow(range(1, len(losses) + 1), losses, 1e9).loss >= -1e-9


@given(losses=st.lists(st.floats(-10, 10), min_size=1, max_size=3))
def test_of_three_points_the_last_is_predicted(losses: list[float]) -> None:
    assert SLAQ().predict(range(1, len(losses) + 1), losses, 50).loss == losses[-1]


def test_a_constant_stays() -> None:
    predicted = SLAQ().predict(range(1, 21), [0.3] * 20, 50)
    assert (predicted.loss, predicted.std) == (0.3, 0.0)


def test_a_negative_loss_may_fall_further() -> None:
    """Accuracy that still grows: the loss is its negative."""
    losses = [-0.9 + 1 / (0.5 * k + 1.5) for k in range(1, 21)]
    predicted = SLAQ().predict(range(1, 21), losses, 60).loss
    assert predicted == pytest.approx(-0.9 + 1 / 31.5, abs=0.01)


def test_recent_points_weigh_more() -> None:
    falls_on = [2.0 / k for k in range(1, 11)] + [1.0 - 0.02 * k for k in range(20)]
    assert SLAQ().predict(range(1, 31), falls_on, 40).loss < 0.75
