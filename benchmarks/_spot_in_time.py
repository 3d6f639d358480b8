"""Whole runs with a deadline on spot and on-demand machines: the real controller in real records of spot machines.

The records of "Can't Be Late" (NSDI 2024) say how many spot machines could be had; a second part plays the prices of
2024 to 2026, which stay below those on demand.

    python benchmarks/_spot_in_time.py [--quick]
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _data import data_folder
from _figures import Figure, print_figures
from _spot_deadline import DEADLINES, ON_DEMAND_USD, SPOT_USD, SpotOnly

from elastune import messages as m
from elastune.algorithm import FIFO
from elastune.allocate.in_time import InTime
from elastune.cluster.simulated import SimulatedCluster
from elastune.cluster.workload import Synthetic
from elastune.control.controller import Controller
from elastune.market.cloud import Capacity, Kind, PlayedCloud
from elastune.market.late import Choice, LastMoment, LatePolicy, Situation, UniformProgress
from elastune.market.never_late import NeverLate
from elastune.market.price_file import load_prices
from elastune.space import loguniform
from elastune.tuner import Tuner

STEP_S, STEPS, BOOT_S, START_S = 300.0, 24, 360.0, 5.0
WORK_S = 8 * 3600.0
GPU, GPU_USD = "g5.xlarge", 1.006


class OnDemandOnly(LatePolicy):
    def prefer(self, state: Situation) -> Choice:
        return "on-demand"


POLICIES: dict[str, type[LatePolicy]] = {
    "on-demand only": OnDemandOnly,
    "spot only": SpotOnly,
    "last moment": LastMoment,
    "uniform progress": UniformProgress,
    "never late": NeverLate,
}
PROMISED = ("last moment", "uniform progress", "never late")


class Single(InTime):
    """Of one kind of machine only, whether it is in time or not."""

    def _choose(self, view: object, present: Sequence[str], at_s: float) -> str:
        if self._policy_class is OnDemandOnly:
            return "only on-demand"
        return "spot" if self._available(at_s) else "wait"


@dataclass(frozen=True, slots=True)
class Outcome:
    cost_usd: float
    missed: bool
    starts: int


def read_capacity(path: Path) -> Capacity:
    with gzip.open(path) as file:
        record = json.load(file)
    return Capacity(float(record["metadata"]["gap_seconds"]), np.array(record["data"], dtype=float), SPOT_USD)


def play(cloud: PlayedCloud, policy: type[LatePolicy], machines: int, work_s: float, deadline_s: float) -> Outcome:
    """A run of the controller, with nothing written."""
    steps = min(STEPS, int(work_s // STEP_S))
    algorithm = FIFO(max(1, round(machines * work_s / (steps * STEP_S))), steps)
    make = InTime if policy not in (OnDemandOnly, SpotOnly) else Single
    tuner = Tuner(
        None,
        space={"lr": loguniform(1e-4, 1e-1)},
        metric="loss",
        algorithm=algorithm,
        allocator=make(cloud, algorithm.stages() or (), deadline_s, START_S, policy),
        machines=machines,
        deadline=deadline_s,
    )
    workload = Synthetic("loss", "min", step_s=STEP_S)
    controller = tuner.experiment.controller()
    return _until_the_end(controller, SimulatedCluster(workload, start_s=START_S, cloud=cloud), deadline_s)


def _until_the_end(controller: Controller, cluster: SimulatedCluster, deadline_s: float) -> Outcome:
    turn = m.Turn(0.0, (m.RunStarted("r", "loss", "min", 0, deadline_s, None, 0.0, 0.0, {}, {}),))
    status, starts = "running", 0
    while not controller.done:
        step = controller.handle(turn)
        cluster.submit(step.commands)
        starts += sum(isinstance(command, m.AddNode) for command in step.commands)
        status = next((each.status for each in step.decisions if isinstance(each, m.RunEnded)), status)
        if not controller.done:
            turn = cluster.poll(controller.wake_s)
    return Outcome(controller.fleet.spent_usd(turn.at_s), status != "succeeded", starts)


def traces(factor: float, starts: int) -> Iterator[tuple[PlayedCloud, int, float]]:
    """Clouds, machines, and the work of the run: less where a trace is too short for it."""
    folder = data_folder("spot_availability_nsdi24") / "spot_availability_nsdi24"
    for file in sorted(folder.rglob("*.json.gz")):
        capacity = read_capacity(file)
        length_s = capacity.gap_s * len(capacity.counts)
        work_s = min(WORK_S, length_s / 2 / factor // STEP_S * STEP_S)
        for machines in (1, 4) if capacity.counts.max() > 1 else (1,):
            for number in range(starts):
                begin_s = (number + 0.5) / starts * (length_s - factor * work_s)
                cloud = PlayedCloud(
                    {"v": Kind(ON_DEMAND_USD)}, capacity={"v": capacity}, begin_unix_s=begin_s, boot_s=BOOT_S
                )
                yield cloud, machines, work_s


def prices(factor: float, starts: int) -> Iterator[tuple[PlayedCloud, int, float]]:
    """The zones of one type with a GPU."""
    folder = data_folder("spot_2024_2026_us") / "spot_2024_2026_us"
    known = load_prices(folder / "us-west-2.csv.gz")
    markets = [market for market in known if market.startswith(f"{GPU}/")]
    first = max(known[market].begin_unix_s for market in markets) + 86_400.0
    last = min(known[market].end_unix_s for market in markets) - 4 * WORK_S
    kinds = {market: Kind(GPU_USD) for market in markets}
    for number in range(starts):
        begin = first + (number + 0.5) / starts * (last - first)
        yield PlayedCloud(kinds, known, begin_unix_s=begin, boot_s=BOOT_S), 1 + 3 * (number % 2), WORK_S


def mean(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.cost_usd for outcome in outcomes]))


def report(title: str, cases: Sequence[tuple[PlayedCloud, int, float]], factor: float) -> dict[str, list[Outcome]]:
    """One table: what the policies cost, next to each other, and how often they were late."""
    found = {
        name: [play(cloud, policy, machines, work_s, factor * work_s) for cloud, machines, work_s in cases]
        for name, policy in POLICIES.items()
    }
    print(f"{title}, deadline {factor:g} x, {len(cases)} runs")
    print(f"  {'':18}{'missed':>8}{'usd':>9}{'/on-demand':>12}{'/last m.':>10}{'/uniform':>10}{'starts':>8}")
    for name, runs in found.items():
        ratios = [mean(runs) / mean(found[other]) for other in ("on-demand only", "last moment", "uniform progress")]
        missed, starts = sum(run.missed for run in runs), np.mean([run.starts for run in runs])
        cells = f"{ratios[0]:12.3f}{ratios[1]:10.3f}{ratios[2]:10.3f}{starts:8.1f}"
        print(f"  {name:18}{missed:8}{mean(runs):9.3f}{cells}", flush=True)
    return found


def figures(tables: Sequence[dict[str, list[Outcome]]]) -> list[Figure]:
    total = {name: sum(mean(found[name]) for found in tables) for name in POLICIES}
    missed = sum(run.missed for found in tables for name in PROMISED for run in found[name])
    ours, on_demand, greedy = (round(total[name], 3) for name in ("never late", "on-demand only", "last moment"))
    over_on_demand, over_greedy = round(ours / on_demand, 3), round(ours / greedy, 3)
    return [
        Figure("deadline_missed", missed, None, None, "0", missed == 0),
        Figure("deadline_cost_over_on_demand", ours, on_demand, over_on_demand, "< 1", over_on_demand < 1),
        Figure("deadline_cost_over_last_moment", ours, greedy, over_greedy, "< 1", over_greedy < 1),
    ]


def run(quick: bool) -> list[Figure]:
    starts = 1 if quick else 3
    factors = DEADLINES[::2] if quick else DEADLINES
    tables = [report("records of capacity", list(traces(factor, starts)), factor) for factor in factors]
    for factor in factors:
        report(f"prices of {GPU}", list(prices(factor, 2 if quick else 6)), factor)
    return figures(tables)


if __name__ == "__main__":
    print_figures(run("--quick" in sys.argv[1:]))
