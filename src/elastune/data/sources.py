"""What a stream reads from: shards that `write` has made, a folder of .npy files, or plain files.

Samples are numbered through the parts of a source, which are what is downloaded as a whole.
"""

from __future__ import annotations

import glob
import math
import os
import threading
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from elastune.data.cache import Cache, Item, Nearby
from elastune.data.format import NUMBERS, VERSION, Columns, Index, Table, native, parsed
from elastune.data.store import Store
from elastune.data.write import INDEX
from elastune.errors import SpecError, StorageError

Ints = NDArray[np.int64]
Url = str | os.PathLike[str]
OPEN_FILES = 256
"""A mapped file counts as open, and often a process may have but 1,024."""
QUESTIONS = 16
"""To a store, at a time."""
SAMPLED, END_BYTES = 32, 4096
"""So many plain files are looked into, at both ends, to tell whether they are those of before: where they were only
copied, as to another machine, their times differ.
"""


class Source(ABC):
    samples: Ints
    """How many each part has."""
    sizes_bytes: Ints
    fingerprint: int
    """Differs where the samples or their numbers do."""

    @abstractmethod
    def is_near(self, part: int) -> bool:
        """Whether it can be read without waiting for a store."""

    @abstractmethod
    def fetch(self, part: int) -> None:
        """Bring it near."""

    @abstractmethod
    def take(self, part: int, rows: Ints) -> Columns: ...


class Shards(Source):
    """Those that were used last stay open, up to `open_bytes` and `OPEN_FILES`."""

    def __init__(self, store: Store, index: Index, cache: Cache, open_bytes: int) -> None:
        self._nearby, self._columns, self._shards = Nearby(store, cache), index.columns, index.shards
        self._items = [Item(f"{store.root}/{shard.name}", shard.size_bytes, shard.sha256) for shard in index.shards]
        self.samples = np.array([shard.samples for shard in index.shards], np.int64)
        self.sizes_bytes = np.array([shard.size_bytes for shard in index.shards], np.int64)
        self.fingerprint = zlib.crc32("".join(shard.sha256 for shard in index.shards).encode())
        self._tables: OrderedDict[int, Table] = OrderedDict()
        # A block may be longer than it should be, by a part of a shard.
        self._open_bytes = open_bytes + 2 * int(self.sizes_bytes.max())
        self._lock = threading.Lock()
        self._opening: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def is_near(self, part: int) -> bool:
        return part in self._tables

    def fetch(self, part: int) -> None:
        """Opened as well, and so checked: also what is here already."""
        self._table(part)

    def take(self, part: int, rows: Ints) -> Columns:
        return self._table(part).take(rows)

    def _table(self, part: int) -> Table:
        with self._lock:
            if (table := self._tables.get(part)) is not None:
                self._tables.move_to_end(part)
                return table
            opening = self._opening[part]
        with opening:  # the others wait for it
            if (table := self._tables.get(part)) is not None:
                return table
            table = Table(self._nearby.open(self._items[part]), self._columns, self._shards[part].ragged)
            with self._lock:
                self._tables[part] = table
                while len(self._tables) > 1 and self._is_too_much():
                    self._tables.popitem(last=False)
        return table

    def _is_too_much(self) -> bool:
        return len(self._tables) > OPEN_FILES or self.sizes_bytes[list(self._tables)].sum() > self._open_bytes


