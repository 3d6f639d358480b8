"""A polynomial fitted to a noisy sine, with the interface of Ultron: nothing here knows Elastune."""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

EPOCHS = 40


class Model:
    def score(self, hyperparameters: dict[str, Any], checkpoint_path: str, resume: bool) -> float:
        weights, velocity, start = [0.0] * (hyperparameters["degree"] + 1), [0.0] * (hyperparameters["degree"] + 1), 0
        if resume:
            newest = max(os.listdir(checkpoint_path), key=int)
            with open(os.path.join(checkpoint_path, newest, "state.json")) as file:
                weights, velocity, start = json.load(file)
        train, test = data()
        for epoch in range(start, EPOCHS):
            descend(weights, velocity, train, hyperparameters["lr"], hyperparameters["momentum"])
            if epoch % 10 == 9:
                save(checkpoint_path, epoch + 1, (weights, velocity, epoch + 1))
        # What it explains of the variance: 1 is perfect, 0 no better than the mean.
        mean = sum(y for _, y in test) / len(test)
        missed = sum((predict(weights, x) - y) ** 2 for x, y in test)
        return 1 - missed / sum((y - mean) ** 2 for _, y in test)


def save(checkpoint_path: str, epoch: int, state: object) -> None:
    """A folder for the epoch; the file DONE comes last and says that the folder is complete."""
    folder = os.path.join(checkpoint_path, str(epoch))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "state.json"), "w") as file:
        json.dump(state, file)
    with open(os.path.join(folder, "DONE"), "w"):
        pass


Points = list[tuple[float, float]]


def data() -> tuple[Points, Points]:
    rng = random.Random(0)
    xs = [rng.uniform(-1, 1) for _ in range(200)]
    points = [(x, math.sin(3 * x) + rng.gauss(0, 0.1)) for x in xs]
    return points[:150], points[150:]


def predict(weights: list[float], x: float) -> float:
    return sum(weight * x**power for power, weight in enumerate(weights))


def descend(weights: list[float], velocity: list[float], points: Points, lr: float, momentum: float) -> None:
    errors = [(x, predict(weights, x) - y) for x, y in points]
    for power in range(len(weights)):
        gradient = sum(error * x**power for x, error in errors) / len(points)
        velocity[power] = momentum * velocity[power] - lr * gradient
        weights[power] += velocity[power]
