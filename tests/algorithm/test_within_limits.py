"""Algorithms that plan to a deadline and a budget keep both, by the clock and the bill of the run and not by the plan:
whatever machines take to boot, and however much steps vary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import started

import elastune as et
from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.control.controller import Controller
from elastune.errors import Infeasible, SpecError
from elastune.experiment import Experiment
from elastune.profile import Cloud, JobProfile, Scaling, constant, lognormal

SCALING = Scaling({1: 1, 2: 1.8, 4: 3, 8: 5})
NOTHING_REPORTED = "no trial has reported a finite 'loss' in its time: give trials more of it, or report more often"
NOBODY_BEGAN = "no trial has begun: no machine was ready before their time was over."


class Case(NamedTuple):
    """What a user asks for, and what the world is like."""

    algorithm: Algorithm
    deadline_s: float
    budget: str | float
    machines: int
    cloud: Cloud
    profile: JobProfile
    seed: int

    def experiment(self) -> Experiment:
        return et.Tuner(
            None,
            space={"x": et.uniform(0, 1)},
            metric="loss",
            algorithm=self.algorithm,
            deadline=self.deadline_s,
            budget=self.budget,
            machines=self.machines,
            planning=et.Planning(cloud=self.cloud, profile=self.profile),
            seed=self.seed,
        ).experiment

    @property
    def price(self) -> float:
        return self.cloud.price_usd_per_hour / self.cloud.devices

    @property
    def budget_device_s(self) -> float:
        if isinstance(self.budget, str):
            return 60 * float(self.budget.removesuffix(" device-minutes"))
        return 3600 * self.budget / self.price


class Outcome(NamedTuple):
    controller: Controller
    at_s: float
    status: str
    reason: str

    @property
    def spent_usd(self) -> float:
        return self.controller.fleet.spending.spent_usd(self.at_s)


def play(experiment: Experiment) -> Outcome:
    """The loop without its journal: thousands of runs in minutes."""
    controller, cluster = experiment.controller(), et.Simulation().cluster(experiment, 0.0)
    turn = m.Turn(0.0, (started(experiment.settings),))
    while True:
        step = controller.handle(turn)
        cluster.submit(step.commands)
        if controller.done:
            (ended,) = (decision for decision in step.decisions if isinstance(decision, m.RunEnded))
            return Outcome(controller, turn.at_s, ended.status, ended.reason)
        turn = cluster.poll(controller.wake_s)


def factor(low: float, high: float) -> st.SearchStrategy[float]:
    """Any order of magnitude is as likely as another."""
    return st.integers(0, 1000).map(lambda part: low * (high / low) ** (part / 1000))


@st.composite
def cases(draw: st.DrawFn, algorithms: st.SearchStrategy[Any], least: float = 0.3) -> Case:
    """`algorithms` are made when the least time of a trial is known. `least` is the smallest budget, as the number of
    machines that it pays until the deadline.
    """
    deadline_s = draw(factor(60, 4 * 3600))
    devices = draw(st.sampled_from([1, 2, 3, 4, 8]))
    price = draw(st.sampled_from([0.1, 1.0, 3.0]))
    device_s = deadline_s * devices * draw(factor(least, 30 / devices + 4))
    in_time = draw(st.booleans())
    t_min_s = deadline_s / draw(factor(1.5, 60))
    step_s = t_min_s * draw(factor(0.15, 1.5))
    boot_s = draw(st.just(0.0) | st.floats(0, 0.2)) * deadline_s
    varies = boot_s > 0 and draw(st.booleans())
    cloud = Cloud(
        "any",
        devices,
        price * devices,
        request=constant(draw(st.sampled_from([0.0, 0.2])) * boot_s),
        boot=lognormal(boot_s, 0.3 * boot_s) if varies else constant(boot_s),
        minimum_s=draw(st.sampled_from([0.0, 60.0])),
        data_gb=0.0 if in_time else draw(st.sampled_from([0.0, 1.0])),
        data_usd_per_gb=0.01,
    )
    profile = JobProfile(
        lognormal(step_s, 0.3 * step_s) if draw(st.booleans()) else constant(step_s),
        SCALING,
        start=constant(draw(st.sampled_from([0.0, 0.3])) * step_s),
        cold_start=constant(draw(st.sampled_from([0.0, 0.01])) * deadline_s),
    )
    return Case(
        draw(algorithms)(t_min_s),
        deadline_s,
        f"{device_s / 60} device-minutes" if in_time else device_s / 3600 * price,
        draw(st.sampled_from([1000, 1000, 8, 2])),
        cloud,
        profile,
        draw(st.integers(0, 99)),
    )


def seer(eta: float, nu: float, p_min: int, more: int | None, fill: bool, race: bool, rank: str) -> Any:
    return lambda t_min_s: et.SEER(eta, nu, p_min, None if more is None else p_min + more, t_min_s, fill, race, rank)


seers = cases(
    st.builds(
        seer,
        st.sampled_from([1.5, 2, 2.5, 3, 4, 6]),
        st.sampled_from([1, 1.3, 1.5, 2, 3]),
        st.sampled_from([1, 1, 1, 2, 3]),
        st.sampled_from([None, None, 0, 3, 7]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["last", "last", "power"]),
    )
)
elastic_grids = st.builds(
    lambda p_min, more: lambda t_min_s: et.ElasticGrid(p_min, p_min + more), st.integers(1, 3), st.integers(0, 4)
)
elastic_hyperbands = st.builds(lambda eta: lambda t_min_s: et.ElasticHyperband(eta, t_min_s), st.integers(2, 4))
single_trials = st.just(lambda t_min_s: et.SingleTrial())
others = {
    "ElasticGrid": cases(elastic_grids, least=1.0),
    "ElasticHyperband": cases(elastic_hyperbands),
    "SingleTrial": cases(single_trials, least=0.9),
}


def assert_within_limits(case: Case) -> None:
    try:
        experiment = case.experiment()
    except (Infeasible, SpecError):  # too little for one trial, or widths that no machines can offer
        return
    outcome = play(experiment)
    assert outcome.at_s <= case.deadline_s
    assert outcome.spent_usd * 3600 / case.price <= case.budget_device_s * (1 + 1e-9)
    if outcome.status != "succeeded":  # every step was longer than the time of its trial, or every boot
        trials = outcome.controller.trials.values()
        begun = any(trial.attempt for trial in trials)
        assert outcome.status == "failed" and outcome.reason.startswith(NOTHING_REPORTED if begun else NOBODY_BEGAN)
        assert not any(trial.iteration for trial in trials)


@settings(max_examples=200)
@given(seers)
def test_seer_never_takes_longer_or_spends_more_than_it_may(case: Case) -> None:
    assert_within_limits(case)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=10_000)
@given(seers)
def test_seer_never_takes_longer_or_spends_more_than_it_may_in_ten_thousand_cases(case: Case) -> None:
    assert_within_limits(case)


@pytest.mark.parametrize("name", others)
@settings(max_examples=60)
@given(data=st.data())
def test_the_other_timed_algorithms_keep_their_limits_too(name: str, data: st.DataObject) -> None:
    assert_within_limits(data.draw(others[name]))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", others)
@settings(max_examples=1000)
@given(data=st.data())
def test_the_other_timed_algorithms_keep_their_limits_in_a_thousand_cases(name: str, data: st.DataObject) -> None:
    assert_within_limits(data.draw(others[name]))
