"""A rented machine, played by processes of this computer: a keeper with a raylet and all that runs under it.

The keeper is this file, run by its path and with the standard library only: it costs next to nothing, and it finds what
it needs however the driver found its packages. It knows three things about the world, all from files: who owns the
machine (a lock), which Ray to join (`head.json`), and when it will be taken away (`notice.json`). It ends, with
everything that runs on the machine, as soon as there is a reason, and leaves the reason behind.

    folder/owner.lock           held by the driver that owns the machines
    folder/head.json            which Ray to join; written by the driver
    folder/start.lock           held by the raylet that is being started
    folder/<name>/order.json    what was asked for; written by the driver
    folder/<name>/keeper.json   its process, and as what it joined Ray; written by the keeper
    folder/<name>/notice.json   when it will be taken away; written by the driver
    folder/<name>/raylet.pid    written by the raylet's starter
    folder/<name>/gone.json     why it is gone; written by whoever is first
    folder/<name>/log
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

MARK = "ELASTUNE_MACHINE"
"""Every process of a machine has the machine's mark in its environment: so it is found wherever it has gone."""
NAME_LABEL = "elastune-machine"
JOIN_LABEL = "elastune-join"
"""Of the node in Ray; a machine joins anew for every head, and Ray believes for seconds that a dead node lives."""

TICK_S = 0.1
OWNER_CHECK_S = 1.0
START_LIMIT_S = 600.0
"""They start one after another; the last of many has to wait."""
GOODBYE_S = 1.0
"""A raylet that is told to end in peace takes leave of Ray in a tenth of that."""
KILL_S = 5.0
PR_SET_CHILD_SUBREAPER = 36
RELEASED = "it was released"
TAKEN = "it was taken away at the end of its notice"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    name: str
    devices: int
    boot_s: float
    linger_s: float
    requested_unix_s: float
    mark: str


@dataclass(frozen=True, slots=True)
class Head:
    address: str | None
    cwd: str


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started_ticks: int
    """A pid is given to another process one day; with the time of its start it is not mistaken."""

    def lives(self) -> bool:
        return started_ticks(self.pid) == self.started_ticks


@dataclass(frozen=True, slots=True)
class Keeper(Process):
    join: str | None
    """What the node is labelled with in the Ray that was joined last."""


@dataclass(frozen=True, slots=True)
class Notice:
    gone_at_unix_s: float


@dataclass(frozen=True, slots=True)
class Gone:
    reason: str


# ------------------------------------------------------------------------------------------------------------- files


