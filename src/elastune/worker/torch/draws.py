"""Random numbers that depend on what they are drawn for, not on which worker draws them.

Workers draw differently often: each loads and computes its own share. What they draw for that comes from a seed of its
own, and then their generators stand where they stood before, the same on all of them.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Seed = Callable[[int], None]


def seed_of(*key: object) -> int:
    return zlib.crc32(" ".join(map(str, key)).encode())


def states() -> tuple[Any, Any, torch.Tensor]:
    """Where the generators of Python, NumPy and PyTorch stand."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_states(kept: tuple[Any, Any, torch.Tensor]) -> None:
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    torch.set_rng_state(kept[2])


@contextmanager
def torch_apart(device: torch.device) -> Iterator[Seed]:
    """PyTorch's generators, to be seeded at will. The others would cost more than a small step of training."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    kept = [generator.get_state() for generator in generators]

    def seed(number: int) -> None:
        for generator in generators:
            generator.manual_seed(number)

    try:
        yield seed
    finally:
        for generator, state in zip(generators, kept, strict=True):
            generator.set_state(state)


@contextmanager
def all_apart() -> Iterator[Seed]:
    """The generators that a dataset may draw from, to be seeded at will."""
    kept = states()

    def seed(number: int) -> None:
        random.seed(number)
        np.random.seed(number)
        torch.default_generator.manual_seed(number)

    try:
        yield seed
    finally:
        set_states(kept)
