"""Machines of a driver that was killed: the next one takes them over, or `elastune gc` gives them back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.chaos import left_behind
from tests.experiments import EXPERIMENT, elastune, records_in, wait_for, write_experiment
from tests.test_crashes import outcome, run_to_the_end

import elastune as et
from elastune import messages as m
from elastune.provider.local import release_all
from elastune.record.journal import SqlJournal

C = TypeVar("C", bound=m.Command)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TWO_MACHINES = EXPERIMENT.replace("devices: 2", "provider: local, machines: 2, devices: 1, boot: 1s")
LONG = TWO_MACHINES.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 4, R: 150}")
KEEPER_S = 5.0
"""By then a keeper has noticed that its machine was released."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    release_all(tmp_path / "runs" / "exp" / "machines")


def start(folder: Path, step_s: float, experiment: str) -> tuple[subprocess.Popen[str], Path]:
    path = write_experiment(folder, step_s, experiment)
    return elastune("run", path, "--storage", folder / "runs", "--quiet"), folder / "runs" / "exp"


def start_and_wait(folder: Path, step_s: float, experiment: str) -> tuple[subprocess.Popen[str], Path]:
    """A driver whose trials have run for a while."""
    driver, run = start(folder, step_s, experiment)
    assert wait_for(lambda: records_in(run) >= 40, driver) and driver.poll() is None
    return driver, run


def kill(driver: subprocess.Popen[str]) -> None:
    driver.kill()
    driver.communicate()


def say(*arguments: object) -> tuple[int, str]:
    process = elastune(*arguments)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def journal(run: Path) -> list[m.Record]:
    opened = SqlJournal(run / "journal.db", run.name, must_exist=True)
    try:
        return [m.decode_record(body) for body in opened.read()]
    finally:
        opened.close()


def commands(run: Path, kind: type[C]) -> list[C]:
    return [command for record in journal(run) for command in record.commands if isinstance(command, kind)]


def keepers(run: Path) -> set[int]:
    return {json.loads(path.read_text())["pid"] for path in (run / "machines").glob("*/keeper.json")}


def nothing_is_left(run: Path) -> bool:
    limit_s = time.monotonic() + KEEPER_S
    while (left := left_behind(run / "machines")) and time.monotonic() < limit_s:
        time.sleep(0.05)
    return not left


def test_a_resume_adopts_the_machines_of_a_killed_driver_and_ends_as_an_undisturbed_run(folder: Path) -> None:
    (folder / "undisturbed").mkdir()
    write_experiment(folder / "undisturbed", 0.01)
    undisturbed = outcome(run_to_the_end(folder / "undisturbed"))

    boot_s = 20.0  # much longer than it takes to join a new Ray, also on a busy computer
    driver, run = start_and_wait(folder, 0.05, TWO_MACHINES.replace("boot: 1s", f"boot: {boot_s:g}s"))
    before = keepers(run)
    kill(driver)
    code, said = say("resume", run, "--quiet")
    assert code == 0, said
    assert keepers(run) == before and len(before) == 2, "the same machines, not new ones of the same name"
    result = et.load(run)
    assert outcome(result) == undisturbed
    assert nothing_is_left(run)

    assert [command.node for command in commands(run, m.AddNode)] == ["n0", "n1"]
    records = journal(run)
    assert not any(isinstance(event, m.NodeLost) for record in records for event in record.events)
    resumed = next(n for n, record in enumerate(records) if m.RunResumed() in record.events)
    first_s = next(
        record.at_s for record in records[resumed:] if any(isinstance(e, m.TrialReported) for e in record.events)
    )
    assert first_s - records[resumed].at_s < boot_s, "they booted again"


def test_gc_gives_back_the_machines_of_a_killed_driver_only(folder: Path) -> None:
    driver, run = start_and_wait(folder, 0.05, LONG)
    code, said = say("gc", run)
    assert code == 0
    assert said.split() == f"{run}: in use by a driver that is running: n0, n1".split()
    records = records_in(run)
    assert wait_for(lambda: records_in(run) > records + 5, driver), "its machines were taken away"
    kill(driver)

    code, said = say("gc", run)
    assert code == 0
    assert said.split() == f"{run}: released n0, n1".split()
    assert nothing_is_left(run)
    code, said = say("gc", run)
    assert code == 0
    assert said == "nothing was left behind\n"


def test_a_run_goes_on_without_the_machines_that_gc_gave_back(folder: Path) -> None:
    driver, run = start_and_wait(folder, 0.02, LONG.replace("R: 150", "R: 100"))
    kill(driver)
    assert say("gc", run)[0] == 0
    code, said = say("resume", run, "--quiet")
    assert code == 0, said
    result = et.load(run)
    assert result.status == "succeeded"
    for trial in result.view.trials.values():
        assert [report.metrics["done"] for report in trial.reports] == list(range(1, 101))
    assert nothing_is_left(run)


def test_a_resume_of_a_finished_run_leaves_nothing_behind(folder: Path) -> None:
    """Its driver may have been killed after the last record, before the machines were given back."""
    short = TWO_MACHINES.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 2, R: 5}")
    driver, run = start(folder, 0.01, short)
    assert wait_for(lambda: records_in(run) > 0 and any(commands(run, m.ReleaseNode)), driver)
    kill(driver)
    code, said = say("resume", run, "--quiet")
    assert code == 0, said
    assert "succeeded" in said
    assert nothing_is_left(run)
    records = records_in(run)
    assert say("resume", run, "--quiet")[0] == 0
    assert records_in(run) == records and nothing_is_left(run)
