"""Streams: every sample once per epoch, in an order that neither width nor interruption changes."""

from __future__ import annotations

import ast
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastune as et
from elastune.data import sources
from elastune.data.cache import Cache, Item
from elastune.data.order import Order
from elastune.data.sources import SAMPLED
from elastune.data.store import Store
from elastune.worker import session
from elastune.worker.session import Context
from elastune.worker.torch import ahead
from elastune.worker.torch.batches import Batches


class AtRank:
    """All that a batch asks a session for."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.context = Context(rank=rank, world_size=world_size)


@pytest.fixture(autouse=True)
def _no_session() -> Iterator[None]:
    yield
    session.set_session(None)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def written(folder: Path | str, count: int, shard_bytes: int = 100) -> str:
    et.data.write(
        ({"id": n, "x": np.full(3, n, np.float32)} for n in range(count)), str(folder), shard_bytes=shard_bytes
    )
    return str(folder)


def batches(stream: et.data.Stream, size: int, **options: Any) -> Batches:
    given = {"max_per_device": None, "shuffle": True, "collate_fn": None, "number": 0, **options}
    return Batches(stream, size, **given)


def taken(workers: list[Batches], steps: int) -> list[list[int]]:
    """What the workers of a trial take together, step by step."""
    iterators = [iter(each) for each in workers]
    found = []
    for _ in range(steps):
        ids: list[int] = []
        for rank, iterator in enumerate(iterators):
            session.set_session(AtRank(rank, len(workers)))  # type: ignore[arg-type]
            if (batch := next(iterator, None)) is None:
                iterators[rank] = iter(workers[rank])
                batch = next(iterators[rank])
            for piece in batch:
                (values,) = piece.arguments
                assert values["x"][:, 0].tolist() == values["id"].tolist()
                ids += values["id"].tolist()
        found.append(ids)
    return found


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 60),
    shard_bytes=st.integers(1, 400),
    block_bytes=st.integers(1, 3000),
    size=st.integers(1, 20),
    longest=st.none() | st.integers(1, 5),
    legs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=4),
)
def test_order_is_the_same_through_resizes_and_restores_at_any_point(
    count: int, shard_bytes: int, block_bytes: int, size: int, longest: int | None, legs: list[tuple[int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = written(folder, count, shard_bytes)

        def stream() -> et.data.Stream:
            return et.data.Stream(url, seed=3, block_bytes=block_bytes, prefetch=2)

        steps = sum(each for _, each in legs)
        alone = taken([batches(stream(), size)], steps)
        state, found = None, []
        for width, each in legs:
            workers = [batches(stream(), size, max_per_device=longest) for _ in range(width)]
            for worker in workers:
                if state is not None:
                    worker.load_state_dict(state)
            found += taken(workers, each)
            assert all(worker.state_dict() == workers[0].state_dict() for worker in workers)
            state = workers[0].state_dict()
        assert found == alone


@given(
    samples=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    block_bytes=st.integers(1, 400),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
    cuts=st.lists(st.integers(0, 600), max_size=5),
)
def test_every_epoch_has_every_sample_once_however_it_is_cut(
    samples: list[int], block_bytes: int, epoch: int, shuffle: bool, cuts: list[int]
) -> None:
    sizes = np.array(samples)

    def order() -> Order:
        return Order(sizes, 10 * sizes, block_bytes, (7, epoch), shuffle)

    total = sum(samples)
    ends = sorted({0, total, *(min(cut, total) for cut in cuts)})
    whole = order().stretch(0, total).tolist()
    made = order()
    parts = [made.stretch(start, stop).tolist() for start, stop in itertools.pairwise(ends)]
    assert [number for part in parts for number in part] == whole
    assert sorted(whole) == list(range(total))
    assert shuffle or whole == sorted(whole)
    assert sorted(part for block in range(made.blocks) for part in made.parts_of(block)) == list(range(len(samples)))


def test_the_order_that_is_in_use_is_made_once(tmp_path: Path) -> None:
    """Also next to later epochs that were looked at before, as after a restore."""
    stream = et.data.Stream(written(tmp_path, 20), seed=1)
    stream.order(6)
    first = stream.order(3)
    for other in (4, 5):
        stream.order(other)
        assert stream.order(3) is first


def test_epochs_and_seeds_have_orders_of_their_own(tmp_path: Path) -> None:
    url = written(tmp_path / "data", 50)
    streams = [et.data.Stream(url, seed=seed) for seed in (0, 0, 1)]
    orders = [tuple(stream.stretch(epoch, 0, 50)) for stream in streams for epoch in (0, 1)]
    assert orders[:2] == orders[2:4] and len(set(orders)) == 4


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10), (9, 12)])
def test_places_that_an_epoch_does_not_have_are_refused(start: int, stop: int, tmp_path: Path) -> None:
    stream = et.data.Stream(written(tmp_path / "data", 9))
    with pytest.raises(et.SpecError, match=f"start={start}, stop={stop}: must be places in an epoch of 9 samples"):
        stream.stretch(0, start, stop)
    assert len(stream.stretch(0, 9, 9)) == 0


@pytest.mark.parametrize("numbers", [[], np.zeros(0, np.int64), [-1], [9], [[1]], [0.5]])
def test_numbers_of_samples_that_are_not_there_are_refused(numbers: Any, tmp_path: Path) -> None:
    url = written(tmp_path / "data", 9)
    for stream in (et.data.Stream(url), et.data.Stream(url, augment=noise)):
        for read in (stream.read, stream.samples):
            with pytest.raises(et.SpecError, match="must be the numbers of one or more of the 9 samples, from 0 on"):
                read(numbers)


def noise(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "noise": rng.random()}


def test_what_augmentation_draws_depends_on_seed_epoch_and_sample_only(tmp_path: Path) -> None:
    stream = et.data.Stream(written(tmp_path / "data", 20), augment=noise)
    together = stream.read(np.arange(20), epoch=2)["noise"]
    assert [stream.read(np.array([n]), epoch=2)["noise"][0] for n in range(20)] == together.tolist()
    assert len({*together, *stream.read(np.arange(20), epoch=3)["noise"]}) == 40


def test_what_is_drawn_for_a_sample_is_drawn_for_no_other(tmp_path: Path) -> None:
    def many(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"drawn": rng.random(100)}

    stream = et.data.Stream(written(tmp_path / "data", 20), augment=many)
    assert len(np.unique(stream.read(np.arange(20))["drawn"])) == 20 * 100


def test_values_of_all_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    samples: list[dict[str, Any]] = [
        {
            "n": n,
            "f": n / 2,
            "b": bool(n % 2),
            "raw": b"\0" * n,
            "text": "é" * n,
            "ragged": np.arange(2 * n).reshape(2, n),
        }
        for n in range(12)
    ]
    et.data.write(samples, str(tmp_path / "data"), shard_bytes=300)
    stream = et.data.Stream(str(tmp_path / "data"))
    for sample, found in zip(samples, (stream[n] for n in range(12)), strict=True):
        assert found.keys() == sample.keys()
        assert all(np.array_equal(found[name], sample[name]) for name in sample)
    batch = pickle.loads(pickle.dumps(stream)).samples(np.array([11, 0, 5]))
    assert [each["text"] for each in batch] == ["é" * 11, "", "é" * 5]
    with pytest.raises(et.SpecError, match=r"ragged: a batch has arrays of the shapes \(2, 0\), \(2, 5\)"):
        stream.read(np.array([0, 5]))


def test_samples_made_in_one_buffer_are_written_as_they_were(tmp_path: Path) -> None:
    array, raw = np.zeros(3), bytearray(3)

    def samples() -> Iterator[dict[str, Any]]:
        for n in range(5):
            array[:], raw[:] = n, bytes([n] * 3)
            yield {"array": array, "raw": raw, "view": memoryview(raw)}

    et.data.write(samples(), str(tmp_path))
    found = [et.data.Stream(str(tmp_path))[n] for n in range(5)]
    assert [sample["array"].tolist() for sample in found] == [[n] * 3 for n in range(5)]
    assert [(sample["raw"], sample["view"]) for sample in found] == [(bytes([n] * 3),) * 2 for n in range(5)]


def test_npy_files_and_plain_files_are_read_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10) ** 2)
    np.save(tmp_path / "y.npy", np.arange(10))
    assert et.data.Stream(str(tmp_path)).read(np.array([3, 9]))["x"].tolist() == [9, 81]
    for n in range(5):
        (tmp_path / f"{n}.txt").write_text(str(n))
    pattern = str(tmp_path / "*.txt")
    for url in (pattern, [str(tmp_path / f"{n}.txt") for n in range(5)]):
        stream = et.data.Stream(url, decode=lambda sample: {"n": int(sample["bytes"])})
        assert stream.read(np.array([4, 1]))["n"].tolist() == [4, 1]
    with pytest.raises(et.SpecError, match="are plain files; give decode"):
        et.data.Stream(pattern)


@pytest.mark.parametrize("place", ["{}/run[1]", "memory://tests/run[1]"])
def test_a_folder_may_have_brackets_in_its_name(tmp_path: Path, place: str) -> None:
    place = place.format(tmp_path)
    with fsspec.open(f"{place}/x.npy", "wb", auto_mkdir=True) as file:
        np.save(file, np.arange(4))
    assert et.data.Stream(place, cache=tmp_path / "cache").read([1, 3])["x"].tolist() == [1, 3]


def text(sample: dict[str, Any]) -> dict[str, str]:
    return {"text": sample["bytes"].decode()}


def test_a_list_may_have_paths_and_a_file_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    stream = et.data.Stream([tmp_path / "a", str(tmp_path / "b"), tmp_path / "a"], decode=text)
    assert stream.read(np.arange(3))["text"] == ["a", "b", "a"]
    assert pickle.loads(pickle.dumps(stream)).read(np.arange(3))["text"] == ["a", "b", "a"]
    assert stream.read([1, 1, 2, 1])["text"] == ["b", "b", "a", "b"]
    assert stream.samples([1, 1]) == [{"text": "b"}, {"text": "b"}]
    written(tmp_path / "data", 5)
    assert len(et.data.Stream(tmp_path / "data")) == 5


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (7, "url=7: must be a folder, a pattern of files, or a list of files"),
        ({"a": 1}, "url={'a': 1}: must be a folder"),
        (["a", 7], "url=7: must be"),
        ([], r"url=\[\]: must be"),
        (["/tmp/a", "memory://b"], "/tmp/a and memory://b are in different stores; all files of a list must be in one"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: Any, said: str) -> None:
    with pytest.raises(et.SpecError, match=said):
        et.data.Stream(url, decode=text)


@pytest.mark.parametrize("content", [b"", b"no array", b"PK\x03\x04", None])
def test_a_file_that_is_no_array_is_named(tmp_path: Path, content: bytes | None) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-8] if content is None else content)
    with pytest.raises(et.StorageError, match=r"x\.npy cannot be read as a \.npy file"):
        et.data.Stream(str(tmp_path))


@pytest.mark.parametrize("values", [["a", "b"], np.array(["2026-01-01"], "M8[D]")])
def test_an_array_that_is_not_of_numbers_is_named(tmp_path: Path, values: Any) -> None:
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(et.SpecError, match=r"x.npy has values of the type .*: must be numbers"):
        et.data.Stream(tmp_path)


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_come_in_the_byte_order_of_the_machine(tmp_path: Path, order: str) -> None:
    import torch

    values = np.arange(6).astype(f"{order}f4")
    (tmp_path / "plain").mkdir()
    np.save(tmp_path / "plain" / "x.npy", values)
    et.data.write(({"x": values[n : n + 2]} for n in range(3)), str(tmp_path / "written"))
    for folder, first in (("plain", [0.0, 1.0]), ("written", [[0.0, 1.0], [1.0, 2.0]])):
        (batch,) = ahead.read(et.data.Stream(tmp_path / folder), np.arange(2), 0, None)
        assert torch.equal(batch["x"], torch.tensor(first))


def test_a_folder_in_a_list_of_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(et.StorageError, match=r"folder of the data at .* cannot be read"):
        et.data.Stream([str(tmp_path / "folder")], decode=text)


def test_a_changed_file_is_read_again_whatever_the_store_calls_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = fsspec.filesystem("memory")
    generation = 0

    def info(self: Any, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "size": 1, "type": "file", "generation": generation}

    for content in "ab":
        generation += 1
        fs.pipe_file("/changing/file", content.encode())
        with monkeypatch.context() as patch:
            patch.setattr(type(fs), "info", info)
            stream = et.data.Stream(["memory://changing/file"], decode=text, cache=tmp_path)
        assert stream.read(np.arange(1))["text"] == [content]
    fs.rm("/changing", recursive=True)


def test_the_same_path_on_two_hosts_is_two_files() -> None:
    info = {"size": 1, "mtime": 0}
    keys = {sources._item(Store(url), "/data/x", info).key for url in ("memory://one/data", "memory://two/data")}
    assert len(keys) == 2


def test_so_many_shards_are_open_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "OPEN_FILES", 5)
    stream = et.data.Stream(written(tmp_path / "data", 30, 1))
    before = len(os.listdir("/proc/self/fd"))
    assert stream.read(np.arange(30))["id"].tolist() == list(range(30))
    assert len(os.listdir("/proc/self/fd")) <= before + 5


@pytest.mark.parametrize("remote", [False, True])
def test_damage_in_a_shard_is_found(tmp_path: Path, remote: bool) -> None:
    url = written("memory://damaged" if remote else tmp_path / "data", 10, 10_000)
    fs, root = fsspec.url_to_fs(url)
    (shard,) = fs.glob(f"{root}/*.shard")
    body = bytearray(fs.cat_file(shard))
    body[-70] ^= 1
    fs.pipe_file(shard, bytes(body))
    with pytest.raises(et.StorageError, match=r"\.shard of the data at .* cannot be read.*sha256 differs"):
        et.data.Stream(url, cache=tmp_path / "cache").read(np.arange(10))
    fs.rm(root, recursive=True)


def test_damage_in_the_cache_is_mended(tmp_path: Path) -> None:
    url = written("memory://mended", 10, 10_000)
    et.data.Stream(url, cache=tmp_path).read(np.arange(10))
    (cached,) = tmp_path.glob("??/*")
    cached.write_bytes(b"x")
    assert et.data.Stream(url, cache=tmp_path).read(np.arange(10))["id"].tolist() == list(range(10))
    fsspec.filesystem("memory").rm("/mended", recursive=True)


KILLED = """
import os, sys, elastune as et
def samples():
    for n in range(100):
        if n == 50:
            os.kill(os.getpid(), 9)
        yield {"n": n}
