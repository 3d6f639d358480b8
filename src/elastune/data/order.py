"""The order of the samples of an epoch: a function of the seed, the epoch and the data, and of nothing else.

All parts (shards) of the data are shuffled and cut into blocks of a certain size; then the samples of each block are
shuffled among themselves. So only a block has to be on this machine at a time. Data that fits into one is shuffled as a
whole. The order is made as it is asked for, block by block.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastune.errors import SpecError

Ints = NDArray[np.int64]


class Order:
    """Of one epoch. `samples` and `sizes_bytes` are those of the parts; samples are numbered through all parts."""

    def __init__(self, samples: Ints, sizes_bytes: Ints, block_bytes: int, key: Sequence[int], shuffle: bool) -> None:
        self._key, self._shuffle = tuple(key), shuffle
        count = len(samples)
        self._parts = np.random.default_rng(self._key).permutation(count) if shuffle else np.arange(count)
        self._first = (np.cumsum(samples) - samples)[self._parts]
        self._samples = samples[self._parts]
        self._ends = np.cumsum(self._samples)
        before = np.cumsum(sizes_bytes[self._parts]) - sizes_bytes[self._parts]
        number = before // block_bytes
        # Where each block begins among the parts, and the end of the last.
        self._blocks = np.r_[np.flatnonzero(np.r_[True, number[1:] != number[:-1]]), count]
        self._kept: dict[int, Ints] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def blocks(self) -> int:
        return len(self._blocks) - 1

    def block_of(self, position: int) -> int:
        part = np.searchsorted(self._ends, position, side="right")
        return int(np.searchsorted(self._blocks, part, side="right")) - 1

    def parts_of(self, block: int) -> Ints:
        return self._parts[self._blocks[block] : self._blocks[block + 1]]

    def stretch(self, start: int, stop: int) -> Ints:
        """The numbers of the samples in these places of the order."""
        if not 0 <= start <= stop <= len(self):
            raise SpecError(
                f"start={start}, stop={stop}: must be places in an epoch of {len(self)} samples: at least 0, at most "
                f"{len(self)}, and start not above stop"
            )
        found = []
        while start < stop:
            block = self.block_of(start)
            begin = self._begin(block)
            chosen = self._shuffled(block)[start - begin : stop - begin]
            found.append(chosen)
            start += len(chosen)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _begin(self, block: int) -> int:
        part = self._blocks[block]
        return int(self._ends[part] - self._samples[part])

    def _shuffled(self, block: int) -> Ints:
        with self._lock:
            if block not in self._kept:
                if len(self._kept) > 1:
                    del self._kept[min(self._kept)]
                self._kept[block] = self._of_block(block)
            return self._kept[block]

    def _of_block(self, block: int) -> Ints:
        parts = slice(self._blocks[block], self._blocks[block + 1])
        samples = self._samples[parts]
        within = np.arange(samples.sum()) - np.repeat(np.cumsum(samples) - samples, samples)
        numbers: Ints = np.repeat(self._first[parts], samples) + within
        if not self._shuffle:
            return numbers
        return np.random.default_rng((*self._key, block + 1)).permutation(numbers)
