"""What the planners promise about each other, and about the places their plans need."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.jobs import jobs, stages_of

from elastune.algorithm.halving import halving_stages
from elastune.messages import Slot
from elastune.place import FreeSlots
from elastune.plan.estimate import estimate
from elastune.plan.exact import frontier
from elastune.plan.goal import Goal, choose
from elastune.plan.greedy import greedy
from elastune.plan.model import Candidate, Job, Plan, allocations, cheapest, machines_for, width_of
from elastune.plan.naive import naive_plans
from elastune.plan.static import static_plans
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling

EXACTLY = 1 + 1e-9


def few(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None)


def medium_jobs(varies: bool) -> st.SearchStrategy[Job]:
    return jobs(varies, trials=24, machines=12) | jobs(varies, stages=3, trials=6, machines=4)


def greedy_plans(job: Job) -> list[Candidate]:
    """For every deadline that some static cluster just meets."""
    deadlines_s = [static.time_s for static in static_plans(job)]
    return [found for deadline_s in deadlines_s if (found := greedy(job, deadline_s)) is not None]


def assert_never_dearer(job: Job, ours: Callable[[float], Candidate | None]) -> None:
    others = {"static": static_plans(job), "naive": naive_plans(job), "greedy": greedy_plans(job)}
    for name, candidates in others.items():
        for other in candidates:
            best = ours(other.time_s * EXACTLY)
            assert best is not None, f"{name} is done at {other.time_s}, which exact cannot"
            expected = estimate(job, best.plan)
            assert expected.mean_s <= other.time_s * EXACTLY
            assert expected.mean_usd <= other.cost_usd * EXACTLY, f"{name}: {other}"


@few(60)
@given(medium_jobs(varies=False))
def test_exact_is_never_dearer_than_the_others_at_any_deadline(job: Job) -> None:
    front = frontier(job)
    assert_never_dearer(job, lambda deadline_s: cheapest(front, deadline_s))


@few(25)
@given(medium_jobs(varies=True))
def test_what_is_chosen_is_never_dearer_where_times_vary(job: Job) -> None:
    assert_never_dearer(job, lambda deadline_s: choose([job], Goal(deadline_s))[0])


@few(60)
@given(medium_jobs(varies=False) | medium_jobs(varies=True), st.floats(0.5, 3.0))
def test_greedy_is_never_dearer_than_static_and_in_time(job: Job, tightness: float) -> None:
    soonest_s = min(static.time_s for static in static_plans(job))
    deadline_s = tightness * soonest_s
    static, found = cheapest(static_plans(job), deadline_s), greedy(job, deadline_s)
    assert (static is None) == (found is None)
    if static is not None and found is not None:
        assert found.time_s <= deadline_s and found.cost_usd <= static.cost_usd * EXACTLY


@few(60)
@given(medium_jobs(varies=False))
def test_a_static_plan_holds_the_same_machines_throughout_and_there_is_one_for_every_number(job: Job) -> None:
    sizes = [{stage.machines for stage in static.plan.stages} for static in static_plans(job)]
    assert sizes == [{machines} for machines in range(1, job.machines + 1)]


@few(60)
@given(medium_jobs(varies=False))
def test_a_naive_plan_has_one_width_and_its_cluster_never_grows(job: Job) -> None:
    for naive in naive_plans(job):
        assert len({stage.width for stage in naive.plan.stages}) == 1
        sizes = [stage.machines for stage in naive.plan.stages]
        assert sizes == sorted(sizes, reverse=True)
        assert all(stage.devices == stage.width * stage.trials for stage in naive.plan.stages)


def assert_has_a_place(job: Job, plan: Plan) -> None:
    """Every stage, on empty machines, by the rules of the placement that will carry it out."""
    for stage in plan.stages:
        rounds = ceil(stage.trials / stage.devices)
        assert stage.devices % stage.trials == 0 or stage.devices == ceil(stage.trials / rounds), stage
        assert stage.machines <= job.machines
        free = FreeSlots()
        for number in range(stage.machines):
            free.add_node(f"n{number}", job.cloud.devices)
        places = [free.take(stage.width) for _ in range(min(stage.trials, stage.devices))]
        assert None not in places, f"{stage} on machines with {job.cloud.devices} devices"


@few(60)
@given(medium_jobs(varies=False) | medium_jobs(varies=True))
def test_every_allocation_is_a_multiple_or_serves_in_rounds_and_has_a_place(job: Job) -> None:
    candidates = [*frontier(job), *static_plans(job), *naive_plans(job), *greedy_plans(job)]
    assert candidates
    for candidate in candidates:
        assert [(stage.trials, stage.iterations) for stage in candidate.plan.stages] == [
            (stage.trials, stage.iterations) for stage in job.stages
        ]
        assert_has_a_place(job, candidate.plan)


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 12))
def test_the_machines_of_an_allocation_are_the_fewest_that_have_a_place_for_it(
    trials: int, on_machine: int, machines: int
) -> None:
    for devices in allocations(trials, on_machine, machines):
        width, needed = width_of(trials, devices), machines_for(trials, devices, on_machine)
        assert needed <= machines

        def places(count: int, width: int = width, devices: int = devices) -> list[tuple[Slot, ...] | None]:
            free = FreeSlots()
            for number in range(count):
                free.add_node(f"n{number}", on_machine)
            return [free.take(width) for _ in range(min(trials, devices))]

        assert None not in places(needed) and (needed == 1 or None in places(needed - 1))


def test_ten_trials_of_three_devices_need_ten_machines_of_four() -> None:
    assert machines_for(10, 30, 4) == 10
    assert 30 not in allocations(10, 4, 9) and 30 in allocations(10, 4, 10)
    assert machines_for(2, 16, 4) == 4, "a trial of eight devices has two whole machines"
    assert machines_for(12, 6, 4) == 2, "six devices that twelve trials queue for"


def job_of_one_dollar_a_second(stages: list[tuple[int, int]], step_s: float, scaling: Scaling, machines: int) -> Job:
    """That is the price of a machine, which has one device and is there at once."""
    cloud = Cloud("m", 1, 3600.0, minimum_s=0.0)
    return Job(stages_of(stages), JobProfile(constant(step_s), scaling), cloud, machines)


def test_greedy_takes_the_step_that_saves_most_per_second_and_not_the_one_that_saves_most() -> None:
    """Only all four machines are in time: 10 s + 60 s for $280. Two for the first stage save $10 in 5 s; three for the
    second save $15 in 15 s, and then it is too late.
    """
    job = job_of_one_dollar_a_second([(2, 1), (1, 10)], 15.0, Scaling({1: 1, 2: 1.5, 3: 2, 4: 2.5}), machines=4)
    static, found = cheapest(static_plans(job), 80.0), greedy(job, 80.0)
    assert static is not None and (static.time_s, static.cost_usd) == pytest.approx((70.0, 280.0))
    assert found is not None and (found.time_s, found.cost_usd) == pytest.approx((75.0, 270.0))
    assert [(stage.devices, stage.machines) for stage in found.plan.stages] == [(2, 2), (4, 4)]


def test_greedy_begins_from_three_times_the_best_static_cluster_too() -> None:
    """The best static cluster has two machines: 30 s + 80 s for $220. From there on, and from four, every step that
    saves something is too late. From six the last stage comes down to one: 10 s + 100 s for $60 + $100.
    """
    job = job_of_one_dollar_a_second([(6, 1), (1, 10)], 10.0, Scaling({1: 1, 2: 1.25}), machines=6)
    static, found = cheapest(static_plans(job), 110.0), greedy(job, 110.0)
    assert static is not None and (static.time_s, static.cost_usd) == pytest.approx((110.0, 220.0))
    assert found is not None and (found.time_s, found.cost_usd) == pytest.approx((110.0, 160.0))
    assert [(stage.devices, stage.machines) for stage in found.plan.stages] == [(6, 6), (1, 1)]


def test_greedy_saves_on_the_papers_job_and_exact_saves_more_or_the_same() -> None:
    resnet101 = JobProfile(constant(109.0), Scaling({1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4}))
    p3 = Cloud("p3.8xlarge", 4, 12.24, request=constant(30.0))
    job = Job(halving_stages(32, 1, 50, 3), resnet101, p3, machines=64)
    static, found = cheapest(static_plans(job), 1200.0), greedy(job, 1200.0)
    best = cheapest(frontier(job), 1200.0)
    assert static is not None and found is not None and best is not None
    assert best.cost_usd <= found.cost_usd < 0.75 * static.cost_usd
