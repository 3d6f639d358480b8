"""What sharing a device and spreading over several cost a trial, from measurements that others have published.

Packing: how much longer a step takes with two jobs on one P100 than alone (Gavel, OSDI 2020), the mean over all pairs
of the named model with itself at any of its batch sizes that ran, because the trials of a tuning run differ in theirs.
Gavel has measured pairs; each of k trials is taken to be alpha^(k - 1) times as slow as alone, as in the paper.

Spreading: how much faster a step is with the same global batch on n machines of one device each, as in the paper's
testbed (Pollux, OSDI 2021).

Rows were chosen by the names of the models, and none because of what came out of a run. There are others that are worse
for whoever shares or spreads. `adverse` takes these: Gavel's later file of pairs, and its P100s on several servers, at
a constant global batch too. There both pay for almost nobody, and an executor should leave trials alone.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from _fluid_tasks import TASKS, needed_data

MOST_PACKED = 4
PAIRS, LATER = "oracle_throughputs_single_gpu.json.gz", "simulation_throughputs.json.gz"
GPU = "p100"


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the numbers of a task come from: the model of Gavel, and a job of Pollux and its global batch; for the
    adverse ones a model of Gavel and its global batch.
    """

    packed: str
    spread: tuple[str, int]
    adverse: tuple[str, int]


ROWS = {
    # The same data set, with the largest batch of the task's space.
    "cifar10": Rows("ResNet-18", ("cifar10", 512), ("ResNet-18", 256)),
    # A word-level language model, as in the paper. Pollux has none; its job with a recurrent network is the nearest,
    # at the largest batch that one device was measured with.
    "wlm": Rows("LM", ("deepspeech2", 80), ("LM", 80)),
    # The only generative network of Gavel. It is on one device there; a convolutional one on small images scales in
    # its place, with half the batch because such networks are trained with small ones.
    "dcgan": Rows("CycleGAN", ("cifar10", 256), ("ResNet-18", 128)),
}


@dataclass(frozen=True, slots=True)
class Overheads:
    """`packed`: how many times as long a step takes with two on a device. `wide`: speed-ups by number of devices."""

    packed: float
    pairs: int
    wide: Mapping[int, float]

    @property
    def speedups(self) -> dict[float, float]:
        """Of each trial by its width; that of 1/k is what each of k trials has that share a device."""
        shared = {1 / k: self.packed ** -(k - 1) for k in range(MOST_PACKED, 1, -1)}
        return {**shared, **{float(width): speedup for width, speedup in sorted(self.wide.items())}}

    @property
    def beta(self) -> float:
        """Of the paper's h(w) = h(1) / w * beta^(w - 1), fitted to the logarithms."""
        widths = np.array([width for width in self.wide if width > 1])
        losses = np.array([math.log(width / self.wide[int(width)]) for width in widths])
        return float(np.exp(np.dot(widths - 1, losses) / np.dot(widths - 1, widths - 1)))

    def with_packing(self, times: float) -> Overheads:
        """The same with so many times the cost of packing."""
        return replace(self, packed=1 + times * (self.packed - 1))


@cache
def overheads(task: str, adverse: bool = False) -> Overheads:
    rows = ROWS[task]
    slowdowns = list(_slowdowns(LATER if adverse else PAIRS, rows.packed))
    wide = _gavel_speedups(*rows.adverse) if adverse else _pollux_speedups(*rows.spread)
    return Overheads(fmean(slowdowns), len(slowdowns), wide)


# -------------------------------------------------------------------------------------------------------------- Gavel


@cache
def _gavel(name: str) -> dict[str, Any]:
    with gzip.open(needed_data() / "gavel_throughputs" / name) as file:
        found: dict[str, Any] = json.load(file)
    return found


def _slowdowns(name: str, model: str) -> Iterator[float]:
    """Of the first of every pair of this model with itself on one device; a throughput of 0 is a job that failed."""
    jobs = {job: rows for job, rows in _gavel(name)[GPU].items() if _is(job, model)}
    for rows in jobs.values():
        for other in jobs:
            if other in rows and rows[other][0] > 0:
                yield rows["null"] / rows[other][0]


