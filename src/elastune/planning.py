"""Planning as a user asks for it: what was measured, which machines, how sure it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastune.algorithm.base import Algorithm
from elastune.allocate.planned import Planned
from elastune.errors import Infeasible, SpecError
from elastune.plan.goal import Goal
from elastune.profile import Cloud, JobProfile, cloud_for, load_profile, parse_cloud
from elastune.spec import Limits

AnyCloud = str | Mapping[str, Any] | Cloud


@dataclass(frozen=True, slots=True)
class Planning:
    """`profile` is what `elastune profile` has measured (its file), or a JobProfile of your own; SEER and others that
    plan by the clock can do without. `cloud` is a machine type of the built-in catalog ("p3.8xlarge"), a mapping as in
    YAML, or a Cloud; without one it is that of the profile's file. Of a list the one whose plan is best is taken: types
    with the same devices, because the profile is the same for all.

    With `confidence` (0.95) the deadline is met with that probability, else in expectation. `replan` makes the plan
    anew at every barrier, `early_release` gives machines back as soon as their trials are done, `boot_ahead` asks for
    those of the next stage before it begins.
    """

    profile: str | Path | JobProfile | None = None
    cloud: AnyCloud | Sequence[AnyCloud] | None = None
    confidence: float | None = None
    replan: bool = True
    early_release: bool = True
    boot_ahead: bool = True

    def __post_init__(self) -> None:
        for name in ("replan", "early_release", "boot_ahead"):
            if not isinstance(getattr(self, name), bool):
                raise SpecError(f"{name}={getattr(self, name)!r}: must be true or false")

    def load(self) -> tuple[JobProfile | None, list[Cloud]]:
        """The profile, and the types of machines to choose from."""
        if isinstance(self.profile, JobProfile | None):
            profile, cloud = self.profile, None
        elif isinstance(self.profile, str | Path):
            profile, cloud = load_profile(Path(self.profile))
        else:
            raise SpecError(f"profile={self.profile!r}: must be a file that 'elastune profile' wrote, or a JobProfile")
        if self.cloud is None:
            if cloud is None:
                raise SpecError("cloud is missing: give a machine type, such as cloud='p3.8xlarge', or a mapping")
            return profile, [cloud]
        given = (self.cloud,) if isinstance(self.cloud, str | Mapping | Cloud) else self.cloud
        if not isinstance(given, Sequence):
            raise SpecError(f"cloud={given!r}: must be a machine type, such as 'p3.8xlarge', a mapping, or a list")
        clouds = [_cloud(each) for each in given]
        if not clouds:
            raise SpecError("cloud=[]: must have at least one machine type")
        return profile, clouds

    def allocator(self, algorithm: Algorithm, machines: int, limits: Limits, seed: int) -> Planned:
        """What carries the plan out, on the type of machine whose plan is best."""
        if self.profile is None:
            name = type(algorithm).__name__
            raise SpecError(f"planning: profile is missing: {name} is planned with what 'elastune profile' measures")
        profile, clouds = self.load()
        assert profile is not None
        planned = [self._on(algorithm, profile, cloud, machines, limits, seed) for cloud in clouds]
        return planned[0] if len(planned) == 1 else min(planned, key=_rank)

    def _on(
        self, algorithm: Algorithm, profile: JobProfile, cloud: Cloud, machines: int, limits: Limits, seed: int
    ) -> Planned:
        stages = algorithm.stages()
        if stages is None:
            raise SpecError(
                f"{type(algorithm).__name__} cannot be planned: which trials it trains is not known before the run. "
                "Use SuccessiveHalving, Hyperband, Stages, PBT or FIFO(R=...)"
            )
        if algorithm.max_concurrent is not None:
            raise SpecError(
                f"max_concurrent={algorithm.max_concurrent}: a plan says itself how many trials train at once: leave "
                "it out, or do not plan"
            )
        goal = Goal(limits.deadline_s, limits.budget_usd, self.confidence, self.early_release, self.boot_ahead)
        brackets = len({stage.bracket for stage in stages})
        if machines < brackets:
            raise SpecError(
                f"machines={machines}: {brackets} brackets run side by side, each on machines of its own: give "
                f"at least {brackets}"
            )
        return Planned(stages, profile, cloud, machines, goal, self.replan, seed)


def _rank(planned: Planned) -> tuple[float, float]:
    """The least cost first, or the least time where there is a budget only. What cannot be planned comes last: if all
    are like that, the first of them says so when the plan is asked for.
    """
    goal = planned.goal
    try:
        plans = planned.prepare()
    except Infeasible:
        return math.inf, math.inf
    cost_usd, time_s = sum(plan.cost_usd for plan in plans), max(plan.time_s for plan in plans)
    by_time = goal.deadline_s is None and goal.budget_usd is not None
    return (time_s, cost_usd) if by_time else (cost_usd, time_s)


def _cloud(given: Any) -> Cloud:
    if isinstance(given, Cloud):
        return given
    return cloud_for(given) if isinstance(given, str) else parse_cloud(given, "cloud")
