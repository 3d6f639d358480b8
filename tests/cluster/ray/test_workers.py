"""Trials on Ray: reports, pauses, failures, and what the user's code meets in a worker."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray

import elastune as et
from elastune import messages as m
from elastune.cluster.ray import RayCluster
from elastune.errors import RunFailed, SpecError
from elastune.provider import Here
from elastune.record.checkpoints import CheckpointStore
from elastune.results import Result
from elastune.worker.setup import WorkerSetup

pytestmark = pytest.mark.usefixtures("ray_here")


def fit(trainable: object, tmp_path: Path, **changes: Any) -> Result:
    arguments: dict[str, Any] = {
        "space": {"x": et.uniform(0, 1)},
        "metric": "loss",
        "algorithm": et.FIFO(n=2, R=6),
        "devices": 2,
        "storage": tmp_path,
        "name": "t",
        "checkpoint_every": "0s",
    }
    return et.Tuner(trainable, **(arguments | changes)).fit(progress=False)


def counted(result: Result) -> dict[str, list[int]]:
    return {trial.id: [report.iteration for report in trial.reports] for trial in result.view.trials.values()}


def counting(before: Callable[[int], None] = lambda done: None) -> Callable[[Mapping[str, Any]], None]:
    """A trainable whose state is the number of iterations, and that does something before each report."""

    def train(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while True:
            done += 1
            before(done)
            et.report({"loss": config["x"] / done, "trained": done}, checkpoint=done)

    return train


def once(marker: Path, action: Callable[[], None]) -> None:
    """Do it the first time only, over all processes."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    action()


def test_a_trial_whose_worker_is_killed_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    def die_at_4(done: int) -> None:
        if done == 4 and et.get_context().trial_id == "t-00000":
            once(tmp_path / "killed", lambda: os.kill(os.getpid(), signal.SIGKILL))

    result = fit(counting(die_at_4), tmp_path)
    trial = result.view.trials["t-00000"]
    assert (tmp_path / "killed").exists()
    assert counted(result) == {"t-00000": [1, 2, 3, 4, 5, 6], "t-00001": [1, 2, 3, 4, 5, 6]}
    assert trial.attempts == 2 and result.view.trials["t-00001"].attempts == 1
    assert [report.metrics["trained"] for report in trial.reports] == [1, 2, 3, 4, 5, 6]
    assert result.view.retrained == 0, "the last checkpoint was of iteration 3"


def test_a_user_exception_is_retried_from_the_last_checkpoint_and_its_traceback_is_in_the_log(tmp_path: Path) -> None:
    def break_at_3(done: int) -> None:
        def fail() -> None:
            raise ValueError("a bad batch")

        if done == 3:
            once(tmp_path / f"broken-{et.get_context().trial_id}", fail)

    result = fit(counting(break_at_3), tmp_path)
    assert set(map(tuple, counted(result).values())) == {(1, 2, 3, 4, 5, 6)}
    assert "ValueError: a bad batch" in (result.path / "logs" / "t-00000.log").read_text()


def test_a_trial_that_fails_too_often_fails_and_the_run_goes_on(tmp_path: Path) -> None:
    def always_break_one(done: int) -> None:
        if done == 3 and et.get_context().trial_id == "t-00001":
            raise ValueError("for ever")

    result = fit(counting(always_break_one), tmp_path, max_retries=1)
    assert {trial.id: trial.status for trial in result.view.trials.values()} == {
        "t-00000": "completed",
        "t-00001": "failed",
    }
    assert "ValueError: for ever" in result.view.trials["t-00001"].reason


def test_output_of_a_trial_goes_to_its_own_log(tmp_path: Path) -> None:
    def speak(done: int) -> None:
        print(f"{et.get_context().trial_id} says {done}")
        os.system(f"echo and its child {done}")

    result = fit(counting(speak), tmp_path)
    for name in ("t-00000", "t-00001"):
        log = (result.path / "logs" / f"{name}.log").read_text()
        assert f"{name} says 6" in log and "and its child 6" in log
        assert log.count(" says ") == 6


