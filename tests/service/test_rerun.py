"""A job once more: what a driver makes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.service.made_jobs import Made

from elastune.service.archive import pack
from elastune.service.build import lay_out
from elastune.service.drive import JobDriver
from elastune.service.jobs import Conflict, Job
from elastune.worker.code_name import CODE

MODEL = """
class Model:
    def score(self, hyperparameters, checkpoint_path, resume):
        return hyperparameters["x"]
"""
SPEC: dict[str, Any] = {
    "trainable": "model_to_rerun.py:Model",
    "space": {"x": {"choice": [1, 2]}},
    "metric": "score",
    "algorithm": {"FIFO": {"n": 2, "R": 1}},
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.chdir(tmp_path)  # a driver is a process of its own, and does as it likes with all of these
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(CODE, "")
    return Made.in_folder(tmp_path)


def test_a_rerun_computes_scores_that_are_known(made: Made, tmp_path: Path) -> None:
    made.token("a")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model_to_rerun.py").write_text(MODEL)
    service = made.service
    code = service.upload("a", pack(tmp_path / "mine"))

    def known_scores(job: Job) -> bool:
        lay_out(job, service.places)
        return JobDriver(service.database, service.places, "driver")._tuner(job).known_scores

    job, _ = service.submit("a", SPEC, code)
    again, _ = service.rerun(job.id, "a", key=None)
    once_more, _ = service.rerun(again.id, "a", key=None)
    assert [known_scores(each) for each in (job, again, once_more)] == [True, False, False]
    assert again.spec == job.spec
    service.database.close()


def test_a_rerun_with_the_key_of_the_submission_is_refused(made: Made) -> None:
    made.token("a")
    spec = {**SPEC, "trainable": "model:Model", "cluster": {"devices": 1}}
    job, _ = made.service.submit("a", spec, None, key="mine")
    assert job.spec == spec and made.service.submit("a", spec, None, key="mine") == (job, False)
    with pytest.raises(Conflict, match="'mine'"):
        made.service.rerun(job.id, "a", key="mine")
    again, new = made.service.rerun(job.id, "a", key="another")
    assert new and made.service.rerun(job.id, "a", key="another") == (again, False)
    made.service.database.close()
