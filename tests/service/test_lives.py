"""When the deaths of drivers are forgotten: a driver has come further than those before it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.made_jobs import Made, simulated
from tests.service.stores import driver_of

from elastune.messages import Note, Record, encode_record
from elastune.record.journal import SqlJournal
from elastune.service import reading
from elastune.service.drive import JobDriver
from elastune.service.tables import JOBS


def test_deaths_are_forgotten_when_there_is_a_new_report_and_not_for_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FRESH_S", -1.0)
    made = Made.in_folder(tmp_path)
    made.token("a")
    service, job, records = made.service, made.job("a"), simulated()
    half = len(records) // 2
    made.wrote(job, records[:half])
    with service.database.write() as connection:
        connection.execute(sa.update(JOBS).values(failures=1, deaths=3))
    driver = JobDriver(service.database, service.places, driver_of(service.database, job))
    seat, job = driver._seat, service.jobs.get(job.id)
    seat.sit(job, lambda: driver._reports(job))
    assert seat.had > 0 and seat.look_due_s < time.monotonic() + 100.0

    def deaths_after(more: list[Record]) -> int:
        with closing(SqlJournal(service.places.run(job.id) / "journal.db", job.id, must_exist=True)) as journal:
            for seq, record in enumerate(more, start=len(list(journal.read()))):
                journal.append(seq, encode_record(record))
        seat._look_further(job.id)
        return service.jobs.get(job.id).deaths

    assert deaths_after([Record(records[half].at_s, (), (Note("info", "the run goes on"),), ())]) == 3
    assert deaths_after(records[half:]) == 0 and not service.jobs.get(job.id).failures
    service.database.close()