def test_a_class_trainable_is_paused_and_promoted(tmp_path: Path) -> None:
    class Count(et.Trainable):
        def setup(self, config: Mapping[str, Any]) -> None:
            self.x, self.done = config["x"], 0

        def step(self) -> Mapping[str, object]:
            self.done += 1
            return {"loss": self.x, "trained": self.done}

        def save(self) -> object:
            return self.done

        def load(self, checkpoint: Any) -> None:
            self.done = checkpoint

    result = fit(Count, tmp_path, algorithm=et.SuccessiveHalving(n=4, r=1, R=6, eta=2))
    assert sorted(len(iterations) for iterations in counted(result).values()) == [1, 1, 3, 6]
    for trial in result.view.trials.values():
        assert [report.metrics["trained"] for report in trial.reports] == list(range(1, trial.iteration + 1))
    assert result.best_value == min(trial.config["x"] for trial in result.view.trials.values())
    assert result.best_checkpoint() in (1, 2, 3, 4, 5, 6)


def test_a_function_that_returns_early_is_complete_and_its_last_state_is_saved(tmp_path: Path) -> None:
    def short(config: Mapping[str, Any]) -> None:
        for done in range(1, 4):
            et.report({"loss": config["x"]}, checkpoint={"done": done})

    result = fit(short, tmp_path, checkpoint_every="1h")
    assert set(map(tuple, counted(result).values())) == {(1, 2, 3)}
    assert result.best_checkpoint() == {"done": 3}


def test_a_trainable_without_checkpoints_starts_again_and_the_user_is_told_once(tmp_path: Path) -> None:
    def forgetful(config: Mapping[str, Any]) -> None:
        for done in range(1, 100):
            et.report({"loss": config["x"] + done})

    result = fit(forgetful, tmp_path, algorithm=et.SuccessiveHalving(n=4, r=1, R=4, eta=2), devices=1)
    assert sorted(len(iterations) for iterations in counted(result).values()) == [1, 1, 3, 4]
    told = [note.text for note in result.view.notes if "no checkpoint" in note.text]
    assert len(told) == 1


def test_the_code_runs_in_the_main_thread_with_its_own_seed(tmp_path: Path) -> None:
    def look(config: Mapping[str, Any]) -> None:
        import random

        signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # raises outside of the main thread
        et.report({"loss": random.random()})

    first, second = fit(look, tmp_path), fit(look, tmp_path, name="of-another-name")
    losses = [[trial.value for trial in result.view.trials.values()] for result in (first, second)]
    assert losses[0] == losses[1] and len(set(losses[0])) == 2


