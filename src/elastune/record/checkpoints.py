"""The checkpoint store: saved states of trials, in any place fsspec can reach.

A checkpoint is two files: the payload and, beside it, a manifest, which is written last: a manifest is the mark of a
complete checkpoint, whenever the writer may have been killed. On a disk each is written under a temporary name and
renamed. What goes elsewhere is first a draft, a file on this machine, and then uploaded.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import cloudpickle
import msgspec
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

from elastune.errors import ElastuneError, SpecError, StorageError
from elastune.messages import Checkpoint
from elastune.record import object_store

_CHUNK = 1 << 20
_IN_MEMORY_BYTES = 64 << 20
_PAYLOAD, _MANIFEST, _UNFINISHED = ".ckpt", ".json", ".tmp"
_PROBE, _OWNER, _MIDWAY = "probe", "owner", "-midway"

Checkpoints = list[Checkpoint]  # the store has a method of the name `list`


class CheckpointStoreError(StorageError):
    """The store itself fails: its disk is full, or it is out of reach."""


class CheckpointDamagedError(StorageError):
    """A checkpoint that is missing, or is not what was written."""


class _Manifest(msgspec.Struct, frozen=True):
    checkpoint: Checkpoint
    kind: Literal["pickle", "tar"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint on its way: a file without a name on this machine, which is gone when it is closed."""

    checkpoint: Checkpoint
    manifest: bytes
    payload: IO[bytes]


