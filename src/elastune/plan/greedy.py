"""RubberBand's own planner (its Algorithm 2): from a static cluster down, one stage at a time.

Each step makes one stage's allocation smaller, the one that saves most money per second it adds (Equation 1); one that
is cheaper and no slower wins outright. It ends when nothing gets cheaper or the deadline would be missed. It is begun
from one, two and three times the best static cluster, and the cheapest outcome stands.

One kind of step is not in the paper: `generate_candidates` first drops the machines of a stage that its allocation has
no use for, without changing the allocation.
"""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec.structs import replace as replace_in

from elastune.messages import PlannedStage
from elastune.plan.estimate import expect
from elastune.plan.model import Candidate, Job, Plan, allocations, cheapest, machines_for
from elastune.plan.static import static_plan, static_plans

WARM_STARTS = (1, 2, 3)
LEAST_GAIN_USD = 1e-9


def greedy(job: Job, deadline_s: float) -> Candidate | None:
    """None if no static cluster meets the deadline: there is nothing to begin with."""
    static = cheapest(static_plans(job), deadline_s)
    if static is None:
        return None
    machines = static.plan.stages[0].machines
    starts = [static_plan(job, min(times * machines, job.machines)) for times in WARM_STARTS]
    found = [optimize_plan(job, deadline_s, expect(job, start)) for start in starts]
    return cheapest([*found, static], deadline_s)


def optimize_plan(job: Job, deadline_s: float, start: Candidate) -> Candidate:
    best = start
    while True:
        candidates = [expect(job, plan) for plan in generate_candidates(job, best.plan)]
        if not candidates:
            return best
        chosen = max(candidates, key=lambda candidate: _benefit(best, candidate))
        if best.cost_usd - chosen.cost_usd < LEAST_GAIN_USD or chosen.time_s > deadline_s:
            return best
        best = chosen


def generate_candidates(job: Job, plan: Plan) -> list[Plan]:
    """Each stage in turn without the machines that it has no use for or, if there are none, with the next smaller
    allocation.
    """
    found = []
    for number, stage in enumerate(plan.stages):
        smaller = _sized(job, stage)
        if smaller.machines == stage.machines:
            fits = allocations(stage.trials, job.cloud.devices, job.machines)
            devices = max((each for each in fits if each < stage.devices), default=stage.devices)
            smaller = _sized(job, replace_in(stage, devices=devices))
        if smaller != stage:
            stages = (*plan.stages[:number], smaller, *plan.stages[number + 1 :])
            found.append(replace(plan, stages=stages))
    return found


def _benefit(best: Candidate, candidate: Candidate) -> float:
    saved_usd, added_s = best.cost_usd - candidate.cost_usd, candidate.time_s - best.time_s
    if added_s <= 0:
        return math.inf if saved_usd > 0 else -math.inf
    return saved_usd / added_s


def _sized(job: Job, stage: PlannedStage) -> PlannedStage:
    """With the machines that its allocation needs, and no more."""
    return replace_in(stage, machines=machines_for(stage.trials, stage.devices, job.cloud.devices))
