"""The code of a user as one file: packed by the client, unpacked by the service, which trusts nothing in it.

The service reads the archive itself, block by block, and knows only plain files and folders. There are no links in
what it writes, so no path can lead out of the folder; every byte is counted while it is decompressed, so no header
can lie about a size. Python's tarfile is used for the fields of a header only: it would follow sparse maps and
extended headers of any size on its way to the files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
import time
import unicodedata
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, NoReturn

from elastune.errors import SpecError, StorageError

MIB = 1 << 20
IGNORE_FILE = ".elastuneignore"
LEFT_OUT = (".git", "__pycache__", ".venv", "*.pyc", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".DS_Store", ".env")
RUNS = "runs"
"""Where runs are kept unless the user says otherwise; only at the top, for a package may have such a folder."""

_PIECE = 64 * 1024
_BLOCK = 512
_EXTENDED_BYTES = 16 * 1024  # of a header that holds a long name; some programs add the file's attributes
_RATIO_FROM = 16 * MIB  # below this nobody is harmed, and small files of one letter are common
_STALE_S = 3600.0
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True)
class Limits:
    """How large the code of a job may be."""

    archive_bytes: int = 64 * MIB
    total_bytes: int = 256 * MIB  # unpacked, headers included
    entries: int = 10_000  # files and folders
    path_bytes: int = 512
    depth: int = 32
    ratio: float = 100.0  # unpacked to packed, counted once there is enough to matter


def code_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pack(folder: Path, limits: Limits = Limits()) -> bytes:  # noqa: B008 (frozen)
    """The same files give the same bytes: sorted, without times and owners. Empty folders are not kept.

    A link to a file inside the folder is packed as that file; any other link is refused.
    """
    if not folder.is_dir():
        raise SpecError(f"code={str(folder)!r}: must be a folder")
    files = dict(sorted(_files(folder, limits)))
    if not files:
        raise SpecError(f"code={str(folder)!r}: has no files; {', '.join((*LEFT_OUT, RUNS))} are left out")
    _check_sizes(folder, files, limits)
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files.items():
            data = _read(path)
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(data), 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            tar.addfile(header, io.BytesIO(data))
    try:
        check_archive(packed.getvalue(), limits)
    except SpecError as error:  # better here than after the upload
        raise SpecError(_too_large(folder, files, str(error))) from None
    return packed.getvalue()


def _files(folder: Path, limits: Limits) -> Iterator[tuple[str, Path]]:
    ignored = _ignored(folder)
    tree = _Tree(limits)
    for root, folders, names in os.walk(folder, onerror=_refuse_unread):
        inside = Path(root).relative_to(folder)
        for name in (*folders, *names):
            path = Path(root) / name
            relative = (inside / name).as_posix()
            if relative == RUNS or any(fnmatch(name, p) or fnmatch(relative, p) for p in ignored):
                if name in folders:
                    folders.remove(name)
            elif path.is_symlink() or name in names:
                _check_plain(folder, path)
                tree.add_file(_parts(relative, limits))
                yield relative, path


def _ignored(folder: Path) -> tuple[str, ...]:
    """Patterns of names or of whole paths, one a line; `*` matches `/` too."""
    file = folder / IGNORE_FILE
    try:
        lines = [line.strip() for line in _read(file).decode().splitlines()] if file.is_file() else []
    except UnicodeDecodeError as error:
        raise SpecError(f"{file}: must be UTF-8: {error}") from None
    lines = [line for line in lines if line and not line.startswith("#")]
    if exception := next((line for line in lines if line.startswith("!")), None):
        raise SpecError(f"{file}: {exception!r}: exceptions are not known; list what is to be left out")
    return (*LEFT_OUT, *(line.strip("/") for line in lines))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        _refuse_unread(error)


def _refuse_unread(error: OSError) -> NoReturn:
    reason = f"cannot be read: {error.strerror}: make it readable, or list it in {IGNORE_FILE}"
    raise SpecError(f"{error.filename}: {reason}") from None


def _check_plain(folder: Path, path: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise SpecError(f"{path}: is a link that leads outside {folder}: copy the file, or list it in {IGNORE_FILE}")
    if not path.is_file():
        kind = "a link to a folder or to nothing" if path.is_symlink() else "not a plain file"
        raise SpecError(f"{path}: is {kind}: remove it, or list it in {IGNORE_FILE}")


def _check_sizes(folder: Path, files: dict[str, Path], limits: Limits) -> None:
    """Before any of it is read: it may be more than the memory holds."""
    total = sum(path.stat().st_size for path in files.values())
    if total > limits.total_bytes:
        raise SpecError(_too_large(folder, files, f"{_size(total)}; allowed: {_size(limits.total_bytes)}"))


def _too_large(folder: Path, files: dict[str, Path], reason: str) -> str:
    sizes = sorted(((path.stat().st_size, name) for name, path in files.items()), reverse=True)
    largest = ", ".join(f"{name} ({_size(size)})" for size, name in sizes[:5])
    return (
        f"code={str(folder)!r}: is too large: {reason}. The largest files: {largest}. "
        f"List what is not code in {IGNORE_FILE}"
    )


def check_archive(data: bytes, limits: Limits = Limits()) -> None:  # noqa: B008 (frozen)
    """Whether it may be unpacked: what is refused then is refused now."""
    _extract(_Gunzip(io.BytesIO(data), limits), None, limits)


def unpack(data: bytes | BinaryIO, into: Path, limits: Limits = Limits()) -> None:  # noqa: B008 (frozen)
    """`into` appears whole or not at all. It is named after the hash of the archive: if it is there, it is done."""
    if _is_done(into):
        return
    into.parent.mkdir(parents=True, exist_ok=True)
    _sweep(into.parent)
    scratch = into.parent / f".{into.name[:100]}.{uuid.uuid4().hex}.unpacking"
    scratch.mkdir(mode=0o755)
    try:
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        _extract(_Gunzip(source, limits), scratch, limits)
        try:
            scratch.rename(into)
        except OSError:
            if not _is_done(into):  # else another process was faster
                raise
    except OSError as error:
        raise StorageError(f"{into}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _is_done(into: Path) -> bool:
    return into.is_dir() and any(into.iterdir())


def _sweep(parent: Path) -> None:
    """What a killed process left behind. A live one is done within minutes: its limits see to that."""
    for scratch in parent.glob(".*.unpacking"):
        try:
            if time.time() - scratch.stat().st_mtime > _STALE_S:
                shutil.rmtree(scratch, ignore_errors=True)
        except FileNotFoundError:  # its owner was faster
            continue


class _Gunzip:
    """Decompresses in small pieces and counts both sides: it stops at the limit, whatever comes after."""

    def __init__(self, source: BinaryIO, limits: Limits) -> None:
        self._source, self._limits = source, limits
        self._inflate = zlib.decompressobj(wbits=31)
        self._ready = io.BytesIO()
        self._packed = self._total = 0

    def pieces(self, size: int) -> Iterator[bytes]:
        """`size` bytes and the padding behind them, which is not given out."""
        padding = -size % _BLOCK
        while size:
            piece = self._read(size)
            size -= len(piece)
            yield piece
        while padding:
            padding -= len(self._read(padding))

    def exactly(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def check_end(self) -> None:
        """Also of what comes behind the last member: else a damaged or cut archive could pass."""
        while piece := self._ready.read() or self._more():
            if piece.strip(b"\0"):
                _refuse("there is more behind its end")
        if self._inflate.unused_data or self._source.read(1):
            _refuse("there is more behind its end; it must be one gzip stream")

    def _read(self, size: int) -> bytes:
        """At most `size` bytes, at least one."""
        if not (piece := self._ready.read(size)):
            self._ready = io.BytesIO(self._more())
            piece = self._ready.read(size)
        if not piece:
            _refuse("it is cut off: the last member is not complete")
        return piece

    def _more(self) -> bytes:
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._fetch()
            try:
                piece = self._inflate.decompress(packed, _PIECE)
            except zlib.error as error:
                raise SpecError(_message(f"it is not gzip, or damaged ({error})")) from None
            if not (piece or packed or self._inflate.eof):
                _refuse("it is cut off, or empty: the gzip stream has no end")
            self._count(len(piece))
            if piece:
                return piece
        return b""

    def _fetch(self) -> bytes:
        packed = self._source.read(_PIECE)
        self._packed += len(packed)
        if self._packed > self._limits.archive_bytes:
            _refuse(f"it is larger than {_size(self._limits.archive_bytes)}")
        return packed

    def _count(self, size: int) -> None:
        self._total += size
        if self._total > self._limits.total_bytes:
            _refuse(f"unpacked it is larger than {_size(self._limits.total_bytes)}")
        if self._total > _RATIO_FROM + self._limits.ratio * self._packed:
            _refuse(f"unpacked it is more than {self._limits.ratio:g} times larger")


@dataclass
class _Tree:
    """The files and folders seen so far: each once, no file that is also a folder, not too many."""

    limits: Limits
    _files: set[tuple[str, ...]] = field(default_factory=set)
    _folders: set[tuple[str, ...]] = field(default_factory=lambda: {()})

    def add_file(self, parts: tuple[str, ...]) -> None:
        if parts in self._files or parts in self._folders:
            _refuse("is there twice", "/".join(parts))
        self.add_folder(parts[:-1])
        self._files.add(parts)
        self._check_count(parts)

    def add_folder(self, parts: tuple[str, ...]) -> None:
        while parts not in self._folders:
            if parts in self._files:
                _refuse("is there twice, as a file and as a folder", "/".join(parts))
            self._folders.add(parts)
            self._check_count(parts)
            parts = parts[:-1]

    def _check_count(self, parts: tuple[str, ...]) -> None:
        if len(self._files) + len(self._folders) - 1 > self.limits.entries:
            _refuse(f"there are more than {self.limits.entries} files and folders", "/".join(parts))


def _extract(stream: _Gunzip, folder: Path | None, limits: Limits) -> None:
    """Without a folder: only see whether all of it is allowed."""
    tree, files = _Tree(limits), 0
    for header in _headers(stream, limits):
        parts = _parts(header.name, limits)
        if header.isdir():
            tree.add_folder(parts)
        elif parts:
            tree.add_file(parts)
            files += 1
        else:
            _refuse("has no name", header.name)
        if folder is not None:
            _write(stream, folder.joinpath(*parts), header)
        else:
            for _ in stream.pieces(header.size):
                pass
    if not files:
        _refuse("it has no files")


def _write(stream: _Gunzip, path: Path, header: tarfile.TarInfo) -> None:
    if header.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for piece in stream.pieces(header.size):
            file.write(piece)
    path.chmod(0o755 if header.mode & stat.S_IXUSR else 0o644)


def _headers(stream: _Gunzip, limits: Limits) -> Iterator[tarfile.TarInfo]:
    """Of files and folders, with their whole names; whoever asks for the next has taken the data of the one before."""
    long_name, extended_bytes = "", 0
    for _ in range(3 * limits.entries + 16):
        block = stream.exactly(_BLOCK)
        if not block.strip(b"\0"):
            stream.check_end()
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise SpecError(_message(f"it is not a tar archive, or damaged ({error})")) from None
        if header.type in _EXTENDED:
            extended_bytes += header.size
            if not 0 <= header.size <= _EXTENDED_BYTES or extended_bytes > 1024 * limits.entries:
                _refuse("has an extended header that is too long", header.name)
            long_name = _long_name(header.type, stream.exactly(header.size)) or long_name
            continue
        header.name, long_name = long_name or header.name, ""
        _check_kind(header, limits)
        yield header
    _refuse("it has too many headers")


def _long_name(kind: bytes, data: bytes) -> str:
    """The name that the next header is too short for; empty if the data is about something else."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return data.removesuffix(b"\0").decode("utf-8", "surrogateescape")
    if kind == tarfile.GNUTYPE_LONGLINK:
        return ""
    records = _pax_records(data)
    for key in records:
        if key == b"size" or key.startswith(b"GNU.sparse.") or (key == b"path" and kind == tarfile.XGLTYPE):
            _refuse(f"an extended header sets {key.decode('ascii', 'replace')!r}, which is not allowed")
    return records.get(b"path", b"").decode("utf-8", "surrogateescape")


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Each is `length key=value` and a newline, the length counting all of it."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        length = data[at : max(space, at)]
        end = at + int(length) if length.isdigit() else 0
        record = data[space + 1 : end]
        if end > len(data) or not record.endswith(b"\n"):
            _refuse("an extended header is damaged")
        key, _, value = record[:-1].partition(b"=")
        records[key] = value
        at = end
    return records


