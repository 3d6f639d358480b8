"""Batches of a stream, made ready in the background while the model trains."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from elastune.data import Stream

Place = tuple[int, int, int]
"""A stretch of an epoch: epoch, start, stop."""
READERS = 2
"""Threads: what takes long (downloads, decoding, large arrays) does not hold Python's lock."""


class Ahead:
    """It remembers nothing but what is on its way. What is wanted next it is told at every turn: when that changes,
    after a resize or a restore, what was made ready in vain is dropped.
    """

    def __init__(self, stream: Stream, shuffle: bool, collate: Callable[[list[Any]], Any] | None) -> None:
        self._stream, self._shuffle, self._collate = stream, shuffle, collate
        self._readers = ThreadPoolExecutor(READERS, "elastune-read")
        weakref.finalize(self, self._readers.shutdown, wait=False, cancel_futures=True)
        self._coming: dict[Place, Future[tuple[Any, ...]]] = {}
        self.waited_s = 0.0

    def take(self, wanted: Iterable[Place]) -> tuple[Any, ...]:
        """The first of these places; the others are made ready."""
        first, *others = wanted
        keep = dict.fromkeys((first, *others))
        for place in [place for place in self._coming if place not in keep]:
            self._coming.pop(place).cancel()
        for place in keep:
            if place not in self._coming:
                self._coming[place] = self._readers.submit(self._read, place)
        began_s = time.perf_counter()
        try:
            return self._coming.pop(first).result()
        finally:
            self.waited_s += time.perf_counter() - began_s

    def _read(self, place: Place) -> tuple[Any, ...]:
        epoch, start, stop = place
        return read(self._stream, self._stream.stretch(epoch, start, stop, self._shuffle), epoch, self._collate)


def read(
    stream: Stream, numbers: np.ndarray[Any, Any], epoch: int, collate: Callable[[list[Any]], Any] | None
) -> tuple[Any, ...]:
    """The arguments for a function of one batch."""
    batch = _tensors(stream.read(numbers, epoch)) if collate is None else collate(stream.samples(numbers, epoch))
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def _tensors(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _tensors(each) for name, each in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_tensors(each) for each in batch)
    return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch
