"""Code travels as an archive: the same files give the same bytes, and a hostile archive does no harm."""

from __future__ import annotations

import errno
import gzip
import io
import multiprocessing
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tracemalloc
import zlib
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.errors import SpecError, StorageError
from elastune.service.archive import LEFT_OUT, MIB, Limits, code_hash, pack, unpack

Member = tuple[tarfile.TarInfo, bytes]
SMALL = Limits(archive_bytes=MIB, total_bytes=4 * MIB, entries=50)


def member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Member:
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.mode = kind, link, mode
    header.size = len(data) if kind == tarfile.REGTYPE else 0
    return header, data


def tar(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form) as archive:
        for header, data in members:
            archive.addfile(header, io.BytesIO(data))
    return written.getvalue()


def targz(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    return gzip.compress(tar(*members, form=form))


def header_only(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.type = size, kind
    return header.tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return header_only("pax", len(records), kind) + records + b"\0" * (-len(records) % 512)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def refused(data: bytes, place: Path, *said: str, limits: Limits = SMALL) -> None:
    """With this said, and nothing left: not beside the folder, not above it."""
    home = place / "home"
    home.mkdir()
    before = sorted(place.rglob("*"))
    with pytest.raises(SpecError) as error:
        unpack(data, home / "code", limits)
    for part in said:
        assert part in str(error.value)
    assert sorted(place.rglob("*")) == before


END = b"\0" * 1024
LONG = "n" * 256
ATTACKS: dict[str, tuple[bytes, str, str]] = {
    "absolute": (targz(member("/etc/cron.d/x")), "'/etc/cron.d/x'", "relative path"),
    "upwards": (targz(member("../../x")), "'../../x'", "leads upwards"),
    "upwards inside": (targz(member("a/b/../../../x")), "'a/b/../../../x'", "leads upwards"),
    "folder upwards": (targz(member("../x", kind=tarfile.DIRTYPE)), "'../x'", "leads upwards"),
    "backslashes": (targz(member("..\\..\\x")), "x'", "forward slashes"),
    "drive": (targz(member("C:/x")), "'C:/x'", "relative path"),
    "link outside": (targz(member("a", kind=tarfile.SYMTYPE, link="/etc/passwd")), "'a'", "is a link"),
    "link inside": (targz(member("b"), member("a", kind=tarfile.SYMTYPE, link="b")), "'a'", "is a link"),
    "through a link": (
        targz(member("a", kind=tarfile.SYMTYPE, link="/tmp"), member("a/x")),
        "'a'",
        "is a link",
    ),
    "hard link": (targz(member("a", kind=tarfile.LNKTYPE, link="/etc/passwd")), "'a'", "a hard link"),
    "character device": (targz(member("a", kind=tarfile.CHRTYPE)), "'a'", "a device"),
    "block device": (targz(member("a", kind=tarfile.BLKTYPE)), "'a'", "a device"),
    "pipe": (targz(member("a", kind=tarfile.FIFOTYPE)), "'a'", "a pipe"),
    "contiguous": (targz(member("a", kind=tarfile.CONTTYPE)), "'a'", "unknown kind"),
    "unknown kind": (targz(member("a", kind=b"Z")), "'a'", "unknown kind"),
    "twice": (targz(member("a"), member("./a")), "'a'", "twice"),
    "file as folder": (targz(member("a"), member("a/b")), "'a'", "twice"),
    "folder as file": (targz(member("a/b"), member("a")), "'a'", "twice"),
    "long part": (targz(member(LONG)), "nnn", "255"),
    "long path": (targz(member("/".join(["n" * 200] * 3))), "nnn", "512 bytes"),
    "deep": (targz(member("/".join("d" * 40))), "d/d", "32 folders"),
    "new line": (targz(member("a\nb")), r"'a\nb'", "cannot be printed"),
    "not UTF-8": (targz(member("a\udcff"), form=tarfile.GNU_FORMAT), "a", "not UTF-8"),
    "NUL in a pax name": (
        gzip.compress(pax(record("path", "safe\0/../x")) + header_only("a", 0) + END),
        r"'safe\x00/../x'",
        "cannot be printed",
    ),
    "NUL in a GNU name": (
        gzip.compress(pax(b"safe\0/../x", tarfile.GNUTYPE_LONGNAME) + header_only("a", 0) + END),
        r"'safe\x00/../x'",
        "cannot be printed",
    ),
    "absolute by pax": (gzip.compress(pax(record("path", "/x")) + header_only("a", 0) + END), "'/x'", "relative"),
    "upwards by GNU name": (
        gzip.compress(pax(b"../x\0", tarfile.GNUTYPE_LONGNAME) + header_only("a", 0) + END),
        "'../x'",
        "upwards",
    ),
    "size by pax": (gzip.compress(pax(record("size", "9" * 20)) + header_only("a", 0) + END), "refused", "'size'"),
    "name for all": (
        gzip.compress(pax(record("path", "b"), tarfile.XGLTYPE) + header_only("a", 0) + END),
        "refused",
        "'path'",
    ),
    "sparse": (gzip.compress(header_only("a", 0, tarfile.GNUTYPE_SPARSE) + END), "'a'", "sparse"),
    "sparse by pax": (
        gzip.compress(pax(record("GNU.sparse.realsize", str(1 << 50))) + header_only("a", 0) + END),
        "refused",
        "GNU.sparse",
    ),
    "damaged pax": (gzip.compress(pax(b"99999 path=x\n") + header_only("a", 0) + END), "refused", "damaged"),
    "pax without end": (gzip.compress(pax(b"0 path=x\n") + header_only("a", 0) + END), "refused", "damaged"),
    "long pax": (gzip.compress(pax(record("path", "a" * 100_000)) + header_only("a", 0) + END), "pax", "too long"),
    "many pax": (gzip.compress(pax(record("path", "a")) * 10_000 + END), "refused", "too many headers"),
    "folder with data": (gzip.compress(header_only("a", 512, tarfile.DIRTYPE) + END), "'a'", "512 bytes"),
    "negative size": (gzip.compress(header_only("a", -512) + END), "'a'", "-512"),
    "size beyond the limit": (gzip.compress(header_only("a", 1 << 40) + END), "'a'", str(1 << 40)),
    "size beyond the end": (gzip.compress(header_only("a", 4096) + END), "refused", "cut off"),
    "size too small": (gzip.compress(header_only("a", 10) + b"y" * 2048 + END), "refused", "not a tar"),
    "no name": (targz(member("./")), "refused", "no name"),
    "no files": (targz(member("a", kind=tarfile.DIRTYPE)), "refused", "no files"),
    "nothing": (b"", "refused", "empty"),
    "not gzip": (b"PK\x03\x04 and so on", "refused", "not gzip"),
    "not tar": (gzip.compress(b"hello" * 1000), "refused", "not a tar"),
    "tar without gzip": (tar(member("a")), "refused", "not gzip"),
    "without its end": (gzip.compress(header_only("a", 0)), "refused", "cut off"),
    "two streams": (targz(member("a")) + targz(member("b")), "refused", "behind its end"),
    "behind its end": (gzip.compress(tar(member("a")) + b"secret"), "refused", "behind its end"),
    "many files": (targz(*(member(f"{n}") for n in range(51))), "'50'", "more than 50"),
    "many folders": (targz(*(member(f"{n}/a/b/c/d/e", kind=tarfile.DIRTYPE) for n in range(9))), "8", "more than 50"),
    "the same folder again and again": (
        targz(*(member("a", kind=tarfile.DIRTYPE) for _ in range(500))),
        "refused",
        "too many headers",
    ),
    "large packed": (targz(member("a", os.urandom(2 * MIB))), "refused", "larger than 1.0 MiB"),
    "large unpacked": (targz(member("a", b"x" * 3 * MIB), member("b", b"x" * 3 * MIB)), "refused", "than 4.0 MiB"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_archive_is_refused_by_name_and_leaves_nothing(attack: str, tmp_path: Path) -> None:
    data, *said = ATTACKS[attack]
    refused(data, tmp_path, *said)


def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = targz(member("a", os.urandom(700)), member("b/c", b"y" * 2000))
    for end in range(0, len(data), 7):
        with pytest.raises(SpecError, match="refused"):
            unpack(data[:end], tmp_path / "code", SMALL)
    damaged = data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]  # the checksum
    with pytest.raises(SpecError, match="damaged"):
        unpack(damaged, tmp_path / "code", SMALL)
    assert list(tmp_path.iterdir()) == []


def test_special_rights_and_owners_are_dropped(tmp_path: Path) -> None:
    header, data = member("tool", b"#!/bin/sh\n", mode=0o6777)
    header.uid = header.gid = 4321
    unpack(targz((header, data), member("plain", mode=0o2666)), tmp_path / "code", SMALL)
    tool = (tmp_path / "code" / "tool").stat()
    assert tool.st_mode & 0o7777 == 0o755 and tool.st_uid == os.getuid()
    assert (tmp_path / "code" / "plain").stat().st_mode & 0o7777 == 0o644


def bomb(start: bytes, repeated: bytes, times: int) -> bytes:
    """What is repeated is compressed once: after a full flush a piece of the stream stands for itself."""
    squeeze = zlib.compressobj(9, wbits=31)
    head = squeeze.compress(start) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return head + (squeeze.compress(repeated) + squeeze.flush(zlib.Z_FULL_FLUSH)) * times


@pytest.mark.parametrize(
    ("size", "limits", "said"),
    [
        (4 << 30, Limits(), "says that it has"),
        (4 << 30, Limits(total_bytes=1 << 40), "100 times larger"),
        (0, Limits(), "100 times larger"),
        (0, Limits(ratio=1e9), "larger than 256.0 MiB"),
    ],
    ids=["by its header", "by the ratio", "behind the end by the ratio", "behind the end in all"],
)
def test_a_bomb_is_refused_fast_and_with_little_memory(size: int, limits: Limits, said: str, tmp_path: Path) -> None:
    data = bomb(header_only("zeros", size), b"\0" * MIB, 4096)
    assert len(data) < 5 * MIB
    tracemalloc.start()
    try:
        began = time.process_time()
        with pytest.raises(SpecError, match=said):
            unpack(data, tmp_path / "code", limits)
        took_s, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(data) + 2 * MIB
    assert took_s < 2
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_with_an_honest_beginning_stops_at_the_limit_on_disk(tmp_path: Path) -> None:
    """Many files of which none is too large: what is written before it stops is within the limit."""
    squeeze = zlib.compressobj(1, wbits=31)
    data = b"".join(squeeze.compress(header_only(str(n), MIB) + b"\0" * MIB) for n in range(300)) + squeeze.flush()
    child = (
        "import resource, sys\nfrom pathlib import Path\nfrom elastune.errors import SpecError\n"
        "from elastune.service.archive import MIB, Limits, unpack\n"
        "data = Path(sys.argv[1]).open('rb')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    unpack(data, Path(sys.argv[2]), Limits(ratio=1e9))\nexcept SpecError as error:\n    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    (tmp_path / "bomb").write_bytes(data)
    # A file of more than the limit would end the process: it has no right to write one.
    ran = subprocess.run(
        [sys.executable, "-c", child, str(tmp_path / "bomb"), str(tmp_path / "out" / "code")],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, 2 * MIB)),
    )
    said, grown_kib = ran.stdout.splitlines()
    assert "larger than 256.0 MiB" in said
    assert int(grown_kib) < 8 * 1024
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot be written"):
        unpack(targz(member("a")), tmp_path / "taken", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_archives_of_other_programs_are_understood(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": b"1", f"{'long/' * 30}ö.py": b"2", "pkg/__init__.py": b""})
    (code / "train.py").chmod(0o755)
    for form in ("gnu", "pax", "ustar"):
        made = tmp_path / f"{form}.tgz"
        subprocess.run(["tar", f"--format={form}", "-czf", made, "-C", code, "."], check=True)
        with made.open("rb") as file:
            unpack(file, tmp_path / form, SMALL)
        assert tree(tmp_path / form) == tree(code)
        assert os.access(tmp_path / form / "train.py", os.X_OK)


def test_unpacking_again_changes_nothing_and_reads_nothing(tmp_path: Path) -> None:
    unpack(targz(member("a")), tmp_path / "code", SMALL)
    before = (tmp_path / "code").stat().st_mtime_ns
    unpack(io.BytesIO(), tmp_path / "code", SMALL)
    assert (tmp_path / "code").stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def _unpack_together(data: bytes, into: Path, barrier: threading.Barrier) -> None:
    barrier.wait()
    unpack(data, into, Limits())


def test_several_processes_may_unpack_the_same_archive_at_once(tmp_path: Path) -> None:
    files = {f"{n}.py": os.urandom(2000) for n in range(300)}
    data = targz(*(member(name, content) for name, content in files.items()))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_unpack_together, args=(data, tmp_path / "code", barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    assert tree(tmp_path / "code") == files
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_what_a_killed_process_left_is_swept_but_not_what_one_at_work_has(tmp_path: Path) -> None:
    left, at_work = tmp_path / ".x.1.unpacking", tmp_path / ".x.2.unpacking"
    write(left, {"a": b""})
    write(at_work, {"a": b""})
    os.utime(left, (0, 0))
    unpack(targz(member("a")), tmp_path / "code", SMALL)
    assert not left.exists() and at_work.exists()


PARTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=12).filter(
    lambda part: (
        not any(char in part for char in "/\\:")
        and part not in (".", "..", "runs", ".elastuneignore")
        and not any(fnmatch(part, pattern) for pattern in LEFT_OUT)
    )
)
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def consistent(names: list[str]) -> bool:
    """No name is also a folder of another."""
    folders = {"/".join(name.split("/")[:n]) for name in names for n in range(1, len(name.split("/")))}
    return not folders & set(names)


TREES = st.dictionaries(NAMES, st.binary(max_size=2000), min_size=1, max_size=12).filter(
    lambda files: consistent(list(files)) and all(len(name.encode()) < 200 for name in files)
)


@given(TREES)
@settings(max_examples=40)
def test_what_is_packed_is_unpacked_and_the_bytes_depend_on_the_content_only(
    files: dict[str, bytes],
) -> None:
    with tempfile.TemporaryDirectory() as place:
        one = write(Path(place) / "one", files)
        names = sorted(files, reverse=True)
        other = write(Path(place) / "other", {name: files[name] for name in names})
        os.utime(other / names[0], (1, 1))
        data = pack(one)
        assert pack(other) == data
        unpack(data, Path(place) / "back", Limits())
        assert tree(Path(place) / "back") == files
        assert pack(Path(place) / "back") == data


@given(
    TREES,
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1, max_size=8),
    st.booleans(),
)
@settings(max_examples=100)
def test_a_damaged_archive_is_refused_or_stays_inside(
    files: dict[str, bytes], flips: list[tuple[int, int]], mend: bool
) -> None:
    """Bytes of the headers are changed, with a checksum that fits again: whatever they mean then, nothing leaks."""
    raw = bytearray(tar(*(member(name, data) for name, data in files.items())))
    for at, flip in flips:
        raw[at % 1024] ^= flip
    if mend:
        for start in (0, 512):
            raw[start + 148 : start + 156] = b" " * 8
            raw[start + 148 : start + 156] = b"%06o\0 " % sum(raw[start : start + 512])
    with tempfile.TemporaryDirectory() as place:
        into = Path(place) / "a" / "code"
        try:
            unpack(gzip.compress(bytes(raw), mtime=0), into, SMALL)
        except SpecError:
            assert not into.exists()
        assert set(os.listdir(place)) <= {"a"} and set(os.listdir(into.parent)) <= {"code"}
        assert all(path.is_dir() or path.is_file() for path in into.rglob("*"))
        assert not any(path.is_symlink() for path in into.rglob("*"))


def test_packing_leaves_out_what_is_no_code(tmp_path: Path) -> None:
    kept = {"train.py": b"1", "pkg/runs/model.py": b"2", ".elastuneignore": b"# data\ndata/\n*.csv\ndocs/old\n"}
    left_out = {".git/config", "__pycache__/a.pyc", "pkg/__pycache__/a.pyc", ".venv/bin/python", "runs/a/journal.db"}
    left_out |= {"pkg/b.pyc", "data/huge.bin", "pkg/table.csv", "docs/old/page.md"}
    write(tmp_path / "code", kept | dict.fromkeys(left_out, b"x"))
    unpack(pack(tmp_path / "code"), tmp_path / "back", SMALL)
    assert tree(tmp_path / "back") == kept


def test_the_hash_changes_with_content_names_and_the_right_to_execute(tmp_path: Path) -> None:
    hashes = []
    for number, files in enumerate([{"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""}]):
        hashes.append(code_hash(pack(write(tmp_path / str(number), files))))
    (tmp_path / "0" / "a").chmod(0o700)
    hashes.append(code_hash(pack(tmp_path / "0")))
    assert len(set(hashes)) == 5
    assert all(len(each) == 64 for each in hashes)


def test_a_link_to_a_file_inside_is_packed_as_that_file_and_any_other_is_refused(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"a.py": b"1", "pkg/b.py": b"2"})
    (code / "link.py").symlink_to("pkg/b.py")
    unpack(pack(code), tmp_path / "back", SMALL)
    assert tree(tmp_path / "back") == {"a.py": b"1", "pkg/b.py": b"2", "link.py": b"2"}
    (tmp_path / "secret").write_text("s")
    for target, said in (("../secret", "leads outside"), ("pkg", "link to a folder"), ("gone", "nothing")):
        (code / "link.py").unlink()
        (code / "link.py").symlink_to(target)
        with pytest.raises(SpecError, match=said) as error:
            pack(code)
        assert "link.py" in str(error.value)


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = write(tmp_path / "code", {"a.py": b"1", "pkg/b.py": b"2"})

    def refuse(path: str | Path) -> NoReturn:  # who tests may be allowed to read everything
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for owner, name, said in (
        (Path, "read_bytes", r"code/a\.py: cannot be read"),
        (os, "scandir", "code: cannot be read"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse)
            with pytest.raises(SpecError, match=f"{said}: Permission denied"):
                pack(code)
    (code / ".elastuneignore").write_bytes(b"\xff")
    with pytest.raises(SpecError, match="elastuneignore: must be UTF-8"):
        pack(code)


def test_a_pipe_in_the_folder_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    write(tmp_path, {"a": b""})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecError, match="not a plain file"):
        pack(tmp_path)


@pytest.mark.parametrize(
    ("content", "limits"),
    [
        (os.urandom(3 * MIB), Limits(total_bytes=2 * MIB)),
        (os.urandom(3 * MIB), Limits(archive_bytes=2 * MIB)),
        (b"\0" * (40 * MIB), Limits()),
    ],
    ids=["in all", "packed", "ratio"],
)
def test_code_that_would_be_refused_is_not_packed_and_the_largest_files_are_named(
    content: bytes, limits: Limits, tmp_path: Path
) -> None:
    write(tmp_path, {"train.py": b"1", "data/images.bin": content})
    with pytest.raises(SpecError, match=r"data/images\.bin \(\d+\.0 MiB\), train\.py \(1 bytes\)"):
        pack(tmp_path, limits)


@pytest.mark.parametrize("files", [{}, {"runs/a": b""}])
def test_a_folder_without_code_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no files"):
        pack(write(tmp_path, files))
    with pytest.raises(SpecError, match="must be a folder"):
        pack(tmp_path / "gone")
