"""The client, while the service is away: a server that answers as a proxy before it would."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner

from elastune.cli import main
from elastune.errors import SpecError, StorageError
from elastune.service import client as module
from elastune.service.client import RETRIES, Client, ServiceError

LOST = 0
"""The request arrives, and the connection breaks before its answer."""


class Proxy(ThreadingHTTPServer):
    """Says these in turn, and the last of them again and again."""

    def __init__(self) -> None:
        self.says: list[tuple[int, dict[str, Any]]] = []
        self.asked = 0
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        super().__init__(("127.0.0.1", 0), Answers)

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.server_address[1]}", "token")


class Answers(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers.get("Idempotency-Key"))
        status, body = self.server.says.pop(0) if len(self.server.says) > 1 else self.server.says[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if status == LOST:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Disposition", 'attachment; filename="a-1.pkl"')
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    do_POST = do_DELETE = do_GET

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


@pytest.mark.parametrize("status", [LOST, 502])
def test_what_would_be_done_twice_is_sent_once(proxy: Proxy, status: int) -> None:
    proxy.says = [(status, {}), (201, {"secret": "a second one"})]
    with pytest.raises(ServiceError):
        proxy.client().request("POST", "/tenants/a/tokens", json={"role": "member"})
    assert proxy.asked == 1


def test_what_has_not_arrived_is_sent_again(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    client, tried = proxy.client(), list[str]()

    def request(method: str, path: str, **_: Any) -> httpx.Response:
        tried.append(path)
        if len(tried) == 1:
            raise httpx.ConnectError("refused")
        return httpx.Response(201, json={"id": "a"})

    monkeypatch.setattr(client._http, "request", request)
    assert client.request("POST", "/tenants", json={"id": "a"}) == {"id": "a"} and len(tried) == 2


@pytest.mark.parametrize("status", [LOST, 502])
def test_what_was_deleted_though_the_answer_was_lost_is_done(proxy: Proxy, status: int) -> None:
    proxy.says = [(status, {}), (404, {"error": "there is no job"})]
    proxy.client().delete("job-1")
    assert proxy.asked == 2


def test_deleting_what_is_not_there_is_refused(proxy: Proxy) -> None:
    proxy.says = [(404, {"error": "there is no job"})]
    with pytest.raises(ServiceError, match="there is no job"):
        proxy.client().delete("job-1")


@pytest.mark.parametrize(("limit", "asked"), [(None, [1000, 1000]), (1200, [1000, 200])])
def test_trials_are_asked_for_page_by_page(proxy: Proxy, limit: int | None, asked: list[int]) -> None:
    pages = [[{"trial": str(number)} for number in range(start, stop)] for start, stop in ((0, 1000), (1000, 1200))]
    proxy.says = [(200, {"trials": page, "total": 1200}) for page in pages]
    assert [each["trial"] for each in proxy.client().trials("job-1", limit)] == [str(number) for number in range(1200)]
    assert [path.partition("?")[2] for path in proxy.paths] == [
        f"offset={offset}&limit={number}" for offset, number in zip((0, 1000), asked, strict=True)
    ]


@pytest.mark.parametrize("name", ["", "..", "../jobs", "job-1?x=1", "job-1#", "a b", "a%2Fb"])
@pytest.mark.parametrize(
    "ask", ["job", "cancel", "delete", "rerun", "experiment", "progress", "trials", "best", "download"]
)
def test_a_name_that_would_lead_to_something_else_is_refused(proxy: Proxy, ask: str, name: str) -> None:
    proxy.says = [ENDED]
    with pytest.raises(SpecError, match=re.escape(f"={name!r}: must be a name")):
        getattr(proxy.client(), ask)(name)
    assert not proxy.asked


def test_what_is_no_text_and_no_path_is_refused_by_name(proxy: Proxy) -> None:
    client, none = proxy.client(), cast(str, None)
    with pytest.raises(SpecError, match="job=None: must be a name"):
        client.best(none)
    with pytest.raises(SpecError, match="experiment=None: must be a path"):
        client.submit(none)
    with pytest.raises(SpecError, match="code=5: must be a path"):
        client.submit({}, code=cast(str, 5))
    assert not proxy.asked


@pytest.mark.parametrize("given", ["http://127.0.0.1:abc", "", "ftp://127.0.0.1", "http://", "127.0.0.1:abc"])
def test_what_is_no_address_is_refused(given: str) -> None:
    told = CliRunner().invoke(main, ["login", given, "--token", "token"])
    assert told.exit_code == 2 and f"service={given!r}: " in told.output and "Traceback" not in told.output


def test_an_address_needs_no_http(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    proxy.says = [(200, {"tenant": {"id": "vision"}, "role": "member", "jobs": []})]
    host = proxy.client().url.removeprefix("http://")
    assert CliRunner().invoke(main, ["login", f"{host}/", "--token", "token\n"]).exit_code == 0
    assert Client(host).jobs() == Client(f"http://{host}").jobs() == []


@pytest.mark.parametrize("token", ["tök", "a\nb"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SpecError, match=r"token=\.\.\.: must be printable ASCII"):
        Client("http://127.0.0.1:1", token)


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", " a"])
def test_a_key_that_cannot_be_sent_is_refused_before_anything_is_sent(proxy: Proxy, key: str) -> None:
    client = proxy.client()
    with pytest.raises(SpecError, match=r"Idempotency-Key=.*: must be printable ASCII"):
        client.submit({"trainable": "a:b"}, key=key)
    with pytest.raises(SpecError, match=r"Idempotency-Key=.*: must be printable ASCII"):
        client.rerun("job-1", key)
    assert not proxy.asked


def test_an_empty_key_is_not_replaced_by_another(proxy: Proxy) -> None:
    proxy.says = [ENDED]
    proxy.client().submit({"trainable": "a:b"}, key="")
    proxy.client().rerun("job-1", key="")
    assert proxy.keys == ["", ""]


def test_a_token_that_is_not_accepted_says_what_to_do(proxy: Proxy) -> None:
    proxy.says = [(401, {"error": "give a token that is valid: Authorization: Bearer elt_..."})]
    with pytest.raises(ServiceError, match="log in with `elastune login URL`"):
        proxy.client().jobs()


@pytest.mark.parametrize("out", ["nowhere/best.pkl", "folder", "folder/..", "folder/file/best.pkl"])
def test_a_download_that_cannot_be_written_says_so(proxy: Proxy, tmp_path: Path, out: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    proxy.says = [(200, {})]
    with pytest.raises(StorageError, match=re.escape(f"{out}: cannot be written")):
        proxy.client().download("job-1", tmp_path / out)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_download_goes_to_a_path_that_is_a_text(proxy: Proxy, tmp_path: Path) -> None:
    proxy.says = [(200, {})]
    assert proxy.client().download("job-1", str(tmp_path / "best.pkl")) == tmp_path / "best.pkl"
    assert (tmp_path / "best.pkl").read_text() == "{}"


def test_an_experiment_is_not_said_to_be_missing_while_the_service_is_away(proxy: Proxy) -> None:
    proxy.says = [(404, {"error": "there is no experiment"}), (503, {"error": "try again"})]
    with pytest.raises(ServiceError, match="try again"):
        proxy.client().experiment("job-1")


@pytest.mark.parametrize(("cancelling", "told"), [(False, "running\n"), (True, "running: it is being cancelled\n")])
def test_the_status_of_a_job_that_is_being_cancelled_says_so(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, cancelling: bool, told: str
) -> None:
    monkeypatch.setenv("ELASTUNE_SERVICE", proxy.client().url)
    monkeypatch.setenv("ELASTUNE_TOKEN", "token")
    known = {"state": "running", "reason": "", "cancelling": cancelling, "trials": {}, "fraction": None, "best": None}
    proxy.says = [(200, {**known, "seconds": 1.0, "cost_usd": 0.0})]
    result = CliRunner().invoke(main, ["status", "line-1"])
    assert result.output.startswith(f"line-1: {told}")