et.data.write(samples(), sys.argv[1], shard_bytes=80)
"""


def test_a_killed_writer_leaves_no_dataset_and_another_can_write_there(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == -9
    assert len(list(tmp_path.glob("*.shard"))) == 5
    with pytest.raises(et.StorageError, match="there is no dataset"):
        et.data.Stream(str(tmp_path))
    assert len(et.data.Stream(written(tmp_path, 7))) == 7
    with pytest.raises(et.SpecError, match="there is a dataset already"):
        written(tmp_path, 7)


class Counting:
    """A store that counts downloads."""

    def __init__(self, store: Store) -> None:
        self.downloads, self._inner = 0, store

    def download(self, path: str, target: Path, check: Any) -> None:
        self.downloads += 1
        self._inner.download(path, target, check)


def test_readers_at_the_same_time_download_once(tmp_path: Path) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/shared/file", b"x" * 1000)
    counting: Any = Counting(Store("memory://shared"))
    caches = [Cache(tmp_path, 10_000) for _ in range(8)]
    item = Item("/shared/file", 1000)
    threads = [threading.Thread(target=cache.fetch, args=(counting, item)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counting.downloads == 1
    fs.rm("/shared", recursive=True)


def test_the_cache_keeps_its_limit_and_drops_what_was_used_least_lately(tmp_path: Path) -> None:
    fs = fsspec.filesystem("memory")
    items = [Item(f"/many/{n}", 100, tag=str(n)) for n in range(6)]
    for item in items:
        fs.pipe_file(item.path, b"x" * 100)
    place, cache = Store("memory://many"), Cache(tmp_path, 300)
    for n in range(3):
        os.utime(cache.fetch(place, items[n]), (1000.0 + n, 1000.0 + n))
    for n in (0, 3, 4):
        cache.fetch(place, items[n])
    assert {path.name for path in tmp_path.glob("??/*")} == {items[n].key for n in (0, 3, 4)}
    fs.rm("/many", recursive=True)


@pytest.mark.parametrize(("age_s", "stays"), [(600, True), (7200, False)])
def test_the_cache_leaves_a_download_of_another_process_alone_unless_it_was_given_up(
    tmp_path: Path, age_s: int, stays: bool
) -> None:
    fs = fsspec.filesystem("memory")
    items = [Item(f"/few/{n}", 100, tag=str(n)) for n in range(4)]
    for item in items:
        fs.pipe_file(item.path, b"x" * 100)
    place, cache = Store("memory://few"), Cache(tmp_path, 300)
    cache.fetch(place, items[0])
    unfinished = tmp_path / "00" / "other.part"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_bytes(b"x" * 50)
    at_s = time.time() - age_s
    os.utime(unfinished, (at_s, at_s))
    for item in items[1:]:
        cache.fetch(place, item)
    assert unfinished.exists() == stays
    assert len([path for path in tmp_path.glob("??/*") if path != unfinished]) == (2 if stays else 3)
    fs.rm("/few", recursive=True)


def test_a_store_that_fails_is_tried_again_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = written("memory://shaky", 10, 10_000)
    fs = fsspec.filesystem("memory")
    original, left = type(fs).get_file, [3]

    def shaky(self: Any, *arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise TimeoutError("too slow")
        return original(self, *arguments, **options)

    monkeypatch.setattr(type(fs), "get_file", shaky)
    assert len(et.data.Stream(url, cache=tmp_path / "a").read(np.arange(10))["id"]) == 10
    left[0] = 100
    with pytest.raises(et.StorageError, match=r"memory://shaky cannot be read \(6 times tried\): too slow"):
        et.data.Stream(url, cache=tmp_path / "b").read(np.arange(10))
    fs.rm("/shaky", recursive=True)


def test_a_trial_that_was_saved_with_another_stream_is_refused(tmp_path: Path) -> None:
    first, second = (et.data.Stream(written(tmp_path / "data", 9)), et.data.Stream(str(tmp_path / "data"), seed=1))
    with pytest.raises(et.SpecError, match="the stream is another"):
        batches(second, 3).load_state_dict(batches(first, 3).state_dict())


@pytest.mark.parametrize("kind", ["npy", "plain"])
@pytest.mark.parametrize("length", [64, 100_000])
def test_files_that_were_written_anew_are_another_stream_and_copies_are_the_same(
    tmp_path: Path, kind: str, length: int
) -> None:
    def stream(folder: Path) -> et.data.Stream:
        return et.data.Stream(folder) if kind == "npy" else et.data.Stream(f"{folder}/*.npy", decode=text)

    def saved(folder: Path) -> dict[str, int]:
        return batches(stream(folder), 1).state_dict()

    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    for name in ("x", "y"):
        np.save(here / f"{name}.npy", np.arange(length))
    shutil.copytree(here, elsewhere, copy_function=shutil.copyfile)
    os.utime(elsewhere / "x.npy", (1.0, 1.0))
    before = saved(here)
    assert saved(elsewhere) == before
    np.save(here / "y.npy", np.arange(length) + 1)
    with pytest.raises(et.SpecError, match="the stream is another"):
        batches(stream(here), 1).load_state_dict(before)


def test_only_some_of_many_files_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, original = list[str](), Store.read

    def noted(store: Store, path: str, *part: int) -> bytes:
        read.append(path)
        return original(store, path, *part)

    monkeypatch.setattr(Store, "read", noted)
    for number in range(100):
        (tmp_path / f"{number:03}.txt").write_text("x")
    assert len(et.data.Stream(f"{tmp_path}/*.txt", decode=text)) == 100
    assert 10 < len(set(read)) <= SAMPLED


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "there are none"),
        ([3], "sample 0 is 3: must be a dict"),
        ([{"x": 1}, {"y": 1}], "sample 1 has 'y' .* those before have 'x'"),
        ([{"x": 1}, {"x": 1.5}], "sample 1 has 'x' .*f8.* those before have 'x' .*i8"),
        ([{"x": "half \ud800"}], r"sample 0: x='half \\ud800': has half of a surrogate pair"),
        ([{"x": object()}], "sample 0: x=<object .*: a value of a sample must be a number"),
        (
            [{"x": [1]}, {"x": [[1], [1, 2]]}],
            r"sample 1: x=\[\[1\], \[1, 2\]\]: .* lists in a list must be of one length",
        ),
    ],
)
def test_samples_that_cannot_be_written_are_refused(samples: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(et.SpecError, match=message):
        et.data.write(samples, str(tmp_path))
    assert not (tmp_path / "index.json").exists()


def test_a_stream_is_evaluated_too_and_tells_how_long_training_waited(tmp_path: Path) -> None:
    import torch

    stream = et.data.Stream(written(tmp_path / "data", 20))
    model = torch.nn.Linear(3, 1)
    elastic = et.torch.Elastic(model, torch.optim.SGD(model.parameters(), lr=0.0))
    data = elastic.batches(stream, 6)
    for batch in data:
        elastic.backward(lambda values: model(values["x"]).mean(), batch)
    assert data.waited_s > 0 and data.epoch == 1
    assert elastic.mean(lambda values: values["id"].double().mean(), stream, 7) == pytest.approx(9.5)


@pytest.mark.parametrize("kind", ["shards", "arrays"])
def test_a_header_that_clashes_with_a_parser_in_another_thread_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """NumPy parses it as Python, and some versions of CPython raise SystemError where threads do so at once."""
    if kind == "shards":
        written(tmp_path, 10)
    else:
        np.save(tmp_path / "id.npy", np.arange(10))
    calls, parse = itertools.count(), ast.literal_eval

    def clashes(text: Any) -> Any:
        if next(calls) % 3 < 2:
            raise SystemError("AST constructor recursion depth mismatch (before=42, after=39)")
        return parse(text)

    monkeypatch.setattr(ast, "literal_eval", clashes)
    assert et.data.Stream(str(tmp_path)).read(list(range(10)))["id"].tolist() == list(range(10))
    assert next(calls) > 2
