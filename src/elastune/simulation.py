"""A simulation as a user describes it: the workload, the machines, what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastune.cluster.simulated import Fault, Machines, SimulatedCluster, perfect_speedup
from elastune.cluster.simulated_shared import EachItsOwn, SharedCluster
from elastune.cluster.workload import Stragglers, Synthetic, Workload
from elastune.errors import SpecError, did_you_mean
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.saving import SavingRule
from elastune.spec import Limits, require_number

if TYPE_CHECKING:
    from elastune.experiment import Experiment


PLAIN_JOB = JobProfile(constant(1.0), Scaling({1: 1}))
PLAIN_CLOUD = Cloud("simulated", 1, 0.0, minimum_s=0.0)


@dataclass(frozen=True, slots=True)
class Simulation:
    """`workload` says how trials learn and how long a step takes; None: synthetic curves with steps of one second.
    Where several experiments share the machines, it may be a mapping with one for each of their names.

    `scaling` maps widths to speed-ups ({1: 1, 2: 1.9, 4: 3.6}; in between it is interpolated, above it stays, and below
    it falls with the width). What it says of 1/2 is how fast each of two trials is while both are on one device: half
    as fast as alone, if nothing is said. `resize_s` is what it takes to change the width of a trial that runs. With
    `midway` trials on one device leave a machine that is about to go at once, as with `leave_if_preempted`.
    `stragglers` is the sigma of log-normal factors on step times. What is not given here comes from the profile and the
    cloud that the experiment is planned with; without these machines are there at once and training scales perfectly.
    """

    workload: Workload | Mapping[str, Workload] | None = None
    request_s: float | None = None
    boot_s: float | None = None
    lifetime_s: float | None = None
    notice_s: float = 0.0
    start_s: float | None = None
    resize_s: float = 0.0
    midway: bool = False
    stragglers: float | None = None
    scaling: Mapping[float, float] = field(default_factory=dict)
    faults: Sequence[Fault] = ()

    def __post_init__(self) -> None:
        Machines(lifetime_s=self.lifetime_s, notice_s=self.notice_s)
        if not isinstance(self.midway, bool):
            raise SpecError(f"midway={self.midway!r}: must be true or false")
        for name in ("request_s", "boot_s", "start_s", "resize_s", "stragglers"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), zero=True)
        if self.scaling != {}:
            Scaling(self.scaling)

    def check(self, experiment: Experiment) -> None:
        """Refuse what would never end: a training function returns some day, a synthetic curve does not. Refuse also a
        parameter that recorded curves do not know: it would seem to make no difference, and so would machines that are
        described here where they come from a market.
        """
        for name in ("request_s", "boot_s", "lifetime_s", "notice_s") if experiment.market is not None else ():
            if value := getattr(self, name):
                raise SpecError(
                    f"simulation and market: {name}={value!r}: machines are those of the market: leave it out, and "
                    "give market.boot and market.notice; prices say how long they stay"
                )
        names = [each.settings.name for each in experiment.each()]
        for name in self.workload if isinstance(self.workload, Mapping) else ():
            if name not in names:
                raise SpecError(f"workload[{name!r}]: there is no such experiment; {did_you_mean(name, names)}")
        for each in experiment.each():
            workload = self._given_for(each)
            endless = isinstance(workload, Synthetic | None) and getattr(each.algorithm, "R", 1) is None
            if endless and experiment.settings.limits == Limits():
                algorithm = type(each.algorithm).__name__
                raise SpecError(
                    f"{algorithm}(R=None) on synthetic curves would never end: give R, a deadline or a budget"
                )
            if workload is not None and workload.names is not None:
                _check_names(each, workload.names)

    def _given_for(self, experiment: Experiment) -> Workload | None:
        return self.workload.get(experiment.settings.name) if isinstance(self.workload, Mapping) else self.workload

    def _workload_of(self, experiment: Experiment, step_s: float) -> Workload:
        settings = experiment.settings
        given = self._given_for(experiment)
        return given or Synthetic(settings.metric, settings.mode, step_s=step_s, seed=experiment.seed)

    def cluster(self, experiment: Experiment, start_s: float) -> SimulatedCluster:
        settings, seed = experiment.settings, experiment.seed
        profile, cloud = experiment.profile or PLAIN_JOB, experiment.cloud or PLAIN_CLOUD
        workloads = {each.settings.name: self._workload_of(each, profile.step.expected_s) for each in experiment.each()}
        shared = len(workloads) > 1
        return (SharedCluster if shared else SimulatedCluster)(
            workload=EachItsOwn(workloads) if shared else workloads[settings.name],
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
            midway=self.midway,
            # Saving takes no time here, so it is best done at every report.
            checkpoint_every_s=0.0 if isinstance(every := experiment.checkpoint_every_s, SavingRule) else every,
            seed=seed,
            now_s=start_s,
            cloud=experiment.market,
        )


def _check_names(experiment: Experiment, known: Sequence[str]) -> None:
    for parameter in experiment.space.domains():
        if parameter not in known:
            raise SpecError(
                f"space.{parameter}: the curves of the workload know no such parameter; "
                f"{did_you_mean(parameter, known, 'they know')}"
            )
