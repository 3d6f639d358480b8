"""Small experiments as a user would have them: a folder with a training file and a YAML file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

TRAIN = '''
import time
import elastune as et

def train(config):
    """Deterministic, and every loss depends on all the steps before it: a wrong restore shows."""
    state = et.get_checkpoint() or {"done": 0, "loss": 1.0}
    while True:
        time.sleep(STEP_S)
        state["done"] += 1
        state["loss"] = 0.9 * state["loss"] + 0.1 * (config["x"] - 0.5) ** 2
        et.report({"loss": state["loss"], "done": state["done"]}, checkpoint=lambda: dict(state))
'''

EXPERIMENT = """
name: exp
trainable: train.py:train
space:
  x: {uniform: [0, 1]}
metric: loss
mode: min
algorithm: {SuccessiveHalving: {n: 27, r: 1, R: 27, eta: 3}}
checkpoint_every: 100ms
seed: 7
cluster: {devices: 2}
"""


def write_experiment(folder: Path, step_s: float, experiment: str = EXPERIMENT) -> Path:
    (folder / "train.py").write_text(TRAIN.replace("STEP_S", str(step_s)))
    path = folder / "exp.yaml"
    path.write_text(experiment)
    return path


def elastune(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "elastune", *map(str, arguments)],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], limit_s: float = 120.0) -> bool:
    """Wait until something is so, or the process is over. Returns whether it is so."""
    end = time.monotonic() + limit_s
    while not condition():
        if process.poll() is not None:
            return condition()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)
    return True


def records_in(run: Path) -> int:
    """How many turns the journal of a run has by now."""
    return _count(run, "records")


def has_begun(run: Path) -> bool:
    """Whether the journal holds the experiment: from then on the run can be resumed."""
    return _count(run, "blobs") > 0


def _count(run: Path, table: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{run / 'journal.db'}?mode=ro", uri=True, timeout=10)) as database:
            return int(database.execute(f"select count(*) from {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
