"""Naive elasticity: every trial has the same width in all stages, and the cluster shrinks with the trials."""

from __future__ import annotations

from elastune.messages import PlannedStage
from elastune.plan.estimate import expect
from elastune.plan.model import Candidate, Job, Plan, allocations, machines_for


def naive_plans(job: Job) -> list[Candidate]:
    """One for every width that has a place in the first stage, which has most trials."""
    first, found = job.stages[0].trials, []
    for devices in allocations(first, job.cloud.devices, job.machines):
        if devices < first:
            continue
        width = devices // first
        stages = tuple(
            PlannedStage(
                stage.trials,
                stage.iterations,
                stage.trials * width,
                machines_for(stage.trials, stage.trials * width, job.cloud.devices),
            )
            for stage in job.stages
        )
        found.append(expect(job, Plan(stages, early_release=False)))
    return found
