"""How a job ends: with the checkpoint of its best trial in the store, or not as a success."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.made_jobs import Made

from elastune.service.completion import TRIES, complete
from elastune.service.drivers import STUCK
from elastune.service.jobs import Job, finish
from elastune.service.places import Places
from elastune.service.tables import JOBS

PATH = "digits-00000/0-00000027-1.ckpt"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made.in_folder(tmp_path)
    made.token("a")
    return made


def finishing(made: Made) -> Job:
    job = made.job("a")
    with made.service.database.write() as connection:
        finish(connection, job.id, "succeeded", "every trial is done", summary={"checkpoint": PATH})
    return made.service.jobs.get(job.id)


def completions(made: Made, job: Job, places: Places) -> int:
    """After how many tries it has ended, however long each has to wait."""
    for number in range(1, 1000):
        if complete(made.service.database, places, made.service.jobs.get(job.id)):
            return number
        with made.service.database.write() as connection:
            connection.execute(sa.update(JOBS).values(not_before=0.0))
    raise AssertionError("it has not ended")


def test_a_job_has_succeeded_when_the_checkpoint_of_its_best_trial_is_in_the_store(made: Made) -> None:
    job, places = finishing(made), made.service.places
    assert not complete(made.service.database, places, job)
    assert made.service.jobs.get(job.id).state == "finishing"
    file = Path(places.checkpoints_of(job.id)) / PATH
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    assert complete(made.service.database, places, made.service.jobs.get(job.id))
    assert made.service.jobs.get(job.id).state == "succeeded"


def test_a_checkpoint_that_does_not_come_is_no_success(made: Made) -> None:
    job = finishing(made)
    assert completions(made, job, made.service.places) == TRIES + 1
    found = made.service.jobs.get(job.id)
    assert (found.state, found.reason) == ("failed", f"the checkpoint of the best trial is not in the store: {PATH}")


def test_a_store_that_is_away_is_waited_for_for_hours_and_is_named_to_nobody(made: Made, tmp_path: Path) -> None:
    job, away = finishing(made), Places(tmp_path, "nowhere://secret-bucket/elastune", None)
    assert completions(made, job, away) == STUCK + 1
    found = made.service.jobs.get(job.id)
    assert found.state == "failed" and "the store ... cannot be read" in found.reason
    assert "secret-bucket" not in found.reason
