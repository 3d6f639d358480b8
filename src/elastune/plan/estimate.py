"""What a plan takes and costs: the model that all planners share.

Stages meet at barriers. Before a stage that needs more machines than are held, they are asked for in one request and
then boot side by side; nothing trains until all are there. Every machine is billed for its own life, by the one cost
function's rules. All samples are followed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elastune.cost import SECONDS_PER_HOUR, life_usd
from elastune.plan.model import Candidate, Job, Plan
from elastune.profile.latency import Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of every sample: when the job is done, and what was paid."""

    time_s: Floats
    cost_usd: Floats
    begin_s: tuple[Floats, ...]
    """When the trials of each stage begin to train."""
    end_s: tuple[Floats, ...]
    changes: tuple[tuple[float, int], ...]
    """When machines are expected to come (their bill begins) and to go, in order of time, and how many."""

    @property
    def mean_s(self) -> float:
        return float(self.time_s.mean())

    @property
    def mean_usd(self) -> float:
        return float(self.cost_usd.mean())


class _Machines:
    """Those that are held in each sample, the oldest first, and what was paid for those that were given back."""

    def __init__(self, job: Job) -> None:
        self._cloud = job.cloud
        self._paid_from = np.tile(-np.array(job.held_s), (job.draws, 1))
        self.changes = [(0.0, len(job.held_s))]
        before_s = sum(job.held_s) if job.cloud.billing == "instance" else 0.0
        self.paid_usd = np.full(job.draws, -before_s * job.cloud.price_usd_per_hour / SECONDS_PER_HOUR)

    @property
    def count(self) -> int:
        return int(self._paid_from.shape[1])

    def add(self, paid_from: Floats) -> None:
        """One for each column. Those that were awaited may be older than some that are held."""
        self._paid_from = np.sort(np.hstack([self._paid_from, paid_from]), axis=1)
        self.paid_usd += paid_from.shape[1] * self._cloud.data_usd
        self.changes += [(float(from_s), 1) for from_s in paid_from.mean(axis=0)]

    def release(self, at_s: Floats) -> None:
        """The oldest, one for each column, at these times."""
        count = at_s.shape[1]
        self.changes += [(float(when_s), -1) for when_s in at_s.mean(axis=0)]
        if self._cloud.billing == "instance":
            lives_s = at_s - self._paid_from[:, :count]
            price, minimum_s = self._cloud.price_usd_per_hour, self._cloud.minimum_s
            self.paid_usd += life_usd(lives_s, price, minimum_s, np.maximum).sum(axis=1)
        self._paid_from = self._paid_from[:, count:]


def estimate(job: Job, plan: Plan) -> Estimate:
    """Follow every sample through the plan."""
    now_s, machines = np.zeros(job.draws), _Machines(job)
    machines.release(np.zeros((job.draws, max(0, machines.count - plan.stages[0].machines))))
    begins: list[Floats] = []
    ends: list[Floats] = []
    for number, stage in enumerate(plan.stages):
        begin_s, missing = now_s, stage.machines - machines.count
        if number == 0 and job.asked_s:
            awaited = min(max(missing, 0), len(job.asked_s))
            machines.paid_usd += job.done_without_usd(awaited)
            if awaited:
                begin_s, paid_from_s = job.awaited(awaited)
                machines.add(paid_from_s)
                missing -= awaited
        if missing > 0:
            asked_s = np.minimum(begins[-1] + stage.ask_s, now_s) if begins and stage.ask_s is not None else now_s
            served_s = asked_s + job.request_s[number]
            begin_s = np.maximum(begin_s, served_s + job.boot_s[number][:, missing - 1])
            machines.add(np.repeat(served_s[:, None], missing, axis=1))
        busy_s = job.ends_s(number, stage.devices)
        now_s = begin_s + busy_s[:, -1]
        following = plan.stages[number + 1].machines if number + 1 < len(plan.stages) else 0
        released = max(0, stage.machines - following)
        idle_s = np.zeros((job.draws, stage.machines - busy_s.shape[1]))
        done_s = begin_s[:, None] + np.hstack([idle_s, busy_s])
        machines.release(done_s[:, :released] if plan.early_release else np.repeat(now_s[:, None], released, axis=1))
        if job.cloud.billing == "function":
            machines.paid_usd += job.busy_usd(number, stage.width)
        begins.append(begin_s)
        ends.append(now_s)
    changes = tuple(sorted(change for change in machines.changes if change[1]))
    return Estimate(now_s, machines.paid_usd, tuple(begins), tuple(ends), changes)


def expect(job: Job, plan: Plan) -> Candidate:
    """The plan with what it is expected to take and to cost."""
    expected = estimate(job, plan)
    return Candidate(expected.mean_s, expected.mean_usd, plan)


def ask_ahead_s(job: Job, number: int, devices: int, added: int) -> float | None:
    """When, after the beginning of a stage, to ask for the machines that the next one needs more, so that they are
    expected to be there when it ends; None where they come at once anyway.
    """
    lead_s = float((job.request_s[number + 1] + job.boot_s[number + 1][:, added - 1]).mean())
    return max(0.0, float(job.ends_s(number, devices)[:, -1].mean()) - lead_s) if lead_s else None
