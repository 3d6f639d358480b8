"""How many samples a second a stream gives, beside PyTorch's DataLoader on the same data: MNIST, each image shifted.

    python benchmarks/_service_stream.py [--quick]

Once from files on this disk, and once from a store that answers after a while: both begin with nothing of it here. The
DataLoader is the best of 0 and 2 processes. It reads .npy files, those of the slow store each downloaded when a sample
of it is first needed. Runs take turns; the medians count.
"""

from __future__ import annotations

import gzip
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import torch
from _data import data_folder
from _figures import Figure, print_figures
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import elastune as et
from elastune.worker.torch.batches import Batches

BATCH, SHARDS = 256, 20
LATENCY_S, BYTES_PER_S = 0.1, 50e6
Images = NDArray[np.uint8]


class SlowStore(AbstractFileSystem):  # type: ignore[misc]
    """Files of this disk, as from an object store: each request takes a while."""

    protocol = "slow"
    root_marker = "/"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._disk = LocalFileSystem()

    def info(self, path: str, **options: Any) -> Any:
        time.sleep(LATENCY_S)
        return self._disk.info(path)

    def cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        time.sleep(LATENCY_S)
        return self._disk.cat_file(path)

    def get_file(self, path: str, target: str, **options: Any) -> None:
        time.sleep(LATENCY_S + Path(path).stat().st_size / BYTES_PER_S)
        shutil.copyfile(path, target)


class Shifted(Dataset[tuple[Images, int]]):
    """What a user would write: .npy files, mapped into memory; those of the slow store are downloaded first."""

    def __init__(self, folder: Path, per_file: int, count: int, downloads: Path | None) -> None:
        self._folder, self._per_file, self._count, self._downloads = folder, per_file, count, downloads
        self._open: dict[int, tuple[Images, Images]] = {}
        self._rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[Images, int]:
        file, row = divmod(number, self._per_file)
        if file not in self._open:
            self._open[file] = self._array("x", file), self._array("y", file)
        x, y = self._open[file]
        return shift(x[row], self._rng), int(y[row])

    def _array(self, name: str, file: int) -> Images:
        path = self._folder / f"{name}{file}.npy"
        if self._downloads is not None:
            target = Path(tempfile.mkstemp(dir=self._downloads)[1])
            fsspec.filesystem("slow").get_file(str(path), str(target))
            path = target
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]


def shift(image: Images, rng: np.random.Generator) -> Images:
    down, right = rng.integers(-2, 3, 2)
    return np.roll(image, (down, right), (0, 1))


def augment(sample: dict[str, Any], rng: np.random.Generator) -> tuple[Images, Any]:
    return shift(sample["x"], rng), sample["y"]


def images(count: int) -> tuple[Images, Images]:
    folder = data_folder("mnist_idx") / "mnist_idx"
    x = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    y = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    return np.frombuffer(x, np.uint8, offset=16).reshape(-1, 28, 28)[:count], np.frombuffer(y, np.uint8, offset=8)[
        :count
    ]


def prepare(folder: Path, count: int) -> None:
    """The same samples for both, in as many files."""
    x, y = images(count)
    per_file = count // SHARDS
    et.data.write(
        ({"x": a, "y": b} for a, b in zip(x, y, strict=True)), str(folder / "stream"), shard_bytes=per_file * 785
    )
    (folder / "npy").mkdir()
    for file in range(SHARDS):
        rows = slice(file * per_file, (file + 1) * per_file)
        np.save(folder / "npy" / f"x{file}.npy", x[rows])
        np.save(folder / "npy" / f"y{file}.npy", y[rows])


def ours(folder: Path, count: int, slow: bool, here: Path) -> None:
    url = f"slow://{folder}/stream" if slow else str(folder / "stream")
    seen = 0
    data = Batches(et.data.Stream(url, augment=augment, cache=here), BATCH, None, True, None, 0)
    for batch in data:
        for piece in batch:
            seen += len(piece.arguments[0])
    assert seen == count


def loader(folder: Path, count: int, slow: bool, here: Path, processes: int) -> None:
    dataset = Shifted(folder / "npy", count // SHARDS, count, here if slow else None)
    seen = sum(len(x) for x, _ in DataLoader(dataset, BATCH, shuffle=True, num_workers=processes))
    assert seen == count


def throughput(quick: bool, slow: bool = False) -> tuple[float, float]:
    """Samples a second through a whole epoch: of our stream, and of the better DataLoader."""
    fsspec.register_implementation("slow", SlowStore, clobber=True)
    torch.set_num_threads(1)
    count, repetitions = (10_000, 3) if quick else (60_000, 5)
    ways: dict[str, Callable[[Path, Path], None]] = {
        "stream": lambda folder, here: ours(folder, count, slow, here),
        "loader 0": lambda folder, here: loader(folder, count, slow, here, 0),
        "loader 2": lambda folder, here: loader(folder, count, slow, here, 2),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, count)
        for _ in range(repetitions):
            for way, run in ways.items():
                with tempfile.TemporaryDirectory() as here:
                    began_s = time.perf_counter()
                    run(folder, Path(here))
                    rates[way].append(count / (time.perf_counter() - began_s))
    medians = {way: statistics.median(values) for way, values in rates.items()}
    print(
        f"{'slow store' if slow else 'local files'}: "
        + ", ".join(f"{way} {rate:,.0f}/s" for way, rate in medians.items())
    )
    return medians["stream"], max(medians["loader 0"], medians["loader 2"])


def study(quick: bool) -> list[Figure]:
    figures = []
    for name, slow in (("stream_vs_dataloader", False), ("stream_vs_dataloader_slow_store", True)):
        mine, peer = throughput(quick, slow)
        ratio = mine / peer
        figures.append(Figure(name, round(mine), round(peer), round(ratio, 2), "above 1", ratio > 1))
    return figures


if __name__ == "__main__":
    print_figures(study("--quick" in sys.argv[1:]))
