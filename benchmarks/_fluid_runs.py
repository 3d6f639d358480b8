"""What Fluid's experiments compare: executors, algorithms, and the runs of both, spread over processes.

The cluster is that of the paper's testbed: machines of one device each, all of them held from the beginning.
"""

from __future__ import annotations

import csv
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _fluid_overheads import Overheads, overheads
from _fluid_tasks import ETA, START, Spread, Task, r, task
from _fluid_watch import Outcome
from _fluid_watch import run as run_algorithm

from elastune.algorithm import FIFO, Algorithm, SuccessiveHalving
from elastune.allocate import Allocator, FirstComeFirstServed, Fluid
from elastune.config_file import ALGORITHMS
from elastune.simulation import Simulation

# ---------------------------------------------------------------------------------------------------------- executors


@dataclass(frozen=True, slots=True)
class Setting:
    """What an executor is told: the devices, what sharing and spreading cost, and whether it may do so."""

    devices: int
    overheads: Overheads
    pack: bool = True
    spread: bool = True


def one_each(setting: Setting) -> Allocator:
    """As today's tools do."""
    return FirstComeFirstServed(setting.devices)


def as_published(setting: Setting) -> Allocator:
    return Fluid(_allowed(setting.pack), _allowed(setting.spread), as_published=True)


def ours(setting: Setting) -> Allocator:
    return Fluid(_allowed(setting.pack), _allowed(setting.spread))


def profiled(setting: Setting) -> Allocator:
    """Ours, told what `elastune profile` would have found."""
    return Fluid(_allowed(setting.pack), _allowed(setting.spread), setting.overheads.speedups)


def _allowed(allowed: bool) -> int | None:
    return None if allowed else 1


DEFAULT, PAPER, OURS, PROFILED = "default", "Fluid, as published", "ours", "ours, with a profile"
EXECUTORS: Mapping[str, Callable[[Setting], Allocator]] = {
    DEFAULT: one_each,
    PAPER: as_published,
    OURS: ours,
    PROFILED: profiled,
}
"""Without a profile they are told nothing about what sharing and spreading cost: they measure it."""

# --------------------------------------------------------------------------------------------------------- algorithms

POPULATION, GENERATIONS = 8, 8
"""Of PBT."""
ARGUMENTS: Mapping[str, Callable[[Task], dict[str, Any]]] = {
    "PBT": lambda known: {"n": POPULATION, "R": known.R, "perturbation_interval": known.R // GENERATIONS},
    "Hyperband": lambda known: {"R": known.R, "r": r, "eta": ETA},
    "ASHA": lambda known: {"n": None, "R": known.R, "r": r, "eta": ETA},
    "SyncBOHB": lambda known: {"R": known.R, "r": r, "eta": ETA},
    "BOHB": lambda known: {"R": known.R, "r": r, "eta": ETA},
}
"""Of the algorithms of the paper's Figure 7, in its order, by their names in experiment files."""
TUNERS = tuple(name for name in ARGUMENTS if name in ALGORITHMS)
HALVING, GRID = "SHA", "grid"


def make_algorithm(name: str, known: Task, trials: int | None, concurrent: int | None) -> Algorithm:
    """`trials`: of those that have a given number of them. What the paper calls a grid are random configurations here:
    for an executor only their number counts, and how long each takes.
    """
    if trials is not None:
        return SuccessiveHalving(trials, r, known.R, ETA) if name == HALVING else FIFO(trials, known.R)
    more = {} if concurrent is None else {"max_concurrent": concurrent}
    algorithm: Algorithm = ALGORITHMS[name](**ARGUMENTS[name](known), **more)
    return algorithm


# --------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True)
class Case:
    """What is run: with `to_target` until the target is reached, with `trials` until all of them are trained, and
    otherwise for as long as `horizon` says, in full trainings on all devices. `concurrent` is how many trials the
    algorithm has at a time (None: as the executor sees fit), and `sigma` is that of run times (`Spread`).
    """

    study: str
    task: str
    algorithm: str
    executor: str
    seed: int
    devices: int = 8
    to_target: bool = False
    horizon: float | None = None
    trials: int | None = None
    pack: bool = True
    spread: bool = True
    concurrent: int | None = None
    packing_times: float = 1.0
    sigma: float | None = None
    adverse: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    case: Case
    outcome: Outcome


def run(case: Case) -> Ran:
    known, costs = task(case.task), overheads(case.task, case.adverse).with_packing(case.packing_times)
    setting = Setting(case.devices, costs, case.pack, case.spread)
    limit_s = known.limit_s(case.devices) if case.to_target else None
    if case.horizon is not None:
        limit_s = case.horizon * known.full_training_s / case.devices
    outcome = run_algorithm(
        known,
        lambda: make_algorithm(case.algorithm, known, case.trials, case.concurrent),
        lambda: EXECUTORS[case.executor](setting),
        Simulation(
            known.workload if case.sigma is None else Spread(known, case.sigma),
            boot_s=0.0,
            start_s=START * known.epoch_s,
            resize_s=START * known.epoch_s,
            stragglers=0.0,
            scaling=costs.speedups,
        ),
        case.seed,
        case.devices,
        limit_s,
        case.to_target,
    )
    return Ran(case, outcome)


class Runs:
    """Runs cases in processes of its own, and keeps all that ran."""

    def __init__(self, jobs: int | None) -> None:
        # New processes, not forks: libraries in this one may have threads.
        self._pool = ProcessPoolExecutor(jobs or os.cpu_count() or 1, get_context("spawn"), _begin)
        self.rans: list[Ran] = []

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __call__(self, cases: Sequence[Case]) -> list[Ran]:
        """In the order of the cases."""
        rans = list(self._pool.map(run, cases))
        self.rans += rans
        return rans


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears it too, and sends no more
    logging.getLogger("elastune").setLevel(logging.ERROR)


def write_rows(path: Path, rans: Sequence[Ran]) -> None:
    """A line for each run, without its course."""
    rows = [{**asdict(ran.case), **asdict(ran.outcome)} for ran in rans]
    names = [name for name in rows[0] if name != "course"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
