"""On Ray: eleven folds side by side, and the last training on all data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import elastune as et

pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.slow]

STEPS, BEST = 6, 4


def loss_of(fold: int, step: int) -> float:
    """Least on the average at step 4, though some folds are better elsewhere."""
    return (step - BEST) ** 2 + (fold % 3) / 10 * (step - BEST)


def train(config: Mapping[str, Any]) -> None:
    done = et.get_checkpoint() or 0
    while True:
        time.sleep(0.1)
        done += 1
        value = -1.0 if config["fold"] is None else loss_of(config["fold"], done)
        et.report({"loss": value}, checkpoint=done)


def test_eleven_folds_find_the_step_and_the_model_on_all_data_is_kept(tmp_path: Path) -> None:
    result = et.Tuner(
        train,
        space={"lr": 0.1},
        metric="loss",
        algorithm=et.KFold(k=11, R=STEPS, every=2),
        devices=4,
        storage=tmp_path,
        name="folds",
    ).fit(progress=False)
    means = {step: fmean(loss_of(fold, step) for fold in range(11)) for step in (2, 4, 6)}
    assert min(means, key=means.__getitem__) == BEST
    assert result.best_params == {"lr": 0.1, "fold": None, "folds": 11}
    assert result.best_value == pytest.approx(means[BEST])
    assert result.best_checkpoint() == BEST
    folds = [trial for trial in result.view.trials.values() if trial.config["fold"] is not None]
    assert [len(trial.reports) for trial in folds] == [STEPS] * 11
    assert et.load(result.path).best_value == result.best_value
