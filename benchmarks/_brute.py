"""Every plan that a small job can have, and small jobs to try them on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, product

import numpy as np

from elastune.messages import PlannedStage
from elastune.plan.estimate import ask_ahead_s
from elastune.plan.model import Job, Plan, allocations, machines_for
from elastune.profile import Cloud, JobProfile, Scaling, constant, lognormal
from elastune.spec import Stage


def all_allocations(job: Job) -> list[list[PlannedStage]]:
    """Of each stage every allocation, on as many machines as it needs."""
    return [
        [
            PlannedStage(stage.trials, stage.iterations, devices, machines_for(stage.trials, devices, on_machine))
            for devices in allocations(stage.trials, on_machine, job.machines)
        ]
        for stage in job.stages
        for on_machine in [job.cloud.devices]
    ]


def all_plans(job: Job) -> Iterator[Plan]:
    """Every allocation, with every number of machines that holds it, asked for at the barrier or ahead of it."""
    choices = [
        [
            PlannedStage(each.trials, each.iterations, each.devices, machines)
            for each in stage
            for machines in range(each.machines, job.machines + 1)
        ]
        for stage in all_allocations(job)
    ]
    for stages in product(*choices):
        for asks_s in product(*(_asks_s(job, stages, number) for number in range(len(stages)))):
            yield Plan(
                tuple(
                    PlannedStage(stage.trials, stage.iterations, stage.devices, stage.machines, ask_s)
                    for stage, ask_s in zip(stages, asks_s, strict=True)
                )
            )


def _asks_s(job: Job, stages: tuple[PlannedStage, ...], number: int) -> list[float | None]:
    added = stages[number].machines - stages[number - 1].machines if number else 0
    ask_s = ask_ahead_s(job, number - 1, stages[number - 1].devices, added) if added > 0 else None
    return [None] if ask_s is None else [None, ask_s]


def random_job(rng: np.random.Generator) -> Job:
    """Two stages and up to four machines, or three and up to three. Half of them vary; those have no minimum charge,
    since that of an expected age is not the expected one.
    """
    count, varies = int(rng.integers(2, 4)), bool(rng.integers(2))
    trials = sorted(rng.integers(1, 7, count).tolist(), reverse=True)
    ends = list(accumulate(rng.integers(1, 9, count).tolist(), initial=0))
    step_s, growth = float(rng.choice([1.0, 7.0, 20.0, 100.0])), rng.uniform([1.0, 0.8, 0.8], 2.0).cumprod().tolist()
    boot_s = float(rng.choice([0.0, 1.0, 20.0]))
    cloud = Cloud(
        "m",
        devices=int(rng.integers(1, 5)),
        price_usd_per_hour=12.0,
        request=constant(float(rng.choice([0.0, 3.0, 30.0]))),
        boot=lognormal(boot_s, boot_s) if varies and boot_s else constant(boot_s),
        billing="function" if rng.random() < 0.3 else "instance",
        minimum_s=0.0 if varies else float(rng.choice([0.0, 60.0, 300.0])),
        data_gb=1.0,
        data_usd_per_gb=float(rng.choice([0.0, 0.0, 0.01, 1.0])),
    )
    profile = JobProfile(
        lognormal(step_s, step_s / 2) if varies else constant(step_s),
        Scaling(dict(zip((1, 2, 4, 8), [1.0, *growth], strict=True))),
        start=constant(float(rng.choice([0.0, 2.0]))),
        cold_start=constant(float(rng.choice([0.0, 4.0]))),
    )
    stages = tuple(Stage(*each) for each in zip(trials, ends[:-1], ends[1:], strict=True))
    return Job(stages, profile, cloud, machines=int(rng.integers(2, 7 - count)), samples=8)
