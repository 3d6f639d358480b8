"""The tables of the service, their version, and the clock."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa
from tests.service.stores import queued, tenant

from elastune.errors import StorageError
from elastune.service.database import ServiceDatabase
from elastune.service.drivers import Drivers
from elastune.service.jobs import Jobs
from elastune.service.limiter import Limiter
from elastune.service.tables import REPLICAS, VERSION, VERSIONS


def test_tables_are_made_once_and_have_a_version(database: ServiceDatabase) -> None:
    database.create()
    with database.read() as connection:
        assert connection.execute(sa.select(VERSIONS.c.number)).scalars().all() == [VERSION]


def test_a_database_of_another_version_is_refused_and_left_as_it_is(database: ServiceDatabase) -> None:
    with database.write() as connection:
        connection.execute(sa.update(VERSIONS).values(number=VERSION + 1))
        REPLICAS.drop(connection)
    with pytest.raises(StorageError, match=f"has tables of version {VERSION + 1}, and this Elastune needs {VERSION}"):
        database.create()
    with database.read() as connection:
        assert not sa.inspect(connection).has_table(REPLICAS.name)


def test_tables_without_a_version_are_refused(database: ServiceDatabase) -> None:
    with database.write() as connection:
        VERSIONS.drop(connection)
    with pytest.raises(StorageError, match="has tables of version unknown"):
        database.create()


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_replicas_whose_clocks_differ_agree_on_leases(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    if database.sqlite:
        pytest.skip("all who use it are on one computer")
    job, drivers, limiter = queued(database, tenant(database, "a")), Drivers(database), Limiter(database)
    limiter.offer("here", {"": 1}, 0.0)
    assert limiter.schedule("here") == [job.id]
    (driver,) = drivers.staff("here", "host", 1)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    assert drivers.beat(driver.id, 1) is not None, "it has its lease still"
    drivers.bury(driver, None)
    assert [each.id for each in drivers.all()] == [driver.id]
    monkeypatch.undo()
    assert drivers.beat(driver.id, 1) is not None
    assert Jobs(database).get(job.id).state == "running"
