"""Streams from S3."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from tests.s3 import BUCKET, Environ, s3_server

import elastune as et


@pytest.mark.slow
def test_a_stream_from_s3_reads_what_was_written_also_when_the_store_fails_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with s3_server(monkeypatch) as server:
        url = f"s3://{BUCKET}/digits"
        assert et.data.write(({"n": n, "x": np.full(50, n)} for n in range(100)), url, shard_bytes=5000) == 100
        left = [8]

        def fault(environ: Environ) -> str | None:
            if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".shard") and left[0]:
                left[0] -= 1
                return "503 Slow Down"
            return None

        server.fault = fault
        stream = et.data.Stream(url, cache=tmp_path)
        order = stream.stretch(0, 0, 100)
        batch = stream.read(order)
        assert left[0] == 0
        assert batch["n"].tolist() == order.tolist() == batch["x"][:, 7].tolist()
        gets = [path for method, path in server.requests if method == "GET" and path.endswith(".shard")]
        server.requests.clear()
        assert et.data.Stream(url, cache=tmp_path).read(order)["n"].tolist() == order.tolist()
        assert gets and not [path for method, path in server.requests if method == "GET" and path.endswith(".shard")]
