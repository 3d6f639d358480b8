"""Real runs on Ray whose driver is killed or interrupted."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from pathlib import Path

import pytest
from tests.experiments import EXPERIMENT, elastune, has_begun, records_in, wait_for, write_experiment

import elastune as et
from elastune.messages import Scalar
from elastune.provider.machine import MARK, Order, processes, program, read
from elastune.results import Result

pytestmark = pytest.mark.slow
KILLS = 20


def outcome(result: Result) -> tuple[str, float, list[tuple[str, list[int], list[Scalar]]]]:
    """All that must not depend on crashes: the winner, its value, and each iteration of each trial, once."""
    trials = [
        (trial.id, [r.iteration for r in trial.reports], [r.metrics["loss"] for r in trial.reports])
        for trial in result.view.trials.values()
    ]
    return result.best_trial.id, result.best_value, trials


def run_to_the_end(folder: Path) -> Result:
    process = elastune("run", folder / "exp.yaml", "--storage", folder / "runs", "--quiet")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return et.load(folder / "runs" / "exp")


@pytest.mark.timeout(1200)
def test_a_run_whose_driver_is_killed_20_times_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    rng = random.Random(20)
    (tmp_path / "undisturbed").mkdir()
    write_experiment(tmp_path / "undisturbed", step_s=0.03)
    undisturbed = outcome(run_to_the_end(tmp_path / "undisturbed"))
    kills, round_number, retrained = 0, 0, 0
    while kills < KILLS:
        folder = tmp_path / f"round-{round_number}"
        folder.mkdir()
        experiment, run = write_experiment(folder, step_s=0.03), folder / "runs" / "exp"
        process = elastune("run", experiment, "--storage", folder / "runs", "--quiet")
        while True:
            enough = records_in(run) + rng.randrange(25)
            reached = wait_for(lambda: has_begun(run) and records_in(run) >= enough, process)  # noqa: B023
            if not reached or process.poll() is not None or kills == KILLS:
                break
            process.kill()
            process.wait()
            kills += 1
            process = elastune("resume", run, "--quiet")
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        result = et.load(run)
        for trial in result.view.trials.values():
            assert [report.iteration for report in trial.reports] == list(range(1, trial.iteration + 1))
            assert [report.metrics["done"] for report in trial.reports] == list(range(1, trial.iteration + 1))
        assert outcome(result) == undisturbed
        retrained += result.view.retrained
        round_number += 1
    assert retrained > 0, "the kills never cost anything: they did not hit the run"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_pauses_checkpoints_exits_130_and_says_how_to_resume(number: int, tmp_path: Path) -> None:
    long = EXPERIMENT.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 4, R: 40}")
    experiment, run = write_experiment(tmp_path, 0.05, long), tmp_path / "runs" / "exp"
    process = elastune("run", experiment, "--storage", tmp_path / "runs", start_new_session=True)
    assert wait_for(lambda: records_in(run) >= 10, process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: to every process of the group
    else:
        os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert f"elastune resume {run}" in errors
    paused = et.load(run)
    assert paused.status == "interrupted"
    running = [trial for trial in paused.view.trials.values() if trial.status == "paused"]
    assert running and all(
        trial.last_checkpoint is not None and trial.last_checkpoint.iteration == trial.iteration for trial in running
    )

    process = elastune("resume", run, "--quiet")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    result = et.load(run)
    assert result.status == "succeeded" and result.view.retrained == 0
    assert all([r.iteration for r in trial.reports] == list(range(1, 41)) for trial in result.view.trials.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", ["{devices: 2}", "{machines: 2, devices: 1, provider: local}"])
def test_a_batch_system_that_ends_the_whole_process_group_gets_an_orderly_end_too(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = EXPERIMENT.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 4, R: 400}")
    experiment = write_experiment(tmp_path, 0.05, long.replace("{devices: 2}", cluster))
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    process = elastune("run", experiment, "--storage", tmp_path / "runs", start_new_session=True)
    monkeypatch.delenv(MARK)
    run = tmp_path / "runs" / "exp"
    assert wait_for(lambda: records_in(run) >= 10, process)
    os.kill(process.pid, signal.SIGTERM)  # as `timeout` does: to the command, and then to its group
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    paused = et.load(run)
    assert paused.status == "interrupted"
    running = [trial for trial in paused.view.trials.values() if trial.status == "paused"]
    assert running and all(trial.last_checkpoint is not None for trial in running)
    orders = [read(path, Order) for path in run.glob("machines/*/order.json")]
    marks = {mark, *(order.mark for order in orders if order is not None)}
    give_up_s = time.monotonic() + 10.0
    while processes(marks) and time.monotonic() < give_up_s:
        time.sleep(0.1)
    assert not processes(marks)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_run_whose_ray_dies_ends_soon_and_says_only_how_to_go_on(part: str, tmp_path: Path) -> None:
    long = EXPERIMENT.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 2, R: 40}")
    experiment, run = write_experiment(tmp_path, 0.05, long), tmp_path / "runs" / "exp"
    process = elastune("run", experiment, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: records_in(run) >= 10, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(next(int(pid) for pid in children if program(int(pid)) == part), signal.SIGKILL)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.startswith("error: Ray has died") and errors.count("\n") == 1 and not output
    assert f"elastune resume {run}" in errors
    process = elastune("resume", run, "--quiet")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


@pytest.mark.timeout(300)
def test_a_second_driver_on_the_same_run_is_refused(tmp_path: Path) -> None:
    long = EXPERIMENT.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 2, R: 200}")
    experiment, run = write_experiment(tmp_path, 0.05, long), tmp_path / "runs" / "exp"
    first = elastune("run", experiment, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: records_in(run) >= 5, first)
    second = elastune("resume", run, "--quiet")
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 2
    assert "another driver is at work" in errors
    assert first.wait(timeout=120) == 0
    result = et.load(run)
    assert all([r.iteration for r in trial.reports] == list(range(1, 201)) for trial in result.view.trials.values())
    assert all(trial.attempts == 1 for trial in result.view.trials.values()), "the first driver was not disturbed"


@pytest.mark.timeout(300)
def test_a_run_that_is_killed_before_its_first_turn_can_be_resumed(tmp_path: Path) -> None:
    experiment, run = write_experiment(tmp_path, 0.01), tmp_path / "runs" / "exp"
    process = elastune("run", experiment, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: has_begun(run), process)
    process.kill()
    process.communicate()
    assert records_in(run) == 0
    process = elastune("resume", run, "--quiet")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert et.load(run).status == "succeeded"