def _is(job: str, model: str) -> bool:
    """In one file a job is "LM (batch size 5)", in the others "('LM (batch size 5)', 1)" with its number of devices."""
    on_one = job.endswith(", 1)") or not job.startswith("(")
    return on_one and job.lstrip("('").split(" (")[0].split("'")[0] == model


def _gavel_speedups(model: str, batch: int) -> dict[int, float]:
    """At a constant global batch on as many servers as devices. The steps of all n workers are added up there, and a
    step of the whole batch is one of each.
    """
    tables = _gavel(LATER)
    alone: float = tables[GPU][f"('{model} (batch size {batch})', 1)"]["null"]
    jobs = {n: f"('{model} (batch size {batch // n})', {n})" for n in (2, 4, 8)}
    spread = tables[f"{GPU}_unconsolidated"]
    return {1: 1.0, **{n: spread[job]["null"] / n / alone for n, job in jobs.items() if job in spread}}


# ------------------------------------------------------------------------------------------------------------- Pollux


def _pollux_speedups(job: str, batch: int) -> dict[int, float]:
    """At a constant global batch on as many machines as devices; widths are left out for which no batch of a device was
    measured that is so small.
    """
    seconds: dict[int, float] = {}
    for width, measured in sorted(_on_one_each(needed_data() / "pollux_traces" / job).items()):
        batches, steps_s = (list(column) for column in zip(*sorted(measured), strict=True))
        if math.ceil(batch / width) >= batches[0]:
            seconds[width] = float(np.interp(math.ceil(batch / width), batches, steps_s))
    return {width: seconds[1] / step_s for width, step_s in seconds.items()}


def _on_one_each(folder: Path) -> dict[int, list[tuple[float, float]]]:
    """By number of machines with one device each: batches of a device, and the seconds of a step."""
    found: dict[int, list[tuple[float, float]]] = {}
    with (folder / "placements.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if set(row["placement"]) == {"1"}:
                measured = float(row["local_bsz"]), float(row["step_time"])
                found.setdefault(len(row["placement"]), []).append(measured)
    with (folder / "scalability.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["num_nodes"] == row["num_replicas"]:
                measured = float(row["local_bsz"]), float(row["step_time"])
                found.setdefault(int(row["num_nodes"]), []).append(measured)
    return found


# -------------------------------------------------------------------------------------------------------------- table


def print_overheads() -> None:
    for adverse in (False, True):
        title = "Adverse rows, where sharing and spreading do not pay" if adverse else "What sharing and spreading cost"
        print(f"\n{title}")
        print(f"{'':9}{'two on a device: Gavel, ' + GPU.upper():44}{'slow-down':>10}{'speed of each of 2, 3*, 4*':>28}")
        for name in TASKS:
            known, rows, file = overheads(name, adverse), ROWS[name], LATER if adverse else PAIRS
            where = f"{rows.packed} x itself, {known.pairs} pair{'s' * (known.pairs > 1)}, {file.split('_')[0]}_..."
            each = ", ".join(f"{known.speedups[1 / k]:.2f}" for k in range(2, MOST_PACKED + 1))
            print(f"{name:9}{where:44.44}{known.packed:>10.3f}{each:>28}")
        print(f"{'':9}{'one on several machines, constant batch':44}{'beta':>10}   speed-up by devices")
        for name in TASKS:
            known, rows = overheads(name, adverse), ROWS[name]
            model, batch = rows.adverse if adverse else rows.spread
            where = f"{f'Gavel, {GPU.upper()}' if adverse else 'Pollux'}: {model}, global batch {batch}"
            widths = ", ".join(f"{width}: {speedup:.2f}" for width, speedup in known.wide.items())
            print(f"{name:9}{where:44.44}{known.beta:>10.3f}   {widths}")
    print("* extrapolated: only pairs were measured")
