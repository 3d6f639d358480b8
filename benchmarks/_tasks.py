"""The tasks that accuracy.py compares algorithms on, and the algorithms.

The tasks, and the settings of the baselines, were fixed before any result was seen. The six tasks of LCBench are those
whose full training takes longest. The additions to SEER came later: they were chosen on 13 other tasks of LCBench, two
other synthetic ones, and these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from _data import data_folder

import elastune as et
from elastune.bench import Contest, Entry
from elastune.cluster.workload import Synthetic, Workload, table_from_file
from elastune.cluster.workload_lcbench import EPOCHS, LCBench
from elastune.config_file import ALGORITHMS
from elastune.profile import Cloud, JobProfile, Scaling, constant, from_table
from elastune.search import RandomSearcher
from elastune.space import Space
from elastune.spec import Mode

ETA = 4
ON_MACHINE = 4
PRICE_USD = 1.0
"""Per device and hour."""
BOOT, START = 0.5, 0.05
"""Of a machine and of a trial, in t_min."""
GRACE_S = 1e-9
"""What is reported after the deadline does not count."""
CONFIGURATIONS = 200
"""From which t_min is computed."""
MANY = 1000
"""Machines that may be held at once by those who rent as they like."""


@dataclass(frozen=True, slots=True)
class Task:
    """`deadline` counts t_min: one median epoch on one device. The budget buys `devices` until the deadline."""

    name: str
    curves: str
    scaling: str
    deadline: float
    devices: int
    p_max: int

    def variant(self, deadline: float | None = None, devices: int | None = None) -> Task:
        """The same with another deadline or budget; with its own it is the task itself."""
        other = replace(self, deadline=deadline or self.deadline, devices=devices or self.devices)
        return self if other == self else replace(other, name=f"{self.name}, {other.devices} x {other.deadline:g}")


TASKS = (
    Task("klein", "klein", "ResNet18", 30, 16, 8),
    Task("lcbench-7593", "7593", "ResNet18", 30, 16, 4),
    Task("lcbench-168908", "168908", "VGG16", 15, 4, 4),
    Task("lcbench-189354", "189354", "ResNet50", 60, 16, 4),
    Task("lcbench-189866", "189866", "VGG16", 30, 8, 4),
    Task("lcbench-189873", "189873", "ResNet50", 30, 32, 8),
    Task("lcbench-189908", "189908", "ResNet18", 15, 32, 4),
    Task("synthetic-fast", "fast", "VGG16", 30, 8, 4),
    Task("synthetic-slow", "slow", "ResNet50", 60, 16, 8),
)
QUICK = ("klein", "lcbench-7593", "synthetic-fast")
SWEPT = TASKS[1]
DEADLINES: dict[float, Task] = {deadline: SWEPT.variant(deadline=deadline) for deadline in (7.5, 15, 30, 60, 240)}
BUDGETS: dict[float, Task] = {devices: SWEPT.variant(devices=devices) for devices in (4, 8, 16, 32)}


# ---------------------------------------------------------------------------------------------------- learning curves


@dataclass(frozen=True, slots=True)
class Curves:
    workload: Workload
    space: Space
    metric: str
    mode: Mode
    R: int

    @property
    def t_min_s(self) -> float:
        searcher = RandomSearcher()
        searcher.setup(self.space, self.mode, 0)
        configs = [config for _ in range(CONFIGURATIONS) if (config := searcher.suggest()) is not None]
        epochs_s = [self.workload.step_s(config, epoch) for config in configs for epoch in range(1, self.R + 1)]
        return float(f"{median(epochs_s):.3g}")


LCBENCH_SPACE = Space(
    {
        "batch_size": et.lograndint(16, 513),
        "learning_rate": et.loguniform(1e-4, 1e-1),
        "momentum": et.uniform(0.1, 0.99),
        "weight_decay": et.uniform(1e-5, 1e-1),
        "num_layers": et.randint(1, 6),
        "max_units": et.lograndint(64, 1025),
        "max_dropout": et.uniform(0.0, 1.0),
    }
)
SYNTHETIC_SPACE = Space(
    {
        "learning_rate": et.loguniform(1e-4, 1e-1),
        "momentum": et.uniform(0.1, 0.99),
        "weight_decay": et.loguniform(1e-5, 1e-1),
        "layers": et.randint(1, 6),
        "units": et.lograndint(64, 1025),
    }
)
DECAYS = {"fast": 1.5, "slow": 0.4}


def needed_data() -> Path:
    return data_folder("lc_cifar10_cnn_klein", "lc_lcbench_surrogate", "scaling_tables")


@cache
def curves(name: str) -> Curves:
    if name in DECAYS:
        workload = Synthetic("loss", "min", step_s=60.0, noise=0.01, decay=DECAYS[name], seed=1)
        return Curves(workload, SYNTHETIC_SPACE, "loss", "min", 100)
    if name == "klein":
        table = table_from_file(needed_data() / "lc_cifar10_cnn_klein" / "curves.jsonl.gz", "error")
        space = Space({parameter: et.uniform(*ends) for parameter, ends in table.ranges.items()})
        return Curves(table, space, "error", "min", 40)
    return Curves(LCBench(needed_data() / "lc_lcbench_surrogate", name), LCBENCH_SPACE, "val_accuracy", "max", EPOCHS)


@cache
def t_min_s(name: str) -> float:
    return curves(name).t_min_s


@cache
def scaling(model: str) -> Scaling:
    folder = needed_data() / "scaling_tables"
    if model == "VGG16":
        published = json.loads((folder / "tensorflow_benchmarks_2017.json").read_text())
        return from_table(published["dgx1_p100_real_bs64"][model])
    return from_table(json.loads((folder / "hypersched_v100.json").read_text())["cifar10"][model.lower()])


# --------------------------------------------------------------------------------------------------------- algorithms


@dataclass(frozen=True, slots=True)
class Contestant:
    """By its name in experiment files. Those that are not elastic have the machines of the budget until the deadline,
    first come, first served.
    """

    label: str
    algorithm: str
    elastic: bool
    arguments: Callable[[Task], dict[str, Any]]
    searcher: str | None = None
    ours: bool = False
    """One of those that are compared with SEER, and not one that it is compared with."""

    def entry(self, task: Task) -> Entry:
        machines = MANY if self.elastic else task.devices // ON_MACHINE
        return Entry(ALGORITHMS[self.algorithm](**self.arguments(task)), self.searcher, machines)


def iterations(task: Task) -> dict[str, Any]:
    return {"r": 1, "R": curves(task.curves).R, "eta": ETA}


def seer(task: Task) -> dict[str, Any]:
    return {"eta": ETA, "nu": 2, "p_min": 1, "p_max": task.p_max, "t_min": t_min_s(task.curves)}


LINE_UP = (
    Contestant("Random", "SingleTrial", False, lambda task: {}),
    Contestant("ASHA", "ASHA", False, lambda task: {"n": None, **iterations(task)}),
    Contestant("HyperSched", "HyperSched", False, iterations),
    Contestant("BOHB", "BOHB", False, iterations),
    Contestant("E-Hyperband", "ElasticHyperband", True, lambda task: {"eta": ETA, "t_min": t_min_s(task.curves)}),
    Contestant("E-Grid Search", "ElasticGrid", True, lambda task: {"p_min": 1, "p_max": task.p_max}),
    Contestant("SEER, paper", "SEER", True, lambda task: {**seer(task), "fill": False, "race": False}, "random"),
    Contestant("paper + fill", "SEER", True, lambda task: {**seer(task), "race": False}, "random", ours=True),
    Contestant("paper + race", "SEER", True, lambda task: {**seer(task), "fill": False}, "random", ours=True),
    Contestant("SEER, random", "SEER", True, seer, "random", ours=True),
    Contestant("SEER, TPE", "SEER", True, seer, "tpe", ours=True),
    Contestant("SEER + power", "SEER", True, lambda task: {**seer(task), "rank": "power"}, ours=True),
    Contestant("SEER", "SEER", True, seer, ours=True),
)


def contest(task: Task) -> Contest:
    known, unit_s = curves(task.curves), t_min_s(task.curves)
    deadline_s = task.deadline * unit_s
    profile = JobProfile(constant(unit_s), scaling(task.scaling), start=constant(START * unit_s))
    cloud = Cloud("bench", ON_MACHINE, ON_MACHINE * PRICE_USD, boot=constant(BOOT * unit_s), minimum_s=0.0)
    return Contest(
        task.name,
        {
            "space": known.space,
            "metric": known.metric,
            "mode": known.mode,
            "deadline": deadline_s,
            "budget": task.devices * deadline_s / 3600.0 * PRICE_USD,
            "planning": et.Planning(profile, cloud),
            "machines": task.devices // ON_MACHINE,
            "grace": GRACE_S,
        },
        et.Simulation(
            known.workload,
            boot_s=cloud.boot.expected_s,
            start_s=profile.start.expected_s,
            stragglers=0.0,
            scaling=profile.scaling.speedups,
        ),
        {each.label: each.entry(task) for each in LINE_UP},
    )
