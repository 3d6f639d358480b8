"""Where the workers of a trial leave their addresses for each other, so that PyTorch can connect them.

PyTorch's own TCPStore asks the name server for the names of all who connect, only to have them for its log: a question
that is lost costs five seconds. And one who comes before the store is open waits for half a second.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from torch.distributed import Store  # type: ignore[attr-defined]

from elastune.worker.wire import Wire

RETRY_S = 0.001


class _Ask(msgspec.Struct, frozen=True, array_like=True):
    what: str
    keys: list[str]
    value: bytes = b""


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Ask).decode


class _Board:
    """The notes, at rank 0. Who asks for one that is not there waits for it."""

    def __init__(self, timeout_s: float) -> None:
        self._notes: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._timeout_s = timeout_s

    def answer(self, ask: _Ask) -> bytes:
        with self._changed:
            match ask.what:
                case "set":
                    self._notes[ask.keys[0]] = ask.value
                    self._changed.notify_all()
                case "add":
                    self._notes[ask.keys[0]] = b"%d" % (int(self._notes.get(ask.keys[0], b"0")) + int(ask.value))
                    self._changed.notify_all()
                    return self._notes[ask.keys[0]]
                case "get":
                    self._wait(ask.keys)
                    return self._notes[ask.keys[0]]
                case "wait":
                    self._wait(ask.keys)
                case "check":
                    return b"+" if self._notes.keys() >= set(ask.keys) else b""
                case "delete":
                    return b"+" if self._notes.pop(ask.keys[0], None) is not None else b""
        return b""

    def _wait(self, keys: list[str]) -> None:
        if not self._changed.wait_for(lambda: self._notes.keys() >= set(keys), self._timeout_s):
            raise TimeoutError(f"a worker of the trial was not heard of for {self._timeout_s:g} s")

    def serve(self, peer: socket.socket) -> None:
        wire = Wire(peer)
        with suppress(OSError, EOFError, msgspec.DecodeError), peer:
            while True:
                for frame in wire.receive(wait=True):
                    wire.send(self.answer(_decode(frame)))


class MeetingPoint(Store):
    """The store of one process group: rank 0 keeps it, the others ask for it over TCP."""

    def __init__(self, address: tuple[str, int], is_host: bool, timeout: timedelta) -> None:
        super().__init__()
        self._timeout_s = timeout.total_seconds()
        self._lock = threading.Lock()
        self._board, self._wire = None, None
        self._guests: list[socket.socket] = []
        if is_host:
            self._board = _Board(self._timeout_s)
            self._socket = socket.create_server(address)
            threading.Thread(target=_welcome, args=(self._socket, self._board, self._guests), daemon=True).start()
        else:
            self._socket = _connect(address, self._timeout_s)
            self._wire = Wire(self._socket)

    def close(self) -> None:
        for each in (self._socket, *self._guests):
            with suppress(OSError):  # wakes who waits in it, which closing does not
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def set(self, key: str, value: Any) -> None:
        self._ask("set", [key], value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._ask("get", [key])

    def add(self, key: str, value: int) -> int:
        return int(self._ask("add", [key], b"%d" % value))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._ask("wait", list(keys))

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", list(keys)))

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete", [key]))

    def _ask(self, what: str, keys: list[str], value: bytes = b"") -> bytes:
        ask = _Ask(what, keys, value)
        if self._board is not None:
            return self._board.answer(ask)
        assert self._wire is not None
        with self._lock:
            self._wire.send(_encode(ask))
            (answer,) = self._wire.receive(wait=True)
        return answer


def _welcome(listener: socket.socket, board: _Board, guests: list[socket.socket]) -> None:
    with suppress(OSError):
        while True:
            guest, _ = listener.accept()
            guests.append(guest)
            threading.Thread(target=board.serve, args=(guest,), daemon=True).start()


def _connect(address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Rank 0 may open the store later than we come."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection = socket.create_connection(address, timeout=timeout_s)
            connection.settimeout(timeout_s)
            return connection
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
