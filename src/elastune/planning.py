"""Planning as a user asks for it: what was measured, which machines, how sure it must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastune.algorithm.base import Algorithm
from elastune.allocate.planned import Planned
from elastune.errors import SpecError
from elastune.plan.goal import Goal
from elastune.profile import Cloud, JobProfile, cloud_for, load_profile, parse_cloud
from elastune.spec import Limits


@dataclass(frozen=True, slots=True)
class Planning:
    """`profile` is what `elastune profile` has measured (its file), or a JobProfile of your own. `cloud` is a machine
    type of the built-in catalog ("p3.8xlarge"), a mapping as in YAML, or a Cloud; without one it is that of the
    profile's file.

    With `confidence` (0.95) the deadline is met with that probability, else in expectation. `replan` makes the plan
    anew at every barrier, `early_release` gives machines back as soon as their trials are done, `boot_ahead` asks for
    those of the next stage before it begins.
    """

    profile: str | Path | JobProfile
    cloud: str | Mapping[str, Any] | Cloud | None = None
    confidence: float | None = None
    replan: bool = True
    early_release: bool = True
    boot_ahead: bool = True

    def __post_init__(self) -> None:
        for name in ("replan", "early_release", "boot_ahead"):
            if not isinstance(getattr(self, name), bool):
                raise SpecError(f"{name}={getattr(self, name)!r}: must be true or false")

    def load(self) -> tuple[JobProfile, Cloud]:
        if isinstance(self.profile, JobProfile):
            profile, cloud = self.profile, None
        elif isinstance(self.profile, str | Path):
            profile, cloud = load_profile(Path(self.profile))
        else:
            raise SpecError(f"profile={self.profile!r}: must be a file that 'elastune profile' wrote, or a JobProfile")
        if isinstance(self.cloud, Cloud):
            cloud = self.cloud
        elif isinstance(self.cloud, str):
            cloud = cloud_for(self.cloud)
        elif self.cloud is not None:
            cloud = parse_cloud(self.cloud, "cloud")
        if cloud is None:
            raise SpecError("cloud is missing: give a machine type, such as cloud='p3.8xlarge', or a mapping")
        return profile, cloud

    def allocator(
        self, algorithm: Algorithm, profile: JobProfile, cloud: Cloud, machines: int, limits: Limits, seed: int
    ) -> Planned:
        stages = algorithm.stages()
        if stages is None:
            raise SpecError(
                f"{type(algorithm).__name__} cannot be planned: which trials it trains is not known before the run. "
                "Use SuccessiveHalving, Hyperband, Stages or FIFO(R=...)"
            )
        goal = Goal(limits.deadline_s, limits.budget_usd, self.confidence, self.early_release, self.boot_ahead)
        brackets = len({stage.bracket for stage in stages})
        if machines < brackets:
            raise SpecError(
                f"machines={machines}: {brackets} brackets run side by side, each on machines of its own: give "
                f"at least {brackets}"
            )
        return Planned(stages, profile, cloud, machines, goal, self.replan, seed)
