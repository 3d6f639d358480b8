"""The same reports, released one at a time, lead to the same commands on the simulated cluster and on Ray."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import elastune as et
from elastune import messages as m
from elastune.algorithm.base import Algorithm
from elastune.cluster.ray import RayCluster
from elastune.cluster.simulated import Machines, SimulatedCluster
from elastune.cluster.workload import Stragglers, Synthetic
from elastune.control.run import Loop
from elastune.experiment import Experiment
from elastune.provider import Here
from elastune.record.checkpoints import CheckpointStore
from elastune.record.journal import MemoryJournal
from elastune.tuner import Tuner
from elastune.worker.setup import WorkerSetup

pytestmark = pytest.mark.usefixtures("ray_here")
WORKLOAD = Synthetic("loss", "min")
NEVER_S = 1e9


def gated(gate: Path) -> Any:
    """A trainable that follows the synthetic curves, and waits before each report until it is let through."""
    workload = WORKLOAD

    def train(config: dict[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        curve = workload.curve(config)
        while True:
            done += 1
            while not (gate / f"{et.get_context().trial_id}-{done}").exists():
                time.sleep(0.001)
            et.report(curve(done) or {}, checkpoint=done)

    return train


class Released:
    """A cluster on which one report after the other is let through, in the order of a script."""

    def __init__(self, cluster: RayCluster, gate: Path, script: Sequence[tuple[str, int]]) -> None:
        self._cluster, self._gate, self._script = cluster, gate, list(script)
        self.started_unix_s = cluster.started_unix_s
        self.submit, self.inventory, self.wake, self.close = (
            cluster.submit,
            cluster.inventory,
            cluster.wake,
            cluster.close,
        )

    def poll(self, until_s: float | None) -> m.Turn:
        if self._cluster.inventory().trials:
            trial, iteration = self._script.pop(0)
            (self._gate / f"{trial}-{iteration}").touch()
        return self._cluster.poll(until_s)


def commands_of(loop: Loop, records: list[m.Record]) -> list[object]:
    loop.start(m.RunStarted("t", "loss", "min", 0, None, None, 0.0, 0.0, {}, {}))
    loop.run()
    return [_timeless(command) for record in records for command in record.commands]


def _timeless(command: m.AnyCommand) -> object:
    """A command without what belongs to the world: where and how a checkpoint is kept."""
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    checkpoint = fields.pop("checkpoint", None)
    saved = None if checkpoint is None else (checkpoint.trial, checkpoint.lineage, checkpoint.iteration)
    return type(command).__name__, saved, fields


def experiment_with(algorithm: Algorithm) -> Experiment:
    space = {"lr": et.loguniform(1e-4, 1e-1), "layers": et.choice([2, 3, 4])}
    tuner = Tuner(None, space=space, metric="loss", algorithm=algorithm, devices=2, name="t")
    return tuner.experiment


@pytest.mark.parametrize(
    "algorithm",
    [
        et.SuccessiveHalving(n=9, r=1, R=9, eta=3),
        et.ASHA(n=12, r=1, R=9, eta=3),
        et.Hyperband(R=4, eta=2),
        et.FIFO(n=9, R=3),
        et.PBT(n=4, R=6, perturbation_interval=2),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_simulated_cluster_and_ray_get_the_same_commands(algorithm: Algorithm, tmp_path: Path) -> None:
    experiment = experiment_with(algorithm)
    simulated: list[m.Record] = []
    world = SimulatedCluster(WORKLOAD, Machines(devices=2), Stragglers(0.3, seed=1), checkpoint_every_s=NEVER_S)
    expected = commands_of(
        Loop(experiment.controller(), world, MemoryJournal(), observers=[simulated.append]), simulated
    )
    reports = [e for record in simulated for e in record.events if isinstance(e, m.TrialReported)]
    assert all(sum(isinstance(e, m.TrialReported) for e in record.events) <= 1 for record in simulated)

    gate = tmp_path / "gate"
    gate.mkdir()
    store = CheckpointStore(str(tmp_path / "checkpoints"))
    setup = WorkerSetup(cloudpickle.dumps(gated(gate)), (), store, tmp_path / "logs", NEVER_S, 0)
    real: list[m.Record] = []
    cluster = Released(RayCluster(setup, Here(2, 0.0)), gate, [(report.trial, report.iteration) for report in reports])
    try:
        got = commands_of(Loop(experiment.controller(), cluster, MemoryJournal(), observers=[real.append]), real)
    finally:
        cluster.close()

    assert len(expected) > 10
    assert got == expected
