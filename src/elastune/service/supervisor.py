"""What the service does by itself: builds, schedules, starts drivers, notices the dead, completes.

Every step is a transaction that any replica may do. A replica that dies leaves nothing undone: what it had begun to
build or to complete is taken up by another when its lease is over, and drivers go on without it.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from elastune.errors import ElastuneError, SpecError, StorageError
from elastune.service import jobs as j
from elastune.service.build import prepare
from elastune.service.completion import complete
from elastune.service.database import ServiceDatabase, now
from elastune.service.drive import DATABASE, for_tenants
from elastune.service.drivers import LEASE_S, STUCK, Driver, Drivers, stuck_delay_s
from elastune.service.jobs import Job, Jobs
from elastune.service.limiter import Limiter, release_all
from elastune.service.places import Places
from elastune.service.sweep import remove_copies, sweep
from elastune.service.tables import DRIVERS, JOBS, REPLICAS
from elastune.service.telling import told

log = logging.getLogger("elastune")

TICK_S = 0.25
HANDS = {"build": 4, "complete": 4, "launch": 4, "look": 1}
TIDY_S, SWEEP_S = 60.0, 1800.0
TENANT = 2
"""So many builds of one tenant may go on at a time."""
OWNED_S = 15.0
"""Who builds or completes a job says so again within this time."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices that a replica hands out: of its own computer, or CPUs of a Ray cluster that there is already."""

    name: str
    devices: int | None
    """None: all that the Ray cluster has."""
    price_usd_per_device_hour: float = 0.0
    max_drivers: int = 8
    ray: str | None = None
    """The address of that Ray."""

    def by_computer(self) -> dict[str, int]:
        if self.ray is None:
            assert self.devices is not None
            return {"": self.devices}
        left = math.inf if self.devices is None else self.devices
        found = {}
        for node, cpus in sorted(_cpus_at(self.ray).items()):
            if left >= 1:
                found[node] = int(min(cpus, left))
                left -= found[node]
        return found


def _cpus_at(address: str) -> dict[str, int]:
    from elastune.provider.nodes import cpus_at

    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise SpecError(f"ray={address!r}: must be HOST:PORT, as `ray start --head` prints it")
    try:
        socket.create_connection((host, int(port)), 5.0).close()  # Ray itself would try for half a minute
        return cpus_at(address)
    except Exception as error:  # Ray's own are of many kinds
        reason = str(error).strip().splitlines()[0]
        raise StorageError(
            f"Ray at {address!r} does not answer: {reason}. Check the address, and that it runs"
        ) from error


@dataclass(frozen=True, slots=True)
class _Claim:
    """A job that this replica builds or completes; the token tells this claim from those before and after."""

    job: Job
    kind: str
    token: str


