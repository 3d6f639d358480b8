"""The resource limiter: one transaction decides who begins, who gets more devices, and who gives some back.

It reads what is held, divides the devices anew (`fair`), and writes the difference: devices that are free are granted,
of a job that has too many some are asked back. A device counts for its holder until that has let go of it, so no quota
is ever exceeded, whoever dies in between.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import sqlalchemy as sa

from elastune.service import jobs as j
from elastune.service.database import ServiceDatabase, now
from elastune.service.fair import Allowance, Demand, divide
from elastune.service.tables import DEVICES, DRIVERS, GRANTS, JOBS, REPLICAS, TENANTS
from elastune.units import format_money

LOOK_AHEAD = 8
"""So many waiting jobs of each tenant are looked at."""
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
LATELY_S = 3600.0
LEAVE_S = 60.0
"""So long drivers may take to leave, then they are ended. What that costs is kept back of the money of a month."""


@dataclass(frozen=True, slots=True)
class Grant:
    device: int
    leaving_at: float | None
    node: str = ""
    """Ray's id of its computer; empty: the one that the driver is on."""


class Limiter:
    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def offer(self, pool: str, devices: Mapping[str, int], price_usd_per_hour: float) -> None:
        """The devices of a pool, by their computers. Those that are too many go when nobody holds them."""
        with self._database.write() as connection:
            mine, price = DEVICES.c.pool == pool, {"price_usd_per_hour": price_usd_per_hour}
            connection.execute(sa.update(DEVICES).where(mine).values(price))
            query = sa.select(DEVICES.c.number, DEVICES.c.node).where(mine).order_by(DEVICES.c.number)
            there: dict[int, str] = dict(connection.execute(query).all())
            missing, too_many = Counter(devices), []
            for number, node in there.items():
                if missing[node] > 0:
                    missing[node] -= 1
                else:
                    too_many.append(number)
            held = sa.select(GRANTS.c.device).where(GRANTS.c.pool == pool, GRANTS.c.released_at.is_(None))
            unused = (DEVICES.c.number.in_(too_many), DEVICES.c.number.not_in(held))
            connection.execute(sa.delete(DEVICES).where(mine, *unused))
            numbers = (number for number in count() if number not in there)
            new = [{"pool": pool, "number": next(numbers), "node": node, **price} for node in missing.elements()]
            if new:
                connection.execute(sa.insert(DEVICES), new)

    def schedule(self, pool: str, most_jobs: float = math.inf) -> list[str]:
        """Divide the devices of a pool. Says which jobs begin: they run from now on, and want a driver."""
        with self._database.write() as connection:
            at = now(connection)  # not before it is our turn: what was given back by then is free
            largest = _largest(connection, pool, at)
            waiting = {row["id"]: row for row in _waiting(connection, at, largest.get(pool, 0))}
            rows = {row["id"]: row for row in _running(connection, pool)} | waiting
            for row in _waiting(connection, at, math.inf, max(largest.values(), default=0)):
                _put_off(connection, row, _too_large(row, largest), at)
            if not rows:
                return []
            stock = _Stock(connection, pool, {row["tenant"] for row in rows.values()}, at)
            demands = [_demand(row) for row in rows.values()]
            division = divide(len(stock.prices), demands, stock.allowances, most_jobs)
            begun = []
            # Those that begin come first: what one of them waits for is not given to those that grow.
            for job in sorted(division.devices, key=lambda job: rows[job]["state"] != "queued"):
                row = rows[job]
                if row["state"] == "queued":
                    if stock.most(row) < row["least"]:
                        if stock.free(row["quantum"]) < row["least"]:  # and not the tenant's own quota
                            stock.reserve(row["quantum"])  # others will let go of enough in a moment
                        continue
                    j.move(connection, job, "running", pool=pool, started_at=row["started_at"] or at, put_offs=0)
                    begun.append(job)
                stock.give(row, division.devices[job])
            for job, why in division.refused.items():
                _put_off(connection, rows[job], why, at)
            _pause(connection, [tenant for tenant, allowance in stock.allowances.items() if allowance.broke], at)
        return begun

    def grants(self, job: str) -> list[Grant]:
        """The devices that a job may use, those it had longest first. Times are by the clock of this computer."""
        mine = GRANTS.c.job == job
        columns = (GRANTS.c.device, GRANTS.c.leaving_at, GRANTS.c.node)
        query = sa.select(*columns).where(mine, GRANTS.c.released_at.is_(None))
        with self._database.read() as connection:
            ahead_s = round(now(connection) - time.time())  # whole: it stays the same from look to look
            return [
                Grant(device, None if leaving_at is None else leaving_at - ahead_s, node)
                for device, leaving_at, node in connection.execute(query.order_by(GRANTS.c.seq))
            ]

    def price_usd_per_hour(self, job: str) -> float:
        """Of one of the devices that it has: those of a pool cost the same. 0: the service says nothing of prices."""
        query = sa.select(sa.func.max(GRANTS.c.price_usd_per_hour)).where(GRANTS.c.job == job)
        with self._database.read() as connection:
            return float(connection.execute(query.where(GRANTS.c.released_at.is_(None))).scalar() or 0.0)

    def release(self, job: str, driver: str, devices: Iterable[int]) -> None:
        """The job has let go of them. A driver that was given up has no say any more: they may be another's."""
        mine = (GRANTS.c.job == job, GRANTS.c.device.in_(list(devices)), GRANTS.c.released_at.is_(None))
        with self._database.write() as connection:
            over = {"released_at": now(connection)}
            connection.execute(sa.update(GRANTS).where(*mine, _drives(driver, job)).values(over))

    def want(self, job: str, driver: str, devices: int) -> None:
        """So many its driver can use at the moment."""
        with self._database.write() as connection:
            mine = (JOBS.c.id == job, _drives(driver, job))
            connection.execute(sa.update(JOBS).where(*mine).values(wanted=devices))


