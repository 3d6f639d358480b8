"""What the service does by itself, where something goes wrong in between."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.provider.world import wait_until
from tests.service.stores import driver_of, queued, submission, tenant

from elastune.errors import SpecError, StorageError
from elastune.service import supervisor as module
from elastune.service.database import ServiceDatabase
from elastune.service.drive import SPEC
from elastune.service.drivers import DEATHS, STUCK, Drivers
from elastune.service.jobs import Jobs, move
from elastune.service.limiter import Limiter
from elastune.service.places import Places
from elastune.service.supervisor import Pool, Supervisor
from elastune.service.sweep import sweep
from elastune.service.tables import CODES, DRIVERS, GRANTS, JOBS


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path, str(tmp_path / "storage"), None)


@pytest.fixture
def supervisor(database: ServiceDatabase, places: Places) -> Supervisor:
    return Supervisor(database, places, Pool("here", 2))


def running(database: ServiceDatabase, of: str = "a") -> Any:
    limiter, job = Limiter(database), queued(database, tenant(database, of))
    limiter.offer("here", {"": 2}, 0.0)
    assert limiter.schedule("here") == [job.id]
    return Jobs(database).get(job.id)


def open_grants(database: ServiceDatabase) -> int:
    with database.read() as connection:
        query = sa.select(sa.func.count()).select_from(GRANTS).where(GRANTS.c.released_at.is_(None))
        return int(connection.execute(query).scalar() or 0)


@pytest.mark.parametrize("fails", [False, True])
def test_a_builder_that_has_lost_its_claim_has_no_say(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    job, _ = Jobs(database).submit(tenant(database, "a"), submission())
    (stale,) = supervisor._claim("accepted", "build")

    def meanwhile(*_: object) -> None:  # another has built it, and it runs
        with database.write() as connection:
            assert move(connection, job.id, "queued") and move(connection, job.id, "running")
        if fails:
            raise SpecError("it cannot be built")

    monkeypatch.setattr(module, "prepare", meanwhile)
    supervisor._build(stale)
    assert Jobs(database).get(job.id).state == "running"


@pytest.mark.parametrize("kind", [StorageError, RuntimeError])
def test_what_cannot_be_built_is_tried_again_ever_later_and_not_for_ever(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise kind("the archive is gone")

    monkeypatch.setattr(module, "prepare", fails)
    jobs, waits = Jobs(database), list[float]()
    job, _ = jobs.submit(tenant(database, "a"), submission())
    while (found := jobs.get(job.id)).state == "accepted":
        (claim,) = supervisor._claim("accepted", "build")
        supervisor._do(claim)
        assert supervisor._claim("accepted", "build") == []
        waits.append(jobs.get(job.id).not_before - time.time())
        with database.write() as connection:
            connection.execute(sa.update(JOBS).values(not_before=0.0))
    assert len(waits) == STUCK and sum(waits[:-1]) > 4 * 3600
    assert found.outcome == "failed" and "the archive is gone" in found.reason


@pytest.mark.parametrize(("error", "traced"), [(StorageError("the disk is full"), False), (KeyError("x"), True)])
def test_a_disk_that_is_full_takes_a_line_of_the_log_and_no_traceback(
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    traced: bool,
) -> None:
    def fail() -> None:
        supervisor._stopped = True
        raise error

    monkeypatch.setattr(supervisor, "tick", fail)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    supervisor._keep_ticking()
    (record,) = caplog.records
    assert str(error) in record.getMessage() and bool(record.exc_info) is traced


def test_a_job_that_is_built_at_last_begins_without_failures(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = Jobs(database).submit(tenant(database, "a"), submission())
    with database.write() as connection:
        connection.execute(sa.update(JOBS).values(failures=DEATHS))
    (claim,) = supervisor._claim("accepted", "build")
    monkeypatch.setattr(module, "prepare", lambda *_: None)
    supervisor._do(claim)
    found = Jobs(database).get(job.id)
    assert (found.state, found.failures) == ("queued", 0)


def test_one_tenant_does_not_take_all_hands_for_builds(database: ServiceDatabase, supervisor: Supervisor) -> None:
    jobs, patient = Jobs(database), tenant(database, "b")
    greedy = tenant(database, "a")
    for _ in range(6):
        jobs.submit(greedy, submission())
    jobs.submit(patient, submission())
    for _ in range(6):
        for claim in supervisor._claim("accepted", "build"):
            supervisor._in_hand[claim.job.id] = claim
    assert sorted(claim.job.tenant for claim in supervisor._in_hand.values()) == ["a", "a", "b"]


def test_a_driver_that_is_heard_of_again_is_not_buried(database: ServiceDatabase) -> None:
    job, drivers = running(database), Drivers(database)
    name = driver_of(database, job, alive_s=-1.0)
    seen = drivers.get(name)
    assert seen is not None
    with database.write() as connection:
        connection.execute(sa.update(DRIVERS).values(alive_until=time.time() + 60.0))
    drivers.bury(seen, None)
    assert drivers.get(name) is not None
    drivers.bury(seen, "it ended with code 1")
    assert drivers.get(name) is None


def test_a_store_that_is_away_for_a_while_fails_no_job(database: ServiceDatabase) -> None:
    job, drivers, jobs = running(database), Drivers(database), Jobs(database)
    waits = []
    for attempt in range(STUCK):
        drivers.stuck(driver_of(database, job), job.id, "the store cannot be reached")
        found = jobs.get(job.id)
        with database.write() as connection:
            connection.execute(sa.delete(DRIVERS))
            if attempt + 1 < STUCK:
                assert found.state == "queued" and found.reason == "the store cannot be reached"
                waits.append(found.not_before - time.time())
                assert move(connection, job.id, "running")
    assert sum(waits) > 4 * 3600 and max(waits) <= 300.0
    assert not open_grants(database)
    assert jobs.get(job.id).outcome == "failed"


def test_deaths_count_in_a_row_only(database: ServiceDatabase) -> None:
    job, drivers, jobs = running(database), Drivers(database), Jobs(database)
    for number in range(2 * DEATHS):
        name = driver_of(database, job)
        if number % 2:
            drivers.lives(name, job.id)
        seen = drivers.get(name)
        assert seen is not None
        drivers.bury(seen, "killed")
    assert jobs.get(job.id).state == "running"
    for _ in range(DEATHS):
        seen = drivers.get(driver_of(database, job))
        assert seen is not None
        drivers.bury(seen, "killed")
    assert jobs.get(job.id).outcome == "failed"


def test_a_job_that_is_cancelled_while_it_pauses_ends(database: ServiceDatabase) -> None:
    job, jobs = running(database), Jobs(database)
    name = driver_of(database, job)
    jobs.cancel(job.id, "a")
    Drivers(database).done(name, job.id, None, "paused")
    assert jobs.get(job.id).outcome == "cancelled" and not open_grants(database)


def test_an_environment_that_takes_long_to_build_is_no_death(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, drivers = running(database), Drivers(database)
    (driver,) = drivers.staff("here", supervisor.host, 8)
    supervisor._launching.add(driver.id)
    with database.write() as connection:
        connection.execute(sa.update(DRIVERS).values(alive_until=time.time() + 0.01))
    supervisor._beat()
    time.sleep(0.02)
    supervisor._bury_the_dead()
    assert drivers.get(driver.id) is not None

    def away(*_: object) -> None:
        raise StorageError("the store cannot be reached")

    monkeypatch.setattr(module, "prepare", away)
    supervisor._launch(driver)
    assert drivers.get(driver.id) is None and Jobs(database).get(job.id).state == "queued"
    supervisor.stop(drivers=False)


def test_a_job_whose_computer_has_no_room_or_no_network_for_it_waits(
    database: ServiceDatabase, supervisor: Supervisor, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, jobs = running(database), Jobs(database)

    def launched() -> Any:
        (driver,) = supervisor.drivers.staff("here", supervisor.host, 8)
        supervisor._launch(driver)
        found = jobs.get(job.id)
        assert found.state == "queued" and found.not_before > 0 and not supervisor.drivers.all()
        with database.write() as connection:
            assert move(connection, job.id, "running", pool="here", not_before=0.0)
        return found

    (places.code(job.id) / SPEC / "in the way").mkdir(parents=True)  # as if it could not be written
    found = launched()
    assert "Is a directory" in found.reason and str(places.home) not in found.reason
    for error in (OSError(28, "No space left on device"), SpecError("pip cannot reach its index")):

        def fails(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(module, "prepare", fails)
        assert str(error) in launched().reason
    assert jobs.get(job.id).failures == 3


def test_what_was_deleted_elsewhere_and_code_that_nobody_uses_go(
    database: ServiceDatabase, places: Places, tmp_path: Path
) -> None:
    jobs, of = Jobs(database), tenant(database, "a")
    gone, stays = queued(database, of), queued(database, of)
    for job in (gone, stays):
        places.run(job.id).mkdir(parents=True)
        places.code(job.id).mkdir(parents=True)
    jobs.forget(gone.id)
    old = time.time() - 7200.0
    codes = {"used": old, "unused": old, "new": time.time()}
    with database.write() as connection:
        for code, made in codes.items():
            connection.execute(sa.insert(CODES), {"tenant": of, "hash": code, "bytes": 1, "created_at": made})
            places.save_archive(of, code, b"x")
        connection.execute(sa.update(JOBS).where(JOBS.c.id == stays.id).values(code="used"))
        connection.execute(sa.update(JOBS).where(JOBS.c.id == gone.id).values(code="unused"))
    sweep(database, places, "here")
    assert places.jobs_here() == {stays.id}
    with database.read() as connection:
        assert set(connection.execute(sa.select(CODES.c.hash)).scalars()) == {"used", "new"}
    assert {path.name for path in (tmp_path / "storage" / "code" / of).iterdir()} == {"used.tar.gz", "new.tar.gz"}


def test_a_store_that_was_away_does_not_bring_a_job_nearer_to_its_last_death(database: ServiceDatabase) -> None:
    job, limiter, drivers = running(database), Limiter(database), Drivers(database)
    for _ in range(DEATHS):
        (driver,) = drivers.staff("here", "h", 8)
        drivers.stuck(driver.id, job.id, "the store is away")
        assert drivers.retire(driver.id)
        with database.write() as connection:
            connection.execute(sa.update(JOBS).values(not_before=0.0))
        assert limiter.schedule("here") == [job.id]
    (driver,) = drivers.staff("here", "h", 8)
    assert drivers.bury(driver, "it was killed")
    found = Jobs(database).get(job.id)
    assert (found.state, found.deaths, found.reason) == ("running", 1, "its driver died: it was killed")


def test_a_driver_that_was_heard_of_meanwhile_is_not_killed(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = driver_of(database, running(database), alive_s=-1.0)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", name])
    try:
        with database.write() as connection:
            connection.execute(sa.update(DRIVERS).values(host=supervisor.host, pid=process.pid))
        stale = supervisor.drivers.all("here")
        monkeypatch.setattr(supervisor.drivers, "all", lambda pool: stale)
        with database.write() as connection:
            connection.execute(sa.update(DRIVERS).values(alive_until=time.time() + 60.0))
        supervisor._bury_the_dead()
        assert supervisor.drivers.get(name) is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        with database.write() as connection:
            connection.execute(sa.update(DRIVERS).values(alive_until=time.time() - 1.0))
        supervisor._bury_the_dead()
        assert supervisor.drivers.get(name) is None and process.wait(10.0) == -9
    finally:
        process.kill()


def test_a_build_that_was_claimed_again_keeps_its_claim_when_the_first_one_ends(
    database: ServiceDatabase, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = Jobs(database).submit(tenant(database, "a"), submission())
    gates = [threading.Event(), threading.Event()]
    waits = iter(gates)
    monkeypatch.setattr(module, "prepare", lambda *_: next(waits).wait(60.0))
    supervisor._look_after_jobs()
    (first,) = supervisor._in_hand
    with database.write() as connection:  # as if the database had been away for long
        connection.execute(sa.update(JOBS).values(owned_until=0.0))
    supervisor._take_over()
    supervisor._look_after_jobs()
    (second,) = supervisor._in_hand.keys() - {first}
    gates[0].set()
    assert wait_until(lambda: list(supervisor._in_hand) == [second], 10.0)
    assert Jobs(database).get(job.id).state == "building"
    gates[1].set()
    assert wait_until(lambda: Jobs(database).get(job.id).state == "queued", 10.0)


def test_a_driver_whose_lease_is_over_cannot_renew_it(database: ServiceDatabase) -> None:
    name = driver_of(database, running(database), alive_s=-1.0)
    assert Drivers(database).beat(name, 1) is None