def test_nan_fails_a_trial_and_not_the_run(tmp_path: Path) -> None:
    def diverge(config: Mapping[str, Any]) -> None:
        bad = et.get_context().trial_id == "t-00000"
        for _ in range(6):
            et.report({"loss": float("nan") if bad else 0.5})

    result = fit(diverge, tmp_path)
    assert result.view.trials["t-00000"].status == "failed"
    assert "loss=nan at iteration 1" in result.view.trials["t-00000"].reason
    assert result.best_value == 0.5


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"los": 1.0}, "reported no metric 'loss': did you mean 'los'"),
        ({"loss": "high"}, "reported loss='high': must be a number"),
        ({"loss": [1, 2]}, r"metric 'loss'=\[1, 2\]: must be a number"),
        ([1], "report\\(\\) got list: must be a dict"),
    ],
)
def test_a_report_that_cannot_be_used_ends_the_run_with_a_clear_message(
    metrics: Any, message: str, tmp_path: Path
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        et.report(metrics)

    with pytest.raises(RunFailed, match=message):
        fit(train, tmp_path, algorithm=et.FIFO(n=4, R=6))


def test_code_that_never_works_ends_the_run_and_names_the_log(tmp_path: Path) -> None:
    def broken(config: Mapping[str, Any]) -> None:
        raise KeyError(config["x"])

    with pytest.raises(RunFailed, match=r"the first 3 trials failed.*KeyError: .*logs.t-0000\d\.log") as error:
        fit(broken, tmp_path, algorithm=et.FIFO(n=9, R=6))
    found = re.search(r"(KeyError: \S+) \(the traceback is in (\S+)\)", str(error.value))
    assert found is not None and found[1] in Path(found[2]).read_text()


def test_the_deadline_ends_a_real_run_with_the_best_so_far(tmp_path: Path) -> None:
    def slow(done: int) -> None:
        import time

        time.sleep(0.05)

    result = fit(counting(slow), tmp_path, algorithm=et.FIFO(n=2, R=100_000), deadline="8s")
    assert result.status == "deadline" and result.best_value < 1
    assert 8.0 <= result.view.at_s < 60.0
    assert all(trial.status == "paused" and trial.last_checkpoint is not None for trial in result.view.trials.values())


def test_a_worker_that_does_not_leave_in_time_is_killed(tmp_path: Path) -> None:
    def hang(done: int) -> None:
        import time

        time.sleep(0.05 if done < 3 else 600)

    result = fit(counting(hang), tmp_path, algorithm=et.FIFO(n=1, R=100), devices=1, deadline="8s", grace="1s")
    assert result.status == "deadline" and counted(result) == {"t-00000": [1, 2]}
    assert result.view.at_s < 60


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    def spoil_and_die(done: int) -> None:
        def spoil() -> None:
            newest = max((tmp_path / "t" / "checkpoints" / et.get_context().trial_id).glob("*.ckpt"))
            newest.write_bytes(b"not what was saved")
            os.kill(os.getpid(), signal.SIGKILL)

        if done == 4:
            once(tmp_path / "spoilt", spoil)

    result = fit(counting(spoil_and_die), tmp_path, algorithm=et.FIFO(n=1, R=6), devices=1)
    assert counted(result) == {"t-00000": [1, 2, 3, 4, 5, 6]}
    assert result.view.retrained == 1, "iteration 3 was trained again from the checkpoint of iteration 2"
    assert any("the checkpoint before it is used" in note.text for note in result.view.notes)


def test_more_slots_than_the_cluster_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="machines x devices = 64: the Ray cluster you connected to has 4 CPUs"):
        fit(counting(), tmp_path, devices=64)


def test_files_in_a_temporary_folder_can_be_checkpoints(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import tempfile

        for done in range(1, 4):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "weights.txt").write_text(str(done))
                et.report({"loss": config["x"]}, checkpoint=Path(folder))

    result = fit(train, tmp_path, checkpoint_every="1h")
    assert {trial.status for trial in result.view.trials.values()} == {"completed"}
    assert (result.best_checkpoint() / "weights.txt").read_text() in ("1", "2", "3")
    assert result.best_trial.last_checkpoint is not None and result.best_trial.last_checkpoint.iteration == 3


