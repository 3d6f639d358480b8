"""A real service under load, killed again and again. `make soak-service` is the same with 1,000 jobs and 50 kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.storm import storm
from tests.service.storm_quotas import MONEY, STORAGE
from tests.service.storm_readers import OF_JOB, OF_TENANT, OF_TRIAL, Readings


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_jobs_run_exactly_once_while_the_service_and_its_drivers_are_killed(tmp_path: Path) -> None:
    outcome = storm(tmp_path, jobs=60, tenants=6, clients=20, kills=5, devices=4)
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.ended_once == outcome.ran_once == 60
    assert outcome.quota_violations == 0
    assert sum(outcome.kills.values()) == 5
    assert set(outcome.refused) == {STORAGE, MONEY}, "the tight quotas were never felt"
    asked = {*OF_TENANT, OF_TRIAL, *(f"/jobs/JOB{route}" for route in OF_JOB)}
    assert set(outcome.readings.table()) == asked


def test_percentiles_are_told_by_route_and_over_all() -> None:
    readings = Readings()
    for took_ms in range(1, 101):
        readings.add("/quick", took_ms)
        readings.add("/slow", 1000.0 + took_ms)
    assert readings.table()["/slow"] == {"reads": 100, "p50_ms": 1050.0, "p99_ms": 1099.0}
    assert readings.percentile_ms(0.99, "/quick") == 99
    assert readings.percentile_ms(0.5) == 100 and readings.count == 200
