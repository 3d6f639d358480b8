"""Training of the two predictors that read the past with an LSTM. Needs torch; the classes of the predictors do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from elastune.market.prices import Floats
from elastune.market.revocation import Arrays

try:
    import torch
    from torch import nn
except ImportError as error:
    from elastune.errors import SpecError

    raise SpecError(
        'the models revpred and tributary need PyTorch, which is not installed: pip install "elastune[torch]"'
    ) from error

HIDDEN = 16
LAYERS = 3
EPOCHS = 20
BATCH = 256
LEARNING_RATE = 1e-2
AT_ONCE = 4096


class RevPredNet(nn.Module):
    """Three LSTM layers over the past and three dense ones over the present record with the maximum price."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.past = nn.LSTM(features, HIDDEN, LAYERS, batch_first=True)
        self.present = nn.Sequential(
            *(nn.Linear(features + 1, HIDDEN), nn.ReLU()),
            *(nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
            *(nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
        )
        self.out = nn.Linear(2 * HIDDEN, 1)

    def forward(self, past: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        embedded = torch.cat([self.past(past)[0][:, -1], self.present(present)], dim=1)
        odds: torch.Tensor = self.out(embedded)[:, 0]
        return odds


class TributaryNet(nn.Module):
    """Three LSTM layers over all records, each with the maximum price."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.records = nn.LSTM(features + 1, HIDDEN, LAYERS, batch_first=True)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, past: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        bids = present[:, None, -1:].expand(-1, past.shape[1], 1)
        records = torch.cat([torch.cat([past, bids], dim=2), present[:, None]], dim=1)
        odds: torch.Tensor = self.out(self.records(records)[0][:, -1])[:, 0]
        return odds


Net = RevPredNet | TributaryNet


def train(
    make: Callable[[int], Net],
    inputs: Sequence[Floats],
    labels: Floats,
    class_weights: tuple[float, float],
    rng: np.random.Generator,
) -> Arrays:
    """The weights that Adam finds, and how inputs are standardised. `class_weights` are of negatives and positives."""
    scales: Arrays = {}
    for name, values in zip(("past", "present"), inputs, strict=True):
        flat = values.reshape(-1, values.shape[-1])
        spread = flat.std(axis=0)
        scales |= {f"{name}_mean": flat.mean(axis=0), f"{name}_spread": np.where(spread > 0, spread, 1.0)}
    tensors, wanted = _scaled(scales, inputs), torch.tensor(labels, dtype=torch.float32)
    weights = torch.where(wanted > 0, class_weights[1], class_weights[0])
    net = _initial(make, inputs[0].shape[-1], int(rng.integers(2**62)))
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    with _one_thread():
        for _ in range(EPOCHS):
            for batch in torch.from_numpy(rng.permutation(len(labels))).split(BATCH):  # type: ignore[no-untyped-call]
                odds = net(*(each[batch] for each in tensors))
                loss = nn.functional.binary_cross_entropy_with_logits(odds, wanted[batch], weights[batch])
                optimizer.zero_grad()
                (loss / weights.mean()).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
    return {**scales, **{f"net.{name}": value.numpy() for name, value in net.state_dict().items()}}


def log_odds(make: Callable[[int], Net], model: Arrays, inputs: Sequence[Floats]) -> Floats:
    """What a trained network says, before it is made a probability."""
    net = _empty(make, inputs[0].shape[-1])
    net.load_state_dict({n.removeprefix("net."): torch.from_numpy(a) for n, a in model.items() if n.startswith("net.")})
    with torch.no_grad(), _one_thread():
        tensors = _scaled(model, inputs)
        pieces = zip(*(torch.split(each, AT_ONCE) for each in tensors), strict=True)
        return np.concatenate([net(*piece).double().numpy() for piece in pieces])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Networks as small as these are slower on several, and only on one are the sums the same everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _scaled(model: Arrays, inputs: Sequence[Floats]) -> list[torch.Tensor]:
    return [
        torch.from_numpy(((values - model[f"{name}_mean"]) / model[f"{name}_spread"]).astype(np.float32))
        for name, values in zip(("past", "present"), inputs, strict=True)
    ]


def _empty(make: Callable[[int], Net], features: int) -> Net:
    """Without the random weights that torch would take from its global generator."""
    with torch.device("meta"):
        net = make(features)
    return net.to_empty(device="cpu")


def _initial(make: Callable[[int], Net], features: int, seed: int) -> Net:
    net, generator = _empty(make, features), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.uniform_(-(HIDDEN**-0.5), HIDDEN**-0.5, generator=generator)
    return net