class Arrays(Source):
    """A folder of .npy files, each with a value of every sample: one part, and the file's name is the value's."""

    def __init__(self, store: Store, files: Mapping[str, Mapping[str, Any]], cache: Cache) -> None:
        self._nearby, self._lock = Nearby(store, cache), threading.Lock()
        self._items = {_stem(path): _item(store, path, info) for path, info in files.items()}
        self._arrays: dict[str, NDArray[Any]] = {}
        self.fetch(0)
        lengths = {name: len(array) if array.ndim else 0 for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            raise SpecError(
                f"url={store.url!r}: its .npy files have different lengths: {lengths}; each must have a value of every "
                "sample"
            )
        self.samples = np.array([next(iter(lengths.values()))], np.int64)
        self.sizes_bytes = np.array([sum(item.size_bytes for item in self._items.values())], np.int64)
        self.fingerprint = _fingerprint(store, list(self._items.values()))

    def is_near(self, part: int) -> bool:
        return bool(self._arrays)

    def fetch(self, part: int) -> None:
        with self._lock:
            for name, item in self._items.items():
                if name not in self._arrays:
                    with self._nearby.open(item) as file:
                        try:
                            # As a path, so that it is mapped; it stays readable when the cache lets it go.
                            mapped = parsed(partial(np.load, f"/dev/fd/{file.fileno()}", "r", allow_pickle=False))
                        except Exception as error:  # whatever NumPy makes of what is no array
                            raise StorageError(f"{item.path} cannot be read as a .npy file: {error}") from error
                        if mapped.dtype.kind not in NUMBERS:
                            raise SpecError(
                                f"{item.path} has values of the type {mapped.dtype}: must be numbers; write others "
                                "with et.data.write"
                            )
                        self._arrays[name] = np.asarray(mapped)

    def take(self, part: int, rows: Ints) -> Columns:
        return {name: native(array[rows]) for name, array in self._arrays.items()}


class Files(Source):
    """One sample per file: its path and its bytes."""

    def __init__(self, store: Store, items: list[Item], cache: Cache) -> None:
        self._nearby, self._items = Nearby(store, cache), items
        self.samples = np.ones(len(self._items), np.int64)
        self.sizes_bytes = np.array([item.size_bytes for item in self._items], np.int64)
        self.fingerprint = _fingerprint(store, self._items)

    def is_near(self, part: int) -> bool:
        return self._nearby.is_local

    def fetch(self, part: int) -> None:
        self._nearby.fetch(self._items[part])

    def take(self, part: int, rows: Ints) -> Columns:
        item = self._items[part]
        with self._nearby.open(item) as file:
            return {"path": [item.path] * len(rows), "bytes": [file.read()] * len(rows)}


def open_source(url: Url | Sequence[Url], cache: Cache, open_bytes: int) -> tuple[Source, str | list[str]]:
    """The source, and the same as an absolute address."""
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str):
        if not isinstance(url, Sequence):
            raise SpecError(f"url={url!r:.80}: must be a folder, a pattern of files, or a list of files")
        return _listed(url, cache)
    store = Store(url)
    if "*" in url or "?" in url:
        files = store.files(store.root)
        if not files:
            raise StorageError(f"url={url!r}: no file matches")
        return Files(store, [_item(store, path, info) for path, info in files.items()], cache), store.url
    if store.trying(INDEX, lambda: store.fs.exists(f"{store.root}/{INDEX}")):
        return Shards(store, _index(store), cache, open_bytes), store.url
    if arrays := store.files(f"{glob.escape(store.root)}/*.npy"):
        return Arrays(store, arrays, cache), store.url
    raise StorageError(
        f"url={url!r}: there is no dataset: no {INDEX} of et.data.write and no .npy files; for plain files give a "
        f"pattern, such as '{url}/*.png', and decode"
    )


def _listed(urls: Sequence[Url], cache: Cache) -> tuple[Source, list[str]]:
    if not urls:
        raise SpecError("url=[]: must be a folder, a pattern of files, or a list of at least one file")
    stores = [Store(os.fspath(url) if isinstance(url, os.PathLike) else url) for url in urls]
    first = stores[0]
    if other := next((each for each in stores if each.fs != first.fs), None):
        raise SpecError(f"url: {first.url} and {other.url} are in different stores; all files of a list must be in one")
    with ThreadPoolExecutor(QUESTIONS) as pool:
        items = list(pool.map(lambda each: _item(each, each.root, each.info(each.root)), stores))
    return Files(first, items, cache), [each.url for each in stores]


def _index(store: Store) -> Index:
    try:
        index = msgspec.json.decode(store.read(f"{store.root}/{INDEX}"), type=Index)
    except msgspec.DecodeError as error:
        raise StorageError(f"{INDEX} of the data at {store.url} is damaged: {error}") from error
    if index.version != VERSION or not index.shards:
        raise StorageError(
            f"{INDEX} of the data at {store.url} has version {index.version}; this Elastune reads {VERSION}"
        )
    return index


def _item(store: Store, path: str, info: Mapping[str, Any]) -> Item:
    """Of what the store says of it, the tag has what changes with its content; if that is not known, all."""
    tags = (str(info[name]) for name in ("ETag", "mtime", "created", "LastModified") if name in info)
    tag = next(tags, None) or repr(sorted(info.items(), key=str))
    return Item(path, info["size"], None, f"{store.origin} {tag}")


def _fingerprint(store: Store, items: Sequence[Item]) -> int:
    """Of the names and sizes of all, and of what some of them have at their ends."""
    names = "\n".join(f"{_stem(item.path)} {item.size_bytes}" for item in items)
    some = items[:: math.ceil(len(items) / SAMPLED)]
    with ThreadPoolExecutor(QUESTIONS) as pool:
        ends = list(pool.map(partial(_ends, store), some))
    return zlib.crc32(b"".join([names.encode(), *ends]))


def _ends(store: Store, item: Item) -> bytes:
    first, last = min(END_BYTES, item.size_bytes), max(END_BYTES, item.size_bytes - END_BYTES)
    # Stores refuse to read nothing.
    parts = [(start, stop) for start, stop in ((0, first), (last, item.size_bytes)) if start < stop]
    return b"".join(store.read(item.path, start, stop) for start, stop in parts)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".npy")
