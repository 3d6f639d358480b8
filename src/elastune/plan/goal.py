"""What a plan is to achieve, and the plan that does: for one job, or for several that run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import NormalDist

import numpy as np

from elastune.errors import Infeasible, SpecError
from elastune.plan.estimate import estimate, expect
from elastune.plan.exact import frontier
from elastune.plan.greedy import greedy
from elastune.plan.model import Candidate, Job, cheapest
from elastune.plan.naive import naive_plans
from elastune.units import format_duration, format_money

CHECK_SAMPLES = 1000
"""A percentile needs more samples than a mean."""
RISKS = (0.5, 1.0, 2.0)
"""How heavily variance is weighed when plans for a probability are looked for, in parts of what would be right if times
were normally distributed and the spread that of the plan that is best in expectation.
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """The least cost by a deadline; without one the least time within a budget; with neither the least cost.

    Times are expected ones, unless `confidence` says with which probability the deadline must be met.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None
    confidence: float | None = None
    early_release: bool = True
    boot_ahead: bool = True

    def __post_init__(self) -> None:
        if self.confidence is None:
            return
        if not isinstance(self.confidence, float) or not 0.5 <= self.confidence < 1:
            raise SpecError(f"confidence={self.confidence!r}: must be a probability from 0.5 to below 1, such as 0.95")
        if self.deadline_s is None:
            raise SpecError(f"confidence={self.confidence!r} is that of meeting a deadline: give a deadline too")


def choose(jobs: Sequence[Job], goal: Goal) -> list[Candidate]:
    """A plan for each of the jobs that run side by side. Raises Infeasible where there is none."""
    fronts = [frontier(job, early_release=goal.early_release, boot_ahead=goal.boot_ahead) for job in jobs]
    # Side by side, all must be in time.
    confidence = None if goal.confidence is None else goal.confidence ** (1 / len(jobs))
    if confidence is not None:
        found = [_confident(job, front, goal, confidence) for job, front in zip(jobs, fronts, strict=True)]
    else:
        deadline_s = _within_budget_s(fronts, goal) if goal.deadline_s is None else goal.deadline_s
        found = [_cheapest(job, front, deadline_s, goal) for job, front in zip(jobs, fronts, strict=True)]
    chosen = [candidate for candidate in found if candidate is not None]
    if len(chosen) < len(jobs):
        raise Infeasible(_too_soon(jobs, fronts, goal, confidence))
    cost_usd = sum(candidate.cost_usd for candidate in chosen)
    if goal.budget_usd is not None and cost_usd > goal.budget_usd:
        raise Infeasible(_too_dear(goal, cost_usd))
    return chosen


def _cheapest(job: Job, front: list[Candidate], deadline_s: float, goal: Goal) -> Candidate | None:
    """Where times vary and there is a minimum charge, the exact planner may miss a plan that is better by a hair: then
    what the others find counts as well.
    """
    if not job.varies or not job.cloud.minimum_s:
        return cheapest(front, deadline_s)
    others = [*naive_plans(job), greedy(job, deadline_s)]
    plans = [replace(other.plan, early_release=goal.early_release) for other in others if other is not None]
    return cheapest([*front, *(expect(job, plan) for plan in plans)], deadline_s)


def _within_budget_s(fronts: Sequence[list[Candidate]], goal: Goal) -> float:
    """The soonest time by which all jobs can be done with the budget; the latest of all if nothing is soon enough."""
    times = sorted(candidate.time_s for front in fronts for candidate in front)
    if goal.budget_usd is not None:
        for time_s in times:
            costs = [cheapest(front, time_s) for front in fronts]
            if all(costs) and sum(each.cost_usd for each in costs if each) <= goal.budget_usd:
                return time_s
    return times[-1]


def _sure_s(job: Job, candidate: Candidate, confidence: float) -> float:
    """By when the plan is done with so much probability."""
    many = replace(job, samples=max(job.samples, CHECK_SAMPLES))
    return float(np.quantile(estimate(many, candidate.plan).time_s, confidence))


def _confident(job: Job, front: list[Candidate], goal: Goal, confidence: float) -> Candidate | None:
    """The cheapest plan that is in time in so large a part of many samples.

    Means and variances add up over stages and percentiles do not, so plans are looked for with the variance weighed in
    and then judged by their samples: z standard deviations are the least, over all weights, of weight times variance
    plus z squared over four times the weight.
    """
    assert goal.deadline_s is not None
    many = replace(job, samples=max(job.samples, CHECK_SAMPLES))
    best = cheapest(front, goal.deadline_s) or front[0]
    spread_s = float(estimate(many, best.plan).time_s.std())
    weight = NormalDist().inv_cdf(confidence) / (2 * spread_s) if spread_s else 0.0
    for risk in RISKS if weight else ():
        front = front + frontier(job, early_release=goal.early_release, boot_ahead=goal.boot_ahead, risk=risk * weight)
    for candidate in sorted(front, key=lambda candidate: candidate.cost_usd):
        expected = estimate(many, candidate.plan)
        if float(np.quantile(expected.time_s, confidence)) <= goal.deadline_s:
            return Candidate(expected.mean_s, expected.mean_usd, candidate.plan)
    return None


def _too_soon(jobs: Sequence[Job], fronts: Sequence[list[Candidate]], goal: Goal, confidence: float | None) -> str:
    assert goal.deadline_s is not None
    soonest_s = max(front[0].time_s for front in fronts)
    cost_usd = sum(candidate.cost_usd for front in fronts if (candidate := cheapest(front, soonest_s)))
    sure = found = ""
    if confidence is not None:
        sure_s = max(_sure_s(job, front[0], confidence) for job, front in zip(jobs, fronts, strict=True))
        sure, found = f" with probability {goal.confidence:g}", f" ({format_duration(sure_s)} with that probability)"
    return (
        f"deadline={format_duration(goal.deadline_s)}: no plan meets it{sure}. The soonest finish expected is "
        f"{format_duration(soonest_s)}{found}, for {format_money(cost_usd)}: give a later deadline, or more machines"
    )


def _too_dear(goal: Goal, cost_usd: float) -> str:
    assert goal.budget_usd is not None
    when = "" if goal.deadline_s is None else f" by the deadline of {format_duration(goal.deadline_s)}"
    enough = format_money(ceil(100 * cost_usd) / 100)
    return (
        f"budget={format_money(goal.budget_usd)}: the cheapest plan{when} is expected to cost {enough}: give more"
        f"{'' if goal.deadline_s is None else ', or a later deadline'}"
    )
