"""What is learnt on Ray depends neither on the number of workers nor on when and where they change."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits
from tests.cluster.ray.drivers import Driver, Train, slots

import elastune as et
from elastune import messages as m

pytestmark = pytest.mark.usefixtures("ray_here")

TOLERANCE = 1e-5
SAMPLES, BATCH, EPOCHS = 450, 64, 3  # 8 steps an epoch, the last with 2 samples only
STEPS = EPOCHS * 8
Moves = dict[int, tuple[m.Slot, ...]]
"""On which slots the trial goes on after a step."""


def trainable(folder: Path) -> Train:
    """Reports every step. Before one at which it is to be moved, it waits until it has been told to."""
    images, labels = load_digits(return_X_y=True)
    images, labels = images[:SAMPLES].astype("float32") / 16, labels[:SAMPLES]

    def train(config: Mapping[str, Any]) -> None:
        import time

        import torch
        from torch import nn
        from torch.utils.data import TensorDataset

        torch.manual_seed(et.get_context().seed)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        elastic = et.torch.Elastic(model, optimizer)
        data = elastic.batches(TensorDataset(torch.tensor(images), torch.tensor(labels)), BATCH)
        for _ in range(data.epoch, EPOCHS):
            for batch in data:
                optimizer.zero_grad()
                loss = elastic.backward(lambda x, y: nn.functional.cross_entropy(model(x), y), batch)
                optimizer.step()
                while elastic.steps in config["moves"] and not (folder / f"{config['run']}-{elastic.steps}").exists():
                    time.sleep(0.001)
                et.report({"loss": loss, "steps": elastic.steps, "width": et.get_context().world_size})

    return train


def losses(driver: Driver, folder: Path, run: str, start: tuple[m.Slot, ...], moves: Moves) -> list[float]:
    """Of a trial that must report every step once, with the number of workers that it should have there."""
    driver.events.clear()
    # The same name every time: a trial's seed comes from it.
    driver.start(start, until=STEPS, config={"run": run, "moves": sorted(moves)})
    width, widths = len(start), []
    for step in range(1, STEPS + 1):
        widths.append(width)
        if step in moves:
            driver.send(m.ResizeTrial, "t", 1, moves[step])
            (folder / f"{run}-{step}").touch()
            width = len(moves[step])
        if step in moves or step + 1 in moves or step == STEPS:
            while len(driver.reports()) < step:
                driver.until(m.TrialReported)
    assert any(isinstance(event, m.TrialPaused) for event in driver.events)
    reports = driver.reports()
    assert [report.iteration for report in reports] == list(range(1, STEPS + 1))
    assert [report.metrics["steps"] for report in reports] == list(range(1, STEPS + 1))
    assert [report.metrics["width"] for report in reports] == widths
    resized = [event.slots for event in driver.events if isinstance(event, m.TrialResized)]
    assert resized == list(moves.values())
    assert not [event for event in driver.events if isinstance(event, m.TrialFailed | m.TrialLost)]
    return [float(report.metrics["loss"]) for report in reports]


def random_moves(seed: int) -> Moves:
    """Six of them, each to one, two or three workers in any order, and never to where the trial is."""
    draw = random.Random(seed)
    here, moves = slots(0), {}
    for step in sorted(draw.sample(range(1, STEPS), 6)):
        there = here
        while there == here:
            there = slots(*draw.sample(range(3), draw.randint(1, 3)))
        moves[step] = here = there
    return moves


def test_losses_are_the_same_on_one_worker_on_two_and_through_resizes(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    driver = drive(trainable(tmp_path))
    alone = losses(driver, tmp_path, "alone", slots(0), {})
    assert alone[-1] < 0.7 * alone[0]
    others = {"two": losses(driver, tmp_path, "two", slots(0, 1), {})}
    for seed in range(3):
        others[f"moves {seed}"] = losses(driver, tmp_path, f"moves-{seed}", slots(0), random_moves(seed))
    for run, values in others.items():
        apart = max(abs(a - b) for a, b in zip(values, alone, strict=True))
        assert apart <= TOLERANCE, f"{run}: a loss is {apart:.1e} off"


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_code_that_imports_a_library_itself_draws_the_same_in_a_new_process_and_in_a_warm_one(
    library: str, drive: Callable[..., Driver]
) -> None:
    def train(config: Mapping[str, Any]) -> None:
        if config["library"] == "torch":
            import torch

            et.report({"loss": torch.rand(1).item()})
        else:
            import numpy

            et.report({"loss": float(numpy.random.rand())})

    driver = drive(train, devices=1)
    for number in (1, 2):
        driver.start(slots(0), until=1, config={"library": library})
        while len(driver.reports()) < number:
            driver.until(m.TrialReported)
    first, second = driver.reports()
    assert first.metrics == second.metrics
