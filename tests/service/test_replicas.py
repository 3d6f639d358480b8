"""Two replicas of the service on one PostgreSQL: when the computer of one is gone, the other goes on with its jobs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.service.storm import Running, running

from elastune import messages as m
from elastune.errors import StorageError
from elastune.record.journal import SqlJournal
from elastune.service.client import Client
from elastune.service.database import ServiceDatabase
from elastune.service.drivers import Driver, Drivers
from elastune.service.tables import METADATA

TRAIN = """
import time
import elastune as et

def train(config):
    done = et.get_checkpoint() or 0
    while True:
        time.sleep(0.2)
        done += 1
        et.report({"loss": config["x"] / done}, checkpoint=lambda: done)
"""
STEPS = 150
SPEC: dict[str, Any] = {
    "name": "long",
    "trainable": "train.py:train",
    "space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 1, "R": STEPS}},
    "checkpoint_every": "1s",
}


def driver_of(database: ServiceDatabase, job: str, before: str = "") -> Driver | None:
    """The one that drives it, and not the one before."""
    drivers = (each for each in Drivers(database).all() if each.job == job and each.pid is not None)
    return next((each for each in drivers if each.id != before), None)


def reported(database: str, job: str) -> list[int]:
    """The iterations that count, in their order."""
    try:
        journal, found = SqlJournal(database, job, must_exist=True), []
    except StorageError:  # its driver has not begun
        return []
    for body in journal.read():
        record = m.decode_record(body)
        hidden = {each.index for each in record.decisions if isinstance(each, m.EventHidden)}
        found += [
            event.iteration
            for index, event in enumerate(record.events)
            if isinstance(event, m.TrialReported) and index not in hidden
        ]
    journal.close()
    return found


def lose_computer(service: Running, driver: Driver) -> None:
    """The service, the driver and all that it has started go at once."""
    assert service.process is not None and driver.pid is not None
    service.kill()
    os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_other_replica_takes_over_within_15_seconds(tmp_path: Path, postgres_server: str) -> None:
    database = ServiceDatabase(postgres_server)
    with database.write() as connection:
        METADATA.drop_all(connection)
        connection.execute(sa.text("SELECT 1"))
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    storage = ["--storage", str(tmp_path / "storage")]
    with (
        running(tmp_path / "one", 1, postgres_server, [*storage, "--pool", "one"]) as one,
        running(tmp_path / "two", 1, postgres_server, [*storage, "--pool", "two"]) as two,
    ):
        token = (tmp_path / "one" / "home" / "admin-token").read_text().strip()
        job = Client(one.url, token).submit(SPEC, code)["id"]
        driver = wait_for(lambda: driver_of(database, job), 60.0)
        wait_for(lambda: len(reported(postgres_server, job)) > 10 or None, 60.0)
        lost, left = (one, two) if driver.pool == "one" else (two, one)
        lose_computer(lost, driver)
        lost_at = time.monotonic()
        other = wait_for(lambda: driver_of(database, job, before=driver.id), 60.0)
        took_s = time.monotonic() - lost_at
        assert other.pool != driver.pool
        found = Client(left.url, token).wait(job, timeout_s=240.0)
    assert took_s < 15.0, f"the job was taken over after {took_s:.1f} s"
    assert found["state"] == "succeeded" and found["attempt"] == 2
    assert reported(postgres_server, job) == list(range(1, STEPS + 1))
    database.close()


def wait_for(look: Any, most_s: float) -> Any:
    until = time.monotonic() + most_s
    while time.monotonic() < until:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"it did not happen within {most_s} s")
