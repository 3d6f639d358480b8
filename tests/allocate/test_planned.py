"""Plans are carried out as they were made, and what was forecast is paid, whatever happens to driver and machines."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocate.planned import PERFECT, forecast_of, planned_tuner, planned_world
from tests.plan.jobs import clouds, jobs, profiles, schedules
from tests.worlds import KEY, Session, World, assert_sound, winner

import elastune as et
from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.allocate import planned as module
from elastune.allocate.planned import Planned
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic
from elastune.control.run import recover
from elastune.plan.exact import frontier
from elastune.plan.model import Candidate, Job
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant, lognormal, normal
from elastune.profile.scaling import Scaling
from elastune.simulation import Simulation

RESNET = Scaling({1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4})
PROFILE = JobProfile(constant(109.0), RESNET, start=constant(2.0))
TRUTH = JobProfile(PROFILE.step.times(1.3), RESNET, start=constant(2.0))
P3 = Cloud("p3.8xlarge", 4, 12.24, request=constant(30.0))


def few(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None)


halvings = st.builds(
    lambda n, R, eta: et.SuccessiveHalving(n, 1, R, eta), st.integers(2, 12), st.integers(4, 20), st.integers(2, 4)
)
algorithms = halvings | schedules().map(et.Stages)


def a_deadline(times_s: list[float], share: float) -> float:
    """Between two times of the frontier, so that no rounding decides."""
    times_s = [*times_s, 1.1 * times_s[-1]]
    number = min(int(share * len(times_s)), len(times_s) - 2)
    gaps = [(early, late) for early, late in pairwise(times_s) if late > early * (1 + 1e-6)]
    early, late = gaps[min(number, len(gaps) - 1)]
    return early + (late - early) / 3


# ------------------------------------------------------------------------------------------------ as it was forecast


@few(60)
@given(
    algorithm=algorithms,
    profile=profiles(),
    cloud=clouds(billings=("instance",)),
    machines=st.integers(1, 8),
    share=st.none() | st.floats(0, 1),
    replan=st.booleans(),
    early_release=st.booleans(),
    boot_ahead=st.booleans(),
)
def test_where_nothing_varies_a_run_takes_and_costs_what_was_forecast(
    algorithm: Algorithm, profile: JobProfile, cloud: Cloud, machines: int, share: float | None, **planning: bool
) -> None:
    deadline_s = None
    if share is not None:
        with planned_tuner(algorithm, profile, cloud, machines, **planning) as free:
            deadline_s = a_deadline([time_s for time_s, _ in forecast_of(free).deadlines], share)
    with planned_tuner(algorithm, profile, cloud, machines, deadline_s, **planning) as tuner:
        forecast, result = forecast_of(tuner), tuner.simulate(Simulation())
    assert result.status == "succeeded"
    assert result.view.at_s == pytest.approx(forecast.time_s.mean(), rel=1e-6, abs=1e-6)
    assert result.cost == pytest.approx(forecast.cost_usd.mean(), rel=1e-6, abs=1e-6)
    for _, plan in result.view.plans:  # made anew at every barrier, from what was there then
        assert (plan.finish_s, plan.cost_usd) == pytest.approx((result.view.at_s, result.cost), rel=1e-6, abs=1e-6)
    assert len(result.view.plans) == (len(forecast.chosen[0].plan.stages) if planning["replan"] else 1)


SLOW_IN_TWO = JobProfile(constant(1.0), Scaling({1: 1, 2: 1.5}))


@pytest.mark.parametrize("boot_s", [4.0, 5.0])
def test_a_machine_that_boots_as_long_as_the_stage_or_longer_is_asked_for_when_that_begins(boot_s: float) -> None:
    """Planned anew at the barrier, what is on its way is waited for, and not asked for again."""
    cloud = Cloud("m", 1, 3600.0, boot=constant(boot_s), minimum_s=0.0)
    finish_s = 2 * boot_s + 60 / 1.5
    for replan in (True, False):
        algorithm = et.Stages([(1, 4), (1, 60)])
        with planned_tuner(algorithm, SLOW_IN_TWO, cloud, 2, finish_s + 0.1, replan=replan) as tuner:
            (chosen,) = forecast_of(tuner).chosen
            assert [(stage.machines, stage.ask_s) for stage in chosen.plan.stages] == [(1, None), (2, 0.0)]
            result = tuner.simulate(Simulation())
        assert result.status == "succeeded" and result.view.at_s == pytest.approx(finish_s)
        assert [use.from_s for use in result.view.machines] == [0.0, boot_s], "one for each stage, and no more"
        assert all(plan.finish_s == pytest.approx(finish_s) for _, plan in result.view.plans)


def bracket_of_trials(algorithm: et.Hyperband) -> Iterator[int]:
    """Trials are numbered bracket by bracket."""
    stages = algorithm.stages()
    for bracket in sorted({stage.bracket for stage in stages}):
        yield from [bracket] * next(stage.trials for stage in stages if stage.bracket == bracket)


@few(30)
@given(
    R=st.sampled_from([4, 9, 16]),
    eta=st.integers(2, 3),
    profile=profiles(),
    cloud=clouds(billings=("instance",)),
    share=st.floats(0, 1),
    replan=st.booleans(),
    boot_ahead=st.booleans(),
)
def test_brackets_side_by_side_take_and_cost_what_was_forecast_each_on_machines_of_its_own(
    R: int, eta: int, profile: JobProfile, cloud: Cloud, share: float, replan: bool, boot_ahead: bool
) -> None:
    algorithm, planning = et.Hyperband(R, eta=eta), {"replan": replan, "boot_ahead": boot_ahead}
    with planned_tuner(algorithm, profile, cloud, 12, **planning) as free:
        deadline_s = a_deadline([time_s for time_s, _ in forecast_of(free).deadlines], share)
    with planned_tuner(algorithm, profile, cloud, 12, deadline_s, **planning) as tuner:
        forecast, result = tuner.plan(), tuner.simulate(Simulation())
    assert result.status == "succeeded"
    assert result.view.at_s == pytest.approx(forecast.time_s.mean(), rel=1e-6, abs=1e-6)
    assert result.cost == pytest.approx(forecast.cost_usd.mean(), rel=1e-6, abs=1e-6)
    brackets = list(bracket_of_trials(algorithm))
    on: dict[str, set[int]] = defaultdict(set)
    for trial, of_trial in zip(result.view.trials.values(), brackets, strict=True):
        for segment in trial.segments:
            on[segment.slot.node].add(of_trial)
    assert all(len(there) == 1 for there in on.values())


@pytest.mark.parametrize("replan", [True, False])
def test_brackets_share_a_budget_and_none_spends_what_the_others_need(replan: bool) -> None:
    cloud = Cloud("m", 1, 3.0, request=constant(10.0), boot=constant(10.0), minimum_s=0.0)
    with planned_tuner(et.Hyperband(27), PROFILE, cloud, 32) as tuner:
        least_usd = float(tuner.plan().cost_usd.mean())
    with planned_tuner(et.Hyperband(27), PROFILE, cloud, 32, budget_usd=1.025 * least_usd, replan=replan) as tuner:
        forecast, result = tuner.plan(), tuner.simulate(Simulation())
    assert result.status == "succeeded" and result.cost <= 1.025 * least_usd
    assert result.view.at_s == pytest.approx(forecast.time_s.mean())


@few(25)
@given(jobs(stages=4, machines=6, billings=("instance",)), st.floats(1.0, 2.0), st.booleans())
def test_a_budget_is_kept_and_planning_anew_makes_nothing_later(job: Job, plenty: float, replan: bool) -> None:
    algorithm = et.Stages([(stage.trials, stage.iterations) for stage in job.stages])
    budget_usd = plenty * 1.001 * frontier(job)[-1].cost_usd
    planning = (algorithm, job.profile, job.cloud, job.machines)
    with planned_tuner(*planning, budget_usd=budget_usd, replan=replan) as tuner:
        forecast, result = tuner.plan(), tuner.simulate(Simulation())
    if forecast.cost_usd.mean() < budget_usd * (1 - 1e-6):  # what is used up to the cent ends the run
        assert result.status == "succeeded" and result.cost <= budget_usd
        assert result.view.at_s <= forecast.time_s.mean() * (1 + 1e-6)


VARYING: dict[str, tuple[Callable[[], Algorithm], JobProfile, Cloud, float, bool]] = {
    "the paper's job": (
        lambda: et.SuccessiveHalving(32, 1, 50, 3),
        JobProfile(lognormal(109.0, 30.0), RESNET, start=constant(2.0)),
        Cloud("p3.8xlarge", 4, 12.24, request=lognormal(30.0, 10.0), boot=normal(10.0, 5.0)),
        1500.0,
        False,
    ),
    "queues and small machines, planned anew": (
        lambda: et.Stages([(24, 2), (6, 4), (2, 8)]),
        JobProfile(normal(20.0, 6.0), RESNET, cold_start=constant(5.0)),
        Cloud("m", 2, 4.0, request=lognormal(20.0, 10.0), boot=lognormal(15.0, 5.0), data_gb=1, data_usd_per_gb=0.01),
        400.0,
        True,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARYING)
def test_where_times_vary_the_mean_of_many_runs_is_what_was_forecast(name: str) -> None:
    algorithm, profile, cloud, deadline_s, replan = VARYING[name]
    with planned_tuner(algorithm(), profile, cloud, 32, deadline_s) as tuner:
        forecast = tuner.plan()
    times_s, costs_usd = [], []
    for seed in range(200):
        with planned_tuner(algorithm(), profile, cloud, 32, deadline_s, seed, replan=replan) as tuner:
            result = tuner.simulate(Simulation())
        times_s.append(result.view.at_s)
        costs_usd.append(result.cost)
    assert fmean(times_s) == pytest.approx(forecast.time_s.mean(), rel=0.02)
    assert fmean(costs_usd) == pytest.approx(forecast.cost_usd.mean(), rel=0.02)


# --------------------------------------------------------------------------------------- whatever happens to the driver

AT_ONCE = "brackets that meet their barriers at once"
WORLDS: dict[str, Callable[[], World]] = {
    "halving": lambda: planned_world(et.SuccessiveHalving(9, 1, 20, 3), 40.0),
    "stages that grow wider": lambda: planned_world(et.Stages([(6, 6), (2, 20), (1, 40)]), 60.0, request_s=1.0),
    AT_ONCE: lambda: planned_world(et.Hyperband(9), 60.0, machines=18, devices=1, boot_s=0.0),
    "brackets on larger machines": lambda: planned_world(et.Hyperband(9), 60.0, machines=6, stragglers=0.2),
    "a plan that stays": lambda: planned_world(et.SuccessiveHalving(9, 1, 20, 3), 40.0, replan=False),
}
every_world = pytest.mark.parametrize("name", WORLDS)


def ignore(record: m.Record) -> None: ...


def plans_of(session: Session) -> list[m.Planned]:
    return [decision for decision in session.decisions if isinstance(decision, m.Planned)]


@every_world
@pytest.mark.parametrize("turns", [1, 8, 20, 35])
def test_a_journal_is_replayed_without_planning_again_and_the_run_goes_on(
    name: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = WORLDS[name]()
    calm = place.run()
    crashed = place.start().turns(turns)
    with monkeypatch.context() as patched:
        patched.setattr(module, "choose", None)
        patched.setattr(module, "frontier", None)
        recover(calm.journal, place.experiment.controller(), KEY, ignore)
        again, _ = recover(crashed.journal, place.experiment.controller(), KEY, ignore)
    assert again.done == crashed.controller.done
    if crashed.controller.done:
        return
    before = plans_of(crashed)
    resumed = place.resume(crashed.journal).run()
    assert_sound(resumed)
    assert resumed.view.status == "succeeded" and winner(resumed.view) == winner(calm.view)
    assert plans_of(resumed)[: len(before)] == before


def test_two_brackets_that_meet_their_barriers_at_once_make_one_plan() -> None:
    left = [[len(stages) for stages in plan.brackets] for plan in plans_of(WORLDS[AT_ONCE]().run())]
    assert left == [[3, 2, 1], [2, 1, 1], [1, 1, 1]]


@every_world
def test_pickling_after_any_turn_changes_nothing(name: str) -> None:
    place = WORLDS[name]()
    straight, pickled = place.run(), place.start()
    while not pickled.controller.done:
        pickled.controller = pickled.loop._controller = pickle.loads(pickle.dumps(pickled.controller))
        pickled.turns(1)
    assert pickled.records == straight.records


@few(30)
@given(
    st.sampled_from(sorted(WORLDS)),
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 9), st.sampled_from([0.0, 3.0])), max_size=4),
)
def test_machines_that_are_lost_or_never_come_are_replaced_and_the_run_finishes(
    name: str, losses: list[tuple[float, int, float]]
) -> None:
    calm = WORLDS[name]()
    experiment = calm.experiment
    faults = [Fault(at_s, "lose", f"n{number}", notice_s) for at_s, number, notice_s in losses]

    def cluster(now_s: float) -> object:
        made = calm.cluster(now_s)
        for fault in faults:
            made.at(fault.at_s, made._fault, fault)
        return made

    hit = World(experiment, cluster).run()  # type: ignore[arg-type]
    assert_sound(hit)
    assert hit.view.status == "succeeded" and winner(hit.view) == winner(calm.run().view)


def test_a_machine_that_never_comes_is_asked_for_again() -> None:
    algorithm = et.SuccessiveHalving(9, 1, 20, 3)
    calm = planned_world(algorithm, 16.0, boot_s=5.0).run()
    late = planned_world(algorithm, 16.0, boot_s=5.0, faults=[Fault(4.0, "lose", "n1")]).run()
    assert late.view.status == "succeeded"
    first = plans_of(late)[0].brackets[0][0].machines
    assert sum(isinstance(command, m.AddNode) for command in late.commands) > first >= 2
    starts_s = [record.at_s for record in late.records for c in record.commands if isinstance(c, m.StartTrial)]
    assert min(starts_s) == 9.0, "nothing trains until all are there"
    assert calm.view.at_s < late.view.at_s


def test_machines_wait_for_the_last_trial_of_a_stage_that_is_to_be_tried_again() -> None:
    killed = planned_world(et.Stages([(1, 4), (1, 20)]), 60.0, faults=[Fault(8.0, "kill", "t-00000")]).run()
    assert killed.view.status == "succeeded" and killed.view.trials["t-00000"].attempts == 3
    first = plans_of(killed)[0].brackets[0][0].machines
    assert sum(isinstance(command, m.AddNode) for command in killed.commands) == first


# -------------------------------------------------------------------------------------------------- planning anew


def outcome(algorithm: Algorithm, deadline_s: float, replan: bool) -> str:
    """How a run ends whose steps take longer than its profile says."""
    with planned_tuner(algorithm, PROFILE, P3, 64, deadline_s, replan=replan) as tuner:
        slower = Synthetic("loss", "min", step_s=TRUTH.step.mean_s)
        return tuner.simulate(Simulation(workload=slower)).status


def test_a_profile_that_is_too_fast_by_a_third_is_made_up_for_where_a_plan_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It exists if, when the first steps have been measured, the rest can still be done in time."""
    possible: list[bool] = []
    best_now = Planned._best_now

    def watched(self: Planned, job: Job, spent_usd: float, at_s: float) -> Candidate:
        assert self.goal.deadline_s is not None
        if self._measured:
            possible.append(frontier(replace(job, profile=TRUTH))[0].time_s <= self.goal.deadline_s - at_s)
        return best_now(self, job, spent_usd, at_s)

    monkeypatch.setattr(Planned, "_best_now", watched)
    saved = 0
    for stages in ([(32, 1), (10, 3), (3, 9), (1, 37)], [(16, 4), (6, 8), (2, 16)], [(32, 4), (10, 12), (3, 36)]):
        with planned_tuner(et.Stages(stages), TRUTH, P3, 64) as tuner:
            soonest_s = forecast_of(tuner).deadlines[0][0]
        for factor in (1.2, 1.3, 1.4, 1.6, 2.0):
            possible.clear()
            ends = outcome(et.Stages(stages), factor * soonest_s, replan=True)
            assert (ends == "succeeded") == possible[0], f"{stages} by {factor} times the soonest"
            saved += possible[0] and outcome(et.Stages(stages), factor * soonest_s, replan=False) == "deadline"
    assert saved >= 5, "which the first plan would have missed"


def test_a_profile_that_is_too_slow_saves_money_by_planning_anew() -> None:
    cloud = Cloud("m", 1, 3600.0, minimum_s=0.0)
    slow = JobProfile(constant(2.0), PERFECT.scaling)
    costs = {}
    for replan in (True, False):
        scaling = Scaling({1: 1, 2: 1.6, 4: 2.4})
        profile = JobProfile(slow.step, scaling)
        with planned_tuner(et.Stages([(4, 10), (1, 60)]), profile, cloud, 8, 90.0, replan=replan) as tuner:
            result = tuner.simulate(Simulation(workload=Synthetic("loss", "min", step_s=1.0)))
        assert result.status == "succeeded"
        costs[replan] = result.cost
    assert costs[True] < 0.9 * costs[False]
