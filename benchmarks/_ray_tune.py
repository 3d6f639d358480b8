"""The peers of engine.py: Ray Tune with the settings that make it fastest, and plain Ray actors that are restarted.

Its fastest settings were found by trying: a class rather than a function, actors that are reused, no loggers, no
checkpoints, no output, and no `max_concurrent_trials`: the CPUs are the limit anyway. Where it depends on the machine
which one is faster, engine.py measures both.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import ray
from _measured import Resizes, Throughput, driver_cpu_s
from ray import tune
from ray.tune.schedulers import ResourceChangingScheduler

ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "RAY_AIR_NEW_OUTPUT": "0",
}
FEW_PENDING = {"TUNE_MAX_PENDING_TRIALS_PG": "1"}
"""By default it prepares 200 trials before the first one runs, where the clock does not see it."""
BUFFERED = {"TUNE_RESULT_BUFFER_LENGTH": "2", "TUNE_RESULT_BUFFER_MIN_TIME_S": "1000"}
"""Hands over all results of a trial at its end, which is too late for any scheduler to act on them.

Ray 2.60 mixes up its two settings: 2 is taken for the seconds and 1000 for the length. Set as it is documented, a
buffer never holds more than one result.
"""


class Clock(tune.Callback):
    """When things happened in the driver."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.started_s: list[float] = []
        self.completed_s: list[float] = []
        self.results: list[tuple[float, Any]] = []
        self.workers_ms: list[float] = []

    def on_step_begin(self, *args: Any, **info: Any) -> None:
        if self.began_s is None:
            self.began_s = time.perf_counter()

    def on_trial_start(self, *args: Any, **info: Any) -> None:
        self.started_s.append(time.perf_counter())

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.results.append((time.perf_counter(), result.get("width")))
        if "reset_s" in result:
            self.workers_ms.append(1000 * (time.perf_counter() - result["reset_s"]))

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        self.completed_s.append(time.perf_counter())


class Idle(tune.Trainable):
    """Reports as often as it is told, and does nothing else."""

    def setup(self, config: dict[str, Any]) -> None:
        self._reports = config["reports"]
        self._reset: dict[str, float] = {}
        if config["torch"]:
            import torch  # noqa: F401

    def step(self) -> dict[str, Any]:
        reset, self._reset = self._reset, {}
        return {"loss": 1.0, "done": self.iteration + 1 >= self._reports, **reset}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._reset = {"reset_s": time.perf_counter()}  # one clock for all processes of a computer
        return True


class Elastic(tune.Trainable):
    """Trains with as many threads as it has CPUs: more processes would only make it slower to start."""

    def setup(self, config: dict[str, Any]) -> None:
        from _net import Training

        assert self.trial_resources is not None
        self._cpus = int(self.trial_resources.required_resources["CPU"])
        self._training, self._steps = Training(threads=self._cpus), config["steps"]

    def step(self) -> dict[str, Any]:
        return {"loss": self._training.step(), "width": self._cpus, "done": self.iteration + 1 >= self._steps}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_bytes(pickle.dumps(self._training.save()))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self._training.load(pickle.loads(Path(checkpoint, "state").read_bytes()))


def fit(
    trainable: type[tune.Trainable],
    space: dict[str, Any],
    cpus: int = 1,
    trials: int = 1,
    scheduler: Any = None,
    settings: Mapping[str, str] | None = None,
) -> Clock:
    clock = Clock()
    with TemporaryDirectory() as folder, patch.dict(os.environ, {**ENVIRONMENT, **(settings or {})}):
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": cpus}),
            param_space=space,
            tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=scheduler is None, scheduler=scheduler),
            run_config=tune.RunConfig(
                storage_path=folder,
                callbacks=[clock],
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                sync_config=tune.SyncConfig(sync_artifacts=False),
            ),
        )
        results = tuner.fit()
    # It counts a run that was interrupted as finished.
    assert results.num_errors == 0 and len(clock.completed_s) == trials, "every trial must have been completed"
    return clock


def throughput(trials: int, reports: int, settings: Mapping[str, str], cpus: int = 1) -> Throughput:
    space = {"x": tune.uniform(0, 1), "reports": reports, "torch": False}
    begin_s, cpu_s = time.perf_counter(), driver_cpu_s()
    clock = fit(Idle, space, cpus, trials, settings=settings)
    fit_s, cpu_s = time.perf_counter() - begin_s, driver_cpu_s() - cpu_s
    assert len(clock.results) == trials * reports, "every report must have arrived"
    starts = zip(clock.completed_s, [at_s for at_s, _ in clock.results[reports::reports]], strict=False)
    return Throughput(
        trials=len(clock.completed_s),
        reports=len(clock.results),
        span_s=clock.results[-1][0] - clock.started_s[0],
        fit_s=fit_s,
        cpu_s=cpu_s,
        starts_ms=[1000 * (reported_s - completed_s) for completed_s, reported_s in starts],
        workers_ms=clock.workers_ms,
    )


def cold_start_ms() -> float:
    """From the first look for something to start to the first report of a trial that imports torch."""
    clock = fit(Idle, {"reports": 1, "torch": True})
    assert clock.began_s is not None
    return 1000 * (clock.results[0][0] - clock.began_s)


def resizes(changes: int, steps: int) -> Resizes:
    """One trial that changes between 1 and 2 CPUs after so many steps."""

    def other_width(controller: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> Any:
        if result["training_iteration"] % steps:
            return None
        return tune.PlacementGroupFactory([{"CPU": 3 - result["width"]}])

    scheduler = ResourceChangingScheduler(resources_allocation_function=other_width)  # around first in, first out
    clock = fit(Elastic, {"steps": (changes + 1) * steps}, scheduler=scheduler)
    # The last step before each change; the last one of all ends the trial.
    return Resizes(clock.results, [at_s for at_s, _ in clock.results[steps - 1 : -1 : steps]])


# ----------------------------------------------------------------------------------------- a restart, without Ray Tune


class Member:
    """One process of a trial, as a plain actor."""

    def __init__(self, rank: int, world_size: int, port: int, saved: dict[str, Any] | None) -> None:
        from _net import Training, meet

        self._rank, self._world_size, self._training = rank, world_size, Training()
        if saved is not None:
            self._training.load(saved)
        if world_size > 1:
            meet(rank, world_size, ("127.0.0.1", port))

    def step(self) -> float:
        return self._training.step(self._rank, self._world_size)

    def save(self) -> dict[str, Any]:
        return self._training.save()


def restarts(changes: int, steps: int) -> Resizes:
    """As RubberBand changes the workers of a trial: checkpoint, end them, start others, restore."""
    resizes = Resizes()
    members = _launch(1, None)
    for change in range(changes + 1):
        for _ in range(steps):
            ray.get([member.step.remote() for member in members])
            resizes.steps.append((time.perf_counter(), len(members)))
        if change < changes:
            resizes.asked_s.append(time.perf_counter())
            saved = members[0].save.remote()
            ray.wait([saved])
            _end(members)
            members = _launch(3 - len(members), saved)
    _end(members)
    return resizes


def _launch(width: int, saved: Any) -> list[Any]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    member: Any = ray.remote(num_cpus=1)(Member)
    return [member.remote(rank, width, port, saved) for rank in range(width)]


def _end(members: list[Any]) -> None:
    for member in members:
        ray.kill(member)
