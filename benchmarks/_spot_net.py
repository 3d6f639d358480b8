"""Real learning curves with a drop of the learning rate: networks on scikit-learn's digits, all trained at once.

One hidden layer, cross entropy on 597 images that were not trained on, after each of 100 epochs; the learning rate is
divided by ten after epoch 40 or 60, as in SpotTune's ResNet and AlexNet. The networks of all configurations are stacked
in one tensor, so a hundred take seconds, and see the same batches.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

EPOCHS, DROPS, FACTOR = 100, (40, 60), 0.1
TRAINED, BATCH, UNITS = 1200, 32, 64
RATES = {"sgd": (0.05, 0.5), "adam": (0.006, 0.06)}
DECAYS = {"sgd": (1e-4, 1e-2), "adam": (1e-3, 1e-1)}
MOMENTUM, SECOND = {"sgd": 0.5, "adam": 0.9}, 0.999

cross_entropy = torch.nn.functional.cross_entropy


def curves(optimizer: str, count: int, seed: int) -> tuple[NDArray[np.float64], list[int]]:
    """The losses of so many random configurations, and the epoch after which the learning rate of each is lowered."""
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(seed)
    rates, decays = (_log_uniform(*ends[optimizer], count, random) for ends in (RATES, DECAYS))
    drops = torch.tensor(DROPS)[torch.randint(len(DROPS), (count,), generator=random)]
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images, order = images.float() / 16, torch.randperm(len(labels), generator=random)
    trained, held_out = order[:TRAINED], order[TRAINED:]
    nets = Nets(count, optimizer, random)
    losses = []
    for epoch in range(EPOCHS):
        now = torch.where(epoch < drops, rates, FACTOR * rates).view(-1, 1, 1)
        for batch in torch.split(trained[torch.randperm(TRAINED, generator=random)], BATCH):
            nets.step(images[batch], labels[batch], now, decays.view(-1, 1, 1))
        with torch.no_grad():
            losses.append(nets.losses(images[held_out], labels[held_out]).double().numpy())
    return np.array(losses).T, drops.tolist()


class Nets:
    """Networks of one shape; those that are trained differently never meet."""

    def __init__(self, count: int, optimizer: str, random: torch.Generator) -> None:
        self._adam, self._momentum = optimizer == "adam", MOMENTUM[optimizer]
        shapes = [(64, UNITS), (1, UNITS), (UNITS, 10), (1, 10)]
        self._weights = [torch.randn(count, *shape, generator=random) / 8 * (shape[0] > 1) for shape in shapes]
        for weights in self._weights:
            weights.requires_grad_()
        self._firsts = [torch.zeros_like(weights) for weights in self._weights]
        self._seconds = [torch.zeros_like(weights) for weights in self._weights]
        self._steps = 0

    def losses(self, images: Tensor, labels: Tensor) -> Tensor:
        into, into_bias, out, out_bias = self._weights
        scores = torch.relu(images @ into + into_bias) @ out + out_bias
        return cross_entropy(scores.transpose(1, 2), labels.expand(len(scores), -1), reduction="none").mean(dim=1)

    def step(self, images: Tensor, labels: Tensor, rates: Tensor, decays: Tensor) -> None:
        gradients = torch.autograd.grad(self.losses(images, labels).sum(), self._weights)
        self._steps += 1
        with torch.no_grad():
            for weights, gradient, first, second in zip(
                self._weights, gradients, self._firsts, self._seconds, strict=True
            ):
                if self._adam:  # with decoupled weight decay
                    first.lerp_(gradient, 1 - self._momentum)
                    second.lerp_(gradient**2, 1 - SECOND)
                    mean, square = first / (1 - self._momentum**self._steps), second / (1 - SECOND**self._steps)
                    weights -= rates * (mean / (square.sqrt() + 1e-8) + decays * weights)
                else:
                    first.mul_(self._momentum).add_(gradient + decays * weights)
                    weights -= rates * first


def _log_uniform(low: float, high: float, count: int, random: torch.Generator) -> Tensor:
    return low * (high / low) ** torch.rand(count, generator=random)
