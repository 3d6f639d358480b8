"""Seconds of a step, learnt from the configurations of trials that were measured."""

from __future__ import annotations

import math
import random

import pytest

from elastune.messages import Config
from elastune.profile.run_times import RunTimes


def network(rng: random.Random) -> tuple[Config, float]:
    """Twice the batch takes 1.5 times as long, twice the units 3 times; the learning rate does not matter."""
    config = {
        "batch": 2 ** rng.randint(4, 9),
        "net": {"units": rng.randint(16, 512)},
        "optimizer": rng.choice(["sgd", "adam"]),
        "lr": 10 ** rng.uniform(-4, -1),
    }
    log_s = math.log(1.5, 2) * math.log(config["batch"]) + math.log(3, 2) * math.log(config["net"]["units"])
    return config, log_s + (0.4 if config["optimizer"] == "adam" else 0.0) + rng.gauss(0, 0.02)


def test_configurations_that_were_never_seen_are_told_apart() -> None:
    rng = random.Random(1)
    configs, logs = zip(*(network(rng) for _ in range(40)), strict=True)
    model = RunTimes.fit(configs, logs)
    errors = [abs(model.log_s(config) - log_s) for config, log_s in (network(rng) for _ in range(200))]
    assert sorted(errors)[180] < 0.35, "nine of ten within 40%, where steps differ by a factor of hundreds"


def test_few_trials_only_tell_how_long_steps_usually_take() -> None:
    model = RunTimes.fit([{"x": 1}, {"x": 2}], [math.log(2.0), math.log(8.0)])
    assert math.exp(model.log_s({"x": 100})) == pytest.approx(4.0)


def test_what_makes_no_difference_and_what_never_varied_is_left_out() -> None:
    rng = random.Random(2)
    configs = [{"lr": 10 ** rng.uniform(-4, -1), "fixed": 3, "odd": math.inf} for _ in range(50)]
    model = RunTimes.fit(configs, [1.0] * 50)
    assert model.log_s({"lr": 0.3, "fixed": 3, "odd": math.inf}) == pytest.approx(1.0)
    assert model.log_s({}) == pytest.approx(1.0)
