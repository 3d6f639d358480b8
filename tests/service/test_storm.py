"""A real service under load, killed again and again. `make soak-service` is the same with 1,000 jobs and 50 kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.storm import storm


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_jobs_run_exactly_once_while_the_service_and_its_drivers_are_killed(tmp_path: Path) -> None:
    outcome = storm(tmp_path, jobs=60, tenants=6, clients=20, kills=5, devices=4)
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.ended_once == outcome.ran_once == 60
    assert outcome.quota_violations == 0
    assert sum(outcome.kills.values()) == 5