def test_a_model_in_place_of_its_state_is_refused_with_advice(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        class Model:
            def __call__(self, x: float) -> float:
                return x

            def state_dict(self) -> dict[str, float]:
                return {}

        et.report({"loss": 1.0}, checkpoint=Model())

    with pytest.raises(RunFailed, match=r"checkpoint=Model: is a model.*give Model\.state_dict"):
        fit(train, tmp_path, algorithm=et.FIFO(n=4, R=6))


def test_code_that_swallows_the_end_of_its_trial_harms_no_other(tmp_path: Path) -> None:
    def stubborn(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while done < 50:
            done += 1
            with suppress(BaseException):
                et.report({"loss": config["x"], "trained": done}, checkpoint=done)

    result = fit(stubborn, tmp_path, algorithm=et.SuccessiveHalving(n=9, r=1, R=9, eta=3), devices=1)
    assert sorted(len(iterations) for iterations in counted(result).values()) == [1] * 6 + [4] * 2 + [9]
    for trial in result.view.trials.values():
        assert [report.metrics["trained"] for report in trial.reports] == list(range(1, trial.iteration + 1))


def test_a_report_without_the_metric_fails_that_trial_once_others_have_reported(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        for done in range(1, 7):
            forgets = et.get_context().trial_id == "t-00001" and done == 3
            et.report({"other": 1.0} if forgets else {"loss": config["x"]})

    result = fit(train, tmp_path, devices=1)
    assert [trial.status for trial in result.view.trials.values()] == ["completed", "failed"]
    assert "reported no metric 'loss'" in result.view.trials["t-00001"].reason


def test_strangers_on_the_listener_do_no_harm(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "checkpoints"))
    cluster = RayCluster(WorkerSetup(cloudpickle.dumps(counting()), (), store, tmp_path, 60.0, 0), Here(1, 0.0))
    strangers = []
    try:
        for said in (b"", b"x", struct.pack("!I", 1 << 31), b"y" * 100_000, struct.pack("!I", 3) + b"abc"):
            for stays in (True, False):
                stranger = socket.create_connection(cluster.hosts.address)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with suppress(OSError):  # it may have been cut off by now
                    stranger.sendall(said)
                if stays:
                    strangers.append(stranger)
                else:
                    stranger.close()  # by a reset
            assert cluster.poll(0.0).events == ()
        cluster.submit([m.AddNode(1, "n0")])
        heard = [*cluster.poll(None).events, *cluster.poll(None).events]
        assert [type(event) for event in heard] == [m.NodeBilled, m.NodeReady], "real workers are still heard"
    finally:
        cluster.close()


def test_checkpoints_may_be_kept_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    result = fit(counting(), tmp_path, checkpoints=f"file://{elsewhere}")
    assert not (result.path / "checkpoints").exists()
    assert list((elsewhere / "t").rglob("*.ckpt"))
    assert result.best_checkpoint() == 6


ODD = {
    "KeyboardInterrupt: stop": lambda: (_ for _ in ()).throw(KeyboardInterrupt("stop")),
    "SystemExit: 3": lambda: sys.exit(3),
    "Odd: (its text cannot be shown)": None,
    "ValueError: half a character ?": lambda: (_ for _ in ()).throw(ValueError("half a character \udcff")),
}


@pytest.mark.parametrize("shown", ODD)
def test_odd_exceptions_fail_the_trial_with_their_name_and_spare_the_worker(shown: str, tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        class Odd(BaseException):
            def __str__(self) -> str:
                raise ValueError("no text")

        if et.get_context().trial_id == "t-00001":
            if raise_it is None:
                raise Odd
            raise_it()
        sys.stdout.close()
        et.report({"loss": config["x"]})

    raise_it = ODD[shown]
    result = fit(train, tmp_path, algorithm=et.FIFO(n=3, R=1), devices=1, max_retries=0)
    assert [trial.status for trial in result.view.trials.values()] == ["completed", "failed", "completed"]
    assert result.view.trials["t-00001"].reason == shown
    assert "Traceback" in (result.path / "logs" / "t-00001.log").read_text()


@pytest.mark.parametrize(("size", "stored"), [(1, False), (1 << 20, True)])
def test_only_large_code_is_fetched_from_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, stored: bool
) -> None:
    """One of them may have just died, and Ray would wait for it."""
    puts: list[object] = []
    put = ray.put

    def watched(value: object, **options: Any) -> object:
        puts.append(value)
        return put(value, **options)

    monkeypatch.setattr(ray, "put", watched)
    weights = b"x" * size

    def train(config: Mapping[str, Any]) -> None:
        et.report({"loss": float(len(weights))})

    assert fit(train, tmp_path, algorithm=et.FIFO(n=2, R=1)).best_value == size
    assert any(isinstance(value, WorkerSetup) for value in puts) == stored
