"""What each planner would pay for a job, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from elastune.messages import PlannedStage
from elastune.plan.estimate import expect
from elastune.plan.exact import frontier
from elastune.plan.greedy import greedy
from elastune.plan.model import Candidate, Job, Plan, allocations, cheapest
from elastune.plan.naive import naive_plans
from elastune.plan.static import static_plans
from elastune.spec import Stage

LABEL = 34


@dataclass(frozen=True, slots=True)
class Costs:
    """By one deadline; None where a planner has no plan that meets it."""

    ours: Candidate | None
    greedy: Candidate | None
    static: Candidate | None
    naive: Candidate | None

    @property
    def static_over_ours(self) -> float | None:
        return None if self.static is None or self.ours is None else self.static.cost_usd / self.ours.cost_usd


@dataclass(frozen=True)
class Planners:
    """All planners on one job. `frontier` and the others are worked out once for all deadlines."""

    job: Job

    @cached_property
    def ours(self) -> list[Candidate]:
        return frontier(self.job)

    @cached_property
    def without_boot_ahead(self) -> list[Candidate]:
        return frontier(self.job, boot_ahead=False)

    @cached_property
    def without_early_release(self) -> list[Candidate]:
        return frontier(self.job, early_release=False)

    @cached_property
    def static(self) -> list[Candidate]:
        return static_plans(self.job)

    @cached_property
    def static_of_free_widths(self) -> list[Candidate]:
        """Stronger than the paper's: a stage may leave devices of the cluster unused where fewer are faster."""
        plans = []
        for machines in range(1, self.job.machines + 1):
            stages = tuple(fastest_stage(self.job, stage, machines) for stage in self.job.stages)
            plans.append(expect(self.job, Plan(stages, early_release=False)))
        return plans

    @cached_property
    def naive(self) -> list[Candidate]:
        return naive_plans(self.job)

    def by(self, deadline_s: float) -> Costs:
        return Costs(
            cheapest(self.ours, deadline_s),
            greedy(self.job, deadline_s),
            cheapest(self.static, deadline_s),
            cheapest(self.naive, deadline_s),
        )


def fastest_stage(job: Job, stage: Stage, machines: int) -> PlannedStage:
    ways = [
        PlannedStage(stage.trials, stage.iterations, devices, machines)
        for devices in allocations(stage.trials, job.cloud.devices, machines)
    ]
    alone = replace(job, stages=(stage,))
    return min(ways, key=lambda way: expect(alone, Plan((way,), early_release=False)).time_s)


def print_header(title: str, label: str, *more: str) -> None:
    print(f"\n{title}")
    columns = ("ours", "greedy", "static", "naive", "static/ours")
    print(f"{label:{LABEL}}" + "".join(f"{column:>12}" for column in (*columns, *more)))


def print_costs(label: str, costs: Costs, *more: str) -> None:
    cells = [usd(each) for each in (costs.ours, costs.greedy, costs.static, costs.naive)]
    cells.append("-" if costs.static_over_ours is None else f"{costs.static_over_ours:.2f}")
    print(f"{label:{LABEL}}" + "".join(f"{cell:>12}" for cell in (*cells, *more)))


def usd(candidate: Candidate | None) -> str:
    return "-" if candidate is None else f"${candidate.cost_usd:,.2f}"
