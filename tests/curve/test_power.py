"""The power law finds itself, and promises nothing where there is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.curve.power import PowerLaw


def power_law(k: float, b: float, a: float = 2.0, c: float = -0.9) -> float:
    return float(c + a * k**-b)


@given(b=st.floats(0.2, 1.6), count=st.integers(10, 80), gap=st.sampled_from([1, 3, 100]), times=st.floats(1.1, 4.0))
def test_a_power_law_is_followed(b: float, count: int, gap: int, times: float) -> None:
    """Of the further fall most is foreseen, and more the more points there are."""
    iterations = [gap * number for number in range(1, count + 1)]
    losses = [power_law(k, b) for k in iterations]
    at = times * iterations[-1]
    fall = losses[-1] - power_law(at, b)
    missed = PowerLaw().predict(iterations, losses, at).loss - power_law(at, b)
    assert abs(missed) <= (0.37 if count < 20 else 0.2) * fall


@given(b=st.floats(0.2, 1.6), count=st.integers(1, 80))
def test_where_the_curve_ends_the_prediction_is_what_it_is_there(b: float, count: int) -> None:
    iterations = list(range(1, count + 1))
    losses = [power_law(k, b) for k in iterations]
    assert PowerLaw().predict(iterations, losses, count).loss == pytest.approx(losses[-1], abs=0.01)


@given(
    level=st.floats(-5, 5), rise=st.floats(0, 2), power=st.floats(0.2, 3), count=st.integers(2, 60), at=st.floats(1, 9)
)
def test_a_curve_that_does_not_fall_is_predicted_to_stay(
    level: float, rise: float, power: float, count: int, at: float
) -> None:
    losses = [level + rise * number**power for number in range(1, count + 1)]
    predicted = PowerLaw().predict(range(1, count + 1), losses, at * count).loss
    late = losses[-max(3, count // 10) :]
    assert min(late) - 1e-9 <= predicted <= max(late) + 1e-9


def test_a_curve_that_fell_and_now_rises_is_predicted_no_fall() -> None:
    losses = [1.0 / k for k in range(1, 11)] + [0.1 + 0.01 * k for k in range(1, 11)]
    assert PowerLaw().predict(range(1, 21), losses, 80).loss >= 0.18


def test_of_two_trials_at_the_same_loss_the_one_that_falls_will_be_ahead() -> None:
    falls, stays = [1.0, 0.8, 0.7, 0.64, 0.6], [0.62, 0.61, 0.6, 0.6, 0.6]
    model, iterations = PowerLaw(), range(1, 6)
    assert model.predict(iterations, falls, 20).loss < model.predict(iterations, stays, 20).loss - 0.01


def test_noise_is_believed_less_than_a_clean_fall() -> None:
    rng = random.Random(0)
    iterations = range(1, 31)
    clean = [power_law(k, 0.5) for k in iterations]
    falls, stds = [], []
    for noise in (0.0, 0.02, 0.1):
        tries = [[loss + rng.gauss(0, noise) for loss in clean] for _ in range(50)]
        now = [PowerLaw().predict(iterations, losses, 30) for losses in tries]
        later = [PowerLaw().predict(iterations, losses, 120) for losses in tries]
        falls.append(sum(a.loss - b.loss for a, b in zip(now, later, strict=True)) / 50)
        stds.append(sum(a.std for a in now) / 50)
    assert falls[0] > falls[1] > falls[2] > 0
    assert stds[0] < stds[1] < stds[2]


def test_few_points_are_believed_less_than_many() -> None:
    parts = []
    for count in (2, 4, 8, 40):
        iterations = range(1, count + 1)
        losses = [power_law(k, 0.5) for k in iterations]
        predicted = PowerLaw().predict(iterations, losses, 2 * count).loss
        parts.append((losses[-1] - predicted) / (losses[-1] - power_law(2 * count, 0.5)))
    assert parts == sorted(parts)
    assert parts[0] < 0.5 < 0.9 < parts[-1]


def test_the_further_the_less_sure() -> None:
    losses = [power_law(k, 0.5) + 0.01 * (k % 3) for k in range(1, 21)]
    stds = [PowerLaw().predict(range(1, 21), losses, at).std for at in (20, 30, 60, 1000)]
    assert stds == sorted(stds) and stds[0] < stds[-1]


def test_a_spike_long_ago_promises_nothing() -> None:
    losses = [1e6] + [2.0 + 0.001 * (k % 2) for k in range(2, 41)]
    assert PowerLaw().predict(range(1, 41), losses, 100).loss == pytest.approx(2.0, abs=0.01)


def test_a_spike_just_now_does_not_count_as_the_level() -> None:
    losses = [power_law(k, 0.5) for k in range(1, 21)]
    losses[-2] = 50.0
    assert PowerLaw().predict(range(1, 21), losses, 20).loss == pytest.approx(losses[-1], abs=0.1)
