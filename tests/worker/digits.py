"""What there is to learn: scikit-learn's digits, and a small model for them."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

SAMPLES = 450


def digits(count: int = SAMPLES) -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:count] / 16, dtype=torch.float32), torch.tensor(labels[:count]))


def linear() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(64, 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)
