"""A driver that runs one job after another: what it prints is in the log of the job that it was about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa
from tests.service.made_jobs import Made
from tests.service.stores import driver_of

from elastune.errors import ElastuneError
from elastune.service.archive import pack
from elastune.service.drive import SPEC, JobDriver
from elastune.service.drivers import Drivers
from elastune.service.jobs import Job
from elastune.service.tables import JOBS
from elastune.worker.log import older

DRIVER = """
import os, subprocess, sys
from pathlib import Path
from elastune.errors import StorageError
from elastune.service.database import ServiceDatabase
from elastune.service.drive import JobDriver
from elastune.service.places import Places
home = Path(sys.argv[1])
class Printing(JobDriver):
    def _run(self, job):
        print("python of", job.name, flush=True)
        os.write(2, f"C of {job.name}\\n".encode())
        subprocess.run(["echo", "a child of", job.name])
        if job.name == "third":
            raise StorageError(f"the disk of {home} is full; when it can, go on with: elastune resume {home}/runs/x")
        if job.name == "second":
            raise ValueError("no such layer")
        return "succeeded", "done", {}
    def _drive(self, job):
        super()._drive(job)
        self._drivers.staff("pool", "here", 1)  # the next one, as the supervisor would
database = ServiceDatabase(str(home / "service.db"))
Printing(database, Places(home, str(home / "storage"), None), sys.argv[2]).work()
"""


def test_every_job_of_a_warm_driver_has_its_own_log(tmp_path: Path) -> None:
    made = Made.in_folder(tmp_path)
    made.token("a")
    jobs = [made.job("a", name) for name in ("first", "second", "third")]
    with made.service.database.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET pool = 'pool'")
    driver = Drivers(made.service.database).staff("pool", "here", 1)[0]
    command = [sys.executable, "-c", DRIVER, str(tmp_path), driver.id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    places = made.service.places
    texts = {job.name: places.driver_log(job.id).read_text() for job in jobs}
    for name, text in texts.items():
        assert f"driver 1 of this job begins\npython of {name}\nC of {name}\na child of {name}\n" in text
        assert not any(other in text for other in texts if other != name)
    assert "no such layer" in texts["second"] and "is full" in texts["third"]
    assert made.service.jobs.get(jobs[2].id).reason == "the disk of ... is full"
    assert "python of" not in done.stdout and made.service.jobs.get(jobs[1].id).outcome == "failed"
    made.service.database.close()


class Stopped(JobDriver):
    """Goes no further than to Ray."""

    def _connect(self, job: Job) -> None:
        raise ElastuneError("there is none here")


def test_a_warm_driver_unpacks_code_that_was_built_on_another_computer(tmp_path: Path) -> None:
    made = Made.in_folder(tmp_path / "here")
    made.token("a")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("def train(config): ...")
    code = made.service.upload("a", pack(tmp_path / "code"))
    job = made.job("a")
    with made.service.database.write() as connection:
        connection.execute(sa.update(JOBS).values(code=code))
    service, job = made.service, made.service.jobs.get(job.id)
    Stopped(service.database, service.places, driver_of(service.database, job))._drive(job)
    assert {path.name for path in service.places.code(job.id).iterdir()} == {"train.py", SPEC}
    assert service.jobs.get(job.id).reason == "there is none here"
    service.database.close()


def test_deleting_a_job_removes_also_the_older_part_of_its_log(tmp_path: Path) -> None:
    made = Made.in_folder(tmp_path)
    made.token("a")
    job = made.job("a", state="succeeded")
    log = made.service.places.driver_log(job.id)
    log.parent.mkdir(parents=True)
    for path in (log, older(log)):
        path.write_text("x")
    made.service.delete(job.id, "a")
    assert not list(log.parent.iterdir())
    made.service.database.close()
