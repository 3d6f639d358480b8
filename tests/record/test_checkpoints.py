"""What is saved comes back whole or not at all, even if the writer is killed."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.s3 import BUCKET, s3_server

from elastune.errors import SpecError, StorageError
from elastune.messages import Checkpoint
from elastune.record.checkpoints import CheckpointDamagedError, CheckpointStore


@pytest.fixture(autouse=True)
def unpacked_under_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unpacked"))


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointStore]:
    match request.param:
        case "local":
            yield CheckpointStore(str(tmp_path / "store"))
        case "memory":
            yield CheckpointStore("memory://elastune-tests/store")
            fsspec.filesystem("memory").store.clear()
        case "s3":
            with s3_server(monkeypatch):
                yield CheckpointStore(f"s3://{BUCKET}/store")


def save(store: CheckpointStore, value: Any, trial: str = "t1", iteration: int = 3) -> Checkpoint:
    return store.save(value, trial=trial, lineage=0, iteration=iteration, attempt=2)


def read(store: CheckpointStore, path: str) -> bytes:
    with fsspec.open(f"{store.url}/{path}", "rb") as file:
        return bytes(file.read())


def write(store: CheckpointStore, path: str, data: bytes) -> None:
    with fsspec.open(f"{store.url}/{path}", "wb") as file:
        file.write(data)


def test_a_store_is_that_of_the_run_that_was_first(store: CheckpointStore) -> None:
    assert store.owner() is None
    store.claim("a run")
    store.claim("a run")
    assert store.owner() == "a run"
    with pytest.raises(StorageError, match="are those of another run of that name: give another name"):
        store.claim("another")
    store.sweep()
    assert store.owner() == "a run" and store.list() == []


def remove(store: CheckpointStore, path: str) -> None:
    fs, root = fsspec.core.url_to_fs(store.url)
    fs.rm_file(f"{root}/{path}")


def files(store: CheckpointStore) -> list[str]:
    fs, root = fsspec.core.url_to_fs(store.url)
    fs.invalidate_cache()
    return sorted(name.removeprefix(f"{root}/") for name in fs.find(root))


# ------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("value", [{"weights": [1.0, 2.0], "step": 7}, b"\x00raw", None, {"lr": {1, 2}}, 10**30])
def test_value_comes_back(store: CheckpointStore, value: object) -> None:
    assert store.load(save(store, value)) == value


def test_function_made_on_the_spot_comes_back(store: CheckpointStore) -> None:
    factor = 3
    assert store.load(save(store, lambda x: factor * x))(5) == 15


def test_a_link_that_leads_nowhere_is_left_out(store: CheckpointStore, tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "weights.bin").write_bytes(b"weights")
    (model / "deep" / "latest").symlink_to(model / "removed")
    (model / "round").symlink_to(model / "round")
    loaded = store.load(save(store, model))
    assert sorted(str(path.relative_to(loaded)) for path in loaded.rglob("*")) == ["deep", "deep/weights.bin"]


def test_directory_comes_back_as_a_fresh_one(store: CheckpointStore, tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (model / "empty").mkdir()
    (model / "deep" / "weights.bin").write_bytes(b"\x01" * 3_000_000)
    (model / "latest").symlink_to(model / "deep" / "weights.bin")
    checkpoint = save(store, model)
    first, second = store.load(checkpoint), store.load(checkpoint)
    assert first != second and first != model
    assert sorted(str(path.relative_to(first)) for path in first.rglob("*")) == [
        "deep",
        "deep/weights.bin",
        "empty",
        "latest",
    ]
    assert (first / "latest").read_bytes() == (first / "deep" / "weights.bin").read_bytes() == b"\x01" * 3_000_000


def test_file_comes_back_under_its_name(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    loaded = store.load(save(store, tmp_path / "model.pt"))
    assert loaded.name == "model.pt" and loaded.read_bytes() == b"weights"


def test_checkpoint_says_what_it_is(store: CheckpointStore) -> None:
    checkpoint = store.save(b"x" * 1000, trial="exp/t7", lineage=1, iteration=42, attempt=3)
    assert checkpoint.path == "exp/t7/1-00000042-3.ckpt"
    assert (checkpoint.trial, checkpoint.lineage, checkpoint.iteration) == ("exp/t7", 1, 42)
    assert checkpoint.size_bytes == len(read(store, checkpoint.path))
    assert files(store) == ["exp/t7/1-00000042-3.ckpt", "exp/t7/1-00000042-3.json"]


@given(data=st.recursive(st.none() | st.floats(allow_nan=False) | st.binary() | st.text(), st.lists, max_leaves=8))
@settings(max_examples=15, deadline=None)
def test_any_plain_value_comes_back(data: object) -> None:
    store = CheckpointStore("memory://elastune-any")
    assert store.load(save(store, data)) == data


def test_store_travels_to_a_worker_with_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = CheckpointStore("checkpoints")
    checkpoint = save(store, {"a": 1})
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(store)).load(checkpoint) == {"a": 1}


# ------------------------------------------------------------------------------------------------------------ damage


class Explosive:
    """Tells, by an error, that it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, ("unpickled",))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-1], "bytes"),
        (lambda data: data + b"x", "bytes"),
        (lambda data: b"", "0 bytes"),
        (lambda data: bytes([data[0]]) + bytes([data[1] ^ 1]) + data[2:], "sha256 differs"),
    ],
)
def test_changed_payload_is_noticed_before_it_is_unpickled(store: CheckpointStore, damage: Any, why: str) -> None:
    checkpoint = save(store, Explosive())
    write(store, checkpoint.path, damage(read(store, checkpoint.path)))
    with pytest.raises(CheckpointDamagedError, match=f"t1/0-00000003-2.ckpt in .*{why}"):
        store.load(checkpoint)