def _drives(driver: str, job: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(DRIVERS.c.id == driver, DRIVERS.c.job == job)


def release_all(connection: sa.Connection, job: str, now: float) -> None:
    mine = (GRANTS.c.job == job, GRANTS.c.released_at.is_(None))
    connection.execute(sa.update(GRANTS).where(*mine).values(released_at=now))


def price_of_a_device_usd(connection: sa.Connection, now: float) -> float:
    """By the hour, in the pools that somebody serves. 0: the service says nothing of prices."""
    served = sa.select(REPLICAS.c.pool).where(REPLICAS.c.alive_until >= now)
    query = sa.select(sa.func.max(DEVICES.c.price_usd_per_hour)).where(DEVICES.c.pool.in_(served))
    return float(connection.execute(query).scalar() or 0.0)


def spent_this_month_usd(connection: sa.Connection, tenant: str, now: float) -> float:
    """What a tenant's devices have cost since the month began (UTC)."""
    begin = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    usd = sa.func.sum(_held_s(begin, now) * GRANTS.c.price_usd_per_hour / 3600.0)
    mine = GRANTS.c.tenant == tenant
    return sum(float(connection.execute(sa.select(usd).where(mine, each)).scalar() or 0.0) for each in _since(begin))


def _held_s(begin: float, now: float) -> sa.ColumnElement[float]:
    """How long a grant was held since then."""
    since = sa.case((GRANTS.c.granted_at < begin, begin), else_=GRANTS.c.granted_at)
    return sa.func.coalesce(GRANTS.c.released_at, now) - since


def _since(begin: float) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Grants that are held, and those that were since then: in two queries, because no index serves an OR of them."""
    return GRANTS.c.released_at.is_(None), GRANTS.c.released_at > begin


_COLUMNS = [
    JOBS.c[name]
    for name in (
        *("id", "tenant", "number", "priority", "least", "most", "quantum", "wanted", "state"),
        *("started_at", "put_offs", "not_before", "cancelled"),
    )
]


def _running(connection: sa.Connection, pool: str) -> list[Mapping[str, Any]]:
    """Those that finish hold their devices still."""
    where = (JOBS.c.pool == pool, JOBS.c.state.in_(("running", "finishing")))
    return [dict(row) for row in connection.execute(sa.select(*_COLUMNS).where(*where)).mappings()]


def _waiting(connection: sa.Connection, now: float, at_most: float, more_than: float = 0) -> list[Mapping[str, Any]]:
    """The next few of each tenant, by priority and age, of those that want so many devices on one computer."""
    rank = sa.func.row_number().over(partition_by=JOBS.c.tenant, order_by=(JOBS.c.priority.desc(), JOBS.c.number))
    where = [JOBS.c.state == "queued", JOBS.c.not_before <= now, JOBS.c.quantum > more_than]
    where += [JOBS.c.quantum <= at_most] if at_most < math.inf else []
    ranked = sa.select(*_COLUMNS, rank.label("rank")).where(*where).subquery()
    return [dict(row) for row in connection.execute(sa.select(ranked).where(ranked.c.rank <= LOOK_AHEAD)).mappings()]


def _demand(row: Mapping[str, Any]) -> Demand:
    running = row["state"] != "queued"
    most = row["most"] if row["wanted"] is None else min(row["most"], row["wanted"])
    most = row["least"] if row["state"] == "finishing" or row["cancelled"] else most
    its = (row["priority"], row["least"], most, row["quantum"])
    return Demand(row["id"], row["tenant"], row["number"], *its, running=running)


def _allowances(
    connection: sa.Connection, tenants: set[str], pool: str, price: float, now: float
) -> dict[str, Allowance]:
    """Quotas, and what a tenant has in other pools. The money that is left is enough for so many devices."""
    held, active = GRANTS.c.released_at.is_(None), JOBS.c.state.in_(("running", "finishing"))
    number, usd_per_hour = sa.func.count(), sa.func.sum(GRANTS.c.price_usd_per_hour)
    elsewhere: dict[str, int] = _by_tenant(connection, GRANTS, number, held, GRANTS.c.pool != pool)
    jobs: dict[str, int] = _by_tenant(connection, JOBS, number, active, JOBS.c.pool != pool)
    pays: dict[str, float] = _by_tenant(connection, GRANTS, usd_per_hour, held)
    allowances, used_s, warm = {}, _used_lately_s(connection, now), _warm(connection, pool)
    for row in connection.execute(sa.select(TENANTS).where(TENANTS.c.id.in_(tenants))):
        limits = [row.max_devices] if row.max_devices is not None else []
        closed, broke, pays_usd = "", False, pays.get(row.id, 0.0)
        if row.max_usd_per_month is not None and (price or pays_usd):
            left_usd = row.max_usd_per_month - spent_this_month_usd(connection, row.id, now)
            broke = left_usd <= pays_usd * LEAVE_S / 3600.0
            if price:
                # Enough for twice as long as leaving takes: what begins now need not leave at once.
                two_minutes_usd = price * 2 * LEAVE_S / 3600.0
                enough_for = max(0, math.floor(left_usd / max(two_minutes_usd, 1e-9)))
                limits.append(enough_for)
                closed = "" if enough_for else _too_little(row.max_usd_per_month, left_usd, two_minutes_usd)
        allowances[row.id] = Allowance(
            row.share,
            min(limits, default=None),
            row.max_running,
            closed,
            used_s[row.id],
            row.id in warm,
            elsewhere.get(row.id, 0),
            jobs.get(row.id, 0),
            broke,
        )
    return allowances


def _by_tenant(connection: sa.Connection, table: sa.Table, what: Any, *where: sa.ColumnElement[bool]) -> dict[str, Any]:
    return dict(connection.execute(sa.select(table.c.tenant, what).where(*where).group_by(table.c.tenant)).all())


def _used_lately_s(connection: sa.Connection, now: float) -> Mapping[str, float]:
    """By tenant: how long it had devices in the last hour."""
    begin, used_s = now - LATELY_S, defaultdict[str, float](float)
    query = sa.select(GRANTS.c.tenant, sa.func.sum(_held_s(begin, now))).group_by(GRANTS.c.tenant)
    for each in _since(begin):
        for tenant, held_s in connection.execute(query.where(each)):
            used_s[tenant] += held_s
    return used_s


def _warm(connection: sa.Connection, pool: str) -> set[str]:
    """The tenants with a driver that waits for something to do."""
    idle = (DRIVERS.c.pool == pool, DRIVERS.c.job.is_(None), DRIVERS.c.leave.is_(False))
    return set(connection.execute(sa.select(DRIVERS.c.tenant).where(*idle)).scalars())


class _Stock:
    """The devices of a pool in one transaction: who holds which, and which are free."""

    def __init__(self, connection: sa.Connection, pool: str, tenants: set[str], now: float) -> None:
        self._connection, self._pool, self._now = connection, pool, now
        known = sa.select(DEVICES.c.number, DEVICES.c.node, DEVICES.c.price_usd_per_hour).where(DEVICES.c.pool == pool)
        devices = connection.execute(known.order_by(DEVICES.c.number)).all()
        self.prices: dict[int, float] = {device.number: device.price_usd_per_hour for device in devices}
        self.allowances = _allowances(connection, tenants, pool, max(self.prices.values(), default=0.0), now)
        self._held: dict[str, dict[int, float | None]] = defaultdict(dict)
        self._of_tenant = Counter[str]()
        columns = (GRANTS.c.job, GRANTS.c.tenant, GRANTS.c.device, GRANTS.c.leaving_at)
        query = sa.select(*columns).where(GRANTS.c.pool == pool, GRANTS.c.released_at.is_(None)).order_by(GRANTS.c.seq)
        for job, tenant, device, leaving_at in connection.execute(query):
            self._held[job][device] = leaving_at
            self._of_tenant[tenant] += 1
        taken = {device for its in self._held.values() for device in its}
        self._free: dict[str, list[int]] = defaultdict(list)
        self._size = Counter(device.node for device in devices)
        for device in devices:
            if device.number not in taken:
                self._free[device.node].append(device.number)

    def most(self, row: Mapping[str, Any]) -> int:
        """So many more can be had at once. Devices that are being given back count for their holder still."""
        limit, quantum = self.allowances[row["tenant"]].devices, row["quantum"]
        most = self.free(quantum)
        if limit is not None:
            elsewhere = self.allowances[row["tenant"]].devices_elsewhere
            most = min(most, limit - elsewhere - self._of_tenant[row["tenant"]])
        return int(max(0, most) // quantum * quantum)

    def free(self, quantum: int) -> int:
        """So many nobody holds, in machines of so many."""
        return sum(len(free) // quantum * quantum for free in self._free.values())

    def reserve(self, devices: int) -> None:
        """A machine of so many is due, and none is free: nothing more is given of the computer that is nearest to it,
        or small jobs would keep every computer busy for ever.
        """
        large = [node for node, size in self._size.items() if size >= devices and node in self._free]
        if large:
            del self._free[max(large, key=lambda node: (len(self._free[node]), node))]

    def give(self, row: Mapping[str, Any], wanted: int) -> None:
        """Grant what is missing and free, or ask for what is too much."""
        held = self._held[row["id"]]
        number = min(self.most(row), (wanted - len(held)) // row["quantum"] * row["quantum"])
        if number > 0:
            whose = {"pool": self._pool, "job": row["id"], "tenant": row["tenant"], "granted_at": self._now}
            grants = [
                {**whose, "node": node, "device": device, "price_usd_per_hour": self.prices[device]}
                for _ in range(number // row["quantum"])
                for node, device in self._machine(row["quantum"])
            ]
            self._connection.execute(sa.insert(GRANTS), grants)
            self._of_tenant[row["tenant"]] += number
        staying = [device for device, leaving_at in held.items() if leaving_at is None]
        if len(staying) > wanted:  # those that it had for the shortest time
            mine = (GRANTS.c.pool == self._pool, GRANTS.c.released_at.is_(None))
            back = GRANTS.c.device.in_(staying[wanted:])
            self._connection.execute(sa.update(GRANTS).where(*mine, back).values(leaving_at=self._now))

    def _machine(self, devices: int) -> list[tuple[str, int]]:
        """So many of one computer: of that which has the fewest to spare, so that larger ones find room elsewhere."""
        roomy = [node for node, free in self._free.items() if len(free) >= devices]
        node = min(roomy, key=lambda node: len(self._free[node]))
        taken, self._free[node] = self._free[node][:devices], self._free[node][devices:]
        return [(node, device) for device in taken]


def _pause(connection: sa.Connection, tenants: list[str], now: float) -> None:
    """What they run and pay for goes back to the queue, with all that was trained: their drivers are told to leave."""
    if not tenants:
        return
    costs = (GRANTS.c.tenant.in_(tenants), GRANTS.c.released_at.is_(None), GRANTS.c.price_usd_per_hour > 0)
    paid = sa.select(GRANTS.c.job).where(*costs)
    theirs = (DRIVERS.c.tenant.in_(tenants), DRIVERS.c.job.in_(paid), DRIVERS.c.leave.is_(False))
    connection.execute(sa.update(DRIVERS).where(*theirs).values(leave=True))
    driven = sa.select(DRIVERS.c.job).where(DRIVERS.c.job.is_not(None))
    alone = (JOBS.c.id.in_(paid), JOBS.c.state == "running", JOBS.c.id.not_in(driven))
    for job in connection.execute(sa.select(JOBS.c.id).where(*alone)).scalars().all():
        release_all(connection, job, now)
        j.requeue(connection, job, "paused: the money of the month is spent")


def _largest(connection: sa.Connection, pool: str, now: float) -> dict[str, int]:
    """How many devices the largest computer has, of this pool and of every other that somebody serves."""
    served = sa.select(REPLICAS.c.pool).where(REPLICAS.c.alive_until >= now)
    query = sa.select(DEVICES.c.pool, sa.func.count()).group_by(DEVICES.c.pool, DEVICES.c.node)
    found: dict[str, int] = {}
    for name, devices in connection.execute(query.where(sa.or_(DEVICES.c.pool == pool, DEVICES.c.pool.in_(served)))):
        found[name] = max(devices, found.get(name, 0))
    return found


def _too_little(limit_usd: float, left_usd: float, needed_usd: float) -> str:
    left = f"of the tenant's {format_money(limit_usd)} of this month {format_money(max(0.0, left_usd))} are left"
    return f"{left}, and two minutes of a device cost {format_money(needed_usd)}"


def _too_large(row: Mapping[str, Any], largest: Mapping[str, int]) -> str:
    there = max(largest.values(), default=0)
    return f"it needs {row['quantum']} devices on one computer, and the largest has {there}"


def _put_off(connection: sa.Connection, row: Mapping[str, Any], why: str, now: float) -> None:
    """Another try after a delay that grows; others of the tenant may fit meanwhile."""
    delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(row["put_offs"], 10))
    later = {"reason": why, "not_before": now + delay_s, "put_offs": row["put_offs"] + 1}
    connection.execute(sa.update(JOBS).where(JOBS.c.id == row["id"], JOBS.c.state == "queued").values(later))
