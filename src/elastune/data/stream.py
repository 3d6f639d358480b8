"""A dataset that is read as it is needed: the samples, their order in each epoch, and what is drawn for them."""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from elastune.data.cache import Cache
from elastune.data.format import Columns, rows, stack, stacked
from elastune.data.order import Ints, Order
from elastune.data.sources import Files, Url, open_source
from elastune.errors import SpecError

Decode = Callable[[Any], Any]
Augment = Callable[[Any, np.random.Generator], Any]
DOWNLOADS = 8
"""At a time, for one stream."""


class Stream:
    """Samples in a folder of any store, for `Elastic.batches` and `Elastic.mean`.

    `url`: a folder that `write` has made, a folder of .npy files, a pattern of files such as 's3://bucket/*.png', or a
    list of files. `decode(sample)` makes of a sample, as it is stored, what training needs; of a plain file that is
    {"path": ..., "bytes": ...}. `augment(sample, rng)` comes after it; all that it draws must come from `rng`, which
    depends on the seed, the epoch and the sample only.

    Streams with the same seed have the same order. That is best for the trials of a run, for what one has downloaded is
    what the others need next.
    """

    def __init__(
        self,
        url: Url | Sequence[Url],
        *,
        seed: int = 0,
        decode: Decode | None = None,
        augment: Augment | None = None,
        prefetch: int = 4,
        block_bytes: int = 1 << 30,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int = 32 << 30,
    ) -> None:
        """`prefetch` is how many batches are made ready ahead. Samples are shuffled among `block_bytes` of shards.

        `cache` is a folder on this machine for what comes from elsewhere, and holds about `cache_bytes` at most.
        """
        for name, number, least in (
            ("seed", seed, 0),
            ("prefetch", prefetch, 0),
            ("block_bytes", block_bytes, 1),
            ("cache_bytes", cache_bytes, 1),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise SpecError(f"{name}={number!r}: must be a whole number, at least {least}")
        for name, function in (("decode", decode), ("augment", augment)):
            if function is not None and not callable(function):
                raise SpecError(f"{name}={function!r}: must be a function, or None")
        if seed >= 1 << 64:
            raise SpecError(f"seed={seed}: must be below 2**64")
        if cache_bytes < 2 * block_bytes:
            raise SpecError(
                f"cache_bytes={cache_bytes}: must be at least twice block_bytes={block_bytes}: the next block is "
                "downloaded while this one is read"
            )
        folder = Path(cache or Path(tempfile.gettempdir(), f"elastune-data-{os.getuid()}")).absolute()
        self.prefetch = prefetch
        self._seed, self._decode, self._augment, self._block_bytes = seed, decode, augment, block_bytes
        self._source, self.url = open_source(url, Cache(folder, cache_bytes), 2 * block_bytes)
        if isinstance(self._source, Files) and decode is None:
            raise SpecError(f"url={url!r:.80}: are plain files; give decode, a function that makes samples of them")
        self._again = functools.partial(
            Stream, self.url, seed=seed, decode=decode, augment=augment, prefetch=prefetch, block_bytes=block_bytes,
            cache=folder, cache_bytes=cache_bytes,
        )  # fmt: skip
        self._ends = np.cumsum(self._source.samples)
        self._starts = self._ends - self._source.samples
        self._downloads = ThreadPoolExecutor(DOWNLOADS, "elastune-download")
        weakref.finalize(self, self._downloads.shutdown, wait=False, cancel_futures=True)
        self._lock = threading.Lock()
        self._orders: dict[tuple[int, bool], Order] = {}
        self._looked_ahead: tuple[int, int] | None = None

    def __reduce__(self) -> Any:
        return self._again, ()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Any:
        """One sample, decoded and not augmented."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        (sample,) = rows(self._gather(np.array([number % len(self)])), 1)
        return sample if self._decode is None else self._decode(sample)

    @property
    def fingerprint(self) -> int:
        """Differs where the order of an epoch would."""
        return zlib.crc32(repr((self._source.fingerprint, self._seed, self._block_bytes)).encode())

    def order(self, epoch: int, shuffle: bool = True) -> Order:
        with self._lock:
            order = self._orders.pop((epoch, shuffle), None)
            if order is None:
                if len(self._orders) > 1:
                    del self._orders[next(iter(self._orders))]  # which was asked for least recently
                source, key = self._source, (self._seed, epoch)
                order = Order(source.samples, source.sizes_bytes, self._block_bytes, key, shuffle)
            self._orders[epoch, shuffle] = order
            return order

    def stretch(self, epoch: int, start: int, stop: int, shuffle: bool = True) -> Ints:
        """The numbers of the samples at these places of an epoch; what comes after them is fetched meanwhile."""
        order = self.order(epoch, shuffle)
        numbers = order.stretch(start, stop)
        if len(numbers) and not isinstance(self._source, Files):  # of which each is fetched with its batch
            self._look_ahead(epoch, order.block_of(stop - 1), shuffle)
        return numbers

    def read(self, numbers: Ints | Sequence[int], epoch: int = 0) -> Any:
        """These samples as one batch: what a sample is made of, as arrays; bytes and texts as lists."""
        numbers = self._checked(numbers)
        if self._decode is None and self._augment is None:
            columns = self._gather(numbers)
            return {
                name: each if isinstance(each, np.ndarray) else stacked(each, name) for name, each in columns.items()
            }
        return stack(self.samples(numbers, epoch))

    def samples(self, numbers: Ints | Sequence[int], epoch: int = 0) -> list[Any]:
        """These samples one by one, decoded and augmented."""
        numbers = self._checked(numbers)
        found: list[Any] = rows(self._gather(numbers), len(numbers))
        if self._decode is not None:
            found = [self._decode(sample) for sample in found]
        if self._augment is not None:
            augment, rngs = self._augment, self._rngs(numbers, epoch)
            found = [augment(sample, rng) for sample, rng in zip(found, rngs, strict=True)]
        return found

    def _checked(self, numbers: Ints | Sequence[int]) -> Ints:
        """A batch of none has no columns to be made of, and a number below 0 would be found in a wrong part."""
        given = np.asarray(numbers)
        are_numbers = given.ndim == 1 and len(given) and given.dtype.kind in "iu"
        if not are_numbers or not 0 <= given.min() <= given.max() < len(self):
            raise SpecError(
                f"numbers={numbers!r:.80}: must be the numbers of one or more of the {len(self)} samples, from 0 on"
            )
        return given.astype(np.int64, copy=False)

    def _rngs(self, numbers: Ints, epoch: int) -> Iterator[np.random.Generator]:
        """A generator for each sample: the same one, set to another place. To make one takes ten times as long."""
        bits = np.random.Philox(key=np.array([self._seed, epoch], np.uint64))
        rng, state = np.random.Generator(bits), bits.state
        for number in numbers.tolist():
            state["state"]["counter"][3] = number  # drawing counts the first of the four up
            bits.state = state
            yield rng

    def _gather(self, numbers: Ints) -> Columns:
        """Their values as they are stored, from all the parts where they are."""
        parts = np.searchsorted(self._ends, numbers, side="right")
        within = numbers - self._starts[parts]
        by_part = np.argsort(parts, kind="stable")
        needed, starts = np.unique(parts[by_part], return_index=True)
        list(self._downloads.map(self._source.fetch, [part for part in needed if not self._source.is_near(part)]))
        if len(needed) == 1:
            return self._source.take(int(needed[0]), within)
        gathered: Columns = {}
        for part, places in zip(needed.tolist(), np.split(by_part, starts[1:]), strict=True):
            for name, values in self._source.take(part, within[places]).items():
                _place(gathered, name, values, places, len(numbers))
        return gathered

    def _look_ahead(self, epoch: int, block: int, shuffle: bool) -> None:
        """See that this block and the next one are on their way."""
        with self._lock:
            if self._looked_ahead == (epoch, block):
                return
            self._looked_ahead = epoch, block
        order = self.order(epoch, shuffle)
        last = block + 1 == order.blocks
        after = self.order(epoch + 1, shuffle).parts_of(0) if last else order.parts_of(block + 1)
        for part in (*order.parts_of(block).tolist(), *after.tolist()):
            if not self._source.is_near(part):
                self._downloads.submit(self._source.fetch, part)


def _place(gathered: Columns, name: str, values: Any, places: Ints, count: int) -> None:
    """Put the values of one part where they belong; one array as long as those of all parts are alike."""
    whole = gathered.get(name)
    if whole is None:
        alike = isinstance(values, np.ndarray)
        gathered[name] = whole = np.empty((count, *values.shape[1:]), values.dtype) if alike else [None] * count
    elif isinstance(whole, np.ndarray) and (isinstance(values, list) or values.shape[1:] != whole.shape[1:]):
        gathered[name] = whole = list(whole)
    if isinstance(whole, np.ndarray):
        whole[places] = values
    else:
        for place, value in zip(places.tolist(), values, strict=True):
            whole[place] = value
