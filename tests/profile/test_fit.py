from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.profile import Latency, constant, fit_latency, fit_scaling, lognormal, normal
from elastune.profile.latency import Floats

MEASURED = st.lists(st.floats(0.001, 1000), min_size=1, max_size=300)


def drawn(latency: Latency, count: int, seed: int = 0) -> list[float]:
    return [float(value) for value in latency.sample(np.random.default_rng(seed), (count,))]


def modes(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(count) < 0.7, rng.normal(1.0, 0.05, count), rng.normal(10.0, 0.2, count))


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0, 5.0], [5.0, 5.01, 4.99]])
def test_a_negligible_spread_is_none(values: list[float]) -> None:
    assert fit_latency(values) == constant(5.0)


@pytest.mark.parametrize("latency", [normal(10.0, 2.0), lognormal(10.0, 4.0), lognormal(10.0, 8.0)], ids=repr)
def test_a_shape_is_recognised(latency: Latency) -> None:
    kinds = [fit_latency(drawn(latency, 200, seed)).kind for seed in range(20)]
    assert kinds.count(latency.kind) >= 15


def test_what_has_two_modes_is_kept_as_it_was_measured() -> None:
    few = sorted(modes(60).tolist())
    fitted = fit_latency(few)
    assert fitted.kind == "empirical" and list(fitted.values) == few


def test_of_many_values_a_hundred_are_kept_with_the_same_mean_and_order() -> None:
    many = modes(12_345)
    fitted = fit_latency(many.tolist())
    assert fitted.kind == "empirical" and len(fitted.values) == 100
    assert fitted.mean_s == pytest.approx(many.mean())
    assert list(fitted.values) == sorted(fitted.values)
    assert fitted.values[49] == pytest.approx(np.quantile(many, 0.495), rel=0.01)
    assert fitted.std_s == pytest.approx(many.std(), rel=0.05)


def test_too_few_values_to_tell_a_shape_give_a_smooth_one() -> None:
    assert fit_latency([1.0, 1.1, 3.0, 3.1]).kind in ("normal", "lognormal")


def test_zeros_among_much_larger_values_are_kept() -> None:
    assert fit_latency([0.0, 0.0, 10.0]).values == (0.0, 0.0, 10.0)


@given(MEASURED)
def test_whatever_was_measured_its_mean_is_kept(values: list[float]) -> None:
    fitted = fit_latency(values)
    assert fitted.expected_s == pytest.approx(np.mean(values), rel=0.003)
    assert len(fitted.values) <= 100


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf], [-1.0], ["1"], [True]])
def test_what_cannot_be_measured_is_refused(values: list[Any]) -> None:
    with pytest.raises(SpecError, match="values"):
        fit_latency(values)


def test_a_speed_up_compares_mean_steps() -> None:
    step, scaling = fit_scaling({1: [100.0], 2: [49.0, 51.0], 4: [27.0, 28.0, 29.0]})
    assert scaling.speedups == pytest.approx({1: 1.0, 2: 2.0, 4: 100 / 28})
    assert step.expected_s == pytest.approx(100.0)


def test_a_single_step_of_each_width_is_taken_as_it_is() -> None:
    step, scaling = fit_scaling({1: [109.0], 2: [57.7], 4: [60.0]})
    assert step == constant(109.0)
    assert scaling.speedups == {1: 1.0, 2: 109 / 57.7, 4: 109 / 60}


def test_a_width_that_is_slower_by_no_more_than_noise_counts_as_equally_fast() -> None:
    _, scaling = fit_scaling({1: [70.0, 72.0, 68.0], 8: [10.0, 10.3, 9.7], 16: [10.05, 10.3, 9.9]})
    assert scaling(8) == pytest.approx(7.0)
    assert scaling(16) == scaling(8)


def test_a_real_fall_stays_and_what_follows_is_lifted_to_it_only() -> None:
    near = [0.99, 1.0, 1.01]
    _, scaling = fit_scaling(
        {1: [70.0 * x for x in near], 8: [10.0 * x for x in near], 16: [10.9 * x for x in near], 32: [10.91, 10.91]}
    )
    assert scaling(8) == pytest.approx(7.0)
    assert scaling(16) == pytest.approx(70 / 10.9)
    assert scaling(32) == scaling(16)


def test_the_spread_of_a_step_is_pooled_over_widths() -> None:
    rng = np.random.default_rng(0)
    steps = {width: (100 / width * rng.normal(1.0, 0.1, 3)).tolist() for width in range(1, 60)}
    step, _ = fit_scaling(steps)
    assert step.kind in ("normal", "lognormal")
    assert step.mean_s == pytest.approx(np.mean(steps[1]))
    assert step.std_s / step.mean_s == pytest.approx(0.1, rel=0.15)


@given(st.dictionaries(st.integers(2, 16), st.lists(st.floats(0.01, 100), min_size=1, max_size=5), max_size=5))
def test_a_lift_never_lowers_and_never_passes_the_fastest_measured(steps: dict[int, list[float]]) -> None:
    steps = {1: [10.0, 11.0], **dict(sorted(steps.items()))}
    _, scaling = fit_scaling(steps)
    measured = {width: float(np.mean(steps[1]) / np.mean(seconds)) for width, seconds in steps.items()}
    assert set(scaling.speedups) == set(steps)
    for width, speedup in scaling.speedups.items():
        narrower = [factor for each, factor in measured.items() if each <= width]
        assert measured[int(width)] * (1 - 1e-9) <= speedup <= max(narrower) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({}, "steps={}: must map numbers of devices"),
        ({2: [1.0]}, "must say the seconds of steps of width 1"),
        ({1: [1.0], 1.5: [1.0]}, r"steps width=1\.5: must be a whole number of at least 1"),
        ({1: [1.0], 4: [1.0], 2: [1.0]}, "widths 1, 4, 2 must increase"),
        ({1: []}, r"steps\[1\]: must have at least one"),
        ({1: [1.0, 0.0]}, r"steps\[1\]=0.0: must be a number greater than 0"),
        ({1: [1.0], 2: [math.nan]}, r"steps\[2\]=nan"),
    ],
)
def test_steps_that_cannot_be_are_refused(steps: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fit_scaling(steps)
