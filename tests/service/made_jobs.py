"""A service with jobs in many states, whose runs were simulated: to be read, and to be looked at.

`python -m tests.service.made_jobs --port 8701` serves them with the portal, and prints its address.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import elastune as et
from elastune.errors import ElastuneError
from elastune.messages import (
    AnyDecision,
    AnyEvent,
    Note,
    Record,
    RunEnded,
    StatusChanged,
    TrialFailed,
    TrialReported,
    decode_record,
    encode_record,
)
from elastune.planning import Planning
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import normal
from elastune.profile.scaling import Scaling
from elastune.record.journal import SqlJournal
from elastune.record.projection import RunView
from elastune.service.app import create_app
from elastune.service.database import ServiceDatabase
from elastune.service.drive import _summary
from elastune.service.jobs import Job, Jobs, Submission, finish, move
from elastune.service.places import Places
from elastune.service.service import Service
from elastune.service.states import State
from elastune.service.tables import JOBS
from elastune.service.tenants import Quota, Role, Tenants
from elastune.simulation import Simulation
from elastune.worker.log import log_path

SPACE = {
    "lr": et.loguniform(1e-4, 1e-1),
    "momentum": et.uniform(0.0, 0.99),
    "layers": et.choice([2, 3, 4]),
    "optimizer": et.choice(["sgd", "adam", "adamw"]),
}
SPEC = {
    "trainable": "train.py:train",
    "metric": "loss",
    "space": {"lr": {"loguniform": [1e-4, 1e-1]}, "optimizer": {"choice": ["sgd", "adam", "adamw"]}},
    "algorithm": {"SuccessiveHalving": {"n": 30, "r": 1, "R": 27, "eta": 3}},
}
LONG = "to install requirements.txt ended with code 1: " + "\n".join(f"Collecting package-{i}" for i in range(40))
FLAKY = "RuntimeError: flaky\n" + "\n".join(f"  line {i} of what the library says" for i in range(30))
EVIL = "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>"


@dataclass
class Made:
    service: Service

    @classmethod
    def in_folder(cls, folder: Path, database: ServiceDatabase | None = None) -> Made:
        database = database or ServiceDatabase(str(folder / "service.db"))
        database.create()
        journal = None if database.sqlite else database.url
        return cls(Service(database, Places(folder, str(folder / "storage"), journal)))

    def token(self, tenant: str, role: Role = "member", quota: Quota | None = None) -> str:
        tenants = Tenants(self.service.database)
        if tenant not in [each.id for each in tenants.all()]:
            tenants.create(tenant, quota=quota or Quota())
        return tenants.create_token(tenant, role)[1]

    def job(
        self,
        tenant: str,
        name: str = "digits",
        state: State = "running",
        reason: str = "",
        experiment: str | None = None,
        seed: int = 0,
    ) -> Job:
        """One in that state. It has run, if it was not stopped before."""
        jobs, spec = Jobs(self.service.database), {**SPEC, "seed": seed}
        job, _ = jobs.submit(tenant, Submission(name, spec, None, 0, 1, 4, 1))
        way: dict[State, list[State]] = {
            "accepted": [],
            "building": ["building"],
            "queued": ["building", "queued"],
            "failed": ["building"],
        }
        with self.service.database.write() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(experiment=experiment))
            for step in way.get(state, ["building", "queued", "running"]):
                move(connection, job.id, step, reason if step == state else "")
            if state in ("succeeded", "failed", "cancelled"):
                finish(connection, job.id, state, reason)
                move(connection, job.id, state, reason, ended_at=time.time())
        return jobs.get(job.id)

    def wrote(self, job: Job, records: Iterable[Record], ago_s: float = 0.0) -> RunView:
        """The journal of its run. Its summary is written down if it has ended."""
        folder, place = self.service.places.run(job.id), self.service.places.journal
        folder.mkdir(parents=True, exist_ok=True)
        view = RunView()
        with closing(SqlJournal(place or folder / "journal.db", job.id, group=1000)) as journal:
            for seq, record in enumerate(records, start=len(list(journal.read()))):
                journal.append(seq, encode_record(record))
                view.feed(record)
        values: dict[str, Any] = {"attempt": 1, "started_at": time.time() - ago_s}
        values |= {"created_at": time.time() - ago_s - 20}
        if job.ended:
            from elastune.results import Result

            values |= {"summary": _summary(Result(view, folder)), "ended_at": values["started_at"] + view.at_s}
        with self.service.database.write() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(values))
        return view


def simulated(name: str = "digits", seed: int = 0, n: int = 30, planned: bool = False, **more: Any) -> list[Record]:
    """The records of a run of successive halving."""
    asked: dict[str, Any] = {"deadline": "20m", "metric": "accuracy", "mode": "max", "space": SPACE}
    if planned:
        job = JobProfile(normal(8.0, 0.5), Scaling({1: 1, 2: 1.9, 4: 3.6}))
        cloud = Cloud("m5.xlarge", 4, 1.20, request=normal(5.0, 0.2), boot=normal(20.0, 1.0))
        asked |= {"planning": Planning(job, cloud), "machines": 16, "budget": "$20"}
    else:
        asked |= {"machines": 3, "devices": 2, "price": "$0.90", "budget": "$1"}
    with tempfile.TemporaryDirectory() as folder:
        asked["algorithm"] = et.SuccessiveHalving(n=n, r=1, R=27, eta=3)
        tuner = et.Tuner(None, name=name, seed=seed, **{**asked, **more})
        tuner.run_in(Path(folder) / "run")
        path = tuner.simulate(Simulation() if planned else Simulation(boot_s=12.0, stragglers=0.3)).path
        with closing(SqlJournal(path / "journal.db", "run", must_exist=True)) as journal:
            return [decode_record(body) for body in journal.read()]


def failing(records: list[Record], trials: int, error: str) -> list[Record]:
    """The same run, at whose end so many of its trials fail."""
    view, decisions, events = RunView.of(records), list[AnyDecision](), list[AnyEvent]()
    for trial in list(view.trials.values())[:trials]:
        events.append(TrialFailed(trial.id, trial.attempt or 1, error, f"Traceback\n{error}"))
        decisions.append(StatusChanged(trial.id, "failed", error))
        decisions.append(Note("warning", f"trial {trial.id} failed: {error}"))
    return [*records, Record(view.at_s + 1, tuple(events), tuple(decisions), ())]


def fruitless(error: str) -> list[Record]:
    """A run whose trials have all failed before they reported."""
    records = simulated("fruitless", n=9, price=None, budget=None)
    silent = takewhile(lambda record: not any(isinstance(each, TrialReported) for each in record.events), records)
    failed = failing(list(silent), 9, error)
    return [*failed, Record(failed[-1].at_s, (), (RunEnded("failed", f"the first 6 trials failed: {error}"),), ())]


def wide(name: str, count: int = 24) -> list[Record]:
    """Many parameters and long words."""
    names = [f"encoder_block_{index}_attention_dropout" for index in range(count)]
    space = {each: et.loguniform(1e-5, 1e-1) for each in names} | {"x" * 60: et.choice(["y" * 80, "z" * 80])}
    return simulated(name, n=9, space=space, metric="validation_accuracy_of_the_exponential_moving_average")


def populate(made: Made, tenant: str) -> dict[str, Job]:
    """All that a portal has to show."""
    jobs: dict[str, Job] = {}
    places = made.service.places
    for seed in range(5):
        jobs[f"seed {seed}"] = made.job(tenant, "resnet", "succeeded", "all trials are done", "exp-7c1", seed)
        made.wrote(jobs[f"seed {seed}"], simulated("resnet", seed), ago_s=7200 - 60 * seed)
    jobs["planned"] = made.job(tenant, "planned", "succeeded", "all trials are done")
    made.wrote(jobs["planned"], simulated("planned", planned=True), ago_s=4000)
    jobs["cancelled"] = made.job(tenant, "mistake", "cancelled", "cancelled by its owner")
    jobs["failed"] = made.job(tenant, "no-build", "failed", "to install requirements.txt ended with code 1")
    log = places.build_log(jobs["failed"].id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        "--- install requirements.txt\nCollecting torhc\n"
        "ERROR: Could not find a version that satisfies the requirement torhc (from versions: none)\n"
        f"ERROR: No matching distribution found for torhc\n{EVIL}\n"
    )
    jobs["long reason"] = made.job(tenant, "long-reason", "failed", LONG)
    jobs["fruitless"] = made.job(tenant, "fruitless", "failed", f"the first 6 trials failed: {FLAKY}")
    made.wrote(jobs["fruitless"], fruitless(FLAKY), ago_s=900)
    jobs["flaky"] = made.job(tenant, "flaky", "succeeded", "all trials are done")
    made.wrote(jobs["flaky"], failing(simulated("flaky", n=40), 20, FLAKY), ago_s=1800)
    jobs["folds"] = made.job(tenant, "folds", "succeeded", "all trials are done")
    folds = {"lr": 0.1, "momentum": 0.9}
    made.wrote(jobs["folds"], simulated("folds", algorithm=et.KFold(5, 9), space=folds), ago_s=1900)
    jobs["wide"] = made.job(tenant, "w" * 60, "succeeded", "all trials are done")
    made.wrote(jobs["wide"], wide("w" * 60), ago_s=1950)
    jobs["queued"] = made.job(tenant, "waits", "queued", "the pool has 4 devices and all are in use")
    records = simulated()
    jobs["running"] = made.job(tenant, "digits", "running")
    made.wrote(jobs["running"], records[: len(records) * 2 // 3], ago_s=records[len(records) * 2 // 3].at_s)
    view = RunView.of(records)
    for number, trial in enumerate(view.trials):
        path = log_path(places.run(jobs["running"].id) / "logs", trial, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"epoch {i}: accuracy {0.3 + 0.02 * i + 0.001 * number:.4f}" for i in range(1, 28)]
        path.write_text("\n".join([*lines, EVIL, ""]))
    places.driver_log(jobs["running"].id).write_text("Started a local Ray instance.\n")
    return jobs


def _append_later(made: Made, job: Job, records: list[Record], every_s: float) -> None:
    """The run goes on, as if somebody drove it."""
    with closing(SqlJournal(made.service.places.run(job.id) / "journal.db", job.id, must_exist=True)) as journal:
        begin = len(list(journal.read()))
        for seq, record in enumerate(records[begin:], start=begin):
            time.sleep(every_s)
            journal.append(seq, encode_record(record))


def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m tests.service.made_jobs")
    parser.add_argument("--port", type=int, default=8701)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elastune-made-") as folder:
        made = Made.in_folder(Path(folder))
        token = made.token("vision", "admin", Quota(max_devices=4, max_running=2, max_usd_per_month=100.0))
        made.token("speech", quota=Quota(max_devices=2))
        jobs = populate(made, "vision")
        more = (made, jobs["running"], simulated(), 1.0)
        threading.Thread(target=_append_later, args=more, daemon=True).start()
        for name, job in jobs.items():
            print(name, job.id)
        print(f"http://127.0.0.1:{given.port}/#token={token}", flush=True)
        uvicorn.run(create_app(made.service), port=given.port, log_level="warning")


if __name__ == "__main__":
    try:
        main()
    except ElastuneError as error:
        raise SystemExit(str(error)) from None
