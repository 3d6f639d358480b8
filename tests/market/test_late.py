"""Spot with a deadline: never late whatever the market does, and as cheap as the model of the market allows."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.market.late import Choice, Held, LastMoment, LateJob, LatePolicy, Situation, UniformProgress
from elastune.market.late_program import Act, regimes, solve
from elastune.market.never_late import NeverLate

POLICIES: list[type[LatePolicy]] = [LastMoment, UniformProgress, NeverLate]
each_policy = pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.__name__)
Market = Callable[[int, Held, float], bool]
"""Whether spot is there, by the number of the check, what is held, and how much of its start is still to come."""


class Restless(LatePolicy):
    """Always wants what puts the deadline most at risk."""

    def prefer(self, state: Situation) -> Choice:
        return "spot" if state.spot_available and state.held != "spot" else "wait"


def live(policy: LatePolicy, market: Market, *, pickled: bool = False) -> tuple[float, float, list[Choice]]:
    """Cost, work left at the deadline, and the choices; every loss of a spot machine costs all of `rework_s`."""
    job = policy.job
    at_s, left_s, starting_s, cost_usd = 0.0, job.work_s, 0.0, 0.0
    held: Held = None
    choices: list[Choice] = []
    while left_s > 1e-6 and at_s < job.deadline_s - 1e-6:
        available = market(len(choices), held, starting_s)
        if held == "spot" and not available:
            left_s += min(job.rework_s, job.work_s - left_s)
            held, starting_s = None, 0.0
        if pickled:
            policy = pickle.loads(pickle.dumps(policy))
        policy.observe(at_s, available)
        choices.append(policy.choose(Situation(at_s, left_s, job.deadline_s - at_s, held, available, starting_s)))
        assert available or choices[-1] != "spot"
        if choices[-1] == "wait":
            held, starting_s = None, 0.0
        elif choices[-1] != held:
            held, starting_s = choices[-1], job.changeover_s
        passed_s = min(job.check_s, job.deadline_s - at_s)
        if held is not None:
            passed_s = min(passed_s, starting_s + left_s)
            idle_s = min(starting_s, passed_s)
            starting_s, left_s = starting_s - idle_s, left_s - (passed_s - idle_s)
            usd_per_hour = job.spot_usd_per_hour if held == "spot" else job.on_demand_usd_per_hour
            cost_usd += usd_per_hour * passed_s / 3600
        at_s += passed_s
    return cost_usd, left_s, choices


@st.composite
def jobs(draw: st.DrawFn) -> LateJob:
    """Jobs that could just be done on demand, or with some time to spare."""
    work_s, changeover_s = draw(st.integers(60, 7200)), draw(st.integers(0, 900))
    spare_s = draw(st.one_of(st.just(0), st.integers(0, 7200)))
    return LateJob(
        work_s=float(work_s),
        deadline_s=float(work_s + changeover_s + spare_s),
        changeover_s=float(changeover_s),
        spot_usd_per_hour=draw(st.sampled_from([0.0, 0.3, 0.9, 1.5])),
        on_demand_usd_per_hour=1.0,
        rework_s=float(draw(st.sampled_from([0, 0, 100, 1000]))),
        check_s=float(draw(st.sampled_from([60, 97, 300]))),
    )


@each_policy
@settings(max_examples=20, deadline=None)
@given(job=jobs(), seen=st.lists(st.booleans(), min_size=1, max_size=60), stretch=st.integers(1, 20))
def test_no_deadline_is_missed_in_any_market(
    make: type[LatePolicy], job: LateJob, seen: list[bool], stretch: int
) -> None:
    assert live(make(job), lambda check, held, starting_s: seen[check // stretch % len(seen)])[1] <= 1e-6


@pytest.mark.parametrize("make", [*POLICIES, Restless], ids=lambda make: make.__name__)
@settings(max_examples=20, deadline=None)
@given(job=jobs(), mercy_s=st.sampled_from([0.0, 1.0, 60.0]))
def test_no_deadline_is_missed_if_every_spot_machine_is_taken_away_at_once(
    make: type[LatePolicy], job: LateJob, mercy_s: float
) -> None:
    """Right after it was rented, or as soon as it begins to be of use."""
    assert live(make(job), lambda check, held, starting_s: held != "spot" or starting_s > mercy_s)[1] <= 1e-6
    assert live(make(job), lambda check, held, starting_s: held != "spot")[1] <= 1e-6


@each_policy
def test_without_slack_the_on_demand_machine_is_kept_from_the_first_moment(make: type[LatePolicy]) -> None:
    job = LateJob(3600.0, 3900.0, 300.0, 0.3, 1.0)
    cost_usd, left_s, choices = live(make(job), lambda check, held, starting_s: True)
    assert set(choices) == {"on-demand"} and left_s <= 1e-6
    assert cost_usd == pytest.approx(3900 / 3600)


@each_policy
@pytest.mark.parametrize("late", [2.0, 3.0])
def test_a_market_that_never_changes_costs_the_least_possible(make: type[LatePolicy], late: float) -> None:
    """Spot throughout, or one start of an on-demand machine; whoever waits first pays no more for that."""
    job = LateJob(7200.0, late * 7200, 360.0, 0.3, 1.0)
    assert live(make(job), lambda check, held, starting_s: True)[0] == pytest.approx(0.3 * 7560 / 3600)
    if make is not UniformProgress:
        assert live(make(job), lambda check, held, starting_s: False)[0] == pytest.approx(7560 / 3600)


def test_spot_that_comes_late_is_waited_for_if_there_is_time() -> None:
    """The optimum is known: nothing for ten minutes, then spot to the end."""
    job = LateJob(7200.0, 5 * 7200.0, 360.0, 0.3, 1.0)
    cost_usd, _, choices = live(NeverLate(job), lambda check, held, starting_s: check >= 10)
    assert choices[:10] == ["wait"] * 10 and set(choices[10:]) == {"spot"}
    assert cost_usd == pytest.approx(0.3 * 7560 / 3600)


@pytest.mark.parametrize(("starting_s", "choice"), [(0.0, "spot"), (300.0, "spot"), (301.0, "wait")])
def test_a_machine_that_would_be_left_before_it_is_of_use_is_given_up_while_it_starts(
    starting_s: float, choice: Choice
) -> None:
    """More work was found meanwhile than was known when it was rented."""
    job = LateJob(3600.0, 7200.0, 600.0, 0.3, 1.0, rework_s=100.0)
    time_left_s = 3600.0 + job.reserve_s + 300.0
    assert LastMoment(job).choose(Situation(0.0, 3600.0, time_left_s, "spot", True, starting_s)) == choice


def test_spot_that_is_dearer_is_never_rented() -> None:
    job = LateJob(7200.0, 14400.0, 360.0, 2.0, 1.0)
    assert "spot" not in live(NeverLate(job), lambda check, held, starting_s: True)[2]


@settings(max_examples=20, deadline=None)
@given(job=jobs(), seen=st.lists(st.booleans(), min_size=1, max_size=30))
def test_pickling_in_the_middle_changes_nothing(job: LateJob, seen: list[bool]) -> None:
    def market(check: int, held: Held, starting_s: float) -> bool:
        return seen[check // 5 % len(seen)]

    for make in (LastMoment, UniformProgress, NeverLate):
        assert live(make(job), market) == live(make(job), market, pickled=True)


def brute_force_usd(job: LateJob, step_s: float, spare: int, work: int, up_s: float, down_s: float, up: bool) -> float:
    """The same model by enumeration: every choice, every turn of a chain of two states, no tables over w and slack."""
    spot_usd, usd = job.spot_usd_per_hour / 3600, job.on_demand_usd_per_hour / 3600
    start, start_s = round(job.changeover_s / step_s), job.changeover_s
    speed = 1 / up_s + 1 / down_s

    def becomes_up(is_up: bool, seconds: float) -> float:
        always = up_s / (up_s + down_s)
        return always + (float(is_up) - always) * math.exp(-speed * seconds)

    @cache
    def best(spare: int, work: int, held: Held, is_up: bool) -> float:
        if work == 0:
            return 0.0
        if spare < 0:
            return usd * (work * step_s + (0.0 if held == "on-demand" else start_s))

        def then(spare: int, work: int, held: Held, seconds: float) -> float:
            chance = becomes_up(is_up, seconds)
            if held != "spot":
                return chance * best(spare, work, held, True) + (1 - chance) * best(spare, work, held, False)
            kept = math.exp(-seconds / up_s)
            gone = (chance - kept) * best(spare, work, None, True) + (1 - chance) * best(spare, work, None, False)
            return kept * best(spare, work, "spot", True) + gone

        options = [
            then(spare - 1, work, None, step_s),
            usd * start_s + then(spare - start, work, "on-demand", start_s),
        ]
        if held == "on-demand":
            options = [options[0], usd * step_s + then(spare, work - 1, "on-demand", step_s)]
        if is_up and held != "spot":
            options.append(spot_usd * start_s + then(spare - start, work, "spot", start_s))
        if is_up and held == "spot":
            options.append(spot_usd * step_s + then(spare, work - 1, "spot", step_s))
        return min(options)

    return best(spare, work, None, up)


@settings(max_examples=25, deadline=None)
@given(
    up_s=st.floats(300, 20000),
    down_s=st.floats(300, 20000),
    work=st.integers(1, 9),
    spare=st.integers(0, 12),
    up=st.booleans(),
)
def test_the_program_agrees_with_brute_force(up_s: float, down_s: float, work: int, spare: int, up: bool) -> None:
    step_s = 300.0
    job = LateJob(work * step_s, (work + spare) * step_s + 660, 600.0, 0.3, 1.0)
    program = solve(job, regimes([(up_s, down_s)], switch_s=1.0))
    assert program.step_s == step_s
    costs = program.costs(np.array([float(up), float(not up)]), job.deadline_s - job.work_s, job.work_s)
    found = min(costs[[Act.WAIT, Act.START_ON_DEMAND, *([Act.START_SPOT] if up else [])]])
    assert found == pytest.approx(brute_force_usd(job, step_s, spare, work, up_s, down_s, up), rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    durations=st.lists(st.tuples(st.floats(300, 90000), st.floats(300, 90000)), min_size=1, max_size=3),
    changeover_s=st.sampled_from([0.0, 20.0, 360.0, 1800.0]),
    rework_s=st.sampled_from([0.0, 500.0]),
)
def test_a_later_deadline_is_never_dearer_in_expectation(
    durations: list[tuple[float, float]], changeover_s: float, rework_s: float
) -> None:
    job = LateJob(14400.0, 3 * 14400.0, changeover_s, 0.3, 1.0, rework_s)
    market = regimes(durations, switch_s=86400.0)
    program = solve(job, market)
    for state in range(len(market.rates)):
        acts = [Act.WAIT, Act.START_ON_DEMAND, *([Act.START_SPOT] if state < market.up else [])]
        belief = np.eye(len(market.rates))[state]
        slacks = [job.reserve_s + step * program.step_s for step in range(int(28800 // program.step_s) - 10)]
        usd = [float(min(program.costs(belief, slack_s, job.work_s)[acts])) for slack_s in slacks]
        assert all(later <= sooner + 1e-4 for sooner, later in pairwise(usd))


def test_what_was_seen_of_the_market_counts() -> None:
    """Spot is gone at this moment: where gaps were short it is worth more to wait, and all will cost less."""
    job = LateJob(14400.0, 21600.0, 360.0, 0.3, 1.0)
    gain, least = {}, {}
    for gap in (10, 600):
        policy = NeverLate(job)
        for minute in range(-3 * (300 + gap), 0):
            policy.observe(minute * 60.0, minute % (300 + gap) >= gap)
        policy.observe(0.0, False)
        usd = policy.dollars(Situation(0.0, job.work_s, job.deadline_s, None, False))
        gain[gap], least[gap] = usd["on-demand"] - usd["wait"], min(usd.values())
    assert gain[10] > gain[600] and least[10] < least[600]


@pytest.mark.parametrize("field", ["work_s", "deadline_s", "changeover_s", "check_s", "on_demand_usd_per_hour"])
def test_a_job_that_cannot_be_is_refused(field: str) -> None:
    good = {"work_s": 1.0, "deadline_s": 2.0, "changeover_s": 0.0, "spot_usd_per_hour": 0.1}
    with pytest.raises(SpecError, match=field):
        LateJob(**{**good, "on_demand_usd_per_hour": 1.0, field: -1.0})
