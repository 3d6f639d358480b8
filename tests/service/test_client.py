"""The client, while the service is away: a server that answers as a proxy before it would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from elastune.service import client as module
from elastune.service.client import RETRIES, Client, ServiceError


class Proxy(ThreadingHTTPServer):
    """Says these in turn, and the last of them again and again."""

    def __init__(self) -> None:
        self.says: list[tuple[int, dict[str, Any]]] = []
        self.asked = 0
        super().__init__(("127.0.0.1", 0), Answers)

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.server_address[1]}", "token")


class Answers(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self.server.asked += 1
        status, body = self.server.says.pop(0) if len(self.server.says) > 1 else self.server.says[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    with Proxy() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


ENDED = (200, {"id": "job-1", "state": "succeeded", "reason": ""})


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_service_that_is_started_again_behind_a_proxy_is_waited_for(proxy: Proxy, status: int) -> None:
    proxy.says = [(200, {**ENDED[1], "state": "running"}), *[(status, {"error": "away"})] * 3 * RETRIES, ENDED]
    assert proxy.client().wait("job-1", every_s=0.0)["state"] == "succeeded"


def test_a_submission_is_sent_again_while_a_proxy_finds_no_service(proxy: Proxy) -> None:
    proxy.says = [(502, {}), (503, {}), ENDED]
    assert proxy.client().submit({"trainable": "a:b"})["id"] == "job-1"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("gone", [True, False])
def test_who_waits_only_so_long_does_so_also_for_a_service_that_is_away(proxy: Proxy, gone: bool) -> None:
    proxy.says = [(503, {"error": "the database cannot be reached"})]
    if gone:
        proxy.server_close()
    with pytest.raises(ServiceError, match="cannot be reached"):
        proxy.client().wait("job-1", timeout_s=0.05)


def test_a_refusal_is_told_at_once(proxy: Proxy) -> None:
    proxy.says = [(404, {"error": "there is no job"})]
    with pytest.raises(ServiceError, match="there is no job"):
        proxy.client().wait("job-1")
    assert proxy.asked == 1
