"""Fluid on a real local Ray, two slots: digits networks of different sizes, in a group of unequal trials.

What packing and spreading cost is measured first, by itself; the group is then trained by the default executor and by
Fluid in turns, and Fluid is told nothing of what was measured.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import elastune as et
from elastune.algorithm import Algorithm
from elastune.spec import Run, TrialGroup

WIDTHS = (512, 512, 1024, 2048)
"""Units of the hidden layers: what a step takes grows with their square."""
EPOCHS = (8, 8, 8, 16)
BATCH = 1797


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
            name="unequal",
        )
        result = tuner.fit(progress=False)
    return result.view.at_s - result.view.ready_s[0], result


def step_s(result: et.Result, trial: str) -> float:
    """The median seconds between reports."""
    times = [report.at_s for report in result.view.trials[trial].reports]
    return statistics.median(later - sooner for sooner, later in pairwise(times))
