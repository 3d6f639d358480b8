"""The portal: files that a browser runs, all from here."""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "portal"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # A new version of the service has a new portal: the browser asks whether its copy is still right.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def add_portal(app: FastAPI) -> None:
    app.add_api_route("/", _index, methods=["GET"], include_in_schema=False)
    app.mount("/portal", _Files(directory=FOLDER))


def _index() -> FileResponse:
    return FileResponse(FOLDER / "index.html", headers=HEADERS)
