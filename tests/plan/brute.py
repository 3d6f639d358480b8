"""Every valid plan of a small job, each followed machine by machine: slow, plain, and knowing nothing of labels."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from itertools import product

from elastune.messages import PlannedStage
from elastune.plan.estimate import ask_ahead_s
from elastune.plan.model import Job, Plan, allocations, machines_for


def all_plans(job: Job, early_release: bool, boot_ahead: bool) -> Iterator[Plan]:
    """Every allocation, with every number of machines that holds it, asked for at the barrier or ahead of it."""
    choices = [
        [
            PlannedStage(stage.trials, stage.iterations, devices, machines)
            for devices in allocations(stage.trials, job.cloud.devices, job.machines)
            for machines in range(machines_for(stage.trials, devices, job.cloud.devices), job.machines + 1)
        ]
        for stage in job.stages
    ]
    for stages in product(*choices):
        for ahead in product(*(_asks(job, stages, number, boot_ahead) for number in range(len(stages)))):
            planned = (
                PlannedStage(stage.trials, stage.iterations, stage.devices, stage.machines, ask_s)
                for stage, ask_s in zip(stages, ahead, strict=True)
            )
            yield Plan(tuple(planned), early_release)


def _asks(job: Job, stages: tuple[PlannedStage, ...], number: int, boot_ahead: bool) -> list[float | None]:
    added = stages[number].machines - stages[number - 1].machines if number else 0
    if not boot_ahead or added <= 0:
        return [None]
    ask_s = ask_ahead_s(job, number - 1, stages[number - 1].devices, added)
    return [None] if ask_s is None else [None, ask_s]


def follow(job: Job, plan: Plan) -> tuple[float, float]:
    """Time and cost where nothing varies: every machine has a birth and a death, and is billed for its own life."""
    now_s, began_s, data_usd, busy_usd = 0.0, 0.0, 0.0, 0.0
    cloud, profile = job.cloud, job.profile
    births = [-age_s for age_s in job.held_s]
    lives = [-births.pop(0) for _ in range(len(births) - plan.stages[0].machines)]
    for ago_s in job.asked_s[max(0, plan.stages[0].machines - len(births)) :]:
        if ago_s > cloud.request.mean_s:  # it boots, and is given back
            lives.append(ago_s - cloud.request.mean_s)
            data_usd += cloud.data_usd
    for number, stage in enumerate(plan.stages):
        begin_s, missing = now_s, stage.machines - len(births)
        data_usd += max(0, missing) * cloud.data_usd
        asked_s = now_s if stage.ask_s is None else min(began_s + stage.ask_s, now_s)
        asks_s = [-ago_s for ago_s in job.asked_s] if number == 0 else []
        for ask_s in (asks_s + [asked_s] * max(0, missing))[: max(0, missing)]:
            served_s = ask_s + cloud.request.mean_s
            begin_s = max(begin_s, served_s + cloud.boot.mean_s + profile.cold_start.mean_s)
            births.append(served_s)
        trial_s = profile.start.mean_s + stage.iterations * profile.step.mean_s / profile.scaling(stage.width)
        done_s = sorted([0.0] * (stage.machines) + _machine_ends(stage, trial_s, cloud.devices))[-stage.machines :]
        busy_usd += stage.trials * stage.width * trial_s * cloud.price_usd_per_hour / cloud.devices / 3600
        now_s = begin_s + max(done_s)
        kept = plan.stages[number + 1].machines if number + 1 < len(plan.stages) else 0
        births.sort()
        for end_s in done_s[: max(0, len(births) - kept)]:
            lives.append((begin_s + end_s if plan.early_release else now_s) - births.pop(0))
        began_s = begin_s
    if cloud.billing == "function":
        return now_s, busy_usd + data_usd
    paid_s = sum(max(life_s, cloud.minimum_s) for life_s in lives) - sum(job.held_s)
    return now_s, paid_s * cloud.price_usd_per_hour / 3600 + data_usd


def _machine_ends(stage: PlannedStage, trial_s: float, devices: int) -> list[float]:
    """Trial by trial on the device that is first free."""
    width = stage.width
    if width > devices:
        return [trial_s] * (stage.trials * width // devices)
    side_by_side = devices // width
    slots = [(0.0, slot) for slot in range(min(stage.devices // width, stage.trials))]
    heapify(slots)
    for _ in range(stage.trials):
        free_s, slot = slots[0]
        heapreplace(slots, (free_s + trial_s, slot))
    ends: dict[int, float] = {}
    for free_s, slot in slots:
        ends[slot // side_by_side] = max(free_s, ends.get(slot // side_by_side, 0.0))
    return list(ends.values())
