"""Several experiments with code of their own on the same workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import elastune as et
from elastune.worker.setup import WorkerSetup

pytestmark = pytest.mark.usefixtures("ray_here")
SPACE = {"x": et.uniform(0, 1)}


def bowl(config: Mapping[str, Any]) -> None:
    done = et.get_checkpoint() or 0
    while True:
        done += 1
        seed = et.get_context().seed
        et.report({"loss": (config["x"] - 0.5) ** 2 / done, "pid": os.getpid(), "seed": seed}, checkpoint=done)


class Hill(et.Trainable):
    def setup(self, config: Mapping[str, Any]) -> None:
        self.x, self.steps = config["x"], 0

    def step(self) -> dict[str, object]:
        self.steps += 1
        return {"height": self.x * self.steps, "pid": os.getpid(), "seed": et.get_context().seed}

    def save(self) -> int:
        return self.steps

    def load(self, checkpoint: int) -> None:
        self.steps = checkpoint


def cannot(config: Mapping[str, Any]) -> None:
    raise ValueError("this code is wrong")


def tuners(second: object, **arguments: Any) -> list[et.Tuner]:
    halving = et.SuccessiveHalving(9, 1, 9, 3)
    return [
        et.Tuner(bowl, space=SPACE, metric="loss", algorithm=halving, seed=1),
        et.Tuner(second, space=SPACE, algorithm=et.FIFO(6, R=4), name="hill", seed=2, **arguments),
    ]


def test_each_trains_with_its_own_code_on_the_same_worker(tmp_path: Path) -> None:
    asked = tuners(Hill, metric="height", mode="max")
    result = et.Together(asked, devices=1, storage=tmp_path).fit(progress=False)
    assert (result.status, list(result)) == ("succeeded", ["bowl", "hill"])
    bowls, hills = result["bowl"], result["hill"]
    assert bowls.best_value == min((trial.config["x"] - 0.5) ** 2 for trial in bowls.view.trials.values()) / 9
    assert hills.best_value == 4 * max(trial.config["x"] for trial in hills.view.trials.values())
    assert hills.best_checkpoint() == 4

    def reported(one: et.Result, name: str) -> set[object]:
        return {report.metrics[name] for trial in one.view.trials.values() for report in trial.reports}

    assert reported(bowls, "pid") == reported(hills, "pid") and len(reported(bowls, "pid")) == 1
    for one, seed in ((bowls, 1), (hills, 2)):
        setup = WorkerSetup(b"", (), None, tmp_path, 0.0, seed)  # type: ignore[arg-type]
        for trial in one.view.trials.values():
            assert {report.metrics["seed"] for report in trial.reports} == {setup.seed_of(trial.id)}
    assert et.Together.restore(result.path).fit(progress=False)["hill"].best_value == hills.best_value


def test_code_that_fails_in_one_is_no_harm_to_the_other(tmp_path: Path) -> None:
    result = et.Together(tuners(cannot, metric="height"), devices=2, storage=tmp_path).fit(progress=False)
    assert (result["bowl"].status, result["hill"].status) == ("succeeded", "failed")
    assert "ValueError: this code is wrong" in result["hill"].view.reason
    assert len(result["bowl"].view.trials) == 9 and result["bowl"].best_trial.status == "completed"