def write(path: Path, value: Any) -> None:
    """All of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(value)), "utf-8")
    draft.replace(path)


def write_why_gone(folder: Path, reason: str) -> None:
    """The first reason stands; the folder itself may be gone as well."""
    path = folder / f".gone.{os.getpid()}"
    with suppress(FileNotFoundError):
        write(path, Gone(reason))
        with suppress(FileExistsError):
            os.link(path, folder / "gone.json")
        path.unlink()


def read(path: Path, kind: type[T]) -> T | None:
    try:
        return kind(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def last_lines(path: Path, lines: int = 5) -> str:
    try:
        return "\n".join(path.read_text("utf-8", errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def is_taken(folder: Path) -> bool:
    notice = read(folder / "notice.json", Notice)
    return notice is not None and time.time() >= notice.gone_at_unix_s


def is_owned(folder: Path) -> bool:
    try:
        with (folder / "owner.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


# --------------------------------------------------------------------------------------------------------- processes


def started_ticks(pid: int) -> int | None:
    """When the process was started, in ticks since the computer was; None when it has ended."""
    fields = _stat(pid)
    return int(fields[19]) if fields is not None else None


def _stat(pid: int) -> list[str] | None:
    """What Linux says of a living process after its name, from its state on (see proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields if fields[0] not in "ZX" else None


def program(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


def processes(marks: Collection[str]) -> set[int]:
    """Everything that runs on the machines with these marks: what bears the mark, and all that comes from it."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
        if (fields := _stat(pid)) is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            with suppress(OSError):  # it has ended, or belongs to somebody else
                if not wanted.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                    found.add(pid)
    new = found
    while new:
        new = {child for pid in new for child in children.get(pid, ())} - found
        found = found | new
    return found


def kill(marks: Collection[str], within_s: float = KILL_S) -> None:
    """Everything that runs on these machines, except for this process itself; what is being born is caught as well."""
    give_up_s = time.monotonic() + within_s
    while (pids := processes(marks) - {os.getpid()}) and time.monotonic() < give_up_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


# ------------------------------------------------------------------------------------------------------------ keeper


class MachineKeeper:
    """The life of one machine, a tick at a time."""

    def __init__(self, folder: Path) -> None:
        order = read(folder / "order.json", Order)
        assert order is not None, f"no order in {folder}"
        self._folder, self._order = folder, order
        self._head: Head | None = None
        self._starter: subprocess.Popen[bytes] | None = None
        self._start_limit_s = 0.0
        self._raylet: Process | None = None
        self._raylet_status: int | None = None
        self._owned, self._owner_checked_s = True, -OWNER_CHECK_S
        self._alone_since_s: float | None = None
        self._released = False
        signal.signal(signal.SIGTERM, self._release)
        self._tell(join=None)

    def run(self) -> None:
        while (reason := self._tick()) is None:
            time.sleep(TICK_S)
        self._end(reason)

    def _release(self, *_: object) -> None:
        self._released = True

    def _tell(self, join: str | None) -> None:
        ticks = started_ticks(os.getpid())
        assert ticks is not None
        write(self._folder / "keeper.json", Keeper(os.getpid(), ticks, join))

    def _tick(self) -> str | None:
        """One look at the world. Returns why the machine ends, if it does."""
        if is_taken(self._folder):
            return TAKEN
        self._released = self._released or (self._folder / "gone.json").exists()
        if self._released:
            return RELEASED
        if not (self._folder / "order.json").exists():
            return "its folder was removed"
        return self._watch_start() or self._watch_raylet() or self._watch_owner()

    def _watch_start(self) -> str | None:
        if self._starter is None:
            self._reap()
            return None
        status = self._starter.poll()
        with suppress(FileNotFoundError):
            pid = int((self._folder / "raylet.pid").read_text("utf-8"))
            self._raylet = self._raylet or Process(pid, started_ticks(pid) or -1)
        if status is None:
            late = time.monotonic() > self._start_limit_s
            return f"Ray has not started on it within {START_LIMIT_S:g} s" if late else None
        self._starter = None
        if status == 0:
            return None
        if self._head_answers():
            return f"Ray could not be started on it:\n{last_lines(self._folder / 'log')}"
        self._leave()
        return None

    def _watch_raylet(self) -> str | None:
        """Without its raylet a machine is dead, unless the raylet went in peace: with its head, or for the notice."""
        if self._raylet is None or self._raylet.lives():
            return None
        if self._starter is not None:
            self._starter.kill()
            self._starter.wait()
            self._starter = None
        self._reap()
        if not self._head_answers():
            self._leave()
        elif self._raylet_status == 0 and (self._folder / "notice.json").exists():
            self._raylet = None
        else:
            return f"its raylet (process {self._raylet.pid}) died"
        return None

    def _watch_owner(self) -> str | None:
        if self._is_owned():
            self._alone_since_s = None
            head = read(self._folder.parent / "head.json", Head)
            if head is not None and head != self._head and _answers(head.address):
                self._join(head)
            return None
        self._leave()
        if self._alone_since_s is None:
            self._alone_since_s = time.monotonic()
        if time.monotonic() - self._alone_since_s < self._order.linger_s:
            return None
        return f"no driver came for it within {self._order.linger_s:g} s"

    def _is_owned(self) -> bool:
        if time.monotonic() - self._owner_checked_s >= OWNER_CHECK_S:
            self._owned, self._owner_checked_s = is_owned(self._folder.parent), time.monotonic()
        return self._owned

    def _head_answers(self) -> bool:
        return self._head is not None and _answers(self._head.address)

    def _join(self, head: Head) -> None:
        self._leave()
        join = f"{self._order.name}-{os.urandom(8).hex()}"
        self._tell(join)
        labels = f"{NAME_LABEL}={self._order.name},{JOIN_LABEL}={join}"
        turn, pid = self._folder.parent / "start.lock", self._folder / "raylet.pid"
        pid.unlink(missing_ok=True)
        starter = Path(__file__).with_name("raylet.py")
        arguments = [str(head.address), str(self._order.devices), labels, str(turn), str(pid)]
        self._starter = subprocess.Popen([sys.executable, "-P", str(starter), *arguments], cwd=head.cwd)
        self._start_limit_s = time.monotonic() + START_LIMIT_S
        self._raylet_status, self._head = None, head

    def _leave(self) -> None:
        """The head is gone or will not be used again, and so is all that ran under it."""
        if self._starter is not None or self._raylet is not None:
            kill({self._order.mark})
            self._starter = self._raylet = None
        self._head = None

    def _reap(self) -> None:
        """Whose parent has ended is the keeper's child: the raylet too, once its starter has."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if self._raylet is not None and ended[0] == self._raylet.pid:
                    self._raylet_status = ended[1]

    def _end(self, reason: str) -> None:
        write_why_gone(self._folder, reason)
        if self._released and self._raylet is not None:
            self._say_goodbye(self._raylet)
        kill({self._order.mark})

    def _say_goodbye(self, raylet: Process) -> None:
        """Ray learns at once that the node is gone; it takes seconds to find out about one that is killed."""
        give_up_s = time.monotonic() + GOODBYE_S
        with suppress(ProcessLookupError):
            os.kill(raylet.pid, signal.SIGTERM)
        while raylet.lives() and time.monotonic() < give_up_s:
            time.sleep(0.02)


def _answers(address: str | None) -> bool:
    if address is None:
        return False
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    MachineKeeper(Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