class CheckpointStore:
    """It has no open handles, so it can be pickled and travels to the workers."""

    def __init__(self, url: str) -> None:
        self.url = url
        with self._explained("opened"):
            fs, root = self._place()
        self.is_remote = not isinstance(fs, LocalFileSystem)
        if not self.is_remote:
            self.url = root  # absolute: a worker may have another working directory

    def check(self) -> None:
        """Whether it can be written: better known before a run than after its first minute."""
        probe = f"{_PROBE}-{secrets.token_hex(4)}"  # of its own: others may begin at the same moment
        self._put(probe, b"")
        with self._explained("deleted from"):
            fs, root = self._place()
            fs.rm_file(f"{root}/{probe}")

    def owner(self) -> str | None:
        """The run whose checkpoints these are, if one has said so."""
        with self._explained("read"), suppress(FileNotFoundError):
            fs, root = self._place()
            fs.invalidate_cache()  # others write here too
            return str(fs.cat_file(f"{root}/{_OWNER}"), "utf-8", "replace")
        return None

    def claim(self, run: str) -> None:
        """These are that run's, by a name that no other has. Two of the same name may be told to save here, from
        different computers: each would take the other's for what it has left behind, and delete it.
        """
        if self.owner() is None:
            self._put(_OWNER, run.encode())
        if self.owner() != run:
            raise self.taken()

    def taken(self) -> StorageError:
        return StorageError(
            f"the checkpoints in {self.url} are those of another run of that name: give another name, or delete "
            "that folder if they are needed no longer"
        )

    def _put(self, path: str, data: bytes) -> None:
        """A small file, of which an error is told at once."""
        with self._explained("written"):
            if not self.is_remote:
                with self._writing(path) as target:
                    target.write(data)
                return
            fs, root = self._place()
            with tempfile.TemporaryFile() as draft:
                draft.write(data)
                draft.flush()
                object_store.upload(fs, draft, f"{root}/{path}", try_again_s=())

    def save(
        self, value: Any, *, trial: str, lineage: int, iteration: int, attempt: int, midway: bool = False, part: int = 0
    ) -> Checkpoint:
        """Keep a value: a `pathlib.Path` as the file or directory it names, anything else as a pickle.

        With `midway` it is a state between this iteration and the next, and does not overwrite that of this one; with
        a `part` one of several of them.
        """
        if self.is_remote:
            draft = self.draft(
                value, trial=trial, lineage=lineage, iteration=iteration, attempt=attempt, midway=midway, part=part
            )
            return self.upload(draft)
        path = _path(trial, lineage, iteration, attempt, midway, part)
        with self._writing(path) as payload:
            _write(value, payload, trial)
        checkpoint = Checkpoint(trial, lineage, iteration, path, *payload.found, part, midway or part > 0)
        with self._writing(_manifest_of(path)) as manifest:
            manifest.write(_manifest(checkpoint, value))
        return checkpoint

    def draft(
        self, value: Any, *, trial: str, lineage: int, iteration: int, attempt: int, midway: bool = False, part: int = 0
    ) -> Draft:
        """What of saving needs the value itself: it may change as soon as this has returned."""
        path = _path(trial, lineage, iteration, attempt, midway, part)
        with self._explained("written"), ExitStack() as unless_complete:
            file = unless_complete.enter_context(tempfile.TemporaryFile())
            payload = _Hashed(file)
            _write(value, payload, trial)
            file.flush()
            unless_complete.pop_all()
        checkpoint = Checkpoint(trial, lineage, iteration, path, *payload.found, part, midway or part > 0)
        return Draft(checkpoint, _manifest(checkpoint, value), file)

    def upload(self, draft: Draft) -> Checkpoint:
        """Complete it, and be sure that it is. The draft is used up."""
        path = draft.checkpoint.path
        with draft.payload, self._explained("written"), tempfile.TemporaryFile() as manifest:
            fs, root = self._place()
            manifest.write(draft.manifest)
            manifest.flush()
            object_store.upload(fs, draft.payload, f"{root}/{path}")
            object_store.upload(fs, manifest, f"{root}/{_manifest_of(path)}")
        return draft.checkpoint

    def load(self, checkpoint: Checkpoint) -> Any:
        """The value again; nothing is unpickled before size and checksum are right.

        A file or directory is unpacked into a fresh temporary directory, which the caller owns, and its path returned.
        """
        with self._explained("read"):
            kind = self.kind(checkpoint)
            with self._open(checkpoint.path) as source, self._seekable(source, checkpoint) as payload:
                self._verify(payload, checkpoint)
                return self._unpack(payload, checkpoint) if kind == "tar" else self._unpickle(payload, checkpoint)

    def kind(self, checkpoint: Checkpoint) -> Literal["pickle", "tar"]:
        """What the payload is: that of a path is a tar archive."""
        with self._explained("read"), self._open(_manifest_of(checkpoint.path)) as file:
            try:
                return msgspec.json.decode(file.read(), type=_Manifest).kind
            except msgspec.DecodeError as error:
                raise self._damaged(_manifest_of(checkpoint.path), f"is no manifest: {error}") from error

    def pieces(self, checkpoint: Checkpoint) -> Iterator[bytes]:
        """The payload as it was written, for somebody who is far away. Its last piece comes only if all of it is right:
        what is damaged never becomes complete.
        """
        with self._explained("read"), self._open(checkpoint.path) as source:
            sha256, size, last = hashlib.sha256(), 0, b""
            while piece := source.read(_CHUNK):
                sha256.update(piece)
                size += len(piece)
                if last:
                    yield last
                last = piece
            if (size, sha256.hexdigest()) != (checkpoint.size_bytes, checkpoint.sha256):
                raise self._damaged(checkpoint.path, "is not what was written: its size or its sha256 differs")
            yield last

    def drop(self, checkpoint: Checkpoint) -> None:
        """Delete it, if it is there. The manifest goes first: what a kill in between leaves is no checkpoint."""
        with self._explained("deleted from"):
            fs, root = self._place()
            for name in (_manifest_of(checkpoint.path), checkpoint.path):
                with suppress(FileNotFoundError):
                    fs.rm_file(f"{root}/{name}")

    def list(self) -> Checkpoints:
        """All complete checkpoints, in order of trial, lineage and iteration."""
        found: Checkpoints = []
        with self._explained("listed"):
            fs, root = self._place()
            sizes = self._sizes(root)
            for name in sizes:
                if name.endswith(_MANIFEST):
                    with suppress(msgspec.DecodeError, FileNotFoundError):
                        checkpoint = msgspec.json.decode(fs.cat_file(f"{root}/{name}"), type=_Manifest).checkpoint
                        if sizes.get(checkpoint.path) == checkpoint.size_bytes:
                            found.append(checkpoint)
        return sorted(found, key=lambda each: (each.trial, each.lineage, each.iteration, each.path))

    def sweep(self) -> None:
        """Remove what killed writers left behind. Only while nobody saves: an unfinished file looks just the same."""
        with self._explained("swept"):
            fs, root = self._place()
            names = self._sizes(root)
            for name in names:
                orphan = name.endswith(_PAYLOAD) and _manifest_of(name) not in names
                if orphan or name.endswith(_UNFINISHED):
                    with suppress(FileNotFoundError):
                        fs.rm_file(f"{root}/{name}")
            object_store.abort_unfinished(fs, root)

    def _place(self) -> tuple[AbstractFileSystem, str]:
        try:
            fs, root = url_to_fs(self.url)
        except ImportError as error:
            if not self.url.startswith(("s3://", "s3a://")):
                raise  # it names the package
            raise StorageError(f"checkpoints={self.url!r}: S3 needs s3fs: pip install 'elastune[s3]'") from error
        return fs, root

    def _sizes(self, folder: str) -> dict[str, int]:
        """The size of every file in a folder, by its path in the store."""
        fs, root = self._place()
        fs.invalidate_cache()  # others write here too
        return {name.removeprefix(f"{root}/"): info["size"] for name, info in fs.find(folder, detail=True).items()}

    @contextmanager
    def _writing(self, path: str) -> Iterator[_Hashed]:
        """A file on a disk that gets its name only when it is complete."""
        with self._explained("written"):
            final = Path(self.url, path)
            unfinished = final.with_name(f"{final.name}.{secrets.token_hex(4)}{_UNFINISHED}")
            try:
                final.parent.mkdir(parents=True, exist_ok=True)
                with unfinished.open("wb") as file:
                    yield _Hashed(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, final)
                _sync_folder(final.parent)
            except BaseException:
                with suppress(Exception):
                    unfinished.unlink()
                raise

    def _open(self, path: str) -> IO[bytes]:
        fs, root = self._place()
        fs.invalidate_cache()  # others write here too
        try:
            file: IO[bytes] = fs.open(f"{root}/{path}", "rb")
        except FileNotFoundError as error:
            raise self._damaged(path, "is missing") from error
        return file

    @contextmanager
    def _seekable(self, source: IO[bytes], checkpoint: Checkpoint) -> Iterator[IO[bytes]]:
        """A file that is read twice; what comes from afar is fetched only once."""
        if isinstance(source, LocalFileOpener):
            yield source
            return
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as copy:
            try:
                shutil.copyfileobj(source, copy, _CHUNK)
            except Exception as error:
                if object_store.is_damage(error):
                    raise self._damaged(checkpoint.path, f"is not what was written: {error}") from error
                raise
            yield copy

    def _verify(self, payload: IO[bytes], checkpoint: Checkpoint) -> None:
        size = payload.seek(0, os.SEEK_END)
        if size != checkpoint.size_bytes:
            raise self._damaged(checkpoint.path, f"has {size} bytes, but {checkpoint.size_bytes} were written")
        payload.seek(0)
        sha256 = hashlib.sha256()
        while chunk := payload.read(_CHUNK):
            sha256.update(chunk)
        if sha256.hexdigest() != checkpoint.sha256:
            raise self._damaged(checkpoint.path, "is not what was written: its sha256 differs")
        payload.seek(0)

    def _unpack(self, payload: IO[bytes], checkpoint: Checkpoint) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="elastune-checkpoint-"))
        try:
            with tarfile.open(fileobj=payload, mode="r:") as tar:
                tar.extractall(folder, filter="data")
            return next(folder.iterdir())
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, tarfile.TarError):
                raise self._damaged(checkpoint.path, f"cannot be unpacked: {error}") from error
            raise

    def _unpickle(self, payload: IO[bytes], checkpoint: Checkpoint) -> Any:
        try:
            return pickle.load(payload)
        except Exception as error:
            raise SpecError(
                f"checkpoint {checkpoint.path} in {self.url} of trial {checkpoint.trial!r} is whole, but cannot be "
                f"unpickled here ({error!r}): what it is made of must be importable on the workers"
            ) from error

    def _damaged(self, path: str, why: str) -> CheckpointDamagedError:
        return CheckpointDamagedError(f"checkpoint file {path} in {self.url} {why}")

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ElastuneError:
            raise
        except Exception as error:  # file systems raise whatever their libraries do
            reason = str(error) if isinstance(error, OSError) and error.errno else repr(error)
            raise CheckpointStoreError(f"the checkpoint store {self.url} cannot be {doing}: {reason}") from error


