"""A simulation as a user describes it: the workload, the machines, what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastune.cluster.simulated import Fault, Machines, SimulatedCluster, perfect_speedup
from elastune.cluster.workload import Stragglers, Synthetic, Workload
from elastune.errors import SpecError, did_you_mean
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.spec import Limits, require_number

if TYPE_CHECKING:
    from elastune.experiment import Experiment


PLAIN_JOB = JobProfile(constant(1.0), Scaling({1: 1}))
PLAIN_CLOUD = Cloud("simulated", 1, 0.0, minimum_s=0.0)


@dataclass(frozen=True, slots=True)
class Simulation:
    """`workload` says how trials learn and how long a step takes; None: synthetic curves with steps of one second.

    `scaling` maps widths to speed-ups ({1: 1, 2: 1.9, 4: 3.6}; in between it is interpolated, above it stays, and below
    it falls with the width). What it says of 1/2 is how fast each of two trials is while both are on one device: half
    as fast as alone, if nothing is said. `resize_s` is what it takes to change the width of a trial that runs.
    `stragglers` is the sigma of log-normal factors on step times. What is not given here comes from the profile and the
    cloud that the experiment is planned with; without these machines are there at once and training scales perfectly.
    """

    workload: Workload | None = None
    request_s: float | None = None
    boot_s: float | None = None
    lifetime_s: float | None = None
    notice_s: float = 0.0
    start_s: float | None = None
    resize_s: float = 0.0
    stragglers: float | None = None
    scaling: Mapping[float, float] = field(default_factory=dict)
    faults: Sequence[Fault] = ()

    def __post_init__(self) -> None:
        Machines(lifetime_s=self.lifetime_s, notice_s=self.notice_s)
        for name in ("request_s", "boot_s", "start_s", "resize_s", "stragglers"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), zero=True)
        if self.scaling != {}:
            Scaling(self.scaling)

    def check(self, experiment: Experiment) -> None:
        """Refuse what would never end: a training function returns some day, a synthetic curve does not. Refuse also a
        parameter that recorded curves do not know: it would seem to make no difference.
        """
        endless = isinstance(self.workload, Synthetic | None) and getattr(experiment.algorithm, "R", 1) is None
        if endless and experiment.settings.limits == Limits():
            name = type(experiment.algorithm).__name__
            raise SpecError(f"{name}(R=None) on synthetic curves would never end: give R, a deadline or a budget")
        if self.workload is not None and self.workload.names is not None:
            for parameter in experiment.space.domains():
                if parameter not in self.workload.names:
                    raise SpecError(
                        f"space.{parameter}: the curves of the workload know no such parameter; "
                        f"{did_you_mean(parameter, self.workload.names, 'they know')}"
                    )

    def cluster(self, experiment: Experiment, start_s: float) -> SimulatedCluster:
        settings, seed = experiment.settings, experiment.seed
        profile, cloud = experiment.profile or PLAIN_JOB, experiment.cloud or PLAIN_CLOUD
        return SimulatedCluster(
            workload=self.workload
            or Synthetic(settings.metric, settings.mode, step_s=profile.step.expected_s, seed=seed),
            machines=Machines(
                experiment.devices,
                cloud.request if self.request_s is None else self.request_s,
                cloud.boot.plus(profile.cold_start) if self.boot_s is None else self.boot_s,
                self.lifetime_s,
                self.notice_s,
                settings.price_usd_per_device_hour,
                cloud.minimum_s,
                cloud.data_usd,
            ),
            stragglers=Stragglers(profile.step if self.stragglers is None else self.stragglers, seed),
            speedup=Scaling(self.scaling)
            if self.scaling
            else experiment.profile.scaling
            if experiment.profile
            else perfect_speedup,
            faults=self.faults,
            start_s=profile.start if self.start_s is None else self.start_s,
            resize_s=self.resize_s,
            checkpoint_every_s=experiment.checkpoint_every_s,
            seed=seed,
            now_s=start_s,
        )
