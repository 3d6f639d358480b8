"""Uploads to an object store, such as S3: whole or not at all, and what has arrived is compared with what was sent.

An object appears there when its PUT or its multipart upload is complete, so it needs no temporary name: there a rename
would be a copy.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

from fsspec import AbstractFileSystem

PART_BYTES = 8 << 20
"""An object of twice that is sent in parts of that size; ten are in memory at a time."""
MOST_PARTS = 10_000
TRY_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""The libraries below try again too, but within a second or two."""
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_CHUNK = 1 << 20


class NotAsSent(Exception):
    """What is in the store is not what was sent."""


def upload(fs: AbstractFileSystem, file: IO[bytes], target: str, try_again_s: Sequence[float] = TRY_AGAIN_S) -> None:
    """Bring a file there; other errors than those that would only come again are waited out for a while."""
    for wait_s in (*try_again_s, None):
        try:
            _put(fs, file, target)
            _compare(fs, file, target)
            return
        except _LASTING:
            raise
        except Exception:  # whatever the file system's library raises
            if wait_s is None:
                raise
            time.sleep(wait_s)


def is_damage(error: Exception) -> bool:
    """Whether the libraries have found that an object is not what was sent, when it was read."""
    return type(error).__name__ == "FlexibleChecksumError"  # of botocore, which may not be installed


def abort_unfinished(fs: AbstractFileSystem, root: str) -> None:
    """End the multipart uploads below a folder that killed writers have begun: S3 keeps their parts, unseen, and
    charges for them.
    """
    if not _is_s3(fs):
        return
    bucket, prefix, _ = fs.split_path(f"{root}/")
    for upload in list(_unfinished(fs, bucket, prefix)):
        fs.abort_mpu(bucket, upload["Key"], upload["UploadId"])


def _unfinished(fs: AbstractFileSystem, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    page: dict[str, Any] = {}
    while True:
        page = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **page)
        yield from page.get("Uploads", ())
        if not page.get("IsTruncated"):
            return
        page = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _is_s3(fs: AbstractFileSystem) -> bool:
    return "s3" in fs.protocol


def _put(fs: AbstractFileSystem, file: IO[bytes], target: str) -> None:
    file.seek(0)
    source = f"/dev/fd/{file.fileno()}"  # it has no other name, so that nothing is left of it when we are killed
    if _is_s3(fs):
        fs.put_file(source, target, chunksize=_part_bytes(_size(file)))
    else:
        fs.makedirs(target.rpartition("/")[0], exist_ok=True)  # on S3 that would make a bucket of a misspelt name
        fs.put_file(source, target)


def _compare(fs: AbstractFileSystem, file: IO[bytes], target: str) -> None:
    """The size, and what S3 says of the content. Where its tag is no checksum, the object is read again; but that of an
    encrypted one never is, and there the checksum must do that the libraries send along.
    """
    fs.invalidate_cache()
    if not _is_s3(fs):
        _same_size(fs.info(target)["size"], file, target)
        return
    bucket, key, _ = fs.split_path(target)
    head = fs.call_s3("head_object", Bucket=bucket, Key=key)
    _same_size(head["ContentLength"], file, target)
    encrypted = head.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in head
    if not encrypted and head["ETag"].strip('"') != etag(file):
        with fs.open(target, "rb") as stored:
            if _digest(stored) != _digest(file):
                raise NotAsSent(f"{target} has another content than was sent")


def _same_size(stored_bytes: int, file: IO[bytes], target: str) -> None:
    if stored_bytes != _size(file):
        raise NotAsSent(f"{target} has {stored_bytes} bytes, but {_size(file)} were sent")


def etag(file: IO[bytes]) -> str:
    """What S3 calls the content: its MD5; of an object that came in parts the MD5 of their MD5s, and their number."""
    size = _size(file)
    part = _part_bytes(size)
    file.seek(0)
    if size < 2 * part:
        return str(_md5(file.read()).hexdigest())
    parts = [_md5(file.read(part)).digest() for _ in range(0, size, part)]
    return f"{_md5(b''.join(parts)).hexdigest()}-{len(parts)}"


def _md5(data: bytes = b"") -> Any:
    return hashlib.md5(data, usedforsecurity=False)


def _digest(file: IO[bytes]) -> bytes:
    file.seek(0)
    sha256 = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        sha256.update(chunk)
    return sha256.digest()


def _part_bytes(size: int) -> int:
    return max(PART_BYTES, -(-size // MOST_PARTS))


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
