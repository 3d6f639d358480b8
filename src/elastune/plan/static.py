"""The best cluster of a fixed size: what today's tools would be given."""

from __future__ import annotations

from elastune.messages import PlannedStage
from elastune.plan.estimate import expect
from elastune.plan.model import Candidate, Job, Plan, allocations


def static_plan(job: Job, machines: int) -> Plan:
    """So many machines from the first stage to the last, their devices shared fairly by the trials of each stage, as
    far as they divide.
    """
    stages = tuple(
        PlannedStage(
            stage.trials, stage.iterations, max(allocations(stage.trials, job.cloud.devices, machines)), machines
        )
        for stage in job.stages
    )
    return Plan(stages, early_release=False)


def static_plans(job: Job) -> list[Candidate]:
    """One for every number of machines."""
    return [expect(job, static_plan(job, machines)) for machines in range(1, job.machines + 1)]
