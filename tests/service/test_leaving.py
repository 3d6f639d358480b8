"""A driver that is told to leave, and whose code does not let it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.service.made_jobs import Made

from elastune.service import drive
from elastune.service.supervisor import Pool, Supervisor

DRIVER = """
import sys
from pathlib import Path
from elastune.service import drive
from elastune.service.database import ServiceDatabase
from elastune.service.places import Places
drive.BEAT_S, drive.LEAVE_S = 0.1, 0.5
class WithoutRay(drive.JobDriver):
    def _connect(self, job):
        drive._ignore_sigterm()
home = Path(sys.argv[1])
database = ServiceDatabase(str(home / "service.db"))
WithoutRay(database, Places(home, str(home / "storage"), None), sys.argv[2]).work()
"""
TRAIN = """
import time
from pathlib import Path
Path("imported").touch()
while True:
    time.sleep(0.01)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_driver_whose_code_trains_while_it_is_imported_is_ended(tmp_path: Path, cancelled: bool) -> None:
    made = Made.in_folder(tmp_path)
    made.token("a")
    job, service = made.job("a"), made.service
    supervisor = Supervisor(service.database, service.places, Pool("pool", 1))
    with service.database.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET pool = 'pool'")
    (driver,) = supervisor.drivers.staff("pool", supervisor.host, 1)
    code = service.places.code(job.id)
    code.mkdir(parents=True)
    (code / "train.py").write_text(TRAIN)
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), driver.id])
    try:
        while not (code / "imported").exists():
            assert process.poll() is None
            time.sleep(0.01)
        if cancelled:
            service.jobs.cancel(job.id, "a")
        else:
            supervisor.drivers.dismiss("pool", supervisor.host)
        assert process.wait(30.0) == drive.OVERSTAYED
    finally:
        process.kill()
        process.wait()
    assert "told to leave" in service.places.driver_log(job.id).read_text()
    supervisor._bury_the_dead()
    assert supervisor.drivers.all() == []
    found = service.jobs.get(job.id)
    assert (found.state, found.outcome) == (("finishing", "cancelled") if cancelled else ("running", None))
    service.database.close()
