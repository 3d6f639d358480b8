"""The exact planner finds what trying every plan finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.brute import all_plans, follow
from tests.plan.jobs import small_jobs, stages_of

from elastune.algorithm.halving import halving_stages
from elastune.plan.estimate import estimate
from elastune.plan.exact import frontier
from elastune.plan.model import Job
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling


def staircase(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that none beats in both."""
    kept: list[tuple[float, float]] = []
    for time_s, cost_usd in sorted(points):
        if not kept or cost_usd < kept[-1][1] - 1e-9 * max(1.0, cost_usd):
            if kept and time_s - kept[-1][0] < 1e-6:
                kept.pop()
            kept.append((time_s, cost_usd))
    return kept


def check(job: Job, early_release: bool, boot_ahead: bool) -> None:
    found = frontier(job, early_release=early_release, boot_ahead=boot_ahead)
    follows = (lambda plan: (lambda e: (e.mean_s, e.mean_usd))(estimate(job, plan))) if job.varies else None
    tried = [(follows or (lambda plan: follow(job, plan)))(plan) for plan in all_plans(job, early_release, boot_ahead)]
    ours = staircase([(each.time_s, each.cost_usd) for each in found])
    assert ours == [pytest.approx(point, rel=1e-7, abs=1e-7) for point in staircase(tried)]
    for each in found:
        expected = estimate(job, each.plan)
        assert (expected.mean_s, expected.mean_usd) == pytest.approx((each.time_s, each.cost_usd), rel=1e-9, abs=1e-9)


@settings(max_examples=130, deadline=None)
@given(job=small_jobs(stages=2, machines=5), early_release=st.booleans(), boot_ahead=st.booleans())
def test_two_stages_as_trying_every_plan(job: Job, early_release: bool, boot_ahead: bool) -> None:
    check(job, early_release, boot_ahead)


@settings(max_examples=70, deadline=None)
@given(job=small_jobs(stages=3, machines=3), early_release=st.booleans(), boot_ahead=st.booleans())
def test_three_stages_as_trying_every_plan(job: Job, early_release: bool, boot_ahead: bool) -> None:
    check(job, early_release, boot_ahead)


@settings(max_examples=30, deadline=None)
@given(job=small_jobs(stages=2, machines=3, varies=True), early_release=st.booleans(), boot_ahead=st.booleans())
def test_the_expectation_where_times_vary_as_trying_every_plan(job: Job, early_release: bool, boot_ahead: bool) -> None:
    check(job, early_release, boot_ahead)


@settings(max_examples=30, deadline=None)
@given(small_jobs(stages=3, machines=3, varies=True), st.sampled_from([20.0, 60.0, 300.0]))
def test_costs_are_those_expected_where_times_vary_and_there_is_a_minimum_charge(job: Job, minimum_s: float) -> None:
    job = replace(job, cloud=replace(job.cloud, minimum_s=minimum_s))
    found = frontier(job)
    assert [each.cost_usd for each in found] == sorted((each.cost_usd for each in found), reverse=True)
    for each in found:
        assert each.cost_usd == pytest.approx(estimate(job, each.plan).mean_usd)


@pytest.mark.parametrize("early_release", [True, False])
def test_the_oldest_machines_go_first_also_where_they_were_awaited_and_others_were_there(early_release: bool) -> None:
    cloud = Cloud("m", 1, 12.0, boot=constant(30.0), minimum_s=60.0)
    profile = JobProfile(constant(10.0), Scaling({1: 1.0, 2: 1.0}))
    job = Job(stages_of([(2, 4), (1, 1)]), profile, cloud, machines=2, held_s=(5.0,), asked_s=(25.0,))
    check(job, early_release, boot_ahead=False)


def test_trials_take_turns_on_all_devices_also_where_these_do_not_divide_them() -> None:
    job = Job(halving_stages(27, 1, 27, 3), JobProfile(constant(60.0), Scaling({1: 1, 2: 2})), Cloud("m", 2, 2.0), 1)
    (only,) = frontier(job)
    assert [stage.devices for stage in only.plan.stages] == [2, 2, 2, 2]
    assert only.time_s == 60.0 * (14 * 1 + 5 * 3 + 2 * 9 + 14 / 2)


def test_the_plan_of_the_papers_table_3() -> None:
    resnet101 = JobProfile(constant(109.0), Scaling({1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4}))
    p3 = Cloud("p3.8xlarge", 4, 12.24, request=constant(30.0))
    job = Job(halving_stages(32, 1, 50, 3), resnet101, p3, machines=64)
    in_time = [each for each in frontier(job) if each.time_s <= 1200]
    best = min(in_time, key=lambda each: each.cost_usd)
    assert [stage.width for stage in best.plan.stages] == [1, 2, 4, 8]
    assert [stage.machines for stage in best.plan.stages] == [8, 5, 3, 2]