@pytest.mark.parametrize("gone", ["t1/0-00000003-2.ckpt", "t1/0-00000003-2.json"])
def test_missing_file_is_named_and_its_checkpoint_not_listed(store: CheckpointStore, gone: str) -> None:
    checkpoint = save(store, 1)
    remove(store, gone)
    with pytest.raises(CheckpointDamagedError, match=f"{gone} in .* is missing"):
        store.load(checkpoint)
    assert store.list() == []


def test_damaged_manifest_is_named_and_its_checkpoint_not_listed(store: CheckpointStore) -> None:
    checkpoint = save(store, 1)
    write(store, "t1/0-00000003-2.json", b'{"half')
    with pytest.raises(CheckpointDamagedError, match=r"0-00000003-2.json .*no manifest"):
        store.load(checkpoint)
    assert store.list() == []


def test_archive_that_wants_out_of_its_directory_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    honest = save(store, tmp_path / "file")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(tmp_path / "file", arcname="../escaped")
    evil = (tmp_path / "evil.tar").read_bytes()
    write(store, honest.path, evil)
    checkpoint = msgspec.structs.replace(honest, sha256=hashlib.sha256(evil).hexdigest(), size_bytes=len(evil))
    with pytest.raises(CheckpointDamagedError, match=r"cannot be unpacked.*escaped"):
        store.load(checkpoint)
    assert not (Path(tempfile.gettempdir()) / "escaped").exists()


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("value", [threading.Lock(), {"deep": [threading.Lock()]}, (n for n in "generator")])
def test_value_that_cannot_be_pickled_is_explained_and_leaves_nothing(store: CheckpointStore, value: object) -> None:
    with pytest.raises(SpecError, match=f"trial 't1', a {type(value).__name__}, .*state_dict.*Path"):
        save(store, value)
    assert files(store) == []


def test_path_that_is_not_there_is_explained(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"'t1' gave the path {tmp_path}/nothing .*no such file"):
        save(store, tmp_path / "nothing")


def test_value_that_needs_what_is_not_here_is_explained(store: CheckpointStore) -> None:
    checkpoint = save(store, Explosive())
    with pytest.raises(SpecError, match=r"whole, but cannot be unpickled.*importable"):
        store.load(checkpoint)


def test_unwritable_store_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = CheckpointStore(str(tmp_path / "file" / "store"))
    with pytest.raises(StorageError, match=f"{tmp_path}/file/store cannot be written: .*Not a directory"):
        save(store, 1)


FULL_DISK = """
import resource, sys
from elastune.errors import StorageError
from elastune.record.checkpoints import CheckpointStore
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    CheckpointStore(sys.argv[1]).save(b"x" * 200_000, trial="t1", lineage=0, iteration=0, attempt=0)
except StorageError as error:
    print(error)
"""


def test_full_disk_is_reported_as_such_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"the checkpoint store {tmp_path} cannot be written: [Errno 27]")
    assert files(CheckpointStore(str(tmp_path))) == []


def test_unknown_kind_of_url_is_named() -> None:
    with pytest.raises(StorageError, match=r"store carrier-pigeon://x cannot be opened: .*carrier-pigeon"):
        CheckpointStore("carrier-pigeon://x")


# ----------------------------------------------------------------------------------------------------- housekeeping


def test_list_is_in_order(store: CheckpointStore) -> None:
    assert store.list() == []
    saved = [save(store, 0, trial, iteration) for trial, iteration in [("t1", 2), ("t1", 10), ("t10", 1), ("t2", 3)]]
    assert store.list() == saved


