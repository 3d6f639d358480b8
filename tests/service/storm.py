"""Many jobs of many tenants by many clients at once, on a real service that is killed again and again.

`python -m tests.service.storm --jobs 1000 --tenants 50 --clients 20 --kills 50` is the soak. What must hold is read
from the database and the journals afterwards: each job ran once, no quota was ever exceeded. Those of storage and money
are so tight for some tenants that they are refused, and wait, until they are given more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from tests.service.storm_quotas import (
    MAX_DEVICES,
    MAX_RUNNING,
    STORAGE,
    USD_PER_HOUR,
    Past,
    Quotas,
    overspent,
    overstored,
)
from tests.service.storm_readers import READERS, Reader, Readings

from elastune import messages as m
from elastune.record.journal import SqlJournal
from elastune.service.client import Client, ServiceError
from elastune.service.database import ServiceDatabase
from elastune.service.states import ENDED
from elastune.service.tables import DRIVERS, GRANTS, HISTORY, JOBS

TRAIN = """
import elastune as et

def train(config):
    for i in range(2):
        et.report({"loss": (config["x"] - 0.3) ** 2 + 1 / (i + 1)}, checkpoint=lambda: i)
"""
SPEC: dict[str, Any] = {
    "name": "noop",
    "trainable": "train.py:train",
    "space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 2, "R": 2}},
}
SLOW = 2.0
"""How long the service may take to come up again, before reads are expected to be answered."""


@dataclass
class Outcome:
    jobs: int = 0
    ended_once: int = 0
    ran_once: int = 0
    quota_violations: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """How often a quota had to be raised for jobs to go on, by its name."""
    readings: Readings = field(default_factory=Readings)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Running:
    """The service as a process that can be killed and started again."""

    def __init__(self, home: Path, devices: int, database: str | None = None, more: Sequence[str] = ()) -> None:
        self.home, self._devices, self._database, self._more = home, devices, database, more
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.up_since_s = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "elastune", "serve", "--home", str(self.home), "--port", str(self.port)]
        command += ["--devices", str(self._devices), *self._more]
        command += [] if self._database is None else ["--database", self._database]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.home.parent / "config")}
        with (self.home.parent / f"serve-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        give_up_s = time.monotonic() + 120.0
        while time.monotonic() < give_up_s:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/healthz").status_code == 200:
                    self.up_since_s = time.monotonic()
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError((self.home.parent / f"serve-{self.port}.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.up_since_s = 0.0
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(120.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    @property
    def database(self) -> ServiceDatabase:
        return ServiceDatabase(self._database or str(self.home / "service.db"))

    def admin(self) -> Client:
        return Client(self.url, (self.home / "admin-token").read_text().strip())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(folder: Path, devices: int, database: str | None = None, more: Sequence[str] = ()) -> Iterator[Running]:
    (folder / "home").mkdir(parents=True, exist_ok=True)
    service = Running(folder / "home", devices, database, more)
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.stop()
        kill_drivers(service)


def kill_drivers(service: Running) -> int:
    """All of them, by their processes; how many there were."""
    database = service.database
    with database.read() as connection:
        pids = [pid for pid in connection.execute(sa.select(DRIVERS.c.pid)).scalars() if pid is not None]
    database.close()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def make_tenants(service: Running, quotas: Quotas) -> list[str]:
    """Their tokens."""
    admin, tokens = service.admin(), []
    for tenant in quotas.past:
        admin.request("POST", "/tenants", json={"id": tenant, **quotas.of(tenant)})
        tokens.append(admin.request("POST", f"/tenants/{tenant}/tokens", json={"role": "member"})["secret"])
    return tokens


def storm(folder: Path, jobs: int, tenants: int, clients: int, kills: int, devices: int, seed: int = 0) -> Outcome:
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "train.py").write_text(TRAIN)
    outcome, began_s, quotas = Outcome(jobs), time.monotonic(), Quotas(tenants)
    with running(folder, devices, more=("--price", f"${USD_PER_HOUR}")) as service:
        tokens, over = make_tenants(service, quotas), threading.Event()
        todo, sent_at = list(range(jobs)), dict[str, float]()
        submits = (service, tokens, code, todo, quotas, sent_at)
        threads = [threading.Thread(target=_submit, args=submits) for _ in range(clients)]
        threads.append(threading.Thread(target=quotas.give_money, args=(service.database, service.admin, over)))
        threads += _readers(service, tokens, outcome, over)
        threads.append(threading.Thread(target=_kill, args=(service, kills, jobs, random.Random(seed), outcome, over)))
        for thread in threads:
            thread.start()
        for thread in threads[:clients]:
            thread.join()
        _wait_for_all(service, jobs)
        over.set()
        for thread in threads:
            thread.join()
        outcome.seconds = time.monotonic() - began_s
        audit(service, outcome)
        audit_quotas(service, outcome, quotas, sent_at)
    return outcome


def _submit(
    service: Running, tokens: list[str], code: Path, todo: list[int], quotas: Quotas, sent_at: dict[str, float]
) -> None:
    """One client after another submission, each with a key: whatever happens to the answer, it is one job. `sent_at`
    says when it was first sent, after it was last refused.
    """
    while True:
        try:
            number = todo.pop()
        except IndexError:
            return
        key, tenant = f"job-{number}", number % len(tokens)
        client, sent_at[key] = Client(service.url, tokens[tenant]), time.time()
        while True:
            try:
                client.submit({**SPEC, "seed": number}, code, key=key)
                break
            except ServiceError as error:
                if error.status == 409 and "its quota" in str(error):
                    quotas.raise_(service.admin(), f"t{tenant}", STORAGE, sent_at[key])
                    sent_at[key] = time.time()
                elif error.status is not None:
                    raise
                time.sleep(0.2)


def _readers(service: Running, tokens: list[str], outcome: Outcome, over: threading.Event) -> list[threading.Thread]:
    def answers() -> bool:
        return service.up_since_s != 0.0 and time.monotonic() - service.up_since_s > SLOW

    readers = [Reader(service.url, tokens, answers, seed) for seed in range(READERS)]
    told = (outcome.readings, outcome.problems, over)
    return [threading.Thread(target=reader.read, args=told) for reader in readers]


def _kill(service: Running, kills: int, jobs: int, rng: random.Random, outcome: Outcome, over: threading.Event) -> None:
    """At random moments, spread over the jobs: the service, or a driver."""
    database = service.database
    due = sorted(rng.uniform(0.02, 0.95) * jobs for _ in range(kills))
    while due and not over.wait(0.1):
        with database.read() as connection:
            ended = sa.select(sa.func.count()).select_from(JOBS).where(JOBS.c.state.in_(ENDED))
            if int(connection.execute(ended).scalar() or 0) < due[0]:
                continue
            pids = connection.execute(sa.select(DRIVERS.c.pid).where(DRIVERS.c.pid.is_not(None))).scalars().all()
        due.pop(0)
        if pids and rng.random() < 0.7:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(pids), signal.SIGKILL)
            outcome.kills["driver"] += 1
        else:
            service.kill()
            outcome.kills["service"] += 1
            service.start()
    database.close()


def _wait_for_all(service: Running, jobs: int) -> None:
    database, seen, last_s = service.database, -1, time.monotonic()
    ended = sa.select(sa.func.count()).select_from(JOBS).where(JOBS.c.state.in_(ENDED))
    while seen < jobs:
        with database.read() as connection:
            now = int(connection.execute(ended).scalar() or 0)
        if now > seen:
            seen, last_s = now, time.monotonic()
        if time.monotonic() - last_s > 300.0:
            raise RuntimeError(f"only {seen} of {jobs} jobs have ended, and none in the last five minutes")
        time.sleep(0.2)
    database.close()


def audit(service: Running, outcome: Outcome) -> None:
    database = service.database
    with database.read() as connection:
        rows = connection.execute(sa.select(JOBS.c.id, JOBS.c.key, JOBS.c.state, JOBS.c.reason)).all()
        history = connection.execute(sa.select(HISTORY.c.job, HISTORY.c.state, HISTORY.c.at, HISTORY.c.tenant)).all()
        grants = connection.execute(
            sa.select(GRANTS.c.tenant, GRANTS.c.pool, GRANTS.c.device, GRANTS.c.granted_at, GRANTS.c.released_at)
        ).all()
    database.close()
    ends = Counter(row.job for row in history if row.state in ENDED)
    keys = Counter(row.key for row in rows)
    for row in rows:
        if row.state == "succeeded" and ends[row.id] == 1 and keys[row.key] == 1:
            outcome.ended_once += 1
        else:
            outcome.problems.append(f"{row.id}: {row.state} ({row.reason}), ended {ends[row.id]} times")
        problem = counted_wrong(service.home / "runs" / row.id)
        outcome.ran_once += not problem
        if problem:
            outcome.problems.append(f"{row.id}: {problem}")
    if len(rows) != outcome.jobs:
        outcome.problems.append(f"{len(rows)} jobs instead of {outcome.jobs}")
    outcome.quota_violations += most([(r.tenant, r.granted_at, r.released_at) for r in grants], MAX_DEVICES)
    outcome.quota_violations += most([((r.pool, r.device), r.granted_at, r.released_at) for r in grants], 1)
    outcome.quota_violations += most(running_spans(history), MAX_RUNNING)
    if open_ := [row for row in grants if row.released_at is None]:
        outcome.problems.append(f"{len(open_)} devices were never given back")


def audit_quotas(service: Running, outcome: Outcome, quotas: Quotas, sent_at: dict[str, float]) -> None:
    """Storage and money. Those of devices and running jobs are the same for all tenants."""
    database = service.database
    with database.read() as connection:
        past = Past.of(connection)
    database.close()
    exceeded = overspent(past, quotas, time.time()) + overstored(past, quotas, sent_at)
    outcome.quota_violations += len(exceeded)
    outcome.problems += exceeded
    outcome.refused = quotas.refused


def counted_wrong(run: Path) -> str:
    """Every trial of the run must have its iterations once, and the run one beginning and one end."""
    journal = SqlJournal(run / "journal.db", run.name, must_exist=True)
    seen, begun, ended = Counter[tuple[str, int]](), 0, 0
    for body in journal.read():
        record = m.decode_record(body)
        hidden = {each.index for each in record.decisions if isinstance(each, m.EventHidden)}
        begun += any(isinstance(each, m.RunStarted) for each in record.events)
        ended += any(isinstance(each, m.RunEnded) for each in record.decisions)
        for index, event in enumerate(record.events):
            if isinstance(event, m.TrialReported) and index not in hidden:
                seen[m.trial_number(event.trial), event.iteration] += 1
    journal.close()
    if len(seen) != 4 or set(seen.values()) != {1} or begun != 1 or ended != 1:
        return f"reports {dict(seen)}, {begun} beginnings, {ended} ends"
    return ""


def running_spans(history: Any) -> list[tuple[Any, float, float | None]]:
    """From when a job began to run until it had ended or waited again."""
    spans, open_ = [], dict[str, tuple[str, float]]()
    for row in history:
        if row.state == "running":
            open_[row.job] = (row.tenant, row.at)
        elif row.job in open_ and row.state != "finishing":
            tenant, since = open_.pop(row.job)
            spans.append((tenant, since, row.at))
    return spans


def most(spans: list[tuple[Any, float, float | None]], limit: int) -> int:
    """How often more than `limit` of the same were open at a time. What ends and begins in the same moment, ends."""
    changes = [(since, 1, key) for key, since, _ in spans]
    changes += [(until, -1, key) for key, _, until in spans if until is not None]
    now, violations = Counter[Any](), 0
    for _, change, key in sorted(changes, key=lambda each: (each[0], each[1])):
        now[key] += change
        violations += change > 0 and now[key] > limit
    return violations


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.service.storm")
    for name, usual in (("jobs", 1000), ("tenants", 50), ("clients", 20), ("kills", 50), ("devices", 4), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = vars(parser.parse_args())
    folder = Path(tempfile.mkdtemp(prefix="elastune-storm-"))
    outcome = storm(folder, **given)
    told = {**given, "ended_once": outcome.ended_once, "ran_once": outcome.ran_once}
    told |= {"quota_violations": outcome.quota_violations, "killed": dict(outcome.kills)}
    told |= {"quotas_raised": dict(outcome.refused)}
    told |= {"read_p99_ms": outcome.readings.percentile_ms(0.99), "reads": outcome.readings.count}
    told |= {"by_route": outcome.readings.table(), "seconds": outcome.seconds}
    for problem in outcome.problems:
        print(problem)
    for route, found in outcome.readings.table().items():
        print(f"{route:30}", *(f"{name} {value:g}" for name, value in found.items()))
    print(json.dumps(told))
    if outcome.problems or outcome.quota_violations:
        sys.exit(f"see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
