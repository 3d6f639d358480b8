"""Reading from a store, any that fsspec knows: what passes is waited out, what lasts is an error that says where."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from elastune.errors import ElastuneError, SpecError, StorageError

T = TypeVar("T")
TRY_AGAIN_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)


class Damaged(Exception):
    """What was read is not what was written."""


class Store:
    def __init__(self, url: str) -> None:
        if not isinstance(url, str) or not url:
            raise SpecError(f"url={url!r}: must be a folder, such as 'data/digits' or 's3://bucket/digits'")
        fs: AbstractFileSystem
        try:
            fs, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            hint = ": pip install 'elastune[s3]'" if url.startswith(("s3://", "s3a://")) else ""
            raise StorageError(f"the data at {url} cannot be read: {error}{hint}") from error
        self.fs, self.root = fs, str(root).rstrip("/")
        self.is_local = isinstance(fs, LocalFileSystem)
        self.url = self.root if self.is_local else url.rstrip("/")
        """Absolute: a worker may have another working directory."""
        self.origin = "/".join(url.split("/")[:3])
        """Protocol and host: paths leave them out."""

    def read(self, path: str, start: int | None = None, stop: int | None = None) -> bytes:
        """All of it, or these bytes."""
        return bytes(self.trying(path, lambda: self.fs.cat_file(path, start, stop)))

    def download(self, path: str, target: Path, check: Callable[[Path], None]) -> None:
        def attempt() -> None:
            self.fs.get_file(path, str(target))
            check(target)

        self.trying(path, attempt)

    def info(self, path: str) -> dict[str, Any]:
        return dict(self.trying(path, lambda: self.fs.info(path)))

    def files(self, pattern: str) -> dict[str, dict[str, Any]]:
        """What matches a pattern, in the order of the names, with what the store says of each."""

        def attempt() -> dict[str, dict[str, Any]]:
            self.fs.invalidate_cache()
            found = self.fs.glob(pattern, detail=True)
            return {name: info for name, info in sorted(found.items()) if info["type"] == "file"}

        return self.trying(pattern, attempt)

    def trying(self, path: str, attempt: Callable[[], T]) -> T:
        for wait_s in (*TRY_AGAIN_S, None):
            try:
                return attempt()
            except ElastuneError:
                raise
            except Exception as error:  # file systems raise whatever their libraries do
                if wait_s is None or isinstance(error, _LASTING):
                    reason = "it is not there" if isinstance(error, FileNotFoundError) else str(error) or repr(error)
                    times = "" if wait_s is not None else f" ({len(TRY_AGAIN_S) + 1} times tried)"
                    raise StorageError(f"{path} of the data at {self.url} cannot be read{times}: {reason}") from error
                time.sleep(wait_s)
        raise AssertionError  # the last attempt returns or raises
