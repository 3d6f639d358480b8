"""What a worker does to keep a trial's state safe: uploads behind training's back, notices, leaving in mid-step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import BUCKET, Environ, S3Server, s3_server
from tests.worker.alone import WorkerAlone

import elastune as et
from elastune import messages as m
from elastune.record.checkpoints import CheckpointStore
from elastune.saving import SavingRule

Work = Callable[..., WorkerAlone]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as server:
        yield server


@pytest.fixture
def far(server: S3Server) -> CheckpointStore:
    return CheckpointStore(f"s3://{BUCKET}/run")


@pytest.fixture
def near(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "saved"))


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    workers: list[WorkerAlone] = []

    def make(trainable: object, store: CheckpointStore, **setup: Any) -> WorkerAlone:
        workers.append(WorkerAlone(trainable, tmp_path, store, **setup))
        return workers[-1]

    yield make
    for worker in workers:
        worker.kill()


class Gate:
    """Lets the uploads of payloads through only while it is open."""

    def __init__(self, server: S3Server) -> None:
        self._open, self.reached = threading.Event(), threading.Event()
        server.fault = self._hold

    def _hold(self, environ: Environ) -> None:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(".ckpt"):
            self.reached.set()
            assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()


def steps(folder: Path, pause_s: float = 0.01) -> Callable[[Mapping[str, Any]], None]:
    """Counts up to six; from three on it waits for a file of the number of the step."""

    def train(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while done < 6:
            done += 1
            while done > 3 and not (folder / str(done)).exists():
                time.sleep(pause_s)
            et.report({"loss": 1 / done, "trained": done}, checkpoint=done)

    return train


def told(worker: WorkerAlone) -> list[tuple[str, int]]:
    """What was heard, each with its iteration."""
    return [
        (
            type(event).__name__,
            event.checkpoint.iteration if isinstance(event, m.TrialCheckpointed) else event.iteration,
        )
        for event in worker.events
        if isinstance(event, m.TrialReported | m.TrialCheckpointed | m.TrialPaused | m.TrialReturned)
    ]


# --------------------------------------------------------------------------------------------------- in the background


def test_training_goes_on_while_a_checkpoint_is_uploaded_and_tells_of_it_when_it_is_complete(
    tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work
) -> None:
    gate = Gate(server)
    worker = work(steps(tmp_path), far)
    worker.begin()
    for _ in range(3):
        worker.until(m.TrialReported)
    assert gate.reached.wait(60)
    assert told(worker) == [("TrialReported", 1), ("TrialReported", 2), ("TrialReported", 3)]
    assert far.list() == []
    gate.open()
    saved = worker.until(m.TrialCheckpointed).checkpoint
    assert saved.iteration == 1, "what became due meanwhile was left out"
    assert far.list() == [saved] and far.load(saved) == 1
    (tmp_path / "4").touch()
    worker.until(m.TrialReported)
    assert worker.until(m.TrialCheckpointed).checkpoint.iteration == 4


def test_pause_is_told_only_when_the_newest_state_is_safe(
    tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work
) -> None:
    gate = Gate(server)
    worker = work(steps(tmp_path), far)
    worker.begin(until=3)
    worker.until(m.TrialReported)
    worker.until(m.TrialReported)
    assert gate.reached.wait(60)
    gate.open()
    paused = worker.until(m.TrialPaused)
    assert told(worker) == [
        ("TrialReported", 1),
        ("TrialReported", 2),
        ("TrialCheckpointed", 1),
        ("TrialReported", 3),
        ("TrialPaused", 3),
    ]
    assert paused.checkpoint is not None and far.load(paused.checkpoint) == 3


def test_return_waits_for_the_last_state(tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work) -> None:
    for done in range(7):
        (tmp_path / str(done)).touch()
    worker = work(steps(tmp_path), far, checkpoint_every_s=3600.0)
    worker.begin()
    returned = worker.until(m.TrialReturned)
    assert returned.checkpoint is not None and far.load(returned.checkpoint) == 6


def test_upload_that_fails_is_told_at_a_later_report_and_that_report_counts(
    tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work
) -> None:
    server.fault = lambda environ: "403 Forbidden" if environ["REQUEST_METHOD"] == "PUT" else None
    worker = work(steps(tmp_path), far)
    worker.begin()
    for done in range(4, 7):
        (tmp_path / str(done)).touch()
    failed = worker.until(m.TrialFailed)
    assert failed.store and "the checkpoint store s3://bucket/run cannot be written" in failed.error
    assert [at for name, at in told(worker)] == list(range(1, len(told(worker)) + 1)), "every report was heard"
    worker.begin(attempt=1, trial="other", until=1)
    server.fault = lambda environ: None
    assert worker.until(m.TrialPaused).trial == "other", "the next trial has nothing to do with it"


def test_process_killed_in_an_upload_leaves_nothing_that_counts(
    tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work
) -> None:
    gate = Gate(server)
    first = work(steps(tmp_path), far)
    first.begin()
    assert gate.reached.wait(60)
    first.kill()
    gate.open()
    assert far.list() == []
    second = work(steps(tmp_path), far)
    second.begin(attempt=2)
    assert second.until(m.TrialCheckpointed).checkpoint.path == "t/0-00000001-2.ckpt"


def test_folder_given_as_checkpoint_is_copied_before_report_returns(
    tmp_path: Path, server: S3Server, far: CheckpointStore, work: Work
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        for done in range(1, 4):
            (tmp_path / "model").write_text(str(done))
            et.report({"loss": 0.0}, checkpoint=tmp_path / "model")
            (tmp_path / "model").unlink()

    worker = work(train, far)
    worker.begin()
    worker.until(m.TrialReturned)
    saved = [event.checkpoint for event in worker.events if isinstance(event, m.TrialCheckpointed)]
    assert [far.load(each).read_text() for each in saved] == ["1", "2", "3"]


# -------------------------------------------------------------------------------------------------- notice and mid-step


def long_step(folder: Path) -> Callable[[Mapping[str, Any]], None]:
    """Iterations of ten batches, the state knows the batch; before the fifth of the second it waits for a file."""

    def train(config: Mapping[str, Any]) -> None:
        done, batch = et.get_checkpoint() or (0, 0)
        begun = (done, batch)
        while done < 3:
            while batch < 10:
                if (done, batch) == (1, 5):
                    (folder / "there").touch()
                    while not (folder / "go on").exists():
                        time.sleep(0.01)
                    while et.get_preemption_info() is None and not (folder / "no notice").exists():
                        time.sleep(0.01)
                et.leave_if_preempted(lambda at=(done, batch): at)
                batch += 1
            done, batch = done + 1, 0
            et.report({"loss": 0.0, "begun": str(begun)}, checkpoint=(done, batch))

    return train


def wait_for(path: Path) -> None:
    limit_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit_s
        time.sleep(0.01)


@pytest.mark.parametrize("place", ["near", "far"])
def test_trial_with_a_notice_leaves_in_mid_step_and_goes_on_from_exactly_there(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, work: Work
) -> None:
    store: CheckpointStore = request.getfixturevalue(place)
    worker = work(long_step(tmp_path), store)
    worker.begin()
    wait_for(tmp_path / "there")
    worker.notice(in_s=120.0)
    (tmp_path / "go on").touch()
    paused = worker.until(m.TrialPaused)
    assert paused.iteration == 1 and paused.checkpoint is not None
    before = next(event.checkpoint for event in worker.events if isinstance(event, m.TrialCheckpointed))
    assert (before.iteration, paused.checkpoint.iteration) == (1, 1)
    assert (store.load(before), store.load(paused.checkpoint)) == ((1, 0), (1, 5))
    (tmp_path / "no notice").touch()
    elsewhere = work(long_step(tmp_path), store)
    elsewhere.begin(until=3, saved=paused.checkpoint, attempt=2)
    reported = elsewhere.until(m.TrialReported)
    assert reported.iteration == 2 and reported.metrics["begun"] == "(1, 5)"
    worker.begin(trial="other", until=1)
    assert worker.until(m.TrialPaused).trial == "other", "the notice was not for this one"


def test_without_a_notice_nothing_happens(tmp_path: Path, near: CheckpointStore, work: Work) -> None:
    for name in ("go on", "no notice"):
        (tmp_path / name).touch()
    worker = work(long_step(tmp_path), near, checkpoint_every_s=3600.0)
    worker.begin()
    assert worker.until(m.TrialReturned).iteration == 3
    assert len(near.list()) == 1


def test_notice_tells_the_time_that_is_left_however_late_it_is_read(
    tmp_path: Path, near: CheckpointStore, work: Work
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        assert et.get_preemption_info() is None
        et.report({"loss": 0.0})
        (tmp_path / "there").touch()
        while not (tmp_path / "go on").exists():
            time.sleep(0.01)
        while (info := et.get_preemption_info()) is None:
            time.sleep(0.01)
        et.report({"loss": info.gone_in_s})

    worker = work(train, near)
    worker.begin()
    wait_for(tmp_path / "there")
    told_s = time.time()
    worker.notice(in_s=120.0)
    time.sleep(0.2)
    (tmp_path / "go on").touch()
    worker.until(m.TrialReported)
    left_s = worker.until(m.TrialReported).metrics["loss"]
    assert isinstance(left_s, float)
    assert 120.0 - (time.time() - told_s) <= left_s <= 119.8
    assert worker.until(m.TrialPaused).iteration == 2, "the command itself was kept for the report"


class Counter(et.Trainable):
    """A step of five parts; before the fourth of the first it waits for a notice."""

    def setup(self, config: Mapping[str, Any]) -> None:
        self.done = self.part = 0

    def step(self) -> Mapping[str, object] | None:
        while self.part < 5:
            if (self.done, self.part) == (0, 3):
                while et.get_preemption_info() is None:
                    time.sleep(0.01)
                et.leave_if_preempted(self.save)
            self.part += 1
        self.done, self.part = self.done + 1, 0
        return {"loss": 0.0}

    def save(self) -> object:
        return self.done, self.part

    def load(self, checkpoint: Any) -> None:
        self.done, self.part = checkpoint


def test_trainable_may_leave_in_its_very_first_step(near: CheckpointStore, work: Work) -> None:
    worker = work(Counter, near)
    worker.begin()
    worker.notice(in_s=120.0)
    paused = worker.until(m.TrialPaused)
    assert paused.iteration == 0 and paused.checkpoint is not None
    assert near.load(paused.checkpoint) == (0, 3)


def test_outside_of_a_trial_there_is_no_notice() -> None:
    assert et.get_preemption_info() is None
    et.leave_if_preempted({"state": 1})


# -------------------------------------------------------------------------------------------------------- how often


def test_period_is_chosen_by_what_a_checkpoint_costs(tmp_path: Path, near: CheckpointStore, work: Work) -> None:
    class Slow:
        def __reduce__(self) -> tuple[Any, ...]:
            time.sleep(0.05)
            return (int, ())

    def train(config: Mapping[str, Any]) -> None:
        for _ in range(10):
            et.report({"loss": 0.0}, checkpoint=Slow())

    worker = work(train, near, checkpoint_every_s=SavingRule(failure_mean_s=24 * 3600.0))
    worker.begin()
    worker.until(m.TrialReturned)
    saved = [event.checkpoint.iteration for event in worker.events if isinstance(event, m.TrialCheckpointed)]
    assert saved == [1], "the first tells the cost, and the next is due after more than a minute"


def test_trial_that_cannot_be_saved_within_the_notice_warns_once(
    tmp_path: Path, near: CheckpointStore, work: Work
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        for _ in range(5):
            et.report({"loss": 0.0}, checkpoint=b"x" * 2_000_000)

    worker = work(train, near, checkpoint_every_s=SavingRule(0.0, notice_s=1e-6, noticed_mean_s=3600.0))
    worker.begin()
    worker.until(m.TrialReturned)
    (warned,) = (event.text for event in worker.events if isinstance(event, m.TrialWarned) and "save" in event.text)
    assert "(2 MB)" in warned and "after their notice" in warned and "Give report() less to save" in warned
