from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elastune.errors import SpecError
from elastune.profile import Cloud, JobProfile, Latency, Scaling, constant, empirical, lognormal, normal

LATENCIES = [constant(3.0), normal(3.0, 0.5), normal(1.0, 2.0), lognormal(3.0, 2.0), empirical((1.0, 2.0, 9.0))]


@pytest.mark.parametrize("latency", LATENCIES, ids=repr)
def test_samples_have_the_expected_mean_and_none_is_below_zero(latency: Latency) -> None:
    drawn = latency.sample(np.random.default_rng(0), (400, 500))
    assert drawn.shape == (400, 500)
    assert drawn.min() >= 0
    assert drawn.mean() == pytest.approx(latency.expected_s, rel=0.02)
    assert latency.varies == (drawn.std() > 0)


@pytest.mark.parametrize("latency", [normal(30.0, 2.0), lognormal(3.0, 2.0), empirical((1.0, 2.0, 9.0))], ids=repr)
def test_samples_spread_as_was_said(latency: Latency) -> None:
    assert latency.sample(np.random.default_rng(0), (200_000,)).std() == pytest.approx(latency.std_s, rel=0.05)


def test_the_same_generator_draws_the_same() -> None:
    latency = normal(1.0, 2.0)
    one, other = (latency.sample(np.random.default_rng(7), (10,)) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: constant(-1.0), "mean=-1.0: must be a number of at least 0"),
        (lambda: constant(math.inf), "mean=inf"),
        (lambda: normal(0.0, 1.0), "mean=0.0: must be a number greater than 0"),
        (lambda: lognormal(1.0, -1.0), "std=-1.0"),
        (lambda: lognormal(math.nan, 1.0), "mean=nan"),
        (lambda: empirical(()), "at least one value"),
        (lambda: empirical((1.0, math.nan)), "empirical value=nan"),
        (lambda: empirical((1.0, -2.0)), "empirical value=-2.0"),
        (lambda: Latency("empirical", 1.0), "has some"),
        (lambda: Latency("constant", 1.0, 0.5), "must be 0"),
        (lambda: Latency("gamma", 1.0), "latency 'gamma': allowed: constant"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_latency_is_refused(make: Callable[[], Latency], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step": 3.0}, "step=3.0: must be a Latency"),
        ({"start": "2s"}, "start='2s': must be a Latency"),
        ({"step": constant(0.0)}, "an iteration must take time"),
        ({"step": empirical((1.0, 0.0))}, "an iteration must take time"),
        ({"scaling": {1: 1.0}}, "must be a Scaling"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        JobProfile(**{"step": constant(1.0), "scaling": Scaling({1: 1.0}), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"instance": ""}, "instance=''"),
        ({"devices": 0}, "devices=0: must be a whole number of at least 1"),
        ({"price_usd_per_hour": -1.0}, "price_usd_per_hour=-1.0"),
        ({"minimum_s": math.nan}, "minimum_s=nan"),
        ({"data_gb": -1}, "data_gb=-1"),
        ({"data_usd_per_gb": -1}, "data_usd_per_gb=-1"),
        ({"data_gb": 150}, "data_gb=150 without data_usd_per_gb: say what a gigabyte costs; 0 if it costs nothing"),
        ({"boot": 45.0}, "boot=45.0: must be a Latency"),
        ({"billing": "instanc"}, "billing='instanc': did you mean 'instance'"),
    ],
)
def test_a_cloud_that_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Cloud(**{"instance": "mine", "devices": 4, "price_usd_per_hour": 1.0, **arguments})


def test_data_is_paid_for_by_the_gigabyte() -> None:
    assert Cloud("mine", 4, 1.0, data_gb=150, data_usd_per_gb=0.01).data_usd == pytest.approx(1.5)
    assert Cloud("mine", 4, 1.0, data_gb=150, data_usd_per_gb=0).data_usd == 0.0
    assert Cloud("mine", 4, 1.0).data_usd == 0.0
