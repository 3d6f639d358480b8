"""A notice reaches training code in the middle of a step, and a checkpoint that is late reaches the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cluster.ray.drivers import Driver, Train, slots

import elastune as et
from elastune import messages as m
from elastune.cluster.ray.gangs import Gangs
from elastune.worker import wire

Drive = Callable[..., Driver]


def endless_step(marker: Path) -> Train:
    """Reports once, and then trains until it is told to leave; its state is how far it came."""

    def train(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        et.report({"loss": 0.0, "begun": done}, checkpoint=done + 1)
        for batch in range(1, 60_000):
            marker.touch()
            time.sleep(0.01)
            et.leave_if_preempted(lambda: 100 + batch)  # noqa: B023  called at once

    return train


@pytest.mark.usefixtures("ray_here")
def test_a_trial_leaves_in_the_middle_of_a_step_when_it_has_little_time(drive: Drive, tmp_path: Path) -> None:
    driver = drive(endless_step(tmp_path / "trains"), checkpoint_every_s=0.0)
    driver.start(slots(0), None, final=False)
    driver.until(m.TrialReported)
    driver.send(m.PauseTrial, "t", 1, None)
    driver.wait(0.5)
    assert not any(isinstance(event, m.TrialPaused) for event in driver.events), "there is time until its next report"
    driver.send(m.PauseTrial, "t", 1, 60.0)
    paused = driver.until(m.TrialPaused, within_s=30.0)
    assert paused.iteration == 1 and paused.checkpoint is not None
    state = driver.setup.checkpoints.load(paused.checkpoint)
    assert state > 100
    driver.start(slots(1), None, attempt=2, saved=paused.checkpoint)
    again = driver.until(m.TrialReported)
    assert (again.iteration, again.metrics["begun"]) == (2, state)


def test_a_checkpoint_that_is_complete_after_its_trial_has_left_is_not_forgotten() -> None:
    heard: list[m.AnyEvent] = []
    world = SimpleNamespace(happened=lambda *events: heard.extend(events))
    gangs = Gangs(cast(Any, world), cast(Any, None), None)
    late = m.TrialCheckpointed("t", 1, m.Checkpoint("t", 0, 1, "t/1", "", 0))
    host = SimpleNamespace(slot=m.Slot("n0", 0), answered=False)
    gangs.said(cast(Any, host), wire.Said(1, (m.TrialReported("t", 1, 1, {}), late)))
    assert heard == [late]
