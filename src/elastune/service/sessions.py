"""A page logs in: its token becomes a cookie that scripts cannot read and that no other site can make use of."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from elastune.service import read_schema as r
from elastune.service.access import COOKIE, PROBLEMS, Given, Refused

SESSION_S = 30 * 86_400

sessions = APIRouter(prefix="/api/v1", responses=PROBLEMS)


@sessions.post("/session", status_code=204)
def log_in(given: r.Login, request: Request, response: Response, service: Given) -> None:
    """Keep a token as a cookie."""
    if service.tenants.who(given.token) is None:
        raise Refused(401, "this token is not valid: ask an administrator for one, or copy all of it")
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, given.token, max_age=SESSION_S, path="/", secure=secure, httponly=True, samesite="strict"
    )


@sessions.delete("/session", status_code=204)
def log_out(response: Response) -> None:
    """Forget it."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
