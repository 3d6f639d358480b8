"""Writing samples to a store so that they can be streamed.

The index comes last: without it there is no dataset, whenever the writer may have been killed. Shards are named by
their content, so that what an earlier writer has left behind is never taken for another's.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from elastune.data.format import VERSION, Column, Index, Shard, encode, plain
from elastune.data.store import Store
from elastune.errors import ElastuneError, SpecError, StorageError
from elastune.record import object_store

INDEX = "index.json"
Row = list[NDArray[Any]]


def write(samples: Iterable[Mapping[str, object]], url: str, *, shard_bytes: int = 64 << 20) -> int:
    """Write samples into a new folder; returns how many there were.

    A sample is a dict: of numbers, arrays of numbers, bytes and texts, with the same names in all of them.
    """
    if isinstance(shard_bytes, bool) or not isinstance(shard_bytes, int) or shard_bytes < 1:
        raise SpecError(f"shard_bytes={shard_bytes!r}: must be a whole number of bytes, at least 1")
    store = Store(url)
    if store.trying(INDEX, lambda: store.fs.exists(f"{store.root}/{INDEX}")):
        raise SpecError(f"url={url!r}: there is a dataset already; delete it or choose another folder")
    columns: tuple[Column, ...] = ()
    shards: list[Shard] = []
    for columns, part in _cut(samples, shard_bytes):
        data, ragged = encode(columns, part)
        sha256 = hashlib.sha256(data).hexdigest()
        shard = Shard(f"{len(shards):05}-{sha256[:12]}.shard", len(part), len(data), sha256, ragged)
        _put(store, shard.name, data)
        shards.append(shard)
    if not shards:
        raise SpecError("samples: there are none; a dataset needs at least one")
    _put(store, INDEX, msgspec.json.format(msgspec.json.encode(Index(VERSION, columns, tuple(shards)))))
    return sum(shard.samples for shard in shards)


def _cut(samples: Iterable[Mapping[str, object]], shard_bytes: int) -> Iterator[tuple[tuple[Column, ...], list[Row]]]:
    columns: tuple[Column, ...] = ()
    part: list[Row] = []
    size = 0
    for number, sample in enumerate(samples):
        found, row = _row(sample, number)
        columns = columns or found
        if found != columns:
            raise SpecError(
                f"sample {number} has {_shown(found)}; those before have {_shown(columns)}: all must have the same "
                "names, kinds of values and numbers of dimensions"
            )
        part.append(row)
        size += sum(value.nbytes for value in row)
        if size >= shard_bytes:
            yield columns, part
            part, size = [], 0
    if part:
        yield columns, part


def _row(sample: Mapping[str, object], number: int) -> tuple[tuple[Column, ...], Row]:
    if not isinstance(sample, Mapping) or not sample or not all(isinstance(name, str) for name in sample):
        raise SpecError(f"sample {number} is {sample!r:.80}: must be a dict of names and values")
    pairs = [plain(name, sample[name], number) for name in sorted(sample)]
    return tuple(column for column, _ in pairs), [value for _, value in pairs]


def _shown(columns: tuple[Column, ...]) -> str:
    kinds = (
        (each.name, f"{each.dtype}, {each.ndim}-dimensional" if each.kind == "array" else each.kind) for each in columns
    )
    return "; ".join(f"{name!r} ({kind})" for name, kind in kinds)


def _put(store: Store, name: str, data: bytes) -> None:
    """Whole or not at all."""
    try:
        if store.is_local:
            final = Path(store.root, name)
            unfinished = final.with_name(f"{name}.{secrets.token_hex(4)}.tmp")
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                with unfinished.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, final)
            finally:
                unfinished.unlink(missing_ok=True)
        else:
            with tempfile.TemporaryFile() as draft:
                draft.write(data)
                draft.flush()
                object_store.upload(store.fs, draft, f"{store.root}/{name}")
    except ElastuneError:
        raise
    except Exception as error:  # file systems raise whatever their libraries do
        raise StorageError(f"{name} of the data at {store.url} cannot be written: {error}") from error
