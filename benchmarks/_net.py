"""The training that is resized in engine.py, the same for ours and for the peers: a small network on random data of
the shape of scikit-learn's digits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

ROWS, INPUTS, CLASSES = 1797, 64, 10
BATCH = 64
BATCHES_PER_STEP = 10
"""So many make a step of a few milliseconds."""


class Training:
    """One process of it. The batch stays the same with more processes: each takes its part."""

    def __init__(self, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._random = torch.Generator().manual_seed(0)
        self._inputs = torch.randn(ROWS, INPUTS, generator=self._random)
        self._labels = torch.randint(CLASSES, (ROWS,), generator=self._random)
        self.dataset = torch.utils.data.TensorDataset(self._inputs, self._labels)
        self.model = nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def step(self, rank: int = 0, world_size: int = 1) -> float:
        loss = torch.tensor(0.0)
        for _ in range(BATCHES_PER_STEP):
            rows = torch.randint(ROWS, (BATCH,), generator=self._random)[rank::world_size]
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(self._inputs[rows]), self._labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            if world_size > 1:
                for parameter in self.model.parameters():
                    assert parameter.grad is not None
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world_size
            self.optimizer.step()
        return loss.item()

    def save(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, saved: dict[str, Any]) -> None:
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])


def meet(rank: int, world_size: int, address: tuple[str, int]) -> None:
    """The processes of a trial connect, to exchange gradients."""
    url = f"tcp://{address[0]}:{address[1]}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world_size)


def part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
