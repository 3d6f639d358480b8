"""A density over rows of bins, made of masked attention.

p(x) is the product over the axes i, in any order, of p(x_i | those before i). Every axis has a query; every bin of
every axis has a content. What axis i should be is read from its query and from the contents of the axes before it, to
each of which it attends as much as its query and their keys match; the others are masked, and so are those that are not
in use. It may attend to nothing, too, as the first one must. As the order is nothing but a mask, one set of weights
serves all orders.

Before any training every bin is as likely as in a random configuration, whatever came before. Neighbouring bins
of a numeric axis share what they learn: their weights are mixed by a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elastune.search.vectors import Array

WIDTH = 16
"""How many numbers stand for a query, a content or a state."""
REACH = 1.0
"""The deviation of the kernel, in bins."""


class MaskedAttention(nn.Module):
    """`shares[i]` are the probabilities of the bins of axis i before training; `numeric[i]`: they have neighbours."""

    def __init__(self, shares: Sequence[Array], numeric: Sequence[bool], rng: np.random.Generator) -> None:
        super().__init__()
        axes, most = len(shares), max(map(len, shares))

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.from_numpy(rng.normal(0.0, 1.0, shape).astype(np.float32)))

        self.queries = weights(axes, WIDTH)
        self.contents = weights(axes, most, WIDTH)
        self.keys = weights(WIDTH, WIDTH)
        self.values = weights(WIDTH, WIDTH)
        self.out = nn.Parameter(torch.zeros(axes, most, WIDTH))
        self.bias = nn.Parameter(torch.zeros(axes, most))
        self.prior: Tensor
        self.mix: Tensor
        prior = np.full((axes, most), -np.inf)
        for at, share in enumerate(shares):
            prior[at, : len(share)] = np.log(share)
        self.register_buffer("prior", torch.from_numpy(prior.astype(np.float32)))
        self._near = [at for at, near in enumerate(numeric) if near]
        bins = max((len(shares[at]) for at in self._near), default=0)
        mix = np.zeros((len(self._near), bins, bins))
        for kernel, at in zip(mix, self._near, strict=True):
            kernel[: len(shares[at]), : len(shares[at])] = _kernel(len(shares[at]))
        self.register_buffer("mix", torch.from_numpy(mix.astype(np.float32)))

    def tables(self) -> Tables:
        """Of every bin of every axis: what it is matched by, what it says, and what speaks for it."""
        contents = self._mixed(self.contents)
        out = self._mixed(self.out) / math.sqrt(WIDTH)
        bias = self._mixed(self.bias[..., None])[..., 0] + self.prior
        return Tables(self.queries, contents @ self.keys / WIDTH, contents @ self.values / math.sqrt(WIDTH), out, bias)

    def _mixed(self, weights: Tensor) -> Tensor:
        """Those of numeric axes: each bin with its neighbours."""
        mixed, bins = weights.clone(), self.mix.shape[1]
        mixed[self._near, :bins] = self.mix @ weights[self._near, :bins]
        return mixed


class Tables(NamedTuple):
    """What the weights come to, computed once for all rows."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    out: Tensor
    bias: Tensor

    def logits(self, axes: slice, rows: Tensor, before: Tensor) -> Tensor:
        """By row, axis and bin. `before[row, axis, other]`: the other is before the axis, and in use."""
        others, chosen = torch.arange(rows.shape[1]), rows.clamp(min=0)
        queries = self.queries[axes]
        match = (queries @ self.keys[others, chosen].mT).masked_fill(~before, -math.inf)
        attention = nn.functional.pad(match, (1, 0)).softmax(dim=2)[:, :, 1:]
        states = torch.tanh(queries + attention @ self.values[others, chosen])
        return torch.einsum("raw,abw->rab", states, self.out[axes]) + self.bias[axes]


def _kernel(bins: int) -> NDArray[np.float64]:
    """How much each bin takes from each: a Gaussian whose rows have length one."""
    distance = np.subtract.outer(np.arange(bins), np.arange(bins))
    kernel = np.exp(-0.5 * (distance / REACH) ** 2)
    mixed: NDArray[np.float64] = kernel / np.linalg.norm(kernel, axis=1, keepdims=True)
    return mixed
