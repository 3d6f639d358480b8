"""On Ray: a training job is measured, and a plan is carried out on machines that boot."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import ray
from tests.allocate.planned import forecast_of
from tests.experiments import elastune, records_in, wait_for, write_experiment

import elastune as et
from elastune.errors import RunFailed
from elastune.planning import Planning
from elastune.profile import load_profile
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.simulation import Simulation

STEP_S, SPEEDUP = 0.2, 1.6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def no_ray_left() -> Iterator[None]:
    ray.shutdown()  # that of other tests may still be there
    yield
    ray.shutdown()


def sleepy(config: Mapping[str, Any]) -> None:
    done = et.get_checkpoint() or 0
    while True:
        time.sleep(STEP_S / (SPEEDUP if et.get_context().world_size == 2 else 1.0))
        done += 1
        et.report({"loss": (config["x"] - 0.3) ** 2 + 1 / done}, checkpoint=done)


def tuner(folder: Path, **changes: Any) -> et.Tuner:
    arguments: dict[str, Any] = {
        "space": {"x": et.uniform(0, 1)},
        "metric": "loss",
        "algorithm": et.SuccessiveHalving(n=4, r=5, R=30, eta=2),
        "storage": folder / "runs",
        "name": "t",
    }
    return et.Tuner(sleepy, **(arguments | changes))


def test_steps_and_speed_up_of_a_sleeping_job_are_found_and_can_be_planned_with(tmp_path: Path) -> None:
    found = tuner(tmp_path, devices=2, price="$1").profile("3s", progress=False, packed=2)
    profile, cloud = found.profile, found.cloud
    assert profile.step.expected_s == pytest.approx(STEP_S, rel=0.1)
    assert set(profile.scaling.speedups) == {1, 2}
    assert profile.scaling(2) == pytest.approx(SPEEDUP, rel=0.1)
    assert profile.packed == pytest.approx((1.0,), rel=0.1), "two that sleep are no slower than one"
    assert (cloud.devices, cloud.price_usd_per_hour) == (2, 2.0)
    rows = found.to_dict()["widths"]
    assert [row["width"] for row in rows] == ["1/2", 1, 2] and all(row["steps"] >= 5 for row in rows)
    found.save(tmp_path / "t.profile.yaml")
    again, same_cloud = load_profile(tmp_path / "t.profile.yaml")
    assert again == profile and same_cloud == cloud
    assert len(found.save_plots(tmp_path / "pictures")) == 2
    expected = tuner(tmp_path, machines=2, planning=Planning(tmp_path / "t.profile.yaml")).plan()
    # Four trials of five steps and two of ten are three times as long as one of five on two devices, the last is alone.
    assert 2.0 < expected.time_s.mean() < 10.0


def test_a_planned_run_on_machines_that_boot_finishes_as_planned_with_its_plan_in_the_journal(tmp_path: Path) -> None:
    profile = JobProfile(constant(STEP_S), Scaling({1: 1, 2: SPEEDUP}), start=constant(0.05))
    cloud = Cloud("local", 2, 2.0, request=constant(0.1), boot=constant(8.0), minimum_s=0.0)
    planned = tuner(tmp_path, machines=2, provider="local", boot="8s", deadline="3m", planning=Planning(profile, cloud))
    expected = forecast_of(planned)
    result = planned.fit(progress=False)
    assert result.status == "succeeded" and "rehearsal" not in result.view.started.experiment
    plans = [plan for _, plan in result.view.plans]
    assert plans[0].brackets == tuple(candidate.plan.stages for candidate in expected.chosen)
    assert [len(plan.brackets[0]) for plan in plans] == [3, 2, 1], "one at the beginning, and one at every barrier"
    assert sorted(trial.iteration for trial in result.view.trials.values()) == [5, 5, 15, 30]
    first_s = min(segment.from_s for trial in result.view.trials.values() for segment in trial.segments)
    assert first_s >= 8.0, "nothing trains before a machine has booted"
    assert len(result.view.machines) >= max(stage.machines for stage in plans[0].brackets[0])
    widths = [stage.width for stage in plans[0].brackets[0]]
    assert len(result.best_trial.segments) >= sum(widths)
    assert et.load(result.path).view.plans == result.view.plans


def test_ctrl_c_while_measuring_exits_130_and_leaves_the_file_of_before(tmp_path: Path) -> None:
    experiment, before = write_experiment(tmp_path, 0.05), tmp_path / "exp.profile.yaml"
    before.write_text("that of yesterday")
    process = elastune(
        "profile", experiment, "--for", "30s", "--storage", tmp_path / "runs", "--quiet", start_new_session=True
    )
    assert wait_for(lambda: records_in(tmp_path / "runs" / "exp-profile") >= 20, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors == f"interrupted; {before} was not written: a part of the widths is no profile\n" and not output
    assert before.read_text() == "that of yesterday"


def two_steps(config: Mapping[str, Any]) -> None:
    for _ in range(2):
        time.sleep(0.01)
        et.report({"loss": config["x"]})


def test_trials_that_run_out_before_every_width_was_measured_give_no_profile(tmp_path: Path) -> None:
    few = et.Tuner(
        two_steps, space={"x": et.grid_search([1, 2])}, metric="loss", algorithm=et.FIFO(2), devices=2, storage=tmp_path
    )
    with pytest.raises(RunFailed, match=r"every trial is done before every width was measured: there is no profile"):
        few.profile("30s", progress=False)


def test_machines_of_a_cloud_are_rehearsed_here_and_it_is_said_once_and_in_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = JobProfile(constant(STEP_S), Scaling({1: 1}))
    planned = tuner(
        tmp_path,
        algorithm=et.SuccessiveHalving(n=2, r=1, R=2, eta=2),
        machines=2,
        planning=Planning(profile, "p3.2xlarge"),
    )
    with caplog.at_level(logging.WARNING, "elastune"):
        simulated = planned.simulate(Simulation())
        assert not caplog.messages, "a simulation rehearses nothing"
        result = planned.fit(progress=False)
    said = [text for text in caplog.messages if "p3.2xlarge" in text]
    assert said == [
        "cloud 'p3.2xlarge': no machines are rented: each is rehearsed on this computer with 1 worker process, and the "
        "bill is what it would cost there"
    ]
    assert result.view.started.experiment["rehearsal"] == said[0]
    assert "rehearsal" not in simulated.view.started.experiment
