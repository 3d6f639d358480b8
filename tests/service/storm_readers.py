"""Readers of a service under load: they ask for what the pages of the portal ask for, of jobs of random tenants."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx

READERS, PER_SECOND = 4, 50
"""So many readers, and so many requests of all of them together, at most."""
OF_TENANT = ("/overview?limit=100", "/jobs?limit=50", "/jobs/events", "/me")
OF_JOB = ("", "/events", "/progress", "/curves", "/trials?limit=200", "/best", "/logs?of=build", "/logs?of=driver")
OF_TRIAL = "/jobs/JOB/trials/TRIAL"
MAY_BE_MISSING = ("/jobs/JOB/best",)
"""Before a trial has reported."""


class Readings:
    """How long answers took, by route."""

    def __init__(self) -> None:
        self._ms: dict[str, list[float]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, route: str, took_ms: float) -> None:
        with self._lock:
            self._ms[route].append(took_ms)

    @property
    def count(self) -> int:
        return sum(len(each) for each in self._ms.values())

    def percentile_ms(self, part: float, route: str | None = None) -> float:
        chosen = self._ms.values() if route is None else [self._ms[route]]
        ordered = sorted(ms for each in chosen for ms in each)
        return ordered[int(part * (len(ordered) - 1))] if ordered else float("nan")

    def table(self) -> dict[str, dict[str, float]]:
        """By route: how many answers there were, the median and the 99th percentile."""
        return {
            route: {
                "reads": len(self._ms[route]),
                "p50_ms": round(self.percentile_ms(0.5, route), 1),
                "p99_ms": round(self.percentile_ms(0.99, route), 1),
            }
            for route in sorted(self._ms)
        }


class Reader:
    """One of them. `answers` says whether the service has been up for long enough for answers to count."""

    def __init__(self, url: str, tokens: list[str], answers: Callable[[], bool], seed: int) -> None:
        self._url, self._tokens, self._answers = f"{url}/api/v1", tokens, answers
        self._rng = random.Random(seed)
        self._jobs: dict[str, list[dict[str, Any]]] = {}
        self._trials: dict[str, list[str]] = {}

    def read(self, readings: Readings, problems: list[str], over: threading.Event) -> None:
        """As fast as the answers come, but not faster than its part of all."""
        with httpx.Client(timeout=30.0) as http:
            while not over.wait(READERS / PER_SECOND):
                token = self._rng.choice(self._tokens)
                route, job, trial = self._choose(token)
                if not self._answers():
                    continue
                path, begin_s = route.replace("JOB", job).replace("TRIAL", trial), time.monotonic()
                try:
                    status, body = self._get(http, path, token)
                except httpx.TransportError:
                    continue  # it was killed meanwhile
                readings.add(route, 1000 * (time.monotonic() - begin_s))
                if status == 200:
                    self._learn(route, token, job, body)
                elif status != 404 or route not in MAY_BE_MISSING:
                    problems.append(f"{path}: {status} {body}")

    def _choose(self, token: str) -> tuple[str, str, str]:
        """A route, a job, and a trial of it, as far as they are known: as often one that runs as one that has ended."""
        known = self._jobs.get(token, [])
        groups = [[job["id"] for job in known if job["state"] == state] for state in ("running", "succeeded")]
        jobs = self._rng.choice([group for group in groups if group] or [[job["id"] for job in known]])
        if not jobs:
            return OF_TENANT[0], "", ""
        job = self._rng.choice(jobs)
        routes = [*OF_TENANT, *(f"/jobs/JOB{each}" for each in OF_JOB)]
        trials = self._trials.get(job, [])
        route = self._rng.choice([*routes, OF_TRIAL] if trials else routes)
        return route, job, self._rng.choice(trials) if trials else ""

    def _get(self, http: httpx.Client, path: str, token: str) -> tuple[int, Any]:
        """Of a stream of events: until the first of them is there."""
        headers = {"Authorization": f"Bearer {token}"}
        if not path.endswith("/events"):
            response = http.get(self._url + path, headers=headers)
            return response.status_code, response.json()
        with http.stream("GET", self._url + path, headers=headers) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    return stream.status_code, line
            return stream.status_code, "it ended without an event"

    def _learn(self, route: str, token: str, job: str, body: Any) -> None:
        if route == OF_TENANT[0]:
            self._jobs[token] = body["jobs"]
        elif "/trials?" in route:
            self._trials[job] = [trial["trial"] for trial in body["trials"]]