@dataclass
class Supervisor:
    database: ServiceDatabase
    places: Places
    pool: Pool
    id: str = field(default_factory=lambda: secrets.token_hex(6))

    def __post_init__(self) -> None:
        self.jobs, self.drivers, self.limiter = Jobs(self.database), Drivers(self.database), Limiter(self.database)
        self.host = socket.gethostname()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Each kind of work has hands of its own: a build may take half an hour, and all others are quick.
        self._hands = {kind: ThreadPoolExecutor(hands, kind) for kind, hands in HANDS.items()}
        self._in_hand: dict[str, _Claim] = {}
        self._launching: set[str] = set()
        self._looking = False
        self._woken, self._stopped = threading.Event(), False
        self._beat_due_s = self._tidy_due_s = self._sweep_due_s = 0.0
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------- for the service

    def start(self) -> None:
        self._offer()
        self._thread = threading.Thread(target=self._keep_ticking, daemon=True, name="supervisor")
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    def stop(self, drivers: bool) -> None:
        """End. With `drivers` their jobs are paused first, and go on when there is a service again."""
        self._stopped = True
        self.wake()
        if self._thread is not None:
            self._thread.join()
        if drivers:
            self.drivers.dismiss(self.pool.name, self.host)
            for process in list(self._processes.values()):
                try:
                    process.wait(60.0)
                except subprocess.TimeoutExpired:
                    process.kill()
        for hands in self._hands.values():
            hands.shutdown(wait=False, cancel_futures=True)

    def _keep_ticking(self) -> None:
        while not self._stopped:
            try:
                self.tick()
            except Exception as error:  # the database may come back
                known = isinstance(error, ElastuneError)  # comes every second, for as long as a disk is full
                log.error("the service could not do its round: %s", error, exc_info=not known)
                time.sleep(1.0)
            self._woken.wait(TICK_S)
            self._woken.clear()

    # ------------------------------------------------------------------------------------------------------- one round

    def tick(self) -> None:
        if time.monotonic() >= self._beat_due_s:
            self._beat()
        self._bury_the_dead()
        self._take_over()
        self._look_after_jobs()
        self.limiter.schedule(self.pool.name, self.pool.max_drivers)
        for driver in self.drivers.staff(self.pool.name, self.host, self.pool.max_drivers):
            self._launching.add(driver.id)
            self._hands["launch"].submit(self._launch, driver)

    def _offer(self) -> None:
        self.limiter.offer(self.pool.name, self.pool.by_computer(), self.pool.price_usd_per_device_hour)

    def _sweep(self) -> None:
        try:
            remove_copies(self.database, self.places)
            if time.monotonic() >= self._sweep_due_s:
                self._sweep_due_s = time.monotonic() + SWEEP_S
                sweep(self.database, self.places, self.pool.name)
        except Exception as error:  # it costs room, and comes again
            log.warning("what was deleted could not be swept up: %s", error)

    def _look_at_devices(self) -> None:
        try:
            self._offer()
        except ElastuneError as error:
            log.warning(str(error))
        finally:
            self._looking = False

    def _beat(self) -> None:
        self._beat_due_s = time.monotonic() + LEASE_S / 5
        if not self._looking:
            self._looking = True
            self._hands["look"].submit(self._look_at_devices)  # Ray may be slow to answer
        if time.monotonic() >= self._tidy_due_s:
            self._tidy_due_s = time.monotonic() + TIDY_S
            self._hands["look"].submit(self._sweep)
        if self._launching:
            self.drivers.extend(list(self._launching))
        with self.database.write() as connection:
            row = {"pool": self.pool.name, "alive_until": now(connection) + LEASE_S}
            if not connection.execute(sa.update(REPLICAS).where(REPLICAS.c.id == self.id).values(row)).rowcount:
                connection.execute(sa.insert(REPLICAS), {"id": self.id, **row})

    def _bury_the_dead(self) -> None:
        drivers = self.drivers.all(self.pool.name)
        with self.database.read() as connection:
            at = now(connection) if drivers else 0.0
        for driver in drivers:
            ended = self._ended(driver)
            if (ended is not None or driver.alive_until < at) and self.drivers.bury(driver, ended):
                self._kill(driver)
        for driver_id in [each for each, process in list(self._processes.items()) if process.poll() is not None]:
            del self._processes[driver_id]

    def _ended(self, driver: Driver) -> str | None:
        """How the process has ended, if it is seen to have."""
        process = self._processes.get(driver.id)
        if process is not None:
            code = process.poll()
            return None if code is None else f"it ended with code {code}"
        if driver.host == self.host and driver.pid is not None and not _is_driver(driver.pid, driver.id):
            return "its process is gone"
        return None

    def _kill(self, driver: Driver) -> None:
        """One that lives on without a lease ends by itself; one that hangs does not."""
        if driver.host == self.host and driver.pid is not None and _is_driver(driver.pid, driver.id):
            os.kill(driver.pid, 9)

    def _take_over(self) -> None:
        """What replicas that are gone had in hand. Of a pool that nobody serves any more the jobs go elsewhere."""
        with self.database.write() as connection:
            at = now(connection)
            connection.execute(sa.delete(REPLICAS).where(REPLICAS.c.alive_until < at - LEASE_S))
            abandoned = sa.select(JOBS.c.id).where(JOBS.c.state == "building", JOBS.c.owned_until < at)
            for job in connection.execute(abandoned).scalars().all():
                j.move(connection, job, "accepted", "its builder is gone", owner=None, owned_until=0.0)
            served = sa.select(REPLICAS.c.pool).where(REPLICAS.c.alive_until >= at)
            driven = sa.select(DRIVERS.c.job).where(DRIVERS.c.job.is_not(None), DRIVERS.c.alive_until >= at)
            where = (JOBS.c.state == "running", JOBS.c.pool.not_in(served), JOBS.c.id.not_in(driven))
            for job in connection.execute(sa.select(JOBS.c.id).where(*where)).scalars().all():
                connection.execute(sa.delete(DRIVERS).where(DRIVERS.c.job == job))
                release_all(connection, job, at)
                j.requeue(connection, job, "its computer is gone")

    # ------------------------------------------------------------------------------------------- building, completing

    def _look_after_jobs(self) -> None:
        """Claim what is to be built or completed, and do it beside the rounds."""
        for state, kind in (("accepted", "build"), ("finishing", "complete")):
            for claim in self._claim(state, kind):
                self._in_hand[claim.token] = claim
                self._hands[kind].submit(self._do, claim)
        if claims := list(self._in_hand):
            with self.database.write() as connection:
                renewed = {"owned_until": now(connection) + OWNED_S}
                connection.execute(sa.update(JOBS).where(JOBS.c.owner.in_(claims)).values(renewed))

    def _claim(self, state: str, kind: str) -> list[_Claim]:
        """As many as there are hands; one tenant does not take all of them for builds."""
        busy = [claim for claim in list(self._in_hand.values()) if claim.kind == kind]
        room = HANDS[kind] - len(busy)
        if room <= 0:
            return []
        full = [tenant for tenant, number in Counter(each.job.tenant for each in busy).items() if number >= TENANT]
        with self.database.read() as connection:
            at = now(connection)
            where = [JOBS.c.state == state, JOBS.c.owned_until < at, JOBS.c.not_before <= at]
            where += [JOBS.c.tenant.not_in(full)] if kind == "build" else []
            query = sa.select(JOBS.c.id).where(*where).order_by(JOBS.c.number)
            if connection.execute(query.limit(1)).first() is None:
                return []
        tokens = {}
        with self.database.write() as connection:
            for job in connection.execute(query.limit(1 if kind == "build" else room)).scalars().all():
                tokens[job] = f"{self.id} {secrets.token_hex(4)}"
                owned: dict[str, Any] = {"owner": tokens[job], "owned_until": at + OWNED_S}
                connection.execute(sa.update(JOBS).where(JOBS.c.id == job).values(owned))
                if state == "accepted":
                    j.move(connection, job, "building", **owned)
        return [_Claim(self.jobs.get(job), kind, token) for job, token in tokens.items()]

    def _do(self, claim: _Claim) -> None:
        try:
            (self._build if claim.kind == "build" else self._complete)(claim)
        except Exception as error:
            log.exception("%s: %s", claim.job.id, error)
        finally:
            self._in_hand.pop(claim.token, None)
            self.wake()

    def _build(self, claim: _Claim) -> None:
        """Whoever has lost the claim meanwhile has no say: another builds it, or it runs already."""
        job, mine = claim.job, (JOBS.c.state == "building", JOBS.c.owner == claim.token)
        try:
            prepare(job, self.places)
        except Exception as error:
            its_fault = isinstance(error, ElastuneError) and not isinstance(error, StorageError)
            if not its_fault:
                log.warning("job %s could not be built: %r", job.id, error, exc_info=error)
            why = for_tenants(told(error), job.id, self.places)
            with self.database.write() as connection:
                if its_fault or job.failures + 1 >= STUCK:
                    j.finish(connection, job.id, "failed", why, mine)
                else:
                    later = {"failures": job.failures + 1, "not_before": now(connection) + stuck_delay_s(job.failures)}
                    j.move(connection, job.id, "accepted", why, mine, owner=None, owned_until=0.0, **later)
            return
        with self.database.write() as connection:
            j.move(connection, job.id, "queued", only_if=mine, owner=None, owned_until=0.0, failures=0)

    def _complete(self, claim: _Claim) -> None:
        complete(self.database, self.places, claim.job)

    # -------------------------------------------------------------------------------------------------------- drivers

    def _launch(self, driver: Driver) -> None:
        job = str(driver.job)
        try:
            self._start(driver)
        except (ElastuneError, OSError) as error:  # it could be built before: a disk is full, or there is no network
            self.drivers.stuck(driver.id, job, for_tenants(told(error), job, self.places))
            self.drivers.retire(driver.id)
        except Exception as error:
            log.exception("a driver could not be started: %s", error)
            self.drivers.bury(driver, str(error))
        finally:
            self._launching.discard(driver.id)

    def _start(self, driver: Driver) -> None:
        assert driver.job is not None
        python = prepare(self.jobs.get(driver.job), self.places)
        log_file = self.places.driver_log(driver.job)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        command = [str(python), "-m", "elastune.service.drive", "--driver", driver.id]
        command += ["--home", str(self.places.home), "--storage", self.places.storage]
        command += [] if self.pool.ray is None else ["--ray", self.pool.ray]
        with log_file.open("ab") as out:
            self._processes[driver.id] = subprocess.Popen(
                command,
                env={**os.environ, DATABASE: self.database.url, "RAY_USAGE_STATS_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _is_driver(pid: int, driver: str) -> bool:
    """Whether that process is the driver, and not another that got its number."""
    try:
        return driver.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
