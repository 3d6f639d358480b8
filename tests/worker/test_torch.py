"""What is learnt depends neither on the number of workers nor on when it changes: in real processes."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.worker.digits import SAMPLES, digits, linear
from tests.worker.gangs import Members, Outcome, ScriptedSession, Workers
from torch import nn
from torch.utils.data import Dataset

import elastune as et
from elastune.worker import session

TOLERANCE = 1e-5
BATCH, EPOCHS = 64, 3  # 8 steps an epoch, the last with 2 samples only


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    started = Workers(3)
    yield started
    started.close()
    assert [process.exitcode for process in started.processes] == [0, 0, 0]


def this_session() -> ScriptedSession:
    assert isinstance(session._session, ScriptedSession)
    return session._session


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Draws something for each item, from all the generators that a dataset may use."""

    def __init__(self, count: int) -> None:
        self._digits = digits(count)

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, label = self._digits[position]
        return image + 0.1 * torch.rand(64) + 0.1 * random.random() + 0.1 * np.random.rand(), label


def optimizer_of(config: dict[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    if config.get("optimizer") == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def train_digits(config: dict[str, Any]) -> None:
    """Reports after every step, so that it can be resized at any of them, and at the end of an epoch."""
    hidden = [nn.Linear(64, 32), nn.ReLU(), nn.Dropout(config.get("dropout", 0.0))]
    model = nn.Sequential(*hidden, nn.Linear(32, 10))
    optimizer = optimizer_of(config, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    elastic = et.torch.Elastic(model, optimizer, scheduler)
    samples = config.get("samples", SAMPLES)
    dataset = Noisy(samples) if config.get("noisy") else digits(samples)
    data = elastic.batches(dataset, BATCH, max_per_device=config.get("max_per_device"))
    test = digits(100)
    for _ in range(data.epoch, EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            loss = elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
            optimizer.step()
            et.report({"loss": loss})
        scheduler.step()
        et.report({"loss": elastic.mean(lambda x, y: F.cross_entropy(model(x), y), test, batch_size=40)})


STEPS = EPOCHS * 9
SCRIPTS: dict[str, dict[int, Members]] = {
    "grows": {5: (0, 1), 11: (0, 1, 2)},
    "shrinks": {1: (0, 1, 2), 7: (0, 2), 12: (2,)},
    "moves": {4: (1,), 9: (2, 0), 13: (1, 0, 2)},
    "at every step": {step: ((0,), (0, 1), (1, 2))[step % 3] for step in range(1, STEPS)},
}


def random_script(seed: int) -> dict[int, Members]:
    draw = random.Random(seed)
    return {step: tuple(draw.sample(range(3), draw.randint(1, 3))) for step in sorted(draw.sample(range(1, STEPS), 6))}


def assert_alike(outcome: Outcome, reference: Outcome, tolerance: float = TOLERANCE) -> None:
    assert not outcome.failed
    apart = max(abs(a - b) for a, b in zip(outcome.losses, reference.losses, strict=True))
    print(f"largest difference of a loss: {apart:.1e}")
    assert apart <= tolerance


@pytest.fixture(scope="module", params=["sgd", "adam"])
def optimizer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reference(workers: Workers, optimizer: str) -> Outcome:
    """On one worker, undisturbed."""
    outcome = workers.run(train_digits, {"optimizer": optimizer})
    assert not outcome.failed and len(outcome.losses) == STEPS
    assert outcome.losses[-1] < outcome.losses[0] * 0.7
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("members", [(0, 1), (0, 1, 2)])
def test_losses_are_the_same_on_several_workers(
    workers: Workers, reference: Outcome, optimizer: str, members: Members
) -> None:
    assert_alike(workers.run(train_digits, {"optimizer": optimizer}, members), reference)


@pytest.mark.slow
@pytest.mark.parametrize("script", [*SCRIPTS.values(), *map(random_script, range(3))], ids=[*SCRIPTS, "a", "b", "c"])
def test_losses_are_the_same_through_resizes(
    workers: Workers, reference: Outcome, optimizer: str, script: dict[int, Members]
) -> None:
    outcome = workers.run(train_digits, {"optimizer": optimizer}, script=script)
    assert_alike(outcome, reference)
    assert not outcome.still_connected


@pytest.mark.slow
def test_workers_that_stay_can_be_set_back_to_the_checkpoint(
    workers: Workers, reference: Outcome, optimizer: str
) -> None:
    script = random_script(3)
    assert_alike(workers.run(train_digits, {"optimizer": optimizer}, script=script, reload=True), reference)


@pytest.mark.slow
@pytest.mark.parametrize("max_per_device", [1, 7, 1000])
def test_losses_are_the_same_in_pieces_that_fit_a_device(
    workers: Workers, reference: Outcome, optimizer: str, max_per_device: int
) -> None:
    config = {"optimizer": optimizer, "max_per_device": max_per_device}
    assert_alike(workers.run(train_digits, config, script={3: (0, 1), 12: (1,)}), reference)


@pytest.mark.slow
def test_dropout_and_noisy_items_are_the_same_when_the_pieces_are(workers: Workers) -> None:
    config = {"dropout": 0.5, "noisy": True, "max_per_device": 16, "samples": 7 * BATCH}
    alone = workers.run(train_digits, config)
    assert_alike(workers.run(train_digits, config, script={3: (0, 1), 12: (1,), 14: (2, 0)}), alone)


@pytest.mark.slow
def test_going_on_from_a_checkpoint_in_the_middle_of_an_epoch_changes_nothing(workers: Workers) -> None:
    config = {"dropout": 0.5, "noisy": True}
    alone = workers.run(train_digits, config)
    assert_alike(workers.run(train_digits, config, script={5: (1,), 8: (2,), 9: (0,), 10: (1,)}), alone, tolerance=0.0)


def train_on_few(config: dict[str, Any]) -> list[float]:
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    elastic = et.torch.Elastic(model, optimizer)
    data = elastic.batches(digits(config["samples"]), 2)
    losses = []
    for _ in range(3):
        for batch in data:
            optimizer.zero_grad()
            losses.append(elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch))
            optimizer.step()
    return [*losses, model.weight.sum().item()]


@pytest.mark.slow
def test_workers_without_a_sample_take_part(workers: Workers) -> None:
    config = {"samples": 5}
    alone = workers.run(train_on_few, config).returned[0]
    shared = workers.run(train_on_few, config, (0, 1, 2)).returned
    assert len(shared) == 3
    for each in shared.values():
        assert each == pytest.approx(alone, abs=TOLERANCE)


class Partly(nn.Module):
    """Has a parameter that is frozen, one that nothing uses, and one that only some samples use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.frozen, self.rare = (nn.Linear(64, 10) for _ in range(3))
        self.unused = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = self.used(x) + self.frozen(x)
        return F.cross_entropy(scores + self.rare(x) if 0 in y else scores, y)


def train_partly(config: dict[str, Any]) -> dict[str, Any]:
    model = Partly()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    elastic = et.torch.Elastic(model, optimizer)
    for batch in elastic.batches(digits(10), 10, shuffle=False):  # the only 0 is in the share of the first worker
        elastic.backward(model, batch)
        optimizer.step()
    return {
        "has": [name for name, parameter in model.named_parameters() if parameter.grad is not None],
        "weights": {name: value.tolist() for name, value in model.state_dict().items()},
    }


@pytest.mark.slow
def test_parameters_have_a_gradient_on_all_workers_or_on_none(workers: Workers) -> None:
    alone = workers.run(train_partly, {}).returned[0]
    first, second = workers.run(train_partly, {}, (0, 1)).returned.values()
    assert first == second
    assert first["has"] == alone["has"] == ["used.weight", "used.bias", "rare.weight", "rare.bias"]


def train_with_batch_norm(config: dict[str, Any]) -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    elastic = et.torch.Elastic(model, optimizer)
    data = elastic.batches(digits(60), 30, max_per_device=config.get("max_per_device"))
    for _ in range(data.epoch, 2):
        for batch in data:
            optimizer.zero_grad()
            elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
            optimizer.step()
        et.report({"loss": 0.0})
    value = elastic.mean(lambda x, y: {"loss": F.cross_entropy(model(x), y), "one": 1.0}, digits(50), 7)
    assert model.training and all(module.training for module in model)
    return {"value": value, **{name: state.tolist() for name, state in model.state_dict().items()}}


@pytest.mark.slow
def test_batch_norm_is_the_same_on_all_workers(workers: Workers) -> None:
    outcome = workers.run(train_with_batch_norm, {}, script={1: (0, 1, 2)})
    first, *others = outcome.returned.values()
    assert len(others) == 2 and all(other == first for other in others)
    assert first["1.num_batches_tracked"] == 4 and first["value"]["one"] == pytest.approx(1.0)


@pytest.mark.slow
def test_batch_norm_learns_the_same_when_the_pieces_are(workers: Workers) -> None:
    alone = workers.run(train_with_batch_norm, {"max_per_device": 15}).returned[0]
    resized = workers.run(train_with_batch_norm, {"max_per_device": 15}, script={1: (0, 1)}).returned[1]
    assert torch.allclose(torch.tensor(resized["0.weight"]), torch.tensor(alone["0.weight"]), rtol=0, atol=TOLERANCE)


def evaluate(config: dict[str, Any]) -> list[Any]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.5))
    elastic = et.torch.Elastic(model)
    loss = elastic.mean(lambda x, y: F.cross_entropy(model(x), y), digits(101), 17)
    few = elastic.mean(lambda x, y: {"loss": F.cross_entropy(model(x), y), "n": len(x)}, digits(3))
    return [loss, few, elastic.mean(lambda x, y: x.mean(), Noisy(SAMPLES), 64), torch.rand(1).item()]


@pytest.mark.slow
def test_a_mean_is_the_same_to_the_digit_on_any_number_of_workers(workers: Workers) -> None:
    alone = workers.run(evaluate, {}).returned[0]
    for members in ((0, 1), (2, 1, 0)):
        outcome = workers.run(evaluate, {}, members)
        assert len(outcome.returned) == len(members)
        assert all(each == alone for each in outcome.returned.values())


def add_up(config: dict[str, Any]) -> list[float]:
    torch.manual_seed(3)
    model = nn.Linear(64, 10)
    elastic = et.torch.Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert dist.is_initialized() == (et.get_context().world_size > 1)
    for batch in elastic.batches(digits(12), 5):
        elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
    assert model.weight.grad is not None
    return model.weight.grad.flatten().tolist()


@pytest.mark.slow
def test_gradients_of_several_batches_add_up(workers: Workers) -> None:
    alone = workers.run(add_up, {}).returned[0]
    for gradient in workers.run(add_up, {}, (0, 1)).returned.values():
        assert gradient == pytest.approx(alone, abs=1e-6)


def forget_the_checkpoint(config: dict[str, Any]) -> None:
    if et.get_context().rank > 0:
        this_session().forget()
    train_digits(config)


@pytest.mark.slow
def test_a_worker_that_is_not_in_step_is_an_error_on_all(workers: Workers) -> None:
    outcome = workers.run(forget_the_checkpoint, {}, script={3: (0, 1)})
    assert len(outcome.failed) == 2
    assert all("not in step: they have made 3, 0 steps" in text for text in outcome.failed.values())


def die(config: dict[str, Any]) -> float:
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    elastic = et.torch.Elastic(model, optimizer)
    for batch in elastic.batches(digits(), 64):
        if et.get_context().rank == 1 and elastic.steps == 2:
            os._exit(1)
        began = time.monotonic()
        try:
            elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
        except RuntimeError:
            assert elastic.steps == 3
            return time.monotonic() - began
    raise AssertionError("nothing was raised")


@pytest.mark.slow
def test_the_death_of_a_worker_raises_out_of_backward() -> None:
    workers = Workers(2)
    try:
        outcome = workers.run(die, {}, (0, 1))
    finally:
        workers.close()
    assert outcome.returned.keys() == {0} and outcome.returned[0] < 10.0


def resize_often(config: dict[str, Any]) -> list[float]:
    et.torch.Elastic(*linear())
    for _ in range(60):
        et.report({"loss": 0.0})
    return this_session().reform_s


@pytest.mark.slow
def test_workers_form_and_part_in_milliseconds(workers: Workers) -> None:
    script: dict[int, Members] = {step: (0, 1) if step % 2 else (0,) for step in range(1, 61)}
    times = workers.run(resize_often, {}, script=script).returned[0]
    both = [grow + shrink for grow, shrink in zip(times[::2], times[1::2], strict=True)]
    print(f"1 -> 2 -> 1: median {1e3 * statistics.median(both):.1f} ms, fastest {1e3 * min(both):.1f} ms")
    assert min(both) < 0.020
