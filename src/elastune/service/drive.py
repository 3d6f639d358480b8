"""A driver: a process of its own that runs jobs of one tenant with one code, one after the other.

It begins a run, or goes on with it where the journal ends. As long as it lives it renews its lease; when it cannot, it
ends at once, because another may have been started in its place.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastune.errors import ElastuneError, JournalDamaged, RunFailed, StorageError
from elastune.service.database import ServiceDatabase
from elastune.service.drivers import LEASE_S, Driver, Drivers
from elastune.service.jobs import Job, Jobs
from elastune.service.limiter import LEAVE_S, Limiter
from elastune.service.places import Places
from elastune.service.reading import Runs
from elastune.service.states import Outcome
from elastune.service.telling import told, without_places
from elastune.worker.log import Logs

if TYPE_CHECKING:
    from elastune.results import Result
    from elastune.tuner import Tuner

BEAT_S, IDLE_LOOK_S = 1.0, 0.1
LIVES_S = 60.0
"""So often it is looked whether the driver of a job has come further than those that died before it."""
LINGER_S = 10.0
"""So long it waits for another job: starting Ray takes longer than most small jobs."""
FENCED, OVERSTAYED = 75, 76
DATABASE = "ELASTUNE_SERVICE_DATABASE"
"""The variable with the URL of the database: everybody can see the arguments of a process."""
NICE = 5
"""Training gives way to the service: pages stay quick."""


@dataclass
class Seat:
    """The place of this process in the database, kept warm by a thread."""

    drivers: Drivers
    jobs: Jobs
    id: str
    busy: str | None = None
    """The job that it drives."""
    reports: Callable[[], int] = int
    """How many reports the job has now, and how many it had when this driver began."""
    had: int = 0
    look_due_s: float = math.inf
    told_s: float = math.inf
    """When it was first told to leave that job."""
    renewed_s: float = 0.0

    def keep(self) -> None:
        self.beat()
        for target in (self._keep, self._watch):
            threading.Thread(target=target, daemon=True, name="lease").start()

    def sit(self, job: Job, reports: Callable[[], int]) -> None:
        """It drives that job from now on."""
        self.reports, self.look_due_s, self.told_s = reports, math.inf, math.inf
        if job.failures or job.deaths:
            self.had, self.look_due_s = reports(), time.monotonic() + LIVES_S
        self.busy = job.id

    def look(self) -> Driver:
        return self._mine(self.drivers.get(self.id))

    def beat(self) -> Driver:
        asked_s = time.monotonic()  # the lease counts from the moment it was written, which is not before this one
        row = self._mine(self.drivers.beat(self.id, os.getpid()))
        self.renewed_s = asked_s
        return row

    def _mine(self, row: Driver | None) -> Driver:
        if row is None:
            os._exit(FENCED)
        return row

    def _keep(self) -> None:
        while True:
            time.sleep(BEAT_S)
            try:
                leave, job = self.beat().leave, self.busy
                if job is not None and (leave or self.jobs.get(job).cancelled):
                    self._leave()
                if job is not None and time.monotonic() > self.look_due_s:
                    self._look_further(job)
            except Exception as error:  # the database may come back before the lease is over
                print(f"the lease could not be renewed: {error}", file=sys.stderr, flush=True)

    def _leave(self) -> None:
        """Again and again: a signal that comes before the run begins is not heard. Who hears none, because code of the
        user trains while it is imported, is ended: nobody shall wait and pay for it.
        """
        self.told_s = min(self.told_s, time.monotonic())
        if time.monotonic() - self.told_s > LEAVE_S - 2 * BEAT_S:
            print(f"told to leave {LEAVE_S:g} s ago, and still here: it is ended", file=sys.stderr, flush=True)
            os._exit(OVERSTAYED)
        os.kill(os.getpid(), signal.SIGTERM)

    def _look_further(self, job: str) -> None:
        """Time alone is no progress: one that always dies after some minutes would be started again for ever."""
        self.look_due_s = time.monotonic() + LIVES_S
        if self.reports() > self.had:
            self.drivers.lives(self.id, job)
            self.look_due_s = math.inf

    def _watch(self) -> None:
        """A thread of its own: the one that renews may hang in the database."""
        while time.monotonic() - self.renewed_s < LEASE_S - 2 * BEAT_S:
            time.sleep(BEAT_S / 4)
        os._exit(FENCED)


class JobDriver:
    def __init__(self, database: ServiceDatabase, places: Places, driver: str, ray: str | None = None) -> None:
        self._database, self._places, self._ray = database, places, ray
        self._jobs, self._drivers, self._limiter = Jobs(database), Drivers(database), Limiter(database)
        self._seat = Seat(self._drivers, self._jobs, driver)
        self._logs, self._runs = Logs(), Runs(places)

    def work(self) -> None:
        """Until there has been nothing to do for a while."""
        self._seat.keep()
        idle_since_s = time.monotonic()
        while True:
            row = self._seat.look()
            if row.job is not None:
                with self._logs.to(self._places.driver_log(row.job)):  # every job has a log of its own
                    self._drive(self._jobs.get(row.job))
                idle_since_s = time.monotonic()
            elif time.monotonic() - idle_since_s < LINGER_S and not row.leave:
                time.sleep(IDLE_LOOK_S)
            elif self._drivers.retire(self._seat.id):  # unless it was given a job in this very moment
                return

    def _drive(self, job: Job) -> None:
        if job.cancelled:  # while it waited for a driver
            self._drivers.done(self._seat.id, job.id, None, "")
            return
        print(f"{time.strftime('%H:%M:%S')} driver {job.attempt} of this job begins", flush=True)
        try:
            self._seat.sit(job, partial(self._reports, job))
            outcome, reason, summary = self._run(job)
        except JournalDamaged as error:
            outcome, reason, summary = "failed", str(error), job.summary
        except StorageError as error:
            traceback.print_exc()  # here, where it is in the log of the job
            self._drivers.stuck(self._seat.id, job.id, for_tenants(told(error), job.id, self._places))
            raise  # another process may have more luck
        except ElastuneError as error:
            outcome, reason, summary = "failed", str(error), job.summary
        except Exception as error:
            traceback.print_exc()
            outcome, reason, summary = "failed", f"{type(error).__name__}: {error}", job.summary
        finally:
            self._seat.busy = None
        try:  # what is stored counts for the tenant from now on
            stored = self._places.stored_bytes(job.id)
        except StorageError:
            stored = job.stored_bytes
        reason = for_tenants(reason, job.id, self._places)
        print(f"{time.strftime('%H:%M:%S')} {outcome or 'paused'}: {reason}", flush=True)
        self._drivers.done(self._seat.id, job.id, outcome, reason, summary=summary, stored_bytes=stored)

    def _reports(self, job: Job) -> int:
        return self._runs.read(job, lambda view: sum(len(trial.reports) for trial in view.trials.values())) or 0

    def _connect(self, job: Job) -> None:
        from elastune.cluster.ray.session import join_ray, start_ray
        from elastune.service.environment import runtime_env

        try:
            if self._ray is None:
                start_ray(0)
            else:  # its computers have neither the code nor what it needs
                join_ray(self._ray, {} if job.code is None else runtime_env(self._places.code(job.id)))
        except ElastuneError:
            raise
        except Exception as error:
            raise StorageError(f"Ray could not be started: {type(error).__name__}: {error}") from error
        finally:
            _ignore_sigterm()  # Ray's own handler would end the process at once

    def _run(self, job: Job) -> tuple[Outcome | None, str, dict[str, Any]]:
        from elastune.driver import load
        from elastune.service.build import lay_out

        lay_out(job, self._places)  # it may have been built on another computer
        self._connect(job)
        tuner = self._tuner(job)
        tuner.machines_from = lambda: self._machines(job, tuner)
        try:
            result = tuner.fit(progress=False)
        except RunFailed as error:
            result = load(self._places.run(job.id), self._places.journal)
            if result.status == "running":  # it was Ray that has failed
                raise StorageError(str(error)) from error
            return "failed", str(error), _summary(result)
        if result.status == "interrupted":
            if self._jobs.get(job.id).cancelled:
                return "cancelled", "cancelled by its owner", _summary(result)
            return None, "paused: it goes on when there is a place for it", _summary(result)
        return "succeeded", result.view.reason, _summary(result)

    def _tuner(self, job: Job) -> Tuner:
        """That of a new run, or that of one that has begun."""
        from elastune.config_file import load_experiment
        from elastune.driver import has_begun
        from elastune.service.environment import import_paths
        from elastune.tuner import Tuner
        from elastune.worker.code_name import CODE
        from elastune.worker.setup import add_paths

        folder, journal = self._places.run(job.id), self._places.journal
        code = self._places.code(job.id)
        os.chdir(code)
        if job.code is not None:  # the scores of one tenant are not those of another
            os.environ[CODE] = f"{job.tenant} {job.code}"
        add_paths([str(path) for path in import_paths(code)])
        if has_begun(folder, journal):
            folder.mkdir(parents=True, exist_ok=True)
            tuner = Tuner.restore(folder, journal=journal)
        else:
            tuner, _ = load_experiment(code / SPEC, with_trainable=True, journal=journal)
            tuner.run_in(folder)
        tuner.known_scores = not job.rerun
        return tuner

    def _machines(self, job: Job, tuner: Tuner) -> Any:
        from elastune.service.leased import Leased

        limiter, us = self._limiter, (job.id, self._seat.id)
        return Leased(
            job.quantum,
            limiter.price_usd_per_hour(job.id) or tuner.experiment.settings.price_usd_per_device_hour,
            granted=partial(limiter.grants, job.id),
            let_go=partial(limiter.release, *us),
            want=partial(limiter.want, *us),
        )


SPEC = "elastune-job.yaml"
"""The name of the experiment's file beside the code of a job."""


