"""The same network, trained so that a change of its number of workers changes nothing: `python elastic.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from train import load

import elastune as et

EPOCHS = 9


def train(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)  # each worker has one device
    torch.manual_seed(et.get_context().seed)
    train_x, train_y, test_x, test_y = load()
    train_set, test_set = TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)
    model = nn.Sequential(nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)

    elastic = et.torch.Elastic(model, optimizer, scheduler)
    data = elastic.batches(train_set, batch_size=64)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    def evaluate(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = model(x)
        return {"accuracy": (scores.argmax(dim=1) == y).float().mean(), "loss": F.cross_entropy(scores, y)}

    for _ in range(data.epoch, EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            elastic.backward(loss_of, batch)
            optimizer.step()
        scheduler.step()
        et.report(elastic.mean(evaluate, test_set))


def main() -> None:
    tuner = et.Tuner(
        train,
        space={"lr": et.loguniform(1e-3, 1.0), "hidden": et.choice([16, 32, 64])},
        metric="accuracy",
        mode="max",
        algorithm=et.SuccessiveHalving(n=9, r=1, R=EPOCHS, eta=3),
        seed=0,
        devices=2,
        name="elastic",
    )
    result = tuner.fit()
    print(result.summary())
    print(f"best accuracy {result.best_value:.3f} with {result.best_params}")


if __name__ == "__main__":
    main()
