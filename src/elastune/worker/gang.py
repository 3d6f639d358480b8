"""The members of a trial that runs in several processes, tied together.

Rank 0 alone hears the driver. At every report it tells the others whether all go on, so that all stop at the same
one. In training that exchanges gradients the ranks keep step anyway, and waiting for a byte costs next to nothing.
"""

from __future__ import annotations

import hmac
import socket
import struct
from contextlib import suppress

from elastune.worker import wire

FORM_S = 60.0
"""How long members wait for each other; a member that died by then is noticed by the driver."""
_PORT = struct.Struct("!H")
GO_ON, STEP_ASIDE, LEAVE = b"+", b"=", b"-"


class Gang:
    """What one member holds of it: rank 0 a connection to each of the others, the others one to rank 0."""

    def __init__(self, peers: list[socket.socket], master: tuple[str, int]) -> None:
        self._peers, self.master = peers, master

    def tell(self, word: bytes) -> None:
        for peer in self._peers:
            with suppress(OSError):  # who is gone is noticed by the driver
                peer.sendall(word)

    def hear(self) -> bytes:
        try:
            return self._peers[0].recv(1) or LEAVE
        except OSError:
            return LEAVE

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def form(begin: wire.Begin, listener: socket.socket, secret: bytes) -> Gang:
    """Meet the other members. All that a framework needs to set up its own connections is a free port at rank 0."""
    key = f"{begin.command.trial} {begin.gathering}".encode()
    if begin.rank > 0:
        return _join(begin, key, secret)
    host = listener.getsockname()[0]
    with socket.create_server((host, 0)) as probe:
        port = probe.getsockname()[1]
    peers: list[socket.socket] = []
    listener.settimeout(FORM_S)
    while len(peers) < len(begin.command.slots) - 1:
        peer, _ = listener.accept()
        peer.settimeout(FORM_S)
        nonce = hmac.new(secret, key, "sha256").digest()
        with suppress(OSError):
            if hmac.compare_digest(_exactly(peer, len(nonce)), nonce):
                peer.sendall(_PORT.pack(port))
                peer.settimeout(None)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers.append(peer)
                continue
        peer.close()  # of an older gang, or a stranger
    return Gang(peers, (host, port))


def _join(begin: wire.Begin, key: bytes, secret: bytes) -> Gang:
    peer = socket.create_connection(begin.leader, timeout=FORM_S)
    peer.sendall(hmac.new(secret, key, "sha256").digest())
    (port,) = _PORT.unpack(_exactly(peer, _PORT.size))
    peer.settimeout(None)
    return Gang([peer], (begin.leader[0], port))


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            raise OSError("the other side has hung up")
        data += chunk
    return data
