"""A whole run whose checkpoints are on S3."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.s3 import BUCKET, s3_server

import elastune as et
from elastune.record.checkpoints import CheckpointStore

SCRIPT = f"""
import elastune as et

def train(config):
    done = et.get_checkpoint() or 0
    while True:
        done += 1
        et.report({{"loss": config["x"] / done, "trained": done}}, checkpoint=done)

if __name__ == "__main__":
    algorithm = et.SuccessiveHalving(n=4, r=1, R=4, eta=2)
    tuner = et.Tuner(train, space={{"x": et.uniform(0, 1)}}, metric="loss", algorithm=algorithm, devices=1,
                     name="far", checkpoints="s3://{BUCKET}/tuning", checkpoint_every="0s")
    tuner.fit(progress=False)
"""


@pytest.mark.slow
def test_trials_that_pause_go_on_from_their_checkpoints_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with s3_server(monkeypatch):
        subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=250)
        saved = CheckpointStore(f"s3://{BUCKET}/tuning/far").list()
    view = et.load(tmp_path / "runs" / "far").view
    assert view.status == "succeeded" and view.retrained == 0
    for trial in view.trials.values():
        assert [report.metrics["trained"] for report in trial.reports] == [*range(1, len(trial.reports) + 1)]
    assert max(len(trial.reports) for trial in view.trials.values()) == 4
    assert saved and not (tmp_path / "runs" / "far" / "checkpoints").exists()
