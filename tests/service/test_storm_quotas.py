"""The audit of a storm finds quotas that were exceeded, and only those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.service.storm_quotas import MONEY, STORAGE, Past, Quotas, overspent, overstored


def quotas(name: str, *changes: tuple[float, float]) -> Quotas:
    made = Quotas(1)
    made.past["t0"][name] = list(changes)
    return made


def held(from_s: float, to_s: float | None, usd_per_hour: float = 3600.0) -> Any:
    return SimpleNamespace(tenant="t0", granted_at=from_s, released_at=to_s, price_usd_per_hour=usd_per_hour)


def past(*grants: Any, jobs: Any = (), codes: Any = (), began: Any = None, ended: Any = None) -> Past:
    return Past(grants, jobs, codes, began or {}, ended or {})


def test_money_counts_against_the_limit_that_was_in_force() -> None:
    limits = quotas(MONEY, (0.0, 10.0), (100.0, 30.0))
    assert not overspent(past(held(90.0, 110.0)), limits, 200.0)
    assert overspent(past(held(89.0, 110.0)), limits, 200.0) == ["t0 has spent $11.000 of $10.000"]
    assert overspent(past(held(95.0, None)), limits, 126.0) == ["t0 has spent $31.000 of $30.000"]


def test_what_was_stored_when_a_submission_was_sent_counts_against_its_limit() -> None:
    jobs = [SimpleNamespace(id=name, tenant="t0", key=name, spec_bytes=10, stored_bytes=100) for name in ("a", "b")]
    codes = [SimpleNamespace(tenant="t0", bytes=5)]
    known = past(jobs=jobs, codes=codes, began={"a": 1.0, "b": 20.0}, ended={"a": 10.0, "b": 30.0})
    for limit, sent_at, found in ((115, 19.0, 0), (114, 19.0, 1), (15, 9.0, 0), (14, 9.0, 1)):
        problems = overstored(known, quotas(STORAGE, (0.0, limit)), {"a": 0.5, "b": sent_at})
        assert len(problems) == found, problems
    raised = quotas(STORAGE, (0.0, 20.0), (19.5, 200.0))
    assert not overstored(known, raised, {"a": 0.5, "b": 19.0}), "more was given before it was accepted"
