"""A training file that imports the files beside it, started from another folder, and resumed from a third."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.experiments import EXPERIMENT, elastune, records_in, wait_for, write_experiment

import elastune as et


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_code_finds_its_neighbours_wherever_it_is_started_and_resumed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "code", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    write_experiment(
        folder, 0.05, EXPERIMENT.replace("SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}", "FIFO: {n: 2, R: 60}")
    )
    train = folder / "train.py"
    train.write_text(
        "from helper_beside_it import check\n" + train.read_text().replace("while True:", "while check():")
    )
    (folder / "helper_beside_it.py").write_text("def check():\n    return True\n")
    run = tmp_path / "runs" / "exp"
    process = elastune("run", "code/exp.yaml", "--storage", run.parent, cwd=tmp_path, start_new_session=True)
    assert wait_for(lambda: records_in(run) >= 5, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    process = elastune("resume", run, "--quiet", cwd=elsewhere)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert all(trial.iteration == 60 for trial in et.load(run).view.trials.values())