def test_dropped_checkpoint_is_gone_and_may_be_dropped_again(store: CheckpointStore) -> None:
    gone, kept = save(store, 0, "t1"), save(store, 0, "t2")
    store.drop(gone)
    store.drop(gone)
    assert store.list() == [kept]
    with pytest.raises(CheckpointDamagedError):
        store.load(gone)


def test_what_is_left_when_dropping_breaks_off_in_the_middle_is_no_checkpoint_and_is_swept(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = save(store, 0, "t1"), save(store, 0, "t2")
    fs, _ = fsspec.core.url_to_fs(store.url)
    remove_file, calls = fs.rm_file, itertools.count()

    def once(path: str) -> None:
        if next(calls):
            raise TimeoutError("too slow")
        remove_file(path)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "rm_file", once)
        with pytest.raises(StorageError, match="too slow"):
            store.drop(gone)
    assert len(files(store)) == 3 and store.list() == [kept]
    store.sweep()
    assert files(store) == [kept.path, kept.path.replace(".ckpt", ".json")]


def test_sweep_removes_leftovers_and_nothing_else(store: CheckpointStore) -> None:
    store.sweep()
    kept = save(store, "kept")
    orphan = save(store, "orphan", iteration=4)
    remove(store, "t1/0-00000004-2.json")
    write(store, "t1/0-00000005-2.ckpt.0a1b.tmp", b"half")
    write(store, "t1/0-00000003-2.json.0a1b.tmp", b"half")
    store.sweep()
    assert orphan.path not in files(store)
    assert files(store) == ["t1/0-00000003-2.ckpt", "t1/0-00000003-2.json"]
    assert store.load(kept) == "kept"


def test_state_between_two_iterations_takes_no_other_place(store: CheckpointStore) -> None:
    before = save(store, "before")
    midway = store.save("midway", trial="t1", lineage=0, iteration=3, attempt=2, midway=True)
    assert (store.load(before), store.load(midway)) == ("before", "midway")
    assert store.list() == sorted([before, midway], key=lambda each: each.path)
    assert midway.iteration == 3


def test_store_that_was_checked_is_as_empty_as_before(store: CheckpointStore) -> None:
    store.check()
    assert files(store) == []


# -------------------------------------------------------------------------------------------------------------- kill

KILLED_HALFWAY = """
import sys
from elastune.record.checkpoints import CheckpointStore
class Waits:
    def __reduce__(self):
        print("halfway", flush=True)
        sys.stdin.readline()
        return (int, ())
CheckpointStore(sys.argv[1]).save([b"x" * 5_000_000, Waits()], trial="t1", lineage=0, iteration=1, attempt=0)
"""


def test_writer_killed_halfway_leaves_no_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", KILLED_HALFWAY, tmp_path], stdin=-1, stdout=-1) as writer:
        assert writer.stdout and writer.stdout.readline() == b"halfway\n"
        writer.kill()
    assert [name[-4:] for name in files(store)] == [".tmp"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.tmp")) >= 5_000_000
    assert store.list() == []
    store.sweep()
    assert files(store) == []


# Every call of the operating system that Python tells of (open, rename, ...) is a moment to be killed at.
KILLED_EVERYWHERE = """
import os, signal, sys
from elastune.record.checkpoints import CheckpointStore
CheckpointStore(sys.argv[1] + "/warm").save(0, trial="t1", lineage=0, iteration=0, attempt=0)
for moment in range(1000):
    child = os.fork()
    if child == 0:
        left = [moment]
        def kill(event, arguments):
            if event == "open" or event.startswith("os."):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(kill)
        store = CheckpointStore(f"{sys.argv[1]}/{moment}")
        store.save(list(range(1000)), trial="t1", lineage=0, iteration=1, attempt=0)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(moment)
        break
"""


def test_writer_killed_at_any_moment_leaves_a_whole_checkpoint_or_none(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EVERYWHERE, tmp_path], capture_output=True, text=True, check=True
    )
    moments = int(done.stdout)
    complete = []
    for moment in range(moments + 1):
        os.makedirs(tmp_path / str(moment), exist_ok=True)
        store = CheckpointStore(str(tmp_path / str(moment)))
        for checkpoint in store.list():
            assert store.load(checkpoint) == list(range(1000))
        complete.append(len(store.list()))
        store.sweep()
        assert len(files(store)) == 2 * len(store.list())
        assert store.load(save(store, "next")) == "next"
    assert moments >= 5 and complete == sorted(complete) and complete[-1] == 1


def test_runs_that_begin_at_once_in_the_same_folder_do_not_refuse_each_other(tmp_path: Path) -> None:
    store, failed = CheckpointStore(str(tmp_path / "store")), list[StorageError]()

    def check() -> None:
        for _ in range(20):
            try:
                store.check()
            except StorageError as error:
                failed.append(error)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and not list((tmp_path / "store").iterdir())