def _check_kind(header: tarfile.TarInfo, limits: Limits) -> None:
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
        _refuse(f"is {_KINDS.get(header.type, 'of an unknown kind')}; put a copy of the file there", header.name)
    if not 0 <= header.size <= (0 if header.isdir() else limits.total_bytes):
        _refuse(f"says that it has {header.size} bytes; allowed: {limits.total_bytes}, a folder 0", header.name)


def _parts(name: str, limits: Limits) -> tuple[str, ...]:
    """The path inside the folder; what one system reads as a name and another as a way out is no name."""
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name):
        _refuse("has a character that cannot be printed, or is not UTF-8", name)
    if name.startswith("/") or "\\" in name or (name[1:2] == ":" and name[0].isalpha()):
        _refuse("is not a relative path with forward slashes", name)
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        _refuse("leads upwards", name)
    if len(name.encode()) > limits.path_bytes or any(len(part.encode()) > 255 for part in parts):
        _refuse(f"is longer than {limits.path_bytes} bytes, or 255 in one part", name)
    if len(parts) > limits.depth:
        _refuse(f"is more than {limits.depth} folders deep", name)
    return parts


def _refuse(reason: str, member: str | None = None) -> NoReturn:
    raise SpecError(_message(reason, member))


def _message(reason: str, member: str | None = None) -> str:
    if member is None:
        return f"the code archive is refused: {reason}. Send a .tar.gz of plain files and folders"
    shown = member if len(member) <= 100 else f"{member[:97]}..."
    return f"the code archive is refused: {shown!r} {reason}. Allowed are plain files and folders, with relative paths"


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB // 10 else f"{count} bytes"
