"""Server-sent events: what has changed arrives, a stream ends with its job, and many of them hold nobody up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.service.made_jobs import Made, simulated

from elastune.service import live
from elastune.service.app import create_app
from elastune.service.jobs import Job, finish, move

STREAMS, JOBS = 200, 10


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Over HTTP, from a thread: a test client does not stream."""
    with socket.create_server(("127.0.0.1", 0), backlog=STREAMS) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    made = Made.in_folder(tmp_path)
    yield made
    made.service.database.close()


def end(made: Made, job: Job) -> None:
    with made.service.database.write() as connection:
        finish(connection, job.id, "succeeded", "all trials are done")
        move(connection, job.id, "succeeded", "all trials are done", ended_at=time.time())


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def client_of(made: Made, url: str) -> httpx.AsyncClient:
    headers, limits = {"Authorization": f"Bearer {made.token('a')}"}, httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=30)


def test_a_stream_tells_what_has_changed_and_ends_with_the_job(made: Made) -> None:
    records = simulated()
    made.token("a")
    job = made.job("a")
    made.wrote(job, records[:100])
    app = create_app(made.service)

    async def watch(url: str) -> list[tuple[str, Any]]:
        seen = []
        async with client_of(made, url) as client, client.stream("GET", f"/jobs/{job.id}/events") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            async for event in events(response):
                seen.append(event)
                if len(seen) == 1:
                    made.wrote(job, records[100:])
                elif event[1].get("status") == "succeeded" and event[1]["state"] == "running":
                    end(made, job)
        return seen

    with served(app) as url:
        seen = asyncio.run(watch(url))
    assert [name for name, _ in seen] == ["progress"] * (len(seen) - 1) + ["end"]
    told = [data for _, data in seen[:-1]]
    assert told[0]["seconds"] == records[99].at_s and told[-1]["seconds"] == records[-1].at_s
    assert told[-1]["state"] == "succeeded" and all(before != after for before, after in pairwise(told))
    assert app.state.live.watched == 0


def test_the_stream_of_all_jobs_tells_of_new_ones_and_nobody_elses(made: Made) -> None:
    for tenant in ("a", "b"):
        made.token(tenant)
    made.job("b", "theirs")
    app = create_app(made.service)

    async def watch(url: str) -> list[list[str]]:
        seen: list[list[str]] = []
        async with client_of(made, url) as client, client.stream("GET", "/jobs/events") as response:
            async for name, data in events(response):
                assert name == "jobs"
                seen.append([job["name"] for job in data["jobs"]])
                if len(seen) == 2:
                    return seen
                made.job("a", "mine", "queued")
        raise AssertionError("the stream has ended")

    with served(app) as url:
        assert asyncio.run(watch(url)) == [[], ["mine"]]


@pytest.mark.timeout(60)
def test_a_stream_is_cut_off_when_its_token_was_revoked(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STILL_THERE_S", 0.1)
    made.token("a")
    tenants, app = made.service.tenants, create_app(made.service)

    async def watch(url: str) -> list[str]:
        async with client_of(made, url) as client, client.stream("GET", "/jobs/events") as response:
            seen = []
            async for line in response.aiter_lines():
                seen.append(line)
                if seen.count(": still there") == 2:  # it was valid until then
                    for token in tenants.tokens("a"):
                        tenants.revoke(token.id)
            return seen

    with served(app) as url:
        seen = asyncio.run(watch(url))
    assert seen.count(": still there") >= 2 and "event: end" not in seen
    assert app.state.live.watched == 0


def test_what_cannot_be_read_now_is_told_soon_after_also_when_looking_has_to_wait(made: Made) -> None:
    looks: Iterator[Any] = iter([OSError("no database"), live.Look("1"), live.Look("1"), live.Look("2", over=True)])

    def look() -> live.Look:
        found = next(looks)
        time.sleep(0.1)  # for the database, or for others who look
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, live.Look)
        return found

    async def watch() -> list[str]:
        return [text async for text in live.Live().watch("x", "number", look)][1:]

    begin_s = time.monotonic()
    told = asyncio.run(watch())
    assert time.monotonic() - begin_s < 2.0
    assert told == [
        "event: number\ndata: 1\n\n",
        "event: number\ndata: 2\n\n",
        "event: end\ndata: {}\n\n",
    ]


def test_many_streams_hold_nobody_up_and_leave_nothing_behind(made: Made) -> None:
    records = simulated()
    made.token("a")
    jobs = [made.job("a") for _ in range(JOBS)]
    for job in jobs:
        made.wrote(job, records[:100])
    app = create_app(made.service)

    async def watch_all(url: str) -> tuple[list[str], list[float]]:
        opened, waits = asyncio.Semaphore(0), []

        async def watch(client: httpx.AsyncClient, job: Job) -> str:
            last = ""
            async with client.stream("GET", f"/jobs/{job.id}/events") as response:
                async for name, _ in events(response):
                    if not last:
                        opened.release()
                    last = name
            return last

        async with client_of(made, url) as client:
            watchers = [asyncio.create_task(watch(client, jobs[number % JOBS])) for number in range(STREAMS)]
            for _ in range(STREAMS):
                await opened.acquire()
            for _ in range(20):
                begin_s = time.monotonic()
                assert (await client.get("/jobs")).status_code == 200
                waits.append(time.monotonic() - begin_s)
            assert app.state.live.watched == JOBS  # who watches the same shares a poller
            for job in jobs:
                end(made, job)
            return list(await asyncio.gather(*watchers)), waits

    with served(app) as url:
        last, waits = asyncio.run(watch_all(url))
    assert last == ["end"] * STREAMS and sorted(waits)[10] < 0.5
    assert app.state.live.watched == 0
