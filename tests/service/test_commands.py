"""The command line against a real service, as a person uses it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.service.storm import Running, running

from elastune.cli import main
from elastune.service.client import Client
from elastune.service.drive import NICE

TRAIN = """
import os
import time
from pathlib import Path
import elastune as et

def train(config):
    for epoch in range(4):
        print(f"epoch {epoch}", flush=True)
        time.sleep(config.get("pause", 0.0))
        et.report({"loss": config["x"] / (epoch + 1)}, checkpoint=lambda: {"epoch": epoch})

def broken(config):
    raise RuntimeError("no such data")

def polite(config):
    sessions = Path("/proc/self/autogroup")
    of_session = float(sessions.read_text().split()[-1]) if sessions.exists() else 5.0
    et.report({"loss": 0.0, "nice": float(os.nice(0)), "nice_of_session": of_session})

class Model:
    def score(self, hyperparameters, checkpoint_path, resume):
        return hyperparameters["x"]
"""
SPEC: dict[str, Any] = {
    "trainable": "train.py:train",
    "space": {"x": {"uniform": [0.1, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 2, "R": 4}},
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("commands"), devices=2) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path, service: Running, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTUNE_SERVICE", service.url)
    monkeypatch.setenv("ELASTUNE_TOKEN", (service.home / "admin-token").read_text().strip())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def write(folder: Path, **more: Any) -> str:
    path = folder / "exp.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **more}))
    return str(path)


def ran(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def test_a_job_is_submitted_looked_at_and_taken_home(folder: Path) -> None:
    job = json.loads(ran("submit", write(folder), "--wait", "--json"))["id"]
    assert f"{job}: succeeded" in ran("status", job)
    assert job in ran("jobs") and "succeeded" in ran("jobs", "--state", "succeeded")
    trials = ran("trials", job).splitlines()
    assert len(trials) == 3 and "completed" in trials[1]
    best = json.loads(ran("best", job, "--json"))
    assert ran("logs", job, best["trial"]) == "epoch 0\nepoch 1\nepoch 2\nepoch 3\n"
    assert "succeeded" in ran("logs", job) and "driver 1 of this job begins" in ran("logs", job)
    name = ran("download", job).strip()
    assert name == f"{best['trial']}-4.pkl" and (folder / name).stat().st_size > 0
    again = ran("rerun", job).partition(":")[0]
    assert Client().wait(again)["state"] == "succeeded"
    assert "has ended before: succeeded" in ran("cancel", job)
    assert "is deleted" in ran("delete", job)


def test_jobs_shows_how_a_job_stands_whose_driver_has_written_nothing_down(folder: Path, service: Running) -> None:
    job = json.loads(ran("submit", write(folder), "--wait", "--json"))["id"]
    before = next(each for each in json.loads(ran("jobs", "--json")) if each["id"] == job)["summary"]
    with closing(sqlite3.connect(service.home / "service.db")) as database, database:
        database.execute("UPDATE jobs SET summary = '{}' WHERE id = ?", (job,))
    after = next(each for each in json.loads(ran("jobs", "--json")) if each["id"] == job)["summary"]
    assert after["best_value"] == before["best_value"] and after["trials"] == before["trials"] == 2


def test_a_rerun_computes_what_another_job_takes_from_known_scores(folder: Path) -> None:
    more = {"trainable": "train.py:Model", "space": {"x": {"choice": [1, 2]}}, "metric": "score"}
    path = write(folder, **more, algorithm={"FIFO": {"n": 1, "R": 1}})
    client = Client()

    def is_known(job: str) -> bool:
        assert client.wait(job)["state"] == "succeeded"
        (trial,) = client.trials(job)
        return "cached" in client.trial(job, trial["trial"])["reports"][0]["metrics"]

    first = client.submit(path)["id"]
    assert not is_known(first)
    assert is_known(client.submit(path)["id"])
    assert not is_known(client.rerun(first)["id"])


def test_training_gives_way_to_the_service_and_other_sessions(folder: Path) -> None:
    path = write(folder, trainable="train.py:polite", algorithm={"FIFO": {"n": 1, "R": 1}})
    client = Client()
    job = client.submit(path)["id"]
    assert client.wait(job)["state"] == "succeeded"
    (trial,) = client.trials(job)
    metrics = client.trial(job, trial["trial"])["reports"][0]["metrics"]
    assert metrics["nice"] >= NICE and metrics["nice_of_session"] == NICE


def test_all_seeds_are_waited_for_and_summed_up(folder: Path) -> None:
    said = ran("submit", write(folder), "--seeds", "3", "--wait")
    experiment = said.partition(":")[0]
    assert f"elastune experiment {experiment}" in said and "over 3 of 3 seeds" in said and " ± " in said
    job = next(line.split()[0] for line in said.splitlines() if "succeeded" in line)
    assert ran("experiment", job) == ran("experiment", experiment)


def test_the_log_of_a_trial_is_followed_to_its_end(folder: Path) -> None:
    path = write(folder, space={"x": {"uniform": [0.1, 1]}, "pause": 1.0}, algorithm={"FIFO": {"n": 1, "R": 4}})
    job = ran("submit", path).partition(":")[0]
    client = Client()
    while not (trials := client.trials(job)) or trials[0]["iteration"] < 1:
        time.sleep(0.1)
    (now,) = json.loads(ran("jobs", "--state", "running", "--json"))
    assert now["summary"]["trials"] == 1 and now["summary"]["best_value"] > 0 and now["summary"]["cost_usd"] >= 0
    followed = ran("logs", "-f", job, trials[0]["trial"])
    assert followed == "epoch 0\nepoch 1\nepoch 2\nepoch 3\n"


def test_what_went_wrong_is_said_without_places_of_the_service(folder: Path, service: Running) -> None:
    broken = write(folder, trainable="train.py:broken", algorithm={"FIFO": {"n": 4, "R": 4}})
    said = ran("submit", broken, "--wait", code=2)
    job = said.partition(":")[0]
    assert "no such data" in said and f"elastune logs {job} " in said and str(service.home) not in said
    story = ran("logs", job)
    assert "failed: RuntimeError: no such data" in story and f"see: elastune logs {job} " in story
    trial = story.split()[-1]
    assert 'raise RuntimeError("no such data")' in CliRunner().invoke(main, ["logs", job, trial]).output
    assert len(ran("jobs").splitlines()[1]) < 250


def test_the_log_of_a_build_that_failed_is_shown_once(folder: Path) -> None:
    code = folder / "with-needs"
    code.mkdir()
    (code / "train.py").write_text((folder / "train.py").read_text())
    (code / "requirements.txt").write_text("./no.whl\n")
    (code / "no.whl").write_text("no wheel")
    said = ran("submit", write(folder), "--code", str(code), "--wait", code=2)
    last = said.strip().splitlines()[-1]
    story = ran("logs", said.partition(":")[0])
    assert "failed the dependencies of the code cannot be installed" in story and story.count(last) == 1


def test_the_best_of_folds_is_told_with_what_its_value_is(folder: Path) -> None:
    path = write(folder, algorithm={"KFold": {"k": 2, "R": 2}})
    job = ran("submit", path, "--wait").partition(":")[0]
    why = "the mean of 2 folds; trained on all data"
    assert f": {why}\n" in ran("best", job) and f"({why})\n" in ran("status", job)


def test_a_configuration_is_shown_as_it_was_written(folder: Path) -> None:
    space = {**SPEC["space"], "größe": {"choice": ["groß ✓"]}}
    job = json.loads(ran("submit", write(folder, space=space), "--wait", "--json"))["id"]
    best = ran("best", job)
    assert best.startswith("loss ") and '  größe: "groß ✓"\n' in best
    assert '"größe": "groß ✓"' in ran("trials", job)


def test_a_job_that_cannot_run_says_why_while_it_is_waited_for(folder: Path) -> None:
    key = "too large"
    path = write(folder, cluster={"devices": 8})
    job = ran("submit", path, "--key", key).partition(":")[0]
    command = [sys.executable, "-m", "elastune", "submit", path, "--key", key, "--wait"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as waits:
        assert waits.stderr is not None
        assert "it needs 8 devices on one computer, and the largest has 2" in waits.stderr.readline()
        ran("cancel", job)
        out, _ = waits.communicate(timeout=60)
    assert waits.returncode == 2 and "cancelled" in out
    assert "has ended before: cancelled" in ran("cancel", job)


def test_waiting_survives_a_restart_of_the_service(folder: Path, service: Running) -> None:
    path = write(folder, space={"x": {"uniform": [0.1, 1]}, "pause": 1.5})

    def again() -> None:
        service.kill()
        service.start()

    restart = threading.Timer(3.0, again)
    restart.start()
    assert "succeeded" in ran("submit", path, "--wait")
    restart.join()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), __import__("datetime").date(2020, 1, 1)])
def test_what_json_has_no_word_for_is_refused(folder: Path, value: Any) -> None:
    assert "cannot be sent" in ran("submit", write(folder, space={"x": {"choice": [value, 1]}}), code=2)
