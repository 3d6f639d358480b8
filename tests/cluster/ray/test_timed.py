"""Runs that end by the clock, with real workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.ray.drivers import Driver, slots

import elastune as et
from elastune import messages as m

pytestmark = pytest.mark.usefixtures("ray_here")
STEP_S = 0.2


def stepping(long_after: int | None = None) -> Callable[[Mapping[str, Any]], None]:
    """Short steps, and after some of them one that is very long the first time."""

    def train(config: Mapping[str, Any]) -> None:
        begun_at = done = et.get_checkpoint() or 0
        while True:
            time.sleep(600 if done == long_after and begun_at < done else STEP_S)
            done += 1
            et.report({"loss": 1.0, "pid": os.getpid(), "begun_at": begun_at}, checkpoint=done)

    return train


@pytest.mark.parametrize("width", [1, 2])
def test_a_trial_leaves_before_its_time_with_a_checkpoint(drive: Callable[..., Driver], width: int) -> None:
    driver = drive(stepping())
    until_s = driver.cluster.now_s() + 2.0
    driver.start(slots(*range(width)), until=None, until_s=until_s)
    paused = driver.until(m.TrialPaused)
    assert driver.cluster.now_s() < until_s + 1.0
    assert paused.checkpoint is not None and paused.checkpoint.iteration == paused.iteration
    assert [report.iteration for report in driver.reports()] == list(range(1, paused.iteration + 1))
    assert not [event for event in driver.events if isinstance(event, m.TrialLost)]


def test_a_trial_in_a_long_step_is_abandoned_and_its_worker_replaced(drive: Callable[..., Driver]) -> None:
    driver = drive(stepping(long_after=3))
    until_s = driver.cluster.now_s() + 4 * STEP_S + 0.15
    driver.start(slots(0), until=None, until_s=until_s, final=False)
    lost = driver.until(m.TrialLost)
    assert (lost.reason, lost.fault) == ("its time is over", False)
    assert until_s <= driver.cluster.now_s() < until_s + 1.0
    saved = [event.checkpoint for event in driver.events if isinstance(event, m.TrialCheckpointed)]
    assert saved and saved[-1].iteration == len(driver.reports()) == 3, "the last step before might have been the last"
    driver.start(slots(0), until=6, attempt=2, saved=saved[-1])
    assert driver.until(m.TrialPaused).attempt == 2
    again = [report for report in driver.reports() if report.attempt == 2]
    assert [report.iteration for report in again] == [4, 5, 6]
    assert again[0].metrics["pid"] != driver.reports()[0].metrics["pid"]


def test_a_trial_that_goes_on_where_it_was_has_its_new_time(drive: Callable[..., Driver]) -> None:
    driver = drive(stepping())
    driver.start(slots(0), until=None, until_s=driver.cluster.now_s() + 1.5, final=False)
    first = driver.until(m.TrialPaused)
    until_s = driver.cluster.now_s() + 1.5
    driver.start(slots(0), until=None, attempt=2, saved=first.checkpoint, until_s=until_s)
    second = driver.until(m.TrialPaused)
    assert second.iteration > first.iteration and driver.cluster.now_s() < until_s + 1.0
    assert {report.metrics["begun_at"] for report in driver.reports()} == {0}, "it was never called again"


def test_a_trial_that_is_started_after_its_time_is_given_up_at_once(drive: Callable[..., Driver]) -> None:
    driver = drive(stepping())
    driver.start(slots(0), until=None, until_s=driver.cluster.now_s() - 5.0)
    assert driver.until(m.TrialLost, within_s=10.0).reason == "its time is over"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_real_run_keeps_its_deadline_and_its_budget(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        state = et.get_checkpoint() or {"done": 0, "loss": 1.0}
        while True:
            time.sleep(0.3 / et.get_context().world_size)
            state["done"] += 1
            state["loss"] = 0.9 * state["loss"] + 0.1 * (config["x"] - 0.5) ** 2
            et.report({"loss": state["loss"], "done": state["done"]}, checkpoint=lambda: dict(state))

    tuner = et.Tuner(
        train,
        space={"x": et.uniform(0, 1)},
        metric="loss",
        algorithm=et.SEER(eta=2, t_min="2s", race=False),
        deadline="25s",
        budget="1 device-minutes",
        machines=2,
        devices=2,
        storage=tmp_path,
    )
    view = tuner.fit(progress=False).view
    assert view.status == "succeeded"
    assert view.at_s <= 25.0 + 0.3
    assert view.paid_device_s() <= 60.0
    assert len(view.trials) >= 3 and view.best is not None and view.best.status == "completed"
    for trial in view.trials.values():
        assert [report.metrics["done"] for report in trial.reports] == list(range(1, trial.iteration + 1))
