"""A simulation as a user describes it: the workload, the machines, what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastune.cluster.simulated import Fault, Machines, SimulatedCluster, perfect_speedup
from elastune.cluster.workload import Stragglers, Synthetic, Workload
from elastune.errors import SpecError
from elastune.profile.scaling import Scaling
from elastune.spec import Limits, require_number

if TYPE_CHECKING:
    from elastune.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Simulation:
    """`workload` says how trials learn and how long a step takes; None: synthetic curves with steps of one second.

    `scaling` maps widths to speed-ups ({1: 1, 2: 1.9, 4: 3.6}; in between it is interpolated, above it stays, and below
    it falls with the width: each of two trials that share a device trains half as fast as it would alone).
    `stragglers` is the sigma of log-normal factors on step times.
    """

    workload: Workload | None = None
    request_s: float = 0.0
    boot_s: float = 0.0
    lifetime_s: float | None = None
    notice_s: float = 0.0
    start_s: float = 0.0
    stragglers: float = 0.0
    scaling: Mapping[float, float] = field(default_factory=dict)
    faults: Sequence[Fault] = ()

    def __post_init__(self) -> None:
        self._machines(devices=1, price=0.0)
        require_number("stragglers", self.stragglers, zero=True)
        require_number("start_s", self.start_s, zero=True)
        if self.scaling != {}:
            Scaling(self.scaling)

    def check(self, experiment: Experiment) -> None:
        """Refuse what would never end: a training function returns some day, a synthetic curve does not."""
        endless = isinstance(self.workload, Synthetic | None) and getattr(experiment.algorithm, "R", 1) is None
        if endless and experiment.settings.limits == Limits():
            name = type(experiment.algorithm).__name__
            raise SpecError(f"{name}(R=None) on synthetic curves would never end: give R, a deadline or a budget")

    def _machines(self, devices: int, price: float) -> Machines:
        return Machines(devices, self.request_s, self.boot_s, self.lifetime_s, self.notice_s, price)

    def cluster(self, experiment: Experiment, start_s: float) -> SimulatedCluster:
        settings, seed = experiment.settings, experiment.seed
        return SimulatedCluster(
            workload=self.workload or Synthetic(settings.metric, settings.mode, seed=seed),
            machines=self._machines(experiment.devices, settings.price_usd_per_device_hour),
            stragglers=Stragglers(self.stragglers, seed),
            speedup=Scaling(self.scaling) if self.scaling else perfect_speedup,
            faults=self.faults,
            start_s=self.start_s,
            checkpoint_every_s=experiment.checkpoint_every_s,
            seed=seed,
            now_s=start_s,
        )
