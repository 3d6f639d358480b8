"""One authenticated connection between the driver and a worker: frames of a length and a body, in order.

Ray places and watches the processes; what they say to each other goes straight over TCP, because a message through
an actor call costs a hundred times as much.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct

import msgspec

from elastune.messages import AnyEvent, PauseTrial, ResizeTrial, StartTrial, StopTrial

_LENGTH = struct.Struct("!I")
_CHUNK = 1 << 16
NONCE_BYTES = 32
LONGEST_HELLO = 1 << 14


class Hello(msgspec.Struct, frozen=True):
    """The worker's first frame: who it is, and that it knows the run's secret."""

    proof: bytes
    launch: int
    port: int = 0
    """Where it listens for the other members of a gang that it leads."""
    error: str = ""


class Begin(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """Start a trial, or go on with it, as one of its members.

    Every gathering of workers for a trial has a number, and knows that of the one before it: a worker that was in that
    one still has the trial's state in memory. `state` names it for the others, where it is not the checkpoint. The time
    at which the command says that the run is over is `until_unix_s` on the clocks of all.
    """

    command: StartTrial
    rank: int
    leader: tuple[str, int]
    gathering: int
    after: int = 0
    state: bytes = b""
    until_unix_s: float | None = None


class Hurry(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """The trial is told to pause, and killed if it has not left by then: a worker may read that late, and must know how
    much time is left.
    """

    trial: str
    attempt: int
    by_unix_s: float


class Said(msgspec.Struct, frozen=True, array_like=True):
    """All that a worker ever says: events that belong together; none: it has begun what it was told to begin."""

    gathering: int
    events: tuple[AnyEvent, ...] = ()
    state: bytes = b""
    """With TrialResized: where the trial's state can be fetched."""
    worn: str = ""
    """With the end of a trial: why this process should not run another."""


Order = Begin | ResizeTrial | PauseTrial | StopTrial
ToWorker = Order | Hurry


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_said = msgspec.msgpack.Decoder(Said).decode
decode_command = msgspec.msgpack.Decoder(ToWorker).decode


def proof(secret: bytes, nonce: bytes) -> bytes:
    return hmac.new(secret, nonce, hashlib.sha256).digest()


class Wire:
    """Frames over a socket. Writing blocks, reading does when it is told to."""

    def __init__(self, sock: socket.socket, longest: int = 1 << 31) -> None:
        self.sock = sock
        self.longest = longest
        self._buffer = bytearray()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, body: bytes) -> None:
        self.sock.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, wait: bool) -> list[bytes]:
        """All frames that have arrived; with `wait`, at least one. EOFError when the other side is gone."""
        while True:
            frames = self._frames() if wait else []
            if frames:
                return frames
            try:
                chunk = self.sock.recv(_CHUNK, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return self._frames()
            except OSError as error:
                chunk, reason = b"", str(error)
            else:
                reason = "the connection was closed"
            if not chunk:
                if frames := self._frames():
                    return frames  # what came before the end counts; the next call tells of the end
                raise EOFError(reason)
            self._buffer += chunk
            if len(self._buffer) > self.longest + _CHUNK:
                raise EOFError("more than the longest frame has come")
            if not wait and len(chunk) < _CHUNK:
                return self._frames()

    def close(self) -> None:
        self.sock.close()

    def _frames(self) -> list[bytes]:
        frames: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > self.longest:
                raise EOFError(f"a frame of {length} bytes is too long")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return frames
