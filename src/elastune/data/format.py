"""How samples are written: shards of some megabytes, and an index beside them.

A shard holds the columns one after the other, as .npy arrays that begin at multiples of 64 bytes: it is mapped into
memory, and a batch is a gather of rows. Where the arrays of a column have different shapes, and of bytes and texts, it
is two arrays: the shapes, and all values in a row.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from elastune.errors import SpecError

VERSION = 1
_ALIGNED = 64
TRIES = 10
T = TypeVar("T")
NUMBERS = "biufc"
"""The kinds of NumPy's types that are numbers."""
Values = NDArray[Any] | list[Any]
Columns = dict[str, Values]
"""The values of some samples, by name: as one array where they are alike."""


class Column(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["array", "bytes", "text"]
    dtype: str
    ndim: int


class Shard(msgspec.Struct, frozen=True):
    name: str
    samples: int
    size_bytes: int
    sha256: str
    ragged: tuple[str, ...]
    """The columns with values of different shapes."""


class Index(msgspec.Struct, frozen=True):
    version: int
    columns: tuple[Column, ...]
    shards: tuple[Shard, ...]


def plain(name: str, value: object, sample: int) -> tuple[Column, NDArray[Any]]:
    """A value of a sample as it is written, and which column it belongs in. It is a copy: who makes the samples may
    have one buffer for all.
    """
    if isinstance(value, str):
        try:
            text = value.encode()
        except UnicodeEncodeError:
            raise SpecError(
                f"sample {sample}: {name}={value!r:.80}: has half of a surrogate pair: it is no text"
            ) from None
        return Column(name, "text", "|u1", 1), np.frombuffer(text, np.uint8)
    if isinstance(value, bytes | bytearray | memoryview):
        return Column(name, "bytes", "|u1", 1), np.frombuffer(bytes(value), np.uint8)
    try:
        array = np.array(value)
    except ValueError:  # lists of different lengths
        array = np.array(None)
    if array.dtype.kind not in NUMBERS:
        raise SpecError(
            f"sample {sample}: {name}={value!r:.80}: a value of a sample must be a number, an array of numbers, bytes "
            "or a text; lists in a list must be of one length"
        )
    array = native(array)
    return Column(name, "array", array.dtype.str, array.ndim), array


def native(array: NDArray[Any]) -> NDArray[Any]:
    """In the byte order of this machine: PyTorch knows no other."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def encode(columns: Sequence[Column], samples: Sequence[Sequence[NDArray[Any]]]) -> tuple[bytes, tuple[str, ...]]:
    """A shard of samples, each with its values in the order of the columns, and which columns are ragged."""
    out, ragged = io.BytesIO(), []
    for column, values in zip(columns, zip(*samples, strict=True), strict=True):
        if column.kind == "array" and len({value.shape for value in values}) == 1:
            _append(out, np.stack(values))
        else:
            ragged.append(column.name)
            _append(out, np.array([value.shape for value in values], np.int64).reshape(len(values), column.ndim))
            _append(out, np.concatenate([value.reshape(-1) for value in values]))
    return out.getvalue(), tuple(ragged)


def _append(out: io.BytesIO, array: NDArray[Any]) -> None:
    np.lib.format.write_array(out, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    out.write(bytes(-out.tell() % _ALIGNED))


@dataclass(frozen=True, slots=True)
class _Ragged:
    kind: str
    shapes: NDArray[np.int64]
    starts: NDArray[np.int64]
    flat: NDArray[Any]

    def __getitem__(self, rows: NDArray[np.int64]) -> list[Any]:
        return [self._value(row) for row in rows.tolist()]

    def _value(self, row: int) -> Any:
        shape, start = self.shapes[row], self.starts[row]
        value = self.flat[start : start + int(shape.prod())]
        if self.kind == "array":
            return value.reshape(shape).copy()
        data = value.tobytes()
        return data.decode() if self.kind == "text" else data


class Table:
    """A shard, mapped into memory."""

    def __init__(self, file: IO[bytes], columns: Sequence[Column], ragged: Sequence[str]) -> None:
        self._file, self._mapped = file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._columns: dict[str, Any] = {}
        for column in columns:
            first = self._array()
            if column.name in ragged:
                lengths = first.prod(axis=1, dtype=np.int64)
                self._columns[column.name] = _Ragged(column.kind, first, np.cumsum(lengths) - lengths, self._array())
            else:
                self._columns[column.name] = first
        file.close()  # the mapping stays

    def take(self, rows: NDArray[np.int64]) -> Columns:
        return {name: values[rows] for name, values in self._columns.items()}

    def _array(self) -> NDArray[Any]:
        """The next one in the file."""
        start = self._file.tell()
        shape, dtype = parsed(lambda: self._header(start))
        array: NDArray[Any] = np.ndarray(shape, dtype, self._mapped, self._file.tell())
        end = self._file.tell() + array.nbytes
        self._file.seek(end + -end % _ALIGNED)
        return array

    def _header(self, start: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        self._file.seek(start)
        np.lib.format.read_magic(self._file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(self._file)
        return shape, dtype


def parsed(read: Callable[[], T]) -> T:
    """The header of an array is parsed as Python. In CPython 3.11 a thread that does so while another one does may be
    told of a wrong recursion depth, though nothing is wrong (its issue 106905): then it is read again.
    """
    for _ in range(TRIES - 1):
        with suppress(SystemError):
            return read()
    return read()


def rows(columns: Mapping[str, Values], count: int) -> list[dict[str, Any]]:
    """The samples one by one."""
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


def stack(samples: Sequence[Any]) -> Any:
    """Samples as one batch: their arrays and numbers become arrays; bytes and texts become lists."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: stacked([sample[name] for sample in samples], name) for name in first}
    if isinstance(first, tuple | list):
        return tuple(stacked(values, str(n)) for n, values in enumerate(zip(*samples, strict=True)))
    return stacked(samples, "sample")


def stacked(values: Sequence[Any], name: str) -> Values:
    """The values of one name."""
    if isinstance(values[0], str | bytes):
        return list(values)
    try:
        return np.stack(values) if np.ndim(values[0]) else np.asarray(values)
    except ValueError:
        shapes = sorted({np.shape(value) for value in values})
        raise SpecError(
            f"{name}: a batch has arrays of the shapes {', '.join(map(str, shapes[:3]))}; make them alike in "
            "augment or decode, or give collate_fn to batches()"
        ) from None
