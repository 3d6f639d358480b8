"""What goes by itself, and what is counted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.stores import driver_of, queued, submission, tenant

from elastune.errors import StorageError
from elastune.record.scores import Question, Scores
from elastune.service import sweep as module
from elastune.service.database import ServiceDatabase
from elastune.service.environment import environment_for, environment_hash
from elastune.service.jobs import Jobs, finish, move
from elastune.service.places import Places
from elastune.service.service import Service
from elastune.service.sweep import UNUSED_ENVIRONMENT_S, remove_copies, sweep
from elastune.service.tables import CODES, JOBS, REPLICAS


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path, str(tmp_path / "storage"), None)


def unpacked(places: Places, job: str, size: int = 1) -> None:
    places.code(job).mkdir(parents=True)
    (places.code(job) / "train.py").write_bytes(b"x" * size)


def end(database: ServiceDatabase, job: str) -> None:
    with database.write() as connection:
        assert finish(connection, job, "succeeded", "") and move(connection, job, "succeeded")


def test_unpacked_code_goes_when_its_job_has_ended(database: ServiceDatabase, places: Places) -> None:
    of = tenant(database, "a")
    waits, runs, ended = (queued(database, of).id for _ in range(3))
    new = Jobs(database).submit(of, submission())[0].id
    with database.write() as connection:
        assert move(connection, runs, "running")
    end(database, ended)
    for job in (waits, runs, ended, new):
        unpacked(places, job)
    remove_copies(database, places)
    assert {each.name for each in (places.home / "code").iterdir()} == {waits, runs, new}


def test_code_that_a_warm_driver_has_run_stays_as_long_as_the_driver(database: ServiceDatabase, places: Places) -> None:
    job = queued(database, tenant(database, "a"))
    driver_of(database, job)
    with database.write() as connection:
        connection.execute(sa.update(JOBS).values(attempt=1))
    end(database, job.id)
    unpacked(places, job.id)
    remove_copies(database, places)
    assert places.codes_here() == {job.id}
    with database.write() as connection:
        connection.execute(sa.text("DELETE FROM drivers"))
    remove_copies(database, places)
    assert places.codes_here() == set()


def test_environments_and_unpacked_code_count_as_stored(database: ServiceDatabase, places: Places) -> None:
    service, job = Service(database, places), queued(database, tenant(database, "a"))
    before = service.usage("a").stored_bytes
    unpacked(places, job.id, 3000)
    environment(places, "a", 0.0, 5000)
    with database.write() as connection:
        connection.execute(sa.insert(REPLICAS), {"id": "r", "pool": "here", "alive_until": time.time() + 60})
    for _ in range(2):  # it is counted anew, not on top
        sweep(database, places, "here")
        assert service.usage("a").stored_bytes == before + 8000
    with database.write() as connection:
        connection.execute(sa.delete(REPLICAS))
    assert service.usage("a").stored_bytes == before, "a computer that is gone keeps nothing"


def test_code_whose_archive_cannot_be_removed_is_still_known(database: ServiceDatabase, tmp_path: Path) -> None:
    class Stuck(Places):
        def remove_archive(self, tenant: str, code: str) -> None:
            raise StorageError("not now")

    of = tenant(database, "a")
    row = {"tenant": of, "hash": "c", "bytes": 1, "created_at": 0.0}
    with database.write() as connection:
        connection.execute(sa.insert(CODES), row)
    with pytest.raises(StorageError, match="not now"):
        sweep(database, Stuck(tmp_path, str(tmp_path / "storage"), None), "here")
    with database.read() as connection:
        assert connection.execute(sa.select(CODES.c.hash)).scalars().all() == ["c"]


def test_what_uploads_that_were_cut_off_have_left_goes(database: ServiceDatabase, places: Places) -> None:
    of = tenant(database, "a")
    for code in ("known", "stray", "new"):
        places.save_archive(of, code, b"x")
    folder = Path(places.storage) / "code" / of
    (folder / "cut.tar.gz.0a.part").write_bytes(b"x")
    for file in folder.iterdir():
        if file.name != "new.tar.gz":
            os.utime(file, (time.time() - 7200, time.time() - 7200))
    with database.write() as connection:
        connection.execute(sa.insert(CODES), {"tenant": of, "hash": "known", "bytes": 1, "created_at": time.time()})
    sweep(database, places, "here")
    assert {file.name for file in folder.iterdir()} == {"known.tar.gz", "new.tar.gz"}


@pytest.mark.parametrize("storage", ["", "memory://sweep"])
def test_a_known_score_goes_after_a_month(
    database: ServiceDatabase, tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path, storage or str(tmp_path / "storage"), None)
    scores, question = Scores.beside(places.checkpoints_of("job-1")), Question({"lr": 0.1}, 0, "a code")
    sweep(database, places, "here")  # there are none yet
    scores.keep(question, {"score": 1.0})
    sweep(database, places, "here")
    assert scores.find(question) == {"score": 1.0}
    monkeypatch.setattr(module, "OLD_SCORE_S", -60.0)
    sweep(database, places, "here")
    assert scores.find(question) is None


def environment(places: Places, of: str, age_s: float, size: int = 1) -> Path:
    folder = places.environments / of / f"{age_s:.0f}"
    (folder / "build-1").mkdir(parents=True)
    (folder / "build-1" / "library").write_bytes(b"x" * size)
    (folder / "lock").touch()
    os.utime(folder / "lock", (time.time() - age_s, time.time() - age_s))
    return folder


def test_an_environment_goes_when_no_open_job_can_use_it_and_nobody_has_for_days(
    database: ServiceDatabase, places: Places
) -> None:
    queued(database, tenant(database, "newer"))
    older = queued(database, tenant(database, "older"))
    with database.write() as connection:
        long_ago = time.time() - 3 * UNUSED_ENVIRONMENT_S
        connection.execute(sa.update(JOBS).where(JOBS.c.id == older.id).values(created_at=long_ago))
    unused, fresh = (environment(places, "newer", age_s) for age_s in (2 * UNUSED_ENVIRONMENT_S, 60.0))
    used = environment(places, "older", 2 * UNUSED_ENVIRONMENT_S)
    sweep(database, places, "here")
    assert [(each / "build-1").exists() for each in (unused, fresh, used)] == [False, True, True]


def test_an_environment_knows_when_it_was_last_asked_for(tmp_path: Path, places: Places) -> None:
    code = tmp_path / "mine"
    code.mkdir()
    (code / "requirements.txt").write_text("library\n")
    folder = places.environments / "a" / environment_hash(code)
    environment(places, "a", 10_000.0).rename(folder)
    (folder / "ready").write_text('{"build": ""}')
    environment_for(code, places.environments / "a")
    assert (folder / "lock").stat().st_mtime > time.time() - 5000
