"""SEER: its brackets are those of the paper, and a run does with them what the paper says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.worlds import Scripted, Session, assert_sound, losses, timed_world

from elastune import messages as m
from elastune.algorithm import SEER, whole_machines
from elastune.algorithm.seer_brackets import Brackets, compute_bracket_budgets, compute_bracket_parameters
from elastune.spec import Limits, Terms

MINUTE_S = 60.0

# -------------------------------------------------------------------------------------- brackets, in minutes as printed


def test_the_example_of_the_paper() -> None:
    found = compute_bracket_parameters(T=10, B=80, eta=2, nu=2, p_min=1, p_max=math.inf, t_min=1)
    assert found == Brackets(rounds=3, first_s=found.first_s, trials=(8, 4), widths=(1, 2))
    assert found.first_s == pytest.approx(10 / 7)
    budgets = compute_bracket_budgets(B=80, B0=3 * 40 / 7, nu=2, p_min=1, p_max=math.inf)
    assert budgets == {1: pytest.approx(34.29, abs=0.01), 2: pytest.approx(34.29, abs=0.01), 4: pytest.approx(80 / 7)}


def test_the_small_budget_of_the_paper_has_its_13_trials_and_36_with_the_defaults() -> None:
    found = compute_bracket_parameters(T=30, B=240, eta=4, nu=2, p_min=1, p_max=math.inf, t_min=2)
    assert found.trials == (8, 4, 1) and found.widths == (1, 2, 4)
    assert sum(compute_bracket_parameters(30, 240, 4, 2, 1, math.inf, 1).trials) == 36


def test_devices_are_whole_and_brackets_that_come_to_the_same_number_are_one() -> None:
    budgets = compute_bracket_budgets(B=80, B0=3 * 40 / 7, nu=1.5, p_min=1, p_max=math.inf)  # of 1, 1.5 and 2.25
    assert budgets == {1: pytest.approx(2 * 1.5 * 120 / 7), 2: pytest.approx(80 - 2 * 1.5 * 120 / 7)}
    found = compute_bracket_parameters(10, 80, 2, 1.5, 1, math.inf, 1)
    assert found.widths == (1, 2) and found.trials == (12, 3)


@pytest.mark.parametrize(("nu", "p_min", "p_max"), [(2, 2, 2), (2, 3, 3), (1, 2, 8)])
def test_with_one_width_there_is_one_bracket_that_has_the_whole_budget(nu: float, p_min: int, p_max: int) -> None:
    found = compute_bracket_parameters(10, 80, 2, nu, p_min, p_max, 1)
    assert found.widths == (p_min,)
    assert found.trials == (math.floor(80 / (found.rounds * found.first_s * p_min)),)


def test_a_small_budget_is_one_bracket_that_ends_before_the_deadline() -> None:
    found = compute_bracket_parameters(T=100, B=20, eta=2, nu=2, p_min=1, p_max=math.inf, t_min=1)
    assert found.widths == (1,) and found.rounds == 3
    assert found.first_s * (2**3 - 1) < 12 < 100
    assert found.trials == (4,) and found.rounds * found.first_s * 4 == pytest.approx(20)


def test_where_p_max_is_in_the_way_all_brackets_have_the_same_budget() -> None:
    assert compute_bracket_budgets(800, 17, 2, 1, 4) == dict.fromkeys((1, 2, 4), pytest.approx(800 / 3))
    assert compute_bracket_budgets(800, 17, 2, 1, 5) == dict.fromkeys((1, 2, 4, 5), pytest.approx(200))


def literally(T: float, B: float, eta: float, nu: float, p_min: int, p_max: float, t_min: float) -> Brackets | None:
    """Algorithms 2 and 3 line by line, with R* by bisection as the paper suggests. None: so close to where a number of
    rounds, brackets or trials changes that rounding decides.
    """

    def rounds(R: float) -> int:
        return max(1, math.ceil(math.log(R, eta)))

    def satisfies(R: float) -> bool:
        in_time = R * eta / (eta - 1) * (1 - eta ** -rounds(R)) <= T / t_min
        return in_time and p_min * R * rounds(R) <= B / t_min

    low, high = 0.0, T / t_min * 2 + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if satisfies(middle) else (low, middle)
    R, K = low, rounds(low)
    t1 = t_min * R * eta ** -(K - 1)
    B0 = p_min * t_min * R * K
    q = 1
    while (q + 1) * nu**q <= B / B0 and nu > 1:
        q += 1
    if nu == 1:
        P, budgets = [float(p_min)], [B]
    elif p_min * nu ** (q - 1) < p_max:
        P = [p_min * nu**i for i in range(q)] + [min(p_max, p_min * nu**q)]
        budgets = [B0 * nu ** (q - 1)] * q + [B - B0 * q * nu ** (q - 1)]
    else:
        narrower = [p_min * nu**i for i in range(100) if p_min * nu**i < p_max]
        P, budgets = [*narrower, p_max], [B / (len(narrower) + 1)] * (len(narrower) + 1)
    whole: dict[int, float] = {}
    for p, budget in zip(P, budgets, strict=True):
        devices = math.floor(p + 1e-10)
        whole[devices] = whole.get(devices, 0.0) + budget
    trials = {p: budget / (K * t1 * p) for p, budget in whole.items()}
    least = [K > 1 and R * eta ** -(K - 1), *(B / B0 / (at * nu ** (at - 1)) for at in (q, q + 1) if at > 1)]
    if any(abs(value - 1) < 1e-6 for value in least) or any(1e-10 < -n % 1 < 1e-6 for n in (*P, *trials.values())):
        return None
    N = {p: n for p, found in trials.items() if (n := math.floor(found + 1e-10)) > 0}
    return Brackets(K, t1, tuple(N.values()), tuple(N))


@settings(max_examples=1000)
@given(
    T=st.floats(1, 1000),
    ratio=st.floats(1.001, 300),
    wide=st.floats(0.05, 300),
    eta=st.sampled_from([1.3, 1.5, 2, 2.5, 3, 4, 6]) | st.floats(1.1, 8),
    nu=st.sampled_from([1, 1.3, 1.5, 2, 3]) | st.floats(1.05, 4),
    p_min=st.integers(1, 4),
    p_max=st.sampled_from([math.inf, math.inf, 4, 5, 8, 16, 64]),
)
def test_brackets_are_those_of_the_paper_read_literally(
    T: float, ratio: float, wide: float, eta: float, nu: float, p_min: int, p_max: float
) -> None:
    t_min, B = T / ratio, T * wide
    assume(p_min * t_min * 1.001 <= B)  # one trial for t_min
    expected = literally(T, B, eta, nu, p_min, p_max, t_min)
    assume(expected is not None)
    assert expected is not None
    found = compute_bracket_parameters(T, B, eta, nu, p_min, p_max, t_min)
    assert found.first_s == pytest.approx(expected.first_s)
    assert (found.rounds, found.trials, found.widths) == (expected.rounds, expected.trials, expected.widths)


# ------------------------------------------------------------------------------------------- what a run does with them


def example(fill: bool = False, **more: Any) -> Session:
    """The example of the paper on machines of one device, in steps of a second on one device."""
    place = timed_world(
        SEER(eta=2, t_min="1m", fill=fill, race=False), deadline_s=10 * MINUTE_S, budget_device_s=80 * MINUTE_S, **more
    )
    return place.run()


@dataclass(frozen=True)
class Round:
    """Who trained with how many devices, and what each had at the end."""

    widths: dict[str, int]
    losses: dict[str, float]

    def best_first(self, width: int | None = None) -> list[str]:
        inside = [trial for trial in self.widths if width is None or self.widths[trial] == width]
        return sorted(inside, key=lambda trial: (self.losses[trial], trial))


def rounds_of(session: Session) -> list[Round]:
    """From the journal alone."""
    ends: dict[float, dict[str, int]] = {}
    for command in session.commands:
        if isinstance(command, m.StartTrial):
            assert command.until_s is not None
            ends.setdefault(command.until_s, {})[command.trial] = len(command.slots)
    rounds = []
    for until_s, widths in ends.items():
        reports = {
            trial: [report for report in session.view.trials[trial].reports if report.at_s <= until_s + 1e-6]
            for trial in widths
        }
        losses = {trial: float(made[-1].metrics["loss"]) for trial, made in reports.items()}
        rounds.append(Round(widths, losses))
    return rounds


@pytest.mark.parametrize("seed", range(3))
def test_each_round_of_the_example_has_the_trials_and_devices_of_the_paper(seed: int) -> None:
    session = example(seed=seed)
    assert session.view.status == "succeeded"
    assert [Counter(each.widths.values()) for each in rounds_of(session)] == [{1: 8, 2: 4}, {1: 4, 2: 2}, {1: 2, 2: 1}]
    assert_sound(session)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_each_bracket_go_on_and_the_best_of_all_get_most_devices(seed: int) -> None:
    for now, later in pairwise(rounds_of(example(seed=seed))):
        kept = [trial for width in (1, 2) for trial in now.best_first(width)[: Counter(later.widths.values())[width]]]
        assert set(later.widths) == set(kept)
        ranked = [trial for trial in now.best_first() if trial in kept]
        wide = [trial for trial in ranked if later.widths[trial] == 2]
        assert wide == ranked[: len(wide)]


def test_after_the_last_round_nobody_is_eliminated_and_the_best_of_all_brackets_wins() -> None:
    session = example()
    last = rounds_of(session)[-1]
    assert {trial.id for trial in session.view.trials.values() if trial.status == "completed"} == set(last.widths)
    stopped = [trial for trial in session.view.trials.values() if trial.status == "stopped"]
    assert len(stopped) == 12 - 3 and all(trial.id not in last.widths for trial in stopped)
    best = session.view.best
    assert best is not None and best.best_value == min(
        float(report.metrics["loss"]) for trial in session.view.trials.values() for report in trial.reports
    )


def test_a_round_takes_eta_times_as_long_as_the_one_before() -> None:
    ends = [0.0, *dict.fromkeys(c.until_s for c in example().commands if isinstance(c, m.StartTrial))]
    lengths = [after - before for before, after in pairwise(end for end in ends if end is not None)]
    assert lengths == [pytest.approx(600 / 7 * k, rel=0.01) for k in (1, 2, 4)]


def test_the_narrowest_and_the_widest_bracket_are_where_the_user_wants_them() -> None:
    place = timed_world(
        SEER(eta=2, p_min=2, p_max=4, t_min="1m", race=False), deadline_s=600.0, budget_device_s=6000 * 8.0, devices=8
    )
    assert {len(c.slots) for c in place.run().commands if isinstance(c, m.StartTrial)} == {2, 4}


# ---------------------------------------------------------------------------------------------------- whole machines


@settings(max_examples=150)
@given(
    deadline_s=st.floats(300, 7200),
    wide=st.floats(1, 40),
    devices=st.integers(1, 8),
    eta=st.sampled_from([1.5, 2, 3, 4]),
    nu=st.sampled_from([1, 1.5, 2]),
    rounds=st.floats(1.1, 50),
)
def test_filling_machines_never_costs_a_trial(
    deadline_s: float, wide: float, devices: int, eta: float, nu: float, rounds: float
) -> None:
    budget_device_s = wide * devices * deadline_s
    terms = Terms(Limits(deadline_s, budget_device_s=budget_device_s), 1000, devices, ready_s=3.0)
    plain, filled = (SEER(eta, nu, t_min=deadline_s / rounds / 2, fill=fill, race=False) for fill in (False, True))
    for algorithm in (plain, filled):
        algorithm.prepare(terms)
    for without, with_more in zip(plain.plan, filled.plan, strict=True):
        assert with_more.trials >= without.trials and with_more.until_s == without.until_s
        assert with_more.devices <= with_more.machines * devices
    for algorithm in (plain, filled):
        stages = algorithm.plan
        later = [*(stage.machines for stage in stages[1:]), 0]
        held = sum(
            (stage.machines - after) * devices * stage.until_s for stage, after in zip(stages, later, strict=True)
        )
        assert held <= budget_device_s


def test_what_is_left_of_the_budget_goes_to_more_trials() -> None:
    plain, filled = example(fill=False), example(fill=True)
    assert len(filled.view.trials) > len(plain.view.trials)
    spent = [session.controller.fleet.spending for session in (plain, filled)]
    minutes = [sum(use.devices * (use.to_s - use.from_s) for use in s.view.machines) / 60 for s in (plain, filled)]
    assert minutes[0] < minutes[1] <= 80
    assert spent[1].limits.budget_device_s == 80 * MINUTE_S
    assert_sound(filled)


def for_an_hour(machines: int, budget_usd: float, **arguments: Any) -> SEER:
    """Planned on machines of four devices at a dollar per device and hour."""
    algorithm = SEER(p_max=4, t_min="1m", **arguments)
    algorithm.prepare(Terms(Limits(3600.0, budget_usd), machines, 4, 1.0, ready_s=3.0))
    return algorithm


@pytest.mark.timeout(10)
def test_ten_thousand_machines_are_planned_as_fast_as_ten() -> None:
    first, last = for_an_hour(10_000, 100_000.0).plan
    assert first.machines == last.machines == 10_000
    assert first.devices == last.devices == 40_000


@pytest.mark.parametrize("budget_usd", [300.0, 1000.0, 5000.0])
def test_many_machines_at_once_are_spread_over_rounds_as_they_are_one_by_one(
    budget_usd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [for_an_hour(500, budget_usd).plan]
    monkeypatch.setattr(whole_machines, "PART", 10**9)
    plans.append(for_an_hour(500, budget_usd).plan)
    for at_once, one_by_one in zip(*plans, strict=True):
        assert at_once.machines == pytest.approx(one_by_one.machines, rel=0.03)
        assert at_once.trials == pytest.approx(one_by_one.trials, rel=0.03)


def test_a_budget_that_ends_before_the_deadline_is_spent_in_two_halves_too() -> None:
    """A machine for a quarter of an hour."""
    first, second = for_an_hour(40, 1.0).plan
    assert (first.devices, second.trials, second.devices) == (4, 1, 4)
    assert first.until_s - first.begin_s == pytest.approx(second.until_s - second.begin_s)
    assert second.until_s == pytest.approx(900.0, abs=1.0)


def test_where_the_first_round_cannot_have_more_machines_than_the_last_it_is_half_of_the_time() -> None:
    """One machine of four until the deadline is all that can be paid."""
    seer = SEER(p_max=4, t_min="1m")
    seer.prepare(Terms(Limits(1800.0, None, 4 * 1800.0), 100, 4, 1.0, ready_s=0.0))
    first, last = seer.plan
    assert (first.devices, first.trials, last.devices, last.trials) == (4, 4, 4, 1)
    assert first.until_s - first.begin_s == pytest.approx(last.until_s - last.begin_s)


def test_where_p_max_devices_are_too_expensive_the_second_half_has_fewer() -> None:
    seer = SEER(p_max=8, t_min="1m")
    seer.prepare(Terms(Limits(3600.0, 1.0), 4, 4, 1.0, ready_s=0.0))
    assert [(stage.devices, stage.trials) for stage in seer.plan] == [(4, 4), (4, 1)]


# ---------------------------------------------------------------------------------------- functions that come to an end


def test_where_nobody_is_left_to_go_on_others_begin_in_the_next_round() -> None:
    """Each is done after 7 s; two of them one after the other are done a second before the first round is over."""
    place = timed_world(
        SEER(p_max=1, t_min=2.0),
        deadline_s=30.0,
        budget_device_s=180.0,
        machines=4,
        devices=2,
        workload=Scripted(losses(6, 5, 4, 3, 2, 1)),
    )
    session = place.run()
    algorithm = place.experiment.algorithm
    assert isinstance(algorithm, SEER) and len(algorithm.plan) == 2
    ends_s = {command.until_s for command in session.commands if isinstance(command, m.StartTrial)}
    assert ends_s == {stage.until_s for stage in algorithm.plan}
    assert session.view.at_s == pytest.approx(28.0), "then there is no time for another one"
    assert {(trial.status, trial.iteration) for trial in session.view.trials.values()} == {("completed", 6)}
    assert len(session.view.trials) == sum(2 * stage.trials for stage in algorithm.plan)
    assert_sound(session)


def test_without_a_race_nobody_takes_a_place_that_is_vacant() -> None:
    place = timed_world(
        SEER(eta=2, t_min=6.0, race=False), deadline_s=60.0, budget_device_s=480.0, workload=Scripted(losses(3, 2, 1))
    )
    session = place.run()
    algorithm = place.experiment.algorithm
    assert isinstance(algorithm, SEER) and len(session.view.trials) == algorithm.plan[0].trials
    assert session.view.at_s < 5.0