def for_tenants(reason: str, job: str, places: Places) -> str:
    """Where the service keeps things is of no use to them; what to type is."""
    reason = re.sub(r"; when it can, go on with: .*", "", reason)
    reason = re.sub(r"the traceback is in \S*/logs/(\S+)\.log", rf"elastune logs {job} \1", reason)
    reason = reason.replace(f"run {places.run(job)}: ", "").replace(f"{places.code(job)}/", "")
    reason = reason.replace(str(places.run(job)), job).replace(f"{SPEC}: ", "")
    return without_places(reason, places)


def _ignore_sigterm() -> None:
    """A run that has begun hears it."""
    signal.signal(signal.SIGTERM, lambda *_: None)


def _summary(result: Result) -> dict[str, Any]:
    """What the list of jobs shows, and what its completion looks at."""
    view, best = result.view, result.view.best
    summary: dict[str, Any] = {
        "status": view.status,
        "metric": view.started.metric,
        "mode": view.started.mode,
        "trials": len(view.trials),
        "cost_usd": view.cost_usd(),
        "seconds": view.at_s,
    }
    if best is not None:
        checkpoint = best.best_checkpoint or best.last_checkpoint
        summary |= {"best_value": best.best_value, "best_trial": best.id, "best_params": result.best_params}
        summary["checkpoint"] = None if checkpoint is None else checkpoint.path
    return summary


def _give_way() -> None:
    """To processes of other sessions, too: where Linux shares its cores by session first, `nice` is only heard within
    one. What is started from here inherits both.
    """
    os.nice(NICE)
    with suppress(OSError):  # a kernel without, or one that has just been asked
        Path("/proc/self/autogroup").write_text(str(NICE))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elastune.service.drive")
    for name in ("home", "storage", "driver"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ray")
    given = parser.parse_args(arguments)
    _give_way()
    _ignore_sigterm()
    url = os.environ.pop(DATABASE)
    database = ServiceDatabase(url)
    places = Places(Path(given.home), given.storage, None if database.sqlite else url)
    JobDriver(database, places, given.driver, given.ray).work()
    from elastune.cluster.ray.session import stop_ray

    stop_ray()
    os._exit(0)  # without waiting for what the user's code has left running


if __name__ == "__main__":
    main()
