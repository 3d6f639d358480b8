"""A small network on scikit-learn's digits, in numpy: workers begin at once, so that a minute is enough to tune it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import elastune as et

EPOCHS = 10_000  # more than there is time for: the clock ends a round
IMAGES, LABELS = load_digits(return_X_y=True)  # here, not in the function: workers are sent the arrays
IMAGES = (IMAGES / 16.0).astype(np.float32)
SEEN = 1300  # the images after these are to validate on
Floats = NDArray[np.float32]


def forward(weights: list[Floats], images: Floats) -> tuple[Floats, Floats]:
    """The hidden layer, and the probabilities of the digits."""
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def gradients(weights: list[Floats], images: Floats, labels: NDArray[np.int64]) -> list[Floats]:
    hidden, slope = forward(weights, images)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    below = slope @ weights[2].T * (hidden > 0)
    return [images.T @ below, below.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)]


def train(config: dict[str, Any]) -> None:
    seed = et.get_context().seed
    random = np.random.default_rng(seed)
    shapes = (64, config["hidden"]), (config["hidden"],), (config["hidden"], 10), (10,)
    weights = [(0.1 * random.standard_normal(shape)).astype(np.float32) for shape in shapes]
    state = et.get_checkpoint() or {"epoch": 0, "weights": weights, "moving": [np.zeros_like(each) for each in weights]}
    weights, moving = state["weights"], state["moving"]
    for epoch in range(state["epoch"], EPOCHS):
        # The order depends on the epoch alone: a trial that was paused goes on as if it had not been.
        order = np.random.default_rng((seed, epoch)).permutation(SEEN)
        for batch in np.array_split(order, SEEN // config["batch_size"]):
            slopes = gradients(weights, IMAGES[batch], LABELS[batch])
            for each, move, slope in zip(weights, moving, slopes, strict=True):
                move *= config["momentum"]
                move -= config["lr"] * slope
                each += move
        state["epoch"] = epoch + 1
        probabilities = forward(weights, IMAGES[SEEN:])[1]
        right = probabilities[np.arange(len(probabilities)), LABELS[SEEN:]]
        accuracy = (probabilities.argmax(axis=1) == LABELS[SEEN:]).mean()
        et.report({"loss": float(-np.log(right + 1e-9).mean()), "accuracy": float(accuracy)}, checkpoint=lambda: state)
