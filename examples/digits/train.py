"""A small neural network on scikit-learn's digits: the training function that the demo and digits.yaml tune."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import elastune as et

EPOCHS = 27


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images and labels to train on, then those to validate on: the same for every trial, so that trials compare."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = parts
    return (
        torch.tensor(train_x, dtype=torch.float32),
        torch.tensor(train_y),
        torch.tensor(test_x, dtype=torch.float32),
        torch.tensor(test_y),
    )


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}


def train(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)  # each trial has one device; more threads would only fight over the cores
    seed = et.get_context().seed
    torch.manual_seed(seed)
    train_x, train_y, test_x, test_y = load()
    model = nn.Sequential(nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 10))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"]
    )
    loss_of = nn.CrossEntropyLoss()

    start = 0
    if (checkpoint := et.get_checkpoint()) is not None:
        start = checkpoint["epoch"]
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])

    for epoch in range(start, EPOCHS):
        # The order depends on the epoch alone: a trial that was paused goes on as if it had not been.
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(seed + epoch))
        for batch in torch.split(order, config["batch_size"]):
            optimizer.zero_grad()
            loss_of(model(train_x[batch]), train_y[batch]).backward()
            optimizer.step()

        with torch.no_grad():
            scores = model(test_x)
        metrics = {
            "accuracy": (scores.argmax(dim=1) == test_y).float().mean().item(),
            "loss": loss_of(scores, test_y).item(),
        }
        et.report(metrics, checkpoint=partial(save, model, optimizer, epoch + 1))
