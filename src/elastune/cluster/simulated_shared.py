"""A simulated cluster on which trials of several experiments train, each as the workload of its own says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from elastune import messages as m
from elastune.cluster.simulated import SimulatedCluster
from elastune.cluster.workload import Curve, Workload


class EachItsOwn(Workload):
    """A configuration comes with the name of its experiment: {name: configuration}."""

    def __init__(self, workloads: Mapping[str, Workload]) -> None:
        self._workloads = workloads

    def curve(self, config: m.Config) -> Curve:
        ((experiment, own),) = config.items()
        return self._workloads[experiment].curve(own)

    def step_s(self, config: m.Config, iteration: int) -> float:
        ((experiment, own),) = config.items()
        return self._workloads[experiment].step_s(own, iteration)


class SharedCluster(SimulatedCluster):
    def submit(self, commands: Sequence[m.AnyCommand]) -> None:
        super().submit([_named(command) if isinstance(command, m.StartTrial) else command for command in commands])


def _named(command: m.StartTrial) -> m.StartTrial:
    return msgspec.structs.replace(command, config={m.experiment_of(command.trial): command.config})
