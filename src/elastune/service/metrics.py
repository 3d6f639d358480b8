"""Metrics for Prometheus, read from the database: every replica tells the same. Nothing of tenants: they are told to
whoever asks.
"""

from __future__ import annotations

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from elastune.service.database import ServiceDatabase, now
from elastune.service.states import FOLLOWS
from elastune.service.tables import DEVICES, DRIVERS, GRANTS, JOBS, REPLICAS


def metrics_text(database: ServiceDatabase) -> str:
    registry = CollectorRegistry()
    jobs = Gauge("elastune_jobs", "Jobs by state", ["state"], registry=registry)
    devices = Gauge("elastune_devices", "Devices of a pool", ["pool"], registry=registry)
    held = Gauge("elastune_devices_held", "Devices of a pool that jobs hold", ["pool"], registry=registry)
    drivers = Gauge("elastune_drivers", "Driver processes", registry=registry)
    replicas = Gauge("elastune_replicas", "Replicas of the service that are alive", registry=registry)
    count = sa.func.count()
    with database.read() as connection:
        states: dict[str, int] = dict(connection.execute(sa.select(JOBS.c.state, count).group_by(JOBS.c.state)).all())
        for state in FOLLOWS:
            jobs.labels(state).set(states.get(state, 0))
        for pool, number in connection.execute(sa.select(DEVICES.c.pool, count).group_by(DEVICES.c.pool)):
            devices.labels(pool).set(number)
        query = sa.select(GRANTS.c.pool, count).where(GRANTS.c.released_at.is_(None)).group_by(GRANTS.c.pool)
        for pool, number in connection.execute(query):
            held.labels(pool).set(number)
        alive = sa.select(count).select_from(REPLICAS).where(REPLICAS.c.alive_until > now(connection))
        replicas.set(connection.execute(alive).scalar() or 0)
        drivers.set(connection.execute(sa.select(count).select_from(DRIVERS)).scalar() or 0)
    return generate_latest(registry).decode()
