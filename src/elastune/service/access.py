"""Who may ask for what: the token of a request, and the form that every refusal has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from elastune.service import schema as s
from elastune.service.service import Service
from elastune.service.tenants import ROLES, Role, Token

COOKIE = "elastune_token"
"""A page sends the token so: it is kept where no script can read it."""
PAGE_HEADER = "X-Elastune"
"""A page of another site can make a browser send the cookie, but not this header."""
SAFE = ("GET", "HEAD", "OPTIONS")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": s.Problem} for status in (400, 401, 403, 404, 405, 409, 413, 422, 503)
}
_bearer = HTTPBearer(auto_error=False)


class Refused(Exception):
    def __init__(self, status: int, error: str) -> None:
        self.status, self.error = status, error


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Given = Annotated[Service, Depends(service_of)]
JobId = Annotated[str, Path(min_length=1, max_length=120, pattern=r"^[A-Za-z0-9_.-]+$")]


def needs(role: Role) -> Callable[..., Token]:
    """The token of the request, if its role is this one or a higher one."""

    def token_of(
        request: Request,
        service: Given,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Token:
        secret = bearer.credentials if bearer is not None else request.cookies.get(COOKIE)
        token = service.tenants.who(secret) if secret else None
        if token is None:
            raise Refused(401, "give a token that is valid: Authorization: Bearer elt_...")
        if bearer is None and request.method not in SAFE and PAGE_HEADER not in request.headers:
            raise Refused(403, f"with a cookie, what changes something needs the header {PAGE_HEADER}: 1")
        if ROLES.index(token.role) < ROLES.index(role):
            raise Refused(403, f"this token has the role {token.role!r}, and this needs {role!r}")
        return token

    return token_of


Reader = Annotated[Token, Depends(needs("reader"))]
Member = Annotated[Token, Depends(needs("member"))]
Admin = Annotated[Token, Depends(needs("admin"))]
