"""What the engine answers to requests that cannot be met, and to training code that misbehaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from click.testing import CliRunner

import elastune as et
from elastune.cli import main
from elastune.cluster.ray.session import start_ray
from elastune.errors import RunFailed, SpecError, StorageError
from elastune.results import Result


def count(config: Mapping[str, Any]) -> None:
    done = et.get_checkpoint() or 0
    while True:
        done += 1
        et.report({"loss": config["x"] / done, "done": done}, checkpoint=done)


def tuner(folder: Path, trainable: object = count, **changes: Any) -> et.Tuner:
    arguments: dict[str, Any] = {
        "space": {"x": et.uniform(0, 1)},
        "metric": "loss",
        "algorithm": et.FIFO(n=3, R=6),
        "devices": 2,
        "storage": folder / "runs",
        "name": "t",
    }
    return et.Tuner(trainable, **(arguments | changes))


# --------------------------------------------------------------------------------------- refused before anything starts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"devices_per_trial": 3, "provider": "local"},
            "devices_per_trial=3: 1 machine x 2 devices have 2: give fewer per trial, or more machines",
        ),
        (
            {"provider": "cloud"},
            "provider='cloud': must be 'here' (machines are shares of this computer) or 'local' (each is a Ray node",
        ),
        ({"provider": ["local"]}, "provider=['local']: must be 'here'"),
        (
            {"boot": "8s"},
            "boot='8s': machines that are shares of this computer do not boot; give provider='local'",
        ),
        ({"boot": "soon", "provider": "local"}, "boot='soon': must be a duration of at least 0"),
        ({"boot": -1, "provider": "local"}, "boot=-1: must be a duration of at least 0"),
        ({"workers": {"leak_limit": "1GB"}}, "workers={'leak_limit': '1GB'}: must be a Workers(fresh_process="),
    ],
)
def test_machines_that_cannot_be_had_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        tuner(tmp_path, **arguments)
    assert message in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"leak_limit": "lots"}, "leak_limit='lots': must be a size such as \"500MB\""),
        ({"leak_limit": 0}, "leak_limit=0: must be a size"),
        ({"leak_limit": None}, "leak_limit=None: must be a size"),
        ({"report_within": "soon"}, "report_within='soon': must be a positive duration"),
        ({"report_within": 0}, "report_within=0: must be a positive duration"),
        ({"fresh_process": "yes"}, "fresh_process='yes': must be true or false"),
    ],
)
def test_workers_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        et.Workers(**arguments)
    assert message in str(error.value)


def test_a_trainable_that_cannot_be_pickled_is_refused_by_name(tmp_path: Path) -> None:
    lock = threading.Lock()

    def train(config: Mapping[str, Any]) -> None:
        with lock:
            et.report({"loss": 1.0})

    with pytest.raises(SpecError) as error:
        tuner(tmp_path, train)
    assert "trainable='train' cannot be sent to a worker: cannot pickle '_thread.lock' object" in str(error.value)
    assert "inside the function, not outside of it" in str(error.value)
    assert not (tmp_path / "runs").exists()


class Forgetful(et.Trainable):
    def setup(self, config: Mapping[str, Any]) -> None: ...

    def step(self) -> None: ...


def test_a_class_that_cannot_be_saved_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="trainable=Forgetful: load, save missing; a Trainable needs setup, step, save"):
        tuner(tmp_path, Forgetful)


@pytest.mark.parametrize("place", ["a-file", "/proc/nowhere"])
def test_a_place_for_checkpoints_that_cannot_be_written_is_refused_before_anything_starts(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    asked = tuner(tmp_path, checkpoints=place)
    folder = asked.path
    with pytest.raises(StorageError, match=f"{place}.*cannot be written"):
        asked.fit(progress=False)
    assert not folder.exists()


EXPERIMENT = """
trainable: train.py:train
space: {x: {uniform: [0, 1]}}
metric: loss
algorithm: {FIFO: {n: 3, R: 6}}
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "cluster: {machines: 2, devices: 2, devices_per_trial: 8}",
            "devices_per_trial=8: 2 machines x 2 devices have 4",
        ),
        ("cluster: {provider: cloud}", "provider='cloud': must be 'here'"),
        ("cluster: {boot: 8s}", "boot='8s': machines that are shares of this computer do not boot"),
        ("cluster: {provider: local, boot: soon}", "boot='soon': must be a duration of at least 0"),
        ("workers: {leak_limit: lots}", "workers: leak_limit='lots': must be a size"),
        ("workers: {report_within: -2s}", "workers: report_within='-2s': must be a positive duration"),
        ("workers: {leak_limits: 1GB}", "workers: unknown field 'leak_limits'; did you mean 'leak_limit'?"),
        ("workers: 3", "workers: must be a mapping, is 3"),
    ],
)
def test_the_command_line_refuses_them_with_exit_code_2(
    more: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def train(config): ...\n")
    (tmp_path / "exp.yaml").write_text(EXPERIMENT + more)
    result = CliRunner().invoke(main, ["run", "exp.yaml"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"exp.yaml: {message}" in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


# ---------------------------------------------------------------------------------------------------------- on machines


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    ray.shutdown()  # that of other tests may still be there
    start_ray(4)
    yield
    ray.shutdown()


def fit(folder: Path, trainable: object = count, **changes: Any) -> Result:
    return tuner(folder, trainable, **changes).fit(progress=False)


def assert_counted_once(result: Result) -> None:
    for trial in result.view.trials.values():
        assert [report.iteration for report in trial.reports] == list(range(1, trial.iteration + 1))
        assert [report.metrics["done"] for report in trial.reports] == list(range(1, trial.iteration + 1))


class TooWide(et.Allocator):
    """The second trial shall have more devices than there are, or than are together."""

    def __init__(self, second: int) -> None:
        self.second = second

    def allocate(self, view: et.View, at_s: float) -> et.Target:
        trials = [*view.widths, *view.waiting]
        return et.Target(2, {trial: self.second if trial.endswith("1") else 1 for trial in trials})


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("width", [3, 8])
def test_a_width_that_no_machines_can_offer_ends_the_run_and_names_the_trial(width: int, tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as error:
        fit(tmp_path, allocator=TooWide(width), machines=2)
    wanted = f"trial t-00001 waits for {width} devices that no set of machines here can offer"
    assert str(error.value).startswith(f"run {tmp_path / 'runs' / 't'}: {wanted}")
    result = et.load(tmp_path / "runs" / "t")
    assert result.status == "failed"
    assert {trial.id: trial.status for trial in result.view.trials.values()}["t-00000"] == "completed"
    assert_counted_once(result)


@pytest.mark.usefixtures("ray_here")
def test_trials_that_never_report_end_the_run_soon_and_say_why(tmp_path: Path) -> None:
    def hang(config: Mapping[str, Any]) -> None:
        time.sleep(600)

    began_s = time.monotonic()
    with pytest.raises(RunFailed) as error:
        fit(tmp_path, hang, workers=et.Workers(report_within="2s"), max_retries=1)
    assert time.monotonic() - began_s < 30
    assert "killed: no report within 2 s" in str(error.value)
    assert "none has reported a finite value" in str(error.value)
    assert "t-0000" in str(error.value), "which trial?"
    result = et.load(tmp_path / "runs" / "t")
    failed = [trial for trial in result.view.trials.values() if trial.status == "failed"]
    assert failed and all(trial.attempts == 2 and "no report within 2 s" in trial.reason for trial in failed)
    assert any(f"trial {failed[0].id} failed: killed: no report within 2 s" in note.text for note in result.view.notes)


@pytest.mark.usefixtures("ray_here")
def test_one_trial_that_hangs_fails_alone(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        if et.get_context().trial_id == "t-00001":
            time.sleep(600)
        count(config)

    result = fit(tmp_path, train, workers=et.Workers(report_within="1s"), max_retries=0)
    assert [trial.status for trial in result.view.trials.values()] == ["completed", "failed", "completed"]
    assert result.view.trials["t-00001"].reason == "killed: no report within 1 s"
    assert_counted_once(result)


@pytest.mark.usefixtures("ray_here")
def test_members_of_a_gang_that_report_after_they_were_told_to_leave_change_nothing(tmp_path: Path) -> None:
    def stubborn(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while done < 30:
            done += 1
            with suppress(BaseException):
                et.report({"loss": config["x"], "done": done}, checkpoint=done)

    algorithm = et.SuccessiveHalving(n=4, r=1, R=6, eta=2)
    result = fit(tmp_path, stubborn, algorithm=algorithm, devices=4, devices_per_trial=2)
    assert result.status == "succeeded" and result.view.retrained == 0
    assert sorted(trial.iteration for trial in result.view.trials.values()) == [1, 1, 3, 6]
    assert_counted_once(result)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("every", ["0s", "60s"])
def test_a_checkpoint_function_that_raises_fails_its_trial_with_the_reason_and_the_report_counts(
    every: str, tmp_path: Path
) -> None:
    """With 0s at the third report, where it is saved; with 60s at the last, where the trial leaves."""

    def save(done: int) -> int:
        if et.get_context().trial_id == "t-00001" and done >= 3:
            raise OSError("the disk is full")
        return done

    def train(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while True:
            done += 1
            et.report({"loss": config["x"] / done, "done": done}, checkpoint=partial(save, done))

    result = fit(tmp_path, train, checkpoint_every=every, max_retries=0)
    assert [trial.status for trial in result.view.trials.values()] == ["completed", "failed", "completed"]
    failed = result.view.trials["t-00001"]
    assert failed.reason == "OSError: the disk is full"
    assert failed.iteration == (3 if every == "0s" else 6)
    assert any("trial t-00001 failed: OSError: the disk is full" in note.text for note in result.view.notes)
    assert_counted_once(result)