class _Hashed(io.RawIOBase):
    """Counts and hashes what passes through to a file, and remembers whose fault a failure was."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self.failed = False
        self._file = file

    @property
    def found(self) -> tuple[str, int]:
        return self.sha256.hexdigest(), self.size_bytes

    def write(self, data: Any, /) -> int:
        try:
            self._file.write(data)
        except BaseException:
            self.failed = True
            raise
        self.sha256.update(data)
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size


def _write(value: Any, payload: _Hashed, trial: str) -> None:
    if isinstance(value, Path):
        _pack(value, payload, trial)
    else:
        _pickle(value, payload, trial)


def _manifest(checkpoint: Checkpoint, value: Any) -> bytes:
    return msgspec.json.encode(_Manifest(checkpoint, "tar" if isinstance(value, Path) else "pickle"))


def _pack(value: Path, payload: _Hashed, trial: str) -> None:
    """Links are followed: a link to somewhere else would not lead there on another machine."""
    path = value.resolve()
    if not path.exists():
        raise SpecError(
            f"trial {trial!r} gave the path {value} as its checkpoint, but there is no such file or directory: "
            "write it before its path is given"
        )
    with _Tar.open(fileobj=payload, mode="w|", bufsize=_CHUNK, dereference=True) as tar:
        tar.add(path, arcname=path.name)


class _Tar(tarfile.TarFile):
    """Leaves out links that lead nowhere, such as one to a state that was removed since: there is nothing to save."""

    def add(self, name: Any, *arguments: Any, **more: Any) -> None:
        if os.path.exists(name) or not os.path.islink(name):
            super().add(name, *arguments, **more)


def _pickle(value: Any, payload: _Hashed, trial: str) -> None:
    try:
        cloudpickle.dump(value, payload)
    except Exception as error:
        if payload.failed:
            raise
        raise SpecError(
            f"the checkpoint of trial {trial!r}, a {type(value).__name__}, cannot be pickled: {error}. Give plain "
            "values (numbers, texts, arrays, a state_dict) or the pathlib.Path of a file or directory that you wrote"
        ) from error


def _path(trial: str, lineage: int, iteration: int, attempt: int, midway: bool, part: int) -> str:
    kind = f"-{part:08d}" * bool(part) + _MIDWAY * midway
    return f"{trial}/{lineage}-{iteration:08d}-{attempt}{kind}{_PAYLOAD}"


def _manifest_of(path: str) -> str:
    return path.removesuffix(_PAYLOAD) + _MANIFEST


def _sync_folder(path: Path) -> None:
    """Make a rename last through a power failure."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
