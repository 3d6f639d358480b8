"""Tenants, their tokens and their quotas.

A token is shown once, when it is made. The database has its hash only: a token is 32 random bytes, so a plain SHA-256
is enough, nobody can try them all.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import sqlalchemy as sa

from elastune.errors import SpecError
from elastune.service.database import ServiceDatabase
from elastune.service.jobs import look_again
from elastune.service.tables import TENANTS, TOKENS

Role = Literal["reader", "member", "admin"]
ROLES: tuple[Role, ...] = ("reader", "member", "admin")
"""A reader looks, a member submits and cancels jobs of the tenant, an admin sees to tenants and tokens of all."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PREFIX = "elt_"


@dataclass(frozen=True, slots=True)
class Quota:
    """None: no limit."""

    max_devices: int | None = None
    max_running: int | None = None
    max_storage_bytes: int | None = None
    max_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    id: str
    share: float
    """Of the devices, against those of others, when there are too few for all."""
    quota: Quota
    created_at: float


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    tenant: str
    role: Role
    created_at: float
    revoked_at: float | None


_NO_LIMITS = Quota()


class Tenants:
    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def create(self, tenant: str, share: float = 1.0, quota: Quota = _NO_LIMITS) -> Tenant:
        if not _NAME.fullmatch(tenant):
            raise SpecError(
                f"tenant={tenant!r}: must be at most 63 lower-case letters, digits and '-', beginning with no '-'"
            )
        _check(share, quota)
        values = {"id": tenant, "share": share, "created_at": time.time(), **_columns(quota)}
        with self._database.write() as connection:
            if connection.execute(sa.select(TENANTS.c.id).where(TENANTS.c.id == tenant)).first():
                raise SpecError(f"tenant={tenant!r}: there is one of that name already")
            connection.execute(sa.insert(TENANTS), values)
        return self.get(tenant)

    def change(self, tenant: str, **given: Any) -> Tenant:
        """Its share or limits, by name. What is not given stays as it is, and None takes a limit away."""
        known = self.get(tenant)
        limits = {name: value for name, value in given.items() if name != "share"}
        _check(given.get("share", known.share), replace(known.quota, **limits))
        if given:
            with self._database.write() as connection:
                connection.execute(sa.update(TENANTS).where(TENANTS.c.id == tenant).values(given))
                look_again(connection, tenant)  # what kept its jobs waiting may be no more
        return self.get(tenant)

    def get(self, tenant: str) -> Tenant:
        with self._database.read() as connection:
            row = connection.execute(sa.select(TENANTS).where(TENANTS.c.id == tenant)).first()
        if row is None:
            raise SpecError(f"tenant={tenant!r}: there is none of that name")
        return _tenant(row)

    def all(self) -> list[Tenant]:
        with self._database.read() as connection:
            return [_tenant(row) for row in connection.execute(sa.select(TENANTS).order_by(TENANTS.c.id))]

    def create_token(self, tenant: str, role: Role) -> tuple[Token, str]:
        """The token, and its secret: that is shown now and never again."""
        if role not in ROLES:
            raise SpecError(f"role={role!r}: must be one of {', '.join(ROLES)}")
        self.get(tenant)
        with self._database.write() as connection:
            return _new_token(connection, tenant, role)

    def create_first(self, tenant: str, keep: Callable[[str], None], anyway: bool = False) -> str | None:
        """Where no administrator has a token, or `anyway`: a tenant, if it is not there, and an administrator's token,
        all or nothing. `keep` puts its secret away before anything is committed. None: there is one.
        """
        with self._database.write() as connection:
            if _administrators(connection) and not anyway:
                return None
            if connection.execute(sa.select(TENANTS.c.id).where(TENANTS.c.id == tenant)).first() is None:
                values = {"id": tenant, "share": 1.0, "created_at": time.time(), **_columns(_NO_LIMITS)}
                connection.execute(sa.insert(TENANTS), values)
            _, secret = _new_token(connection, tenant, "admin")
            keep(secret)
        return secret

    def tokens(self, tenant: str) -> list[Token]:
        self.get(tenant)
        query = sa.select(TOKENS).where(TOKENS.c.tenant == tenant).order_by(TOKENS.c.created_at)
        with self._database.read() as connection:
            return [_token(row) for row in connection.execute(query)]

    def revoke(self, token: str) -> None:
        """It is refused from now on. Nothing happens when it was revoked before."""
        now = sa.func.coalesce(TOKENS.c.revoked_at, time.time())
        with self._database.write() as connection:
            if _administrators(connection) == [token]:
                raise SpecError(f"token={token!r}: no other administrator has one: make another first")
            done = connection.execute(sa.update(TOKENS).where(TOKENS.c.id == token).values(revoked_at=now))
        if not done.rowcount:
            raise SpecError(f"token={token!r}: there is none of that id; `elastune tenant tokens NAME` shows all")

    def who(self, secret: str) -> Token | None:
        """Whose token this is; None if nobody's."""
        query = sa.select(TOKENS).where(TOKENS.c.hash == _hash(secret), TOKENS.c.revoked_at.is_(None))
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else _token(row)

    def is_valid(self, token: str) -> bool:
        """Whether it is accepted still."""
        query = sa.select(TOKENS.c.id).where(TOKENS.c.id == token, TOKENS.c.revoked_at.is_(None))
        with self._database.read() as connection:
            return connection.execute(query).first() is not None


def _administrators(connection: sa.Connection) -> list[str]:
    """Their tokens."""
    valid = (TOKENS.c.role == "admin", TOKENS.c.revoked_at.is_(None))
    return list(connection.execute(sa.select(TOKENS.c.id).where(*valid)).scalars())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _check(share: float, quota: Quota) -> None:
    if not 0 < share < float("inf"):
        raise SpecError(f"share={share!r}: must be a number above 0")
    for name, value in _columns(quota).items():
        if value is not None and not 0 <= value < float("inf"):
            raise SpecError(f"{name}={value!r}: must be 0 or more; leave it out for no limit")


def _columns(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in Quota.__slots__}


def _tenant(row: sa.Row[Any]) -> Tenant:
    quota = Quota(row.max_devices, row.max_running, row.max_storage_bytes, row.max_usd_per_month)
    return Tenant(row.id, row.share, quota, row.created_at)


def _token(row: sa.Row[Any]) -> Token:
    return Token(row.id, row.tenant, row.role, row.created_at, row.revoked_at)


def _new_token(connection: sa.Connection, tenant: str, role: Role) -> tuple[Token, str]:
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = Token(secrets.token_hex(6), tenant, role, time.time(), None)
    row = {"id": token.id, "tenant": tenant, "role": role, "hash": _hash(secret), "created_at": token.created_at}
    connection.execute(sa.insert(TOKENS), row)
    return token, secret
