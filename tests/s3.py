"""An S3 server on this computer, whose requests can be held up or spoilt."""

from __future__ import annotations

import io
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"
Environ = dict[str, Any]
Answer = Callable[..., Any]


class S3Server:
    """`fault` is asked about every request: it may wait, change the request, or give the status of an error."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._handle, threaded=True, request_handler=MotoRequestHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[Environ], str | None] = lambda environ: None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _handle(self, environ: Environ, start_response: Answer) -> Any:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if error := self.fault(environ):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(error, [("Content-Length", "0")])
            return []
        return self._app(environ, start_response)

    def forget(self) -> None:
        """Its objects would outlive it in this process."""
        urllib.request.urlopen(f"{self.url}/moto-api/reset", data=b"").close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """With a bucket in it; this process and its children find it by their environment."""
    server = S3Server()
    server.forget()
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    fs.clear_instance_cache()  # those of a server before
    fs.mkdir(BUCKET)
    try:
        yield server
    finally:
        fs.clear_instance_cache()
        server.close()


def changed(environ: Environ) -> None:
    """The body of a request with its last bit turned over, as a bad cable might."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body[:-1] + bytes([body[-1] ^ 1]))
