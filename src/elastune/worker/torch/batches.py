"""Global batches, in an order that is the same for any number of workers, and the share of each that is a worker's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate

from elastune.data import Stream
from elastune.errors import SpecError
from elastune.worker.session import get_context
from elastune.worker.torch import draws
from elastune.worker.torch.ahead import Ahead, Place, read

Collate = Callable[[list[Any]], Any]


def share(size: int, rank: int, world_size: int) -> range:
    """What one of `world_size` workers takes of `size` samples: a stretch of them, the first ones rather longer."""
    each, rest = divmod(size, world_size)
    start = rank * each + min(rank, rest)
    return range(start, start + each + (rank < rest))


def pieces(samples: range, longest: int | None) -> list[range]:
    """A stretch of samples, cut so that no piece is longer than fits into a device."""
    return [samples[at : at + (longest or len(samples))] for at in range(0, len(samples), longest or len(samples) or 1)]


class Source:
    """A dataset, read by positions: whole tensors at once where it is made of them, otherwise item by item."""

    def __init__(self, dataset: Any, collate_fn: Collate | None = None) -> None:
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                raise SpecError(
                    f"dataset={type(dataset).__name__}: has no {method}; must be one with a length whose items have a "
                    "number, such as torch.utils.data.TensorDataset or a list"
                )
        if collate_fn is not None and not callable(collate_fn):
            raise SpecError(f"collate_fn={collate_fn!r}: must be a function of a list of items, or None")
        self.stream = dataset if isinstance(dataset, Stream) else None
        self.collate = collate_fn
        self.size = len(dataset)
        if self.size == 0:
            raise SpecError(f"dataset={type(dataset).__name__}: has no items")
        self._dataset, self._collate = dataset, collate_fn or default_collate
        # A subclass may make something else of its tensors.
        self._tensors = dataset.tensors if type(dataset) is TensorDataset and collate_fn is None else None

    def read(self, positions: torch.Tensor, *key: object) -> tuple[Any, ...]:
        """The arguments for a function of one batch. What an item draws at random depends on `key` and its position."""
        if self.stream is not None:
            return read(self.stream, positions.numpy(), 0, self.collate)
        if self._tensors is not None:
            return tuple(tensor[positions] for tensor in self._tensors)
        items = []
        with draws.all_apart() as seed:
            for position in positions.tolist():
                seed(draws.seed_of(*key, position))
                items.append(self._dataset[position])
            batch = self._collate(items)
        return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples that go through the model together."""

    start: int
    """Where they are in the global batch: the same for any number of workers."""
    weight: float
    """Their part of the global batch."""
    arguments: tuple[Any, ...]


class Batch:
    """One global batch. A worker loads only its own share of it, piece by piece, when it is asked for them."""

    def __init__(self, size: int, longest: int | None, read: Callable[[range], tuple[Any, ...]]) -> None:
        self._size, self._longest, self._read = size, longest, read

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Piece]:
        for piece in own_pieces(len(self), self._longest):
            yield Piece(piece.start, len(piece) / len(self), self._read(piece))


def own_pieces(size: int, longest: int | None) -> list[range]:
    """What this worker takes of a batch, as things stand."""
    context = get_context()
    return pieces(share(size, context.rank, context.world_size), longest)


class Batches:
    """The batches of a dataset, epoch after epoch.

    `for batch in batches` goes through one epoch, or through what is left of one that was begun.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        max_per_device: int | None,
        shuffle: bool,
        collate_fn: Collate | None,
        number: int,
    ) -> None:
        self._source = Source(dataset, collate_fn)
        self._batch_size = count("batch_size", batch_size)
        self._longest = None if max_per_device is None else count("max_per_device", max_per_device)
        self._shuffle, self._number = shuffle, number
        self._next = 0
        stream = self._source.stream
        self._ahead = None if stream is None else Ahead(stream, shuffle, collate_fn)
        self._order: tuple[int, torch.Tensor] | None = None
        self.epoch = 0
        """How many epochs are complete."""

    def __len__(self) -> int:
        """How many batches an epoch has; the last may be smaller."""
        return math.ceil(self._source.size / self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        while self._next < self._source.size:
            start = self._next
            self._next = min(start + self._batch_size, self._source.size)  # what is saved now has this batch behind it
            yield Batch(self._next - start, self._longest, self._reader(start))
        self.epoch, self._next = self.epoch + 1, 0

    @property
    def waited_s(self) -> float:
        """How long training has waited for the samples of a stream."""
        return 0.0 if self._ahead is None else self._ahead.waited_s

    def _reader(self, start: int) -> Callable[[range], tuple[Any, ...]]:
        """What reads pieces of the batch that begins there."""
        epoch, ahead = self.epoch, self._ahead
        if ahead is not None:
            return lambda piece: ahead.take(self._coming(epoch, start, piece.start))
        ordered, key = self._ordered(), (get_context().seed, self._number, epoch)
        return lambda piece: self._source.read(ordered[start + piece.start : start + piece.stop], *key)

    def _coming(self, epoch: int, start: int, within: int) -> Iterator[Place]:
        """Where the samples are that this worker will take, from this place of a batch on: as many batches as shall be
        ready, also of the next epoch.
        """
        assert self._source.stream is not None
        for _ in range(1 + self._source.stream.prefetch):
            size = min(self._batch_size, self._source.size - start)
            for piece in own_pieces(size, self._longest):
                if piece.start >= within:
                    yield epoch, start + piece.start, start + piece.stop
            start, within = start + size, 0
            if start == self._source.size:
                epoch, start = epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        stream = self._source.stream
        made_of = {} if stream is None else {"stream": stream.fingerprint}
        return {"epoch": self.epoch, "next": self._next, "size": self._source.size, **made_of}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if state["size"] != self._source.size:
            raise SpecError(
                f"dataset of {self._source.size} items: the trial was saved with one of {state['size']}; it must stay "
                "the same, and so must the order of calls of batches()"
            )
        if state.get("stream") != self.state_dict().get("stream"):
            raise SpecError(
                "the stream is another than the one that the trial was saved with: its files, seed and block_bytes "
                "must stay the same, and so must the order of calls of batches()"
            )
        self.epoch, self._next = state["epoch"], state["next"]

    def _ordered(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self.epoch:
            if self._shuffle:
                generator = torch.Generator()
                generator.manual_seed(draws.seed_of(get_context().seed, self._number, self.epoch))
                order = torch.randperm(self._source.size, generator=generator)
            else:
                order = torch.arange(self._source.size)
            self._order = self.epoch, order
        return self._order[1]


def count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(f"{name}={value!r}: must be a whole number, at least 1")
    return value
