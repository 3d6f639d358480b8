"""A stream on Ray: the same samples in the same order at any width, through resizes and the death of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.ray.drivers import Driver, Train, slots

import elastune as et
from elastune import messages as m

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

SAMPLES, BATCH, STEPS = 150, 32, 15  # 5 steps an epoch, the last with 22 samples
KILLED_AT = 7
"""In the middle of the second epoch."""


def shifted(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "x": sample["x"] + 0.1 * rng.standard_normal(8).astype(np.float32)}


def trainable(folder: Path) -> Train:
    """Notes which samples each worker takes at each step. May kill one of its workers, once."""
    url, augment, killed_at = str(folder / "data"), shifted, KILLED_AT

    def train(config: Mapping[str, Any]) -> None:
        import os
        import signal
        import time

        import torch

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        elastic = et.torch.Elastic(model, optimizer)
        data = elastic.batches(et.data.Stream(url, augment=augment, block_bytes=3000), BATCH)
        seen = folder / config["run"]
        seen.mkdir(exist_ok=True)

        def loss_of(values: dict[str, torch.Tensor]) -> torch.Tensor:
            context = et.get_context()
            if config["kills"] and context.rank == 1 and elastic.steps == killed_at and not (seen / "killed").exists():
                (seen / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            name = f"{elastic.steps + 1}-{context.world_size}-{context.rank}"
            (seen / name).write_text(" ".join(map(str, values["id"].tolist())))
            return torch.nn.functional.mse_loss(model(values["x"]).squeeze(1), values["y"])

        for _ in range(data.epoch, 3):
            for batch in data:
                optimizer.zero_grad()
                loss = elastic.backward(loss_of, batch)
                optimizer.step()
                while elastic.steps in config["moves"] and not (seen / f"moved-{elastic.steps}").exists():
                    time.sleep(0.001)
                et.report({"loss": loss, "step": elastic.steps})

    return train


def losses(driver: Driver) -> dict[int, set[float]]:
    """All that were reported for a step."""
    found: dict[int, set[float]] = {}
    for report in driver.reports():
        found.setdefault(int(report.metrics["step"]), set()).add(float(report.metrics["loss"]))
    return found


def orders(folder: Path) -> dict[tuple[int, int], str]:
    """The samples of each step at each width at which it was trained, all workers together."""
    found: dict[tuple[int, int], dict[int, str]] = {}
    for path in folder.glob("*-*-*"):
        step, width, rank = map(int, path.name.split("-"))
        found.setdefault((step, width), {})[rank] = path.read_text()
    whole = {key: ranks for key, ranks in found.items() if len(ranks) == key[1]}
    return {key: " ".join(ranks[rank] for rank in sorted(ranks)) for key, ranks in whole.items()}


def test_samples_and_losses_are_the_same_at_any_width_through_resizes_and_a_kill(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    samples = (
        {"id": n, "x": rng.standard_normal(8).astype(np.float32), "y": np.float32(n % 3)} for n in range(SAMPLES)
    )
    et.data.write(samples, str(tmp_path / "data"), shard_bytes=700)
    driver = drive(trainable(tmp_path), checkpoint_every_s=0.0)

    def run(name: str, start: tuple[m.Slot, ...], moves: dict[int, tuple[m.Slot, ...]], kills: bool = False) -> None:
        driver.events.clear()
        config = {"run": name, "moves": sorted(moves), "kills": kills}
        driver.start(start, until=STEPS, config=config)
        for step, there in moves.items():
            while len(driver.reports()) < step - 1:
                driver.until(m.TrialReported)
            driver.send(m.ResizeTrial, "t", 1, there)
            (tmp_path / name / f"moved-{step}").touch()
        if kills:
            while not [event for event in driver.events if isinstance(event, m.TrialFailed | m.TrialLost)]:
                driver.wait(0.1)  # whichever is noticed first: the death, or that the other hears no more
            saved = [event.checkpoint for event in driver.events if isinstance(event, m.TrialCheckpointed)][-1]
            assert 0 < saved.iteration <= KILLED_AT
            driver.start(slots(2), until=STEPS, attempt=2, saved=saved, config=config)
        driver.until(m.TrialPaused)

    run("alone", slots(0), {})
    reference, order = losses(driver), orders(tmp_path / "alone")
    assert len(reference) == len(order) == STEPS
    for epoch in range(3):
        ids = [int(n) for step in range(5 * epoch + 1, 5 * epoch + 6) for n in order[step, 1].split()]
        assert sorted(ids) == list(range(SAMPLES))
    for name, start, moves, kills in (
        ("two", slots(0, 1), {}, False),
        ("moves", slots(0), {3: slots(0, 1), 8: slots(1), 11: slots(2, 0, 1)}, False),
        ("killed", slots(0, 1), {}, True),
    ):
        run(name, start, moves, kills)
        found = losses(driver)
        assert found.keys() == reference.keys()
        for step, values in found.items():
            (alone,) = reference[step]
            assert all(abs(value - alone) <= 1e-5 for value in values), (name, step)
        seen = orders(tmp_path / name)
        assert {step for step, _ in seen} == reference.keys()
        assert all(ids == order[step, 1] for (step, _), ids in seen.items()), name
