"""Trials that hang, leak, crash or leave things behind: none harms another."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cluster.ray.drivers import Driver, slots

import elastune as et
from elastune import messages as m
from elastune.cluster.ray import gangs

pytestmark = pytest.mark.usefixtures("ray_here")
Drive = Callable[..., Driver]


def test_a_trial_that_is_silent_for_too_long_is_lost_and_its_slot_works_again(drive: Drive) -> None:
    def train(config: Mapping[str, Any]) -> None:
        for _ in range(3):
            time.sleep(0.3)
            et.report({"loss": 1.0})
        time.sleep(600.0 if config["hang"] else 0.0)
        et.report({"loss": 1.0})

    driver = drive(train, devices=1, silence_s=1.0)
    driver.start(slots(0), until=4, config={"hang": True})
    assert driver.until(m.TrialLost).reason == "killed: no report within 1 s"
    assert len(driver.reports()) == 3
    driver.start(slots(0), until=4, attempt=2, config={"hang": False})
    assert driver.until(m.TrialPaused).attempt == 2


def test_a_rank_that_hangs_while_the_others_wait_for_it_costs_the_trial_once(drive: Drive) -> None:
    def train(config: Mapping[str, Any]) -> None:
        et.report({"loss": 1.0})
        if config["hang"] and et.get_context().rank == 0:
            time.sleep(600)
        et.report({"loss": 1.0})

    driver = drive(train, devices=2, silence_s=1.0)
    driver.start(slots(0, 1), until=2, config={"hang": True})
    driver.until(m.TrialLost)
    driver.start(slots(0, 1), until=2, attempt=2, config={"hang": False})
    driver.until(m.TrialPaused)
    assert sum(isinstance(event, m.TrialLost) for event in driver.events) == 1


def test_a_worker_that_will_not_leave_its_trial_is_killed_before_it_keeps_another_waiting(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangs, "DEAF_S", 1.0)

    def train(config: Mapping[str, Any]) -> None:
        while True:
            try:
                et.report({"loss": 1.0})
            except BaseException:
                while config["stubborn"]:
                    time.sleep(1.0)
                raise

    driver = drive(train, devices=1)
    driver.start(slots(0), until=1, config={"stubborn": True})
    driver.until(m.TrialPaused)
    driver.start(slots(0), until=2, trial="u", config={"stubborn": False})
    assert "still busy with another trial" in driver.until(m.TrialLost).reason
    driver.start(slots(0), until=2, trial="u", attempt=2, config={"stubborn": False})
    driver.until(m.TrialPaused)
    assert [report.iteration for report in driver.reports("u")] == [1, 2]
    driver.start(slots(0), until=1, trial="v", config={"stubborn": True})
    driver.until(m.TrialPaused)
    driver.start(slots(0), until=1, trial="w", config={"stubborn": False})
    driver.until(m.TrialLost)
    (warned,) = [event for event in driver.events if isinstance(event, m.TrialWarned) and "did not leave" in event.text]
    assert warned.trial == "t" and "catch BaseException around report()" in warned.text


def test_what_kills_every_worker_that_is_told_of_it_is_the_fault_of_the_trial(drive: Drive) -> None:
    driver = drive(lambda config: et.report({"loss": 1.0}), devices=1)
    driver.start(slots(0), until=1, trial="before")
    driver.until(m.TrialPaused)
    faults = []
    for attempt in (1, 2):
        # No worker can read that.
        driver.start(slots(0), until=1, attempt=attempt, config={1: 2})  # type: ignore[dict-item]
        faults.append(driver.until(m.TrialLost).fault)
    assert faults == [False, True], "the first worker may have died of the trial before"


def process_ids(config: Mapping[str, Any]) -> None:
    kept.append(bytearray(int(config.get("leak", 0))))
    kept[-1][::4096] = b"x" * len(kept[-1][::4096])
    et.report({"loss": 1.0, "process": os.getpid()})


kept: list[bytearray] = []


def test_every_run_gets_a_process_of_its_own_where_that_is_asked_for(drive: Drive) -> None:
    driver = drive(process_ids, devices=1, fresh_process=True)
    for number in range(3):
        driver.start(slots(0), until=1, trial=f"t{number}")
        driver.until(m.TrialPaused)
    processes = {driver.reports(f"t{number}")[0].metrics["process"] for number in range(3)}
    assert len(processes) == 3
    assert not any(isinstance(event, m.TrialLost) for event in driver.events)


def test_a_process_that_has_leaked_too_much_is_replaced_between_trials(drive: Drive) -> None:
    driver = drive(process_ids, devices=1, leak_bytes=100e6)
    for number in range(6):
        driver.start(slots(0), until=1, trial=f"t{number}", config={"leak": 40e6})
        driver.until(m.TrialPaused)
    processes = [driver.reports(f"t{number}")[0].metrics["process"] for number in range(6)]
    assert len(set(processes)) == 2 and processes[0] == processes[2] and processes[4] == processes[5]
    assert not any(isinstance(event, m.TrialLost) for event in driver.events)


def test_a_trial_finds_the_process_as_the_first_one_did(drive: Drive, tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import logging

        import torch

        found = (
            os.environ.get("MESS"),
            os.getcwd() != str(tmp_path),
            signal.getsignal(signal.SIGALRM) is signal.SIG_DFL,
            torch.get_default_dtype() is torch.float32,
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            logging.root.level,
        )
        print(found)
        child = subprocess.Popen(["sleep", "600"])
        et.report({"loss": 1.0, "found": str(found), "child": child.pid, "drawn": float(torch.rand(()))})
        os.environ["MESS"] = "left behind"
        os.environ.pop("PATH")
        os.chdir(tmp_path)
        signal.signal(signal.SIGALRM, lambda *_: None)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(7)
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        logging.root.setLevel(logging.DEBUG)

    driver = drive(train, devices=1, threads=2)
    for number in range(3):
        driver.start(slots(0), until=2, trial=f"t{number}")
        driver.until(m.TrialReturned)
    reports = [driver.reports(f"t{number}")[0].metrics for number in range(3)]
    assert reports[1]["found"] == reports[2]["found"] == reports[0]["found"]
    assert "None" in str(reports[0]["found"]) and ", 2, " in str(reports[0]["found"])
    assert len({report["drawn"] for report in reports}) == 3  # each has its own seed
    assert not Path(f"/proc/{reports[0]['child']}").exists() and not Path(f"/proc/{reports[1]['child']}").exists()


def test_what_the_code_sets_when_it_is_imported_holds_for_every_trial(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "doubles.py").write_text(
        "import elastune as et\nimport torch\n\ntorch.set_default_dtype(torch.float64)\n\n"
        "def train(config):\n    et.report({'loss': 1.0, 'dtype': str(torch.get_default_dtype())})\n"
    )
    sys.path.append(str(tmp_path))
    try:
        train = importlib.import_module("doubles").train
    finally:
        sys.path.remove(str(tmp_path))
        torch.set_default_dtype(torch.float32)
    driver = drive(train, devices=1, paths=(str(tmp_path),))
    for number in (0, 1):
        driver.start(slots(0), until=1, trial=f"t{number}")
        driver.until(m.TrialPaused)
        assert driver.reports(f"t{number}")[0].metrics["dtype"] == "torch.float64"


def test_all_members_of_a_gang_that_fail_at_once_fail_the_trial_once(drive: Drive) -> None:
    def train(config: Mapping[str, Any]) -> None:
        raise ValueError("the same everywhere")

    driver = drive(train, devices=3)
    for attempt in range(1, 6):
        driver.start(slots(0, 1, 2), until=1, attempt=attempt)
        assert driver.until(m.TrialFailed).error == "ValueError: the same everywhere"
    driver.wait(0.5)
    failed = [event.attempt for event in driver.events if isinstance(event, m.TrialFailed | m.TrialLost)]
    assert failed == [1, 2, 3, 4, 5]


def test_trials_that_share_a_device_run_at_the_same_time_with_their_part_of_the_threads(
    drive: Drive, tmp_path: Path
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import torch

        (tmp_path / f"here-{config['me']}").touch()
        while not (tmp_path / f"here-{1 - config['me']}").exists():
            time.sleep(0.01)
        et.report({"loss": 1.0, "threads": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"]})

    driver = drive(train, devices=1, lanes=2, threads=4)
    for me in (0, 1):
        driver.start((m.Slot("n0", 0, me),), until=1, trial=f"t{me}", config={"me": me}, share=0.5)
    while sum(isinstance(event, m.TrialPaused) for event in driver.events) < 2:
        driver.wait(0.1)
    for me in (0, 1):
        assert driver.reports(f"t{me}")[0].metrics == {"loss": 1.0, "threads": 2, "omp": "2"}


def test_a_state_that_the_object_store_cannot_take_goes_through_the_checkpoint_store(
    drive: Drive, tmp_path: Path
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        from elastune.worker import objects

        def full(value: object) -> Any:
            raise MemoryError("no room left in the object store")

        objects.share = full
        done = et.get_checkpoint() or 0
        while True:
            done += 1
            while not (tmp_path / f"go-{done}").exists():
                time.sleep(0.001)
            et.report({"loss": 1.0, "done": done}, checkpoint=done)

    driver = drive(train, devices=2)
    driver.start(slots(0), until=3)
    driver.send(m.ResizeTrial, "t", 1, slots(0, 1))
    (tmp_path / "go-1").touch()
    resized = driver.until(m.TrialResized)
    assert resized.checkpoint is not None and resized.checkpoint.iteration == 1
    for iteration in (2, 3):
        (tmp_path / f"go-{iteration}").touch()
    driver.until(m.TrialPaused)
    assert [report.metrics["done"] for report in driver.reports()] == [1, 2, 3]
    assert "no room left" in (tmp_path / "logs" / "t.log").read_text()


def test_a_state_larger_than_the_object_store_gets_through_it(drive: Drive, tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        done, ballast = et.get_checkpoint() or (0, bytes(150_000_000))
        while True:
            done += 1
            while not (tmp_path / f"go-{done}").exists():
                time.sleep(0.001)
            et.report({"loss": 1.0, "done": done, "size": len(ballast)}, checkpoint=(done, ballast))

    driver = drive(train, devices=2)
    driver.start(slots(0), until=4)
    for iteration, there in ((1, slots(1)), (2, slots(0)), (3, slots(1))):
        driver.send(m.ResizeTrial, "t", 1, there)
        (tmp_path / f"go-{iteration}").touch()
        assert driver.until(m.TrialResized).checkpoint is None
    (tmp_path / "go-4").touch()
    driver.until(m.TrialPaused)
    assert [(r.metrics["done"], r.metrics["size"]) for r in driver.reports()] == [(i, 150_000_000) for i in range(1, 5)]


def test_processes_that_a_killed_trial_had_started_end_with_it(drive: Drive) -> None:
    def train(config: Mapping[str, Any]) -> None:
        assert subprocess.run(["sh", "-c", "exit 3"], check=False).returncode == 3
        child = subprocess.Popen(["sleep", "600"])
        et.report({"loss": 1.0, "child": child.pid})
        os.kill(os.getpid(), signal.SIGKILL)

    driver = drive(train, devices=1)
    driver.start(slots(0), until=2)
    driver.until(m.TrialLost)
    child = Path(f"/proc/{driver.reports()[0].metrics['child']}")
    limit_s = time.monotonic() + 5.0
    while child.exists() and time.monotonic() < limit_s:
        time.sleep(0.05)
    assert not child.exists()
