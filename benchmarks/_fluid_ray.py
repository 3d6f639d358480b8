"""Fluid on a real local Ray, two slots: digits networks of different sizes, in a group of unequal trials.

What packing and spreading cost is measured first, by itself; the group is then trained by the default executor and by
Fluid in turns, and Fluid is told nothing of what was measured.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import elastune as et
from elastune.algorithm import Algorithm
from elastune.allocate import FirstComeFirstServed
from elastune.spec import Run, TrialGroup

UNITS = (512, 512, 1024, 2048)
"""Of the hidden layers, in the order in which trials come: what a step takes grows with their square."""
EPOCHS = (8, 8, 8, 16)
BATCH = 1797
STEPS = 8


def train(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)  # each worker has one device
    torch.manual_seed(et.get_context().seed)
    images, labels = load_digits(return_X_y=True)
    samples = TensorDataset(torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels))
    units = config["units"]
    model = nn.Sequential(
        nn.Linear(64, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(),
        nn.Linear(units, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    elastic = et.torch.Elastic(model, optimizer)
    data = elastic.batches(samples, batch_size=BATCH)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    while True:
        for batch in data:
            optimizer.zero_grad()
            elastic.backward(loss_of, batch)
            optimizer.step()
        et.report({"loss": elastic.mean(loss_of, samples)})


class Unequal(Algorithm):
    """One group: trials of different sizes, for different numbers of epochs, in the order in which they are given."""

    def __init__(self, epochs: Sequence[int]) -> None:
        self.epochs = tuple(epochs)
        self._begun = False

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._begun:
            return []
        self._begun = True
        new = [self.new_trial() for _ in self.epochs]
        return [tuple(Run(*each, until, final=True) for each, until in zip(new, self.epochs, strict=True) if each)]


class InOrder(et.Searcher):
    """The sizes, one after another."""

    def __init__(self, units: Sequence[int]) -> None:
        self._left = list(units)

    def suggest(self) -> dict[str, Any] | None:
        return {"units": self._left.pop(0)} if self._left else None


def seconds(allocator: et.Allocator | None, units: Sequence[int], epochs: Sequence[int]) -> tuple[float, et.Result]:
    """From when the machine is ready to when all are done."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = et.Tuner(
            train,
            space={"units": et.choice(sorted(set(units)))},
            metric="loss",
            algorithm=Unequal(epochs),
            searcher=InOrder(units),
            allocator=allocator,
            devices=2,
            storage=folder,
            seed=0,
            name="unequal",
        )
        result = tuner.fit(progress=False)
    return result.view.at_s - result.view.ready_s[0], result


def step_s(width: et.Allocator, units: int, trials: int) -> float:
    """The median seconds between reports of so many equal trials."""
    _, result = seconds(width, [units] * trials, [STEPS] * trials)
    reports = result.view.trials["unequal-00000"].reports
    return statistics.median(later.at_s - sooner.at_s for sooner, later in pairwise(reports))


def measured(units: int) -> tuple[float, float]:
    """alpha and beta: how much longer a step takes with four trials on the two slots than with two, and by how much two
    slots fall short of twice the speed of one. Slots are not kept to a core of their own: so all are in use.
    """
    alone_s = step_s(FirstComeFirstServed(1, 1), units, 2)
    packed_s = step_s(FirstComeFirstServed(1, Fraction(1, 2)), units, 4)
    spread_s = step_s(FirstComeFirstServed(1, 2), units, 1)
    return packed_s / alone_s, 2 * spread_s / alone_s


def speedups(repetitions: int) -> list[tuple[float, float]]:
    """Seconds of the default executor and of Fluid, in turns."""
    return [(seconds(None, UNITS, EPOCHS)[0], seconds(et.Fluid(), UNITS, EPOCHS)[0]) for _ in range(repetitions)]
