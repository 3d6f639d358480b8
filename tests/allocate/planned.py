"""Planned experiments for tests: as a user describes them, and on small worlds of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.worlds import World, world

import elastune as et
from elastune.algorithm import Algorithm
from elastune.allocate.planned import Planned
from elastune.cluster.simulated import Fault
from elastune.forecast import Forecast
from elastune.plan.goal import Goal
from elastune.planning import Planning
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling

PERFECT = JobProfile(constant(1.0), Scaling({1: 1, 64: 64}))


def forecast_of(tuner: et.Tuner) -> Forecast:
    """Of an experiment that is planned stage by stage."""
    found = tuner.plan()
    assert isinstance(found, Forecast)
    return found


@contextmanager
def planned_tuner(
    algorithm: Algorithm,
    profile: JobProfile,
    cloud: Cloud,
    machines: int = 8,
    deadline_s: float | None = None,
    seed: int = 0,
    budget_usd: float | None = None,
    **planning: Any,
) -> Iterator[et.Tuner]:
    """With a storage of its own, for as long as it is used."""
    with tempfile.TemporaryDirectory() as folder:
        yield et.Tuner(
            None,
            space={"x": et.uniform(0, 1)},
            metric="loss",
            algorithm=algorithm,
            machines=machines,
            deadline=deadline_s,
            budget=budget_usd,
            seed=seed,
            name="t",
            storage=Path(folder),
            planning=Planning(profile, cloud, **planning),
        )


def planned_world(
    algorithm: Algorithm,
    deadline_s: float | None = None,
    *,
    machines: int = 6,
    devices: int = 2,
    request_s: float = 0.0,
    boot_s: float = 2.5,
    profile: JobProfile = PERFECT,
    replan: bool = True,
    stragglers: float = 0.0,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    **goal: Any,
) -> World:
    """Steps of one second that scale perfectly, whatever the profile says."""
    cloud = Cloud("m", devices, 3.6, request=constant(request_s), boot=constant(boot_s), minimum_s=0.0)
    stages = algorithm.stages()
    assert stages is not None
    return world(
        algorithm,
        allocator=Planned(stages, profile, cloud, machines, Goal(deadline_s, **goal), replan, seed),
        machines=machines,
        devices=devices,
        price=cloud.price_usd_per_hour / devices,
        request_s=request_s,
        boot_s=boot_s,
        stragglers=stragglers,
        faults=faults,
        seed=seed,
        checkpoint_every_s=1.0,
    )
