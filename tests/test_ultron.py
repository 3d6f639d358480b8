"""Jobs of Ultron on real workers: killed ones go on, HPO algorithms of the user's own learn, known scores are kept."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.experiments import elastune, wait_for

import elastune as et
from elastune.results import Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAIN = """
import os, time

FOLDER = "{folder}"

class Model:
    def score(self, hyperparameters, checkpoint_path, resume):
        with open(f"{{FOLDER}}/calls", "a") as calls:
            calls.write(f"{{os.getpid()}} {{resume}} {{sorted(os.listdir(checkpoint_path))}}\\n")
        done = max(map(int, os.listdir(checkpoint_path))) if resume else 0
        for epoch in range(done + 1, 5):
            while epoch == 4 and not os.path.exists(f"{{FOLDER}}/go"):
                time.sleep(0.02)
            os.mkdir(f"{{checkpoint_path}}/{{epoch}}")
            open(f"{{checkpoint_path}}/{{epoch}}/DONE", "w").close()
        return hyperparameters["x"] / 10
"""
HPO = """
import json

class Climbs:
    def __init__(self):
        self.best, self.told = 0, []

    def sample_hyperparameter_candidates(self, n):
        return [{{"x": self.best + 1 + i}} for i in range(n)]

    def update_state(self, hyperparameter_candidates, validation_scores):
        self.told.append(validation_scores)
        self.best = max(each["x"] for each in hyperparameter_candidates)
        with open("{folder}/told", "w") as file:
            json.dump(self.told, file)
"""


def write_job(folder: Path, **fields: Any) -> Path:
    package = folder / "modelpkg"
    package.mkdir()
    (package / "train.py").write_text(TRAIN.format(folder=folder))
    (package / "climbs.py").write_text(HPO.format(folder=folder))
    job = {
        "model_classname": "Model",
        "module_name": "train",
        "package_name": "modelpkg",
        "hp_ranges": {"x": [3]},
        "strategy": "RANDOM",
        "num_iterations": 1,
        "jobname": "job",
    }
    path = folder / "job.json"
    path.write_text(json.dumps({name: value for name, value in (job | fields).items() if value is not None}))
    return path


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def run(folder: Path, job: Path) -> Result:
    process = elastune("run", job, "--storage", folder / "runs", "--quiet")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return et.load(folder / "runs" / "job")


def saved_epochs(run: Path) -> int:
    return len(list(run.glob("checkpoints/job-00000/*.json")))


def test_a_score_whose_worker_is_killed_goes_on_from_the_last_saved_epoch(tmp_path: Path) -> None:
    job, folder = write_job(tmp_path), tmp_path / "runs" / "job"
    process = elastune("run", job, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: bool(calls(tmp_path)), process)
    while True:  # epoch 3 is the last before it waits; those before may have been saved alone
        assert wait_for(lambda: saved_epochs(folder) > 0, process)
        checkpoint = et.load(folder).view.trials["job-00000"].last_checkpoint
        if checkpoint is not None and _name(folder, checkpoint.path) == "3":
            break
    os.kill(int(calls(tmp_path)[0].split()[0]), signal.SIGKILL)
    assert wait_for(lambda: len(calls(tmp_path)) == 2, process)
    (tmp_path / "go").touch()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [line.split(maxsplit=1)[1] for line in calls(tmp_path)] == ["False []", "True ['3']"]
    result = et.load(folder)
    assert result.best_value == 0.3 and result.best_trial.reports[-1].iteration == 1
    assert result.best_checkpoint().name == "4"


def _name(folder: Path, path: str) -> str:
    """Of the epoch that a checkpoint holds: the one folder in its archive."""
    with tarfile.open(folder / "checkpoints" / path) as tar:
        return tar.getnames()[0].split("/")[0]


def test_a_run_whose_driver_is_killed_goes_on_from_the_last_saved_epoch(tmp_path: Path) -> None:
    job, folder = write_job(tmp_path), tmp_path / "runs" / "job"
    process = elastune("run", job, "--storage", tmp_path / "runs", "--quiet")

    def is_journalled() -> bool:
        return saved_epochs(folder) > 0 and et.load(folder).view.trials["job-00000"].last_checkpoint is not None

    assert wait_for(is_journalled, process)
    process.kill()
    process.wait()
    process = elastune("resume", folder, "--quiet")
    assert wait_for(lambda: len(calls(tmp_path)) == 2, process)
    (tmp_path / "go").touch()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert calls(tmp_path)[-1].split(maxsplit=1)[1].startswith("True ")
    assert et.load(folder).best_value == 0.3


def test_an_hpo_algorithm_of_the_users_own_is_told_of_whole_batches(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    own = {"strategy": None, "hpo_classname": "Climbs", "hpo_module_name": "climbs"}
    job = write_job(tmp_path, **own, num_iterations=6, parallelism_fact=2)
    result = run(tmp_path, job)
    assert json.loads((tmp_path / "told").read_text()) == [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    assert result.best_params == {"x": 6} and len(result.view.trials) == 6


def test_a_duplicate_configuration_is_computed_once_and_shows_as_known(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    result = run(tmp_path, write_job(tmp_path, num_iterations=4))
    assert len(calls(tmp_path)) == 1
    assert [trial.reports[-1].metrics.get("cached", 0) for trial in result.view.trials.values()] == [0, 1, 1, 1]
    assert result.best_value == 0.3


def test_a_trial_on_two_devices_calls_score_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    job = write_job(tmp_path, num_iterations=2, hp_ranges={"x": [1, 2, 3, 4, 5]}, cpu_per_pod="2", seed=1)
    result = run(tmp_path, job)
    assert len(calls(tmp_path)) == len({trial.config["x"] for trial in result.view.trials.values()}) == 2


def test_a_rerun_computes_what_the_first_run_knows(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    (tmp_path / "modelpkg").mkdir()
    (tmp_path / "modelpkg" / "train.py").write_text(TRAIN.format(folder=tmp_path))
    file = tmp_path / "job.yaml"
    file.write_text(
        "trainable: modelpkg/train.py:Model\nspace: {x: {choice: [3]}}\nmetric: score\nmode: max\n"
        f"algorithm: {{FIFO: {{n: 1, R: 1}}}}\ncheckpoints: {tmp_path / 'shared'}\ncluster: {{devices: 1}}\n"
    )
    run(tmp_path, file)
    process = elastune("rerun", tmp_path / "runs" / "job", "--quiet")
    said, errors = process.communicate(timeout=200)
    assert process.returncode == 0 and said.startswith("the same: 1 trials, 1 reports"), (said, errors)
    assert len(calls(tmp_path)) == 2
