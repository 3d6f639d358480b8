"""Refuses what is too large while it arrives, before anybody keeps it in memory."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """`limit` says how many bytes the body of a request to a path may have."""

    def __init__(self, app: ASGIApp, limit: Callable[[str], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit, seen = self._limit(scope["path"]), 0
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            await _refuse(send, limit)
            return

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, _text(limit))  # the app tells it as it tells all others
            return message

        await self._app(scope, counted, send)


def _text(limit: int) -> str:
    return f"the body is too large: at most {limit:,} bytes are allowed here"


async def _refuse(send: Send, limit: int) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": _text(limit)}).encode()})
