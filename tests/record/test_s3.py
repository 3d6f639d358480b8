"""Checkpoints on S3: whole and verified, or not there, whatever happens on the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.s3 import BUCKET, Environ, S3Server, changed, s3_server

from elastune.errors import StorageError
from elastune.messages import Checkpoint
from elastune.record import object_store
from elastune.record.checkpoints import CheckpointDamagedError, CheckpointStore

BIG = os.urandom(20 << 20)
"""More than two parts."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with s3_server(monkeypatch) as server:
        yield server


@pytest.fixture
def store(server: S3Server) -> CheckpointStore:
    return CheckpointStore(f"s3://{BUCKET}/runs/exp")


def save(store: CheckpointStore, value: Any, iteration: int = 3) -> Checkpoint:
    return store.save(value, trial="t1", lineage=0, iteration=iteration, attempt=1)


def s3() -> Any:
    return fsspec.filesystem("s3", skip_instance_cache=True)


def files() -> list[str]:
    return sorted(name.removeprefix(f"{BUCKET}/runs/exp/t1/") for name in s3().find(BUCKET))


def unfinished() -> list[str]:
    return [upload["Key"] for upload in s3().list_multipart_uploads(BUCKET)]


class First:
    """A fault of the first so many requests of a kind."""

    def __init__(self, count: int, method: str, in_path: str, act: Any) -> None:
        self.left, self._method, self._in_path, self._act = count, method, in_path, act

    def __call__(self, environ: Environ) -> str | None:
        if environ["REQUEST_METHOD"] == self._method and self._in_path in environ["PATH_INFO"] and self.left:
            self.left -= 1
            return self._act(environ)  # type: ignore[no-any-return]
        return None


# ---------------------------------------------------------------------------------------------------------- transport


def test_large_payload_goes_in_parts_and_comes_back(server: S3Server, store: CheckpointStore) -> None:
    checkpoint = save(store, BIG)
    assert store.load(checkpoint) == BIG
    assert store.list() == [checkpoint]
    assert s3().info(f"{BUCKET}/runs/exp/{checkpoint.path}")["ETag"].strip('"').endswith("-3"), "in three parts"
    assert unfinished() == []


def test_nothing_is_renamed_and_the_manifest_comes_last(server: S3Server, store: CheckpointStore) -> None:
    save(store, "state")
    written = [path for method, path in server.requests if method in ("PUT", "POST") and "/t1/" in path]
    assert [path.rpartition("/")[2] for path in written] == ["0-00000003-1.ckpt", "0-00000003-1.json"]


@pytest.mark.parametrize("size", [0, 1, (16 << 20) - 1, 16 << 20, 17 << 20])
def test_tag_is_what_s3_says(server: S3Server, tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    fs = s3()
    with (tmp_path / "file").open("rb") as file:
        object_store.upload(fs, file, f"{BUCKET}/object")
        assert fs.info(f"{BUCKET}/object")["ETag"].strip('"') == object_store.etag(file)


def test_small_object_has_its_md5_as_tag(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("rb") as file:
        assert object_store.etag(file) == hashlib.md5(b"abc").hexdigest()


# ------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("value", [b"small", BIG], ids=["whole", "in parts"])
def test_object_that_was_damaged_on_its_way_is_sent_again(
    server: S3Server, store: CheckpointStore, value: bytes
) -> None:
    fault = First(2, "PUT", ".ckpt", changed)
    server.fault = fault
    checkpoint = save(store, value)
    assert fault.left == 0
    assert store.load(checkpoint) == value


def test_object_that_is_damaged_every_time_is_an_error_and_no_checkpoint(
    server: S3Server, store: CheckpointStore
) -> None:
    server.fault = First(1000, "PUT", ".ckpt", changed)
    with pytest.raises(StorageError, match=r"s3://bucket/runs/exp cannot be written"):
        save(store, "state")
    assert store.list() == []


def test_object_damaged_later_is_found_on_load(server: S3Server, store: CheckpointStore) -> None:
    checkpoint = save(store, BIG)
    name = f"{BUCKET}/runs/exp/{checkpoint.path}"
    body = s3().cat_file(name)
    s3().pipe_file(name, body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(CheckpointDamagedError, match="sha256 differs"):
        store.load(checkpoint)


def test_object_that_s3_itself_finds_damaged_is_a_damaged_checkpoint(
    server: S3Server, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_compare", lambda fs, file, target: None)
    server.fault = First(1, "PUT", ".ckpt", changed)
    checkpoint = save(store, "state")
    with pytest.raises(CheckpointDamagedError, match=r"00000003-1.ckpt in .* checksum"):
        store.load(checkpoint)


def test_tag_that_is_no_checksum_is_settled_by_reading_the_object(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "etag", lambda file: "of another kind")
    assert store.load(save(store, "state")) == "state"


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.slow
def test_error_that_passes_is_waited_out(server: S3Server, store: CheckpointStore) -> None:
    fault = First(7, "PUT", ".ckpt", lambda environ: "503 Slow Down")
    server.fault = fault
    assert store.load(save(store, "state")) == "state"
    assert fault.left == 0


def test_part_that_cannot_be_sent_leaves_nothing(server: S3Server, store: CheckpointStore) -> None:
    server.fault = lambda environ: "403 Forbidden" if "partNumber=2" in environ["QUERY_STRING"] else None
    with pytest.raises(StorageError, match="cannot be written"):
        save(store, BIG)
    assert files() == [] and unfinished() == []


def test_bucket_that_is_not_there_is_an_error_and_is_not_made(server: S3Server) -> None:
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/x cannot be written: .*bucket does not exist"):
        CheckpointStore("s3://no-such-bucket/x").check()
    assert not s3().exists("no-such-bucket")


def test_missing_library_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(StorageError, match=r"'s3://bucket/x': S3 needs s3fs: pip install 'elastune\[s3\]'"):
        CheckpointStore("s3://bucket/x")


# --------------------------------------------------------------------------------------------------------------- kill

KILLED = """
import os, sys
from elastune.record.checkpoints import CheckpointStore
CheckpointStore(sys.argv[1]).save(os.urandom(20 << 20), trial="t1", lineage=0, iteration=9, attempt=1)
"""


@pytest.mark.parametrize(
    ("method", "last"), [("POST", "uploads"), ("PUT", "partNumber=2"), ("POST", "uploadId="), ("PUT", ".json")]
)
def test_writer_killed_on_the_way_leaves_no_checkpoint_and_sweep_clears_up(
    server: S3Server, store: CheckpointStore, method: str, last: str
) -> None:
    kept = save(store, "kept")
    other = s3().call_s3("create_multipart_upload", Bucket=BUCKET, Key="runs/exp-2/t1/0-00000001-1.ckpt")
    writer: list[subprocess.Popen[bytes]] = []

    def kill(environ: Environ) -> str | None:
        """Before this request is carried out."""
        asked = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if environ["REQUEST_METHOD"] == method and "0-00000009-1" in asked and last in asked:
            writer[0].kill()
            return "503 Slow Down"
        return None

    server.fault = kill
    writer.append(subprocess.Popen([sys.executable, "-c", KILLED, store.url]))
    assert writer[0].wait() == -9
    server.fault = lambda environ: None
    assert store.list() == [kept]
    store.sweep()
    assert files() == ["0-00000003-1.ckpt", "0-00000003-1.json"]
    assert unfinished() == [other["Key"]], "that of another run"
