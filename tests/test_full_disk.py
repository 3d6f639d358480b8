"""Real runs on a disk that is full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.experiments import EXPERIMENT, elastune, records_in, wait_for, write_experiment

import elastune as et
from elastune.results import Result

pytestmark = pytest.mark.slow
STEP_S = 0.05
IMPATIENT = """
from elastune.control import course
course.STORE_AGAIN_S, course.STORE_GONE_S = 0.5, 2.0
from elastune.cli import main
main()
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"only root may mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    return filler


def undisturbed(folder: Path) -> Result:
    folder.mkdir()
    process = elastune("run", write_experiment(folder, STEP_S), "--storage", folder / "runs", "--quiet")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return et.load(folder / "runs" / "exp")


def test_while_checkpoints_find_no_room_nothing_is_lost_and_then_it_goes_on(tmp_path: Path, disk: Path) -> None:
    experiment = write_experiment(tmp_path, STEP_S, f"{EXPERIMENT}checkpoints: {disk}\n")
    run = tmp_path / "runs" / "exp"
    process = elastune("run", experiment, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: records_in(run) > 20, process)
    filler = fill(disk)

    def told() -> bool:
        return any("Nothing begins until it can" in note.text for note in et.load(run).view.notes)

    assert wait_for(told, process) and process.poll() is None, "the disk was full too late"
    filler.unlink()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    result, peer = et.load(run), undisturbed(tmp_path / "undisturbed")
    assert not result.view.counts().get("failed")
    assert (result.best_trial.id, result.best_value) == (peer.best_trial.id, peer.best_value)


def impatient(*arguments: object) -> subprocess.Popen[str]:
    """The command line, but for how long it waits for a store."""
    command = [sys.executable, "-c", IMPATIENT, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_store_that_stays_full_stops_the_run_with_an_error_and_it_can_be_gone_on_with(
    tmp_path: Path, disk: Path
) -> None:
    experiment = write_experiment(tmp_path, STEP_S, f"{EXPERIMENT}checkpoints: {disk}\n")
    run = tmp_path / "runs" / "exp"
    process = impatient("run", experiment, "--storage", tmp_path / "runs", "--quiet")
    assert wait_for(lambda: records_in(run) > 20, process)
    filler = fill(disk)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2 and "Traceback" not in errors
    assert "No space left on device; when it can, go on with: elastune resume" in errors
    assert et.load(run).status == "interrupted"
    filler.unlink()
    process = impatient("resume", run, "--quiet")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    result, peer = et.load(run), undisturbed(tmp_path / "undisturbed")
    assert not result.view.counts().get("failed")
    assert (result.best_trial.id, result.best_value) == (peer.best_trial.id, peer.best_value)


def test_a_journal_that_finds_no_room_ends_the_run_which_can_be_gone_on_with(tmp_path: Path, disk: Path) -> None:
    run = disk / "runs" / "exp"
    process = elastune("run", write_experiment(tmp_path, STEP_S), "--storage", disk / "runs", "--quiet")
    assert wait_for(lambda: records_in(run) > 20, process)
    filler = fill(disk)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2 and "Traceback" not in errors
    assert "disk is full" in errors
    filler.unlink()
    process = elastune("resume", run, "--quiet")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    result, peer = et.load(run), undisturbed(tmp_path / "undisturbed")
    assert (result.best_trial.id, result.best_value) == (peer.best_trial.id, peer.best_value)
