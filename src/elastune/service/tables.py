"""The tables of the service. Times are unix seconds, ids are text, money is in dollars.

A job's whole life is in `history`, and who held which device when in `grants`: what the service promises (each job runs
once, no quota is ever exceeded) can be checked from them afterwards.
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()
Time = sa.Double

VERSION = 3
"""Of these tables: another number for every change of them."""
VERSIONS = sa.Table("version", METADATA, sa.Column("number", sa.Integer, primary_key=True, autoincrement=False))
"""One row: what the tables were made as."""

TENANTS = sa.Table(
    "tenants",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("share", sa.Double, nullable=False),
    sa.Column("max_devices", sa.Integer),
    sa.Column("max_running", sa.Integer),
    sa.Column("max_storage_bytes", sa.BigInteger),
    sa.Column("max_usd_per_month", sa.Double),
    sa.Column("created_at", Time, nullable=False),
)

TOKENS = sa.Table(
    "tokens",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("tenant", sa.ForeignKey("tenants.id"), nullable=False, index=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("hash", sa.String, nullable=False, unique=True),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("revoked_at", Time),
)

CODES = sa.Table(
    "codes",
    METADATA,
    sa.Column("tenant", sa.ForeignKey("tenants.id"), primary_key=True),
    sa.Column("hash", sa.String, primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", Time, nullable=False),
)

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String, nullable=False, unique=True),
    sa.Column("tenant", sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("spec_bytes", sa.Integer, nullable=False),
    sa.Column("code", sa.String),
    sa.Column("experiment", sa.String, index=True),
    # The same submission twice is one job: `digest` tells whether it is the same.
    sa.Column("key", sa.String),
    sa.Column("digest", sa.String, nullable=False),
    # The same again: all is computed, also scores that are known.
    sa.Column("rerun", sa.Boolean, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    # It begins with `least` devices, and takes up to `most`, by so many as one of its machines has.
    sa.Column("least", sa.Integer, nullable=False),
    sa.Column("most", sa.Integer, nullable=False),
    sa.Column("quantum", sa.Integer, nullable=False),
    # So many its driver can use at the moment; null: as many as it gets.
    sa.Column("wanted", sa.Integer),
    sa.Column("state", sa.String, nullable=False),
    # What it will be when it has finished, and why.
    sa.Column("outcome", sa.String),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Column("pool", sa.String),
    sa.Column("attempt", sa.Integer, nullable=False),
    # How often in a row it could not begin, how often a store or Ray could not be used, and how often its driver has
    # died, since it last went well.
    sa.Column("put_offs", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("deaths", sa.Integer, nullable=False),
    sa.Column("not_before", Time, nullable=False),
    # Who builds or finishes it, and until when he may.
    sa.Column("owner", sa.String),
    sa.Column("owned_until", Time, nullable=False),
    sa.Column("summary", sa.JSON, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("started_at", Time),
    sa.Column("ended_at", Time),
    sa.Column("deleted_at", Time),
    sa.UniqueConstraint("tenant", "key"),
    sa.Index("jobs_by_state", "state", "tenant", "number"),
    sa.Index("jobs_by_tenant", "tenant", "number"),
)

HISTORY = sa.Table(
    "history",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
)

DEVICES = sa.Table(
    "devices",
    METADATA,
    sa.Column("pool", sa.String, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # Ray's id of its computer; empty: that of the replica itself.
    sa.Column("node", sa.String, nullable=False),
    sa.Column("price_usd_per_hour", sa.Double, nullable=False),
)

GRANTS = sa.Table(
    "grants",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("device", sa.Integer, nullable=False),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("price_usd_per_hour", sa.Double, nullable=False),
    sa.Column("granted_at", Time, nullable=False),
    # The job was asked to leave it.
    sa.Column("leaving_at", Time),
    sa.Column("released_at", Time),
    sa.Index("grants_by_tenant", "tenant", "released_at"),
    sa.Index("grants_by_end", "released_at"),
)
# A device has one holder, whatever the code does.
sa.Index(
    "one_holder",
    GRANTS.c.pool,
    GRANTS.c.device,
    unique=True,
    sqlite_where=GRANTS.c.released_at.is_(None),
    postgresql_where=GRANTS.c.released_at.is_(None),
)

DRIVERS = sa.Table(
    "drivers",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("code", sa.String),
    sa.Column("host", sa.String, nullable=False),
    sa.Column("pid", sa.Integer),
    sa.Column("job", sa.String, unique=True),
    # It shall end, after what it does now.
    sa.Column("leave", sa.Boolean, nullable=False),
    sa.Column("alive_until", Time, nullable=False),
)

KEPT = sa.Table(
    "kept",
    METADATA,
    # What the computer of a pool keeps for a tenant besides its runs: environments and unpacked code.
    sa.Column("pool", sa.String, primary_key=True),
    sa.Column("tenant", sa.String, primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False),
)

REPLICAS = sa.Table(
    "replicas",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("alive_until", Time, nullable=False),
)
