"""A warm worker lives through thousands of trials without growing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.cluster.ray.drivers import Driver, slots

import elastune as et
from elastune import messages as m

pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.slow]
TRIALS = 1_440
"""Two hours of trials of five seconds; here a step takes a millisecond."""


def train(config: Mapping[str, Any]) -> None:
    """What trials do: build a network and data, train, save, print, and sometimes fail."""
    import torch
    from torch import nn

    from elastune.worker.reset import memory_bytes

    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
    model = nn.Sequential(nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))
    optimizer = torch.optim.Adam(model.parameters())
    if (saved := et.get_checkpoint()) is not None:
        model.load_state_dict(saved)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
        print("a line of output")
        et.report({"loss": loss, "memory": memory_bytes()}, checkpoint=model.state_dict)
    if config["fails"]:
        raise ValueError("as some do")


@pytest.mark.timeout(600)
def test_memory_stays_flat_over_two_hours_of_trials_in_one_process(drive: Callable[..., Driver]) -> None:
    driver = drive(train, devices=1)
    memory: list[float] = []
    for number in range(TRIALS):
        trial, fails = f"t{number}", number % 10 == 9
        config = {"width": (64, 128, 256)[number % 3], "fails": fails}
        driver.start(slots(0), until=3, trial=trial, config=config, final=False)
        saved = driver.until(m.TrialPaused).checkpoint
        driver.start(slots(0), None, attempt=2, saved=saved, trial=trial, config=config)
        driver.until(m.TrialFailed if fails else m.TrialReturned)
        memory.append(float(driver.reports(trial)[-1].metrics["memory"]))
        driver.events.clear()
    warm, end = statistics.median(memory[200:300]), statistics.median(memory[-100:])
    print(f"{memory[0] / 1e6:.0f} MB after the first trial, {warm / 1e6:.0f} MB warm, {end / 1e6:.0f} MB at the end")
    assert abs(end / warm - 1) < 0.05
