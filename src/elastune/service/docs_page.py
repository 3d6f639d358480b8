"""`/docs`: the routes, made from the OpenAPI document. That of FastAPI loads its scripts from another host."""

from __future__ import annotations

from html import escape

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from elastune.service.pages import HEADERS

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Elastune {version}: HTTP routes</title>
<h1>HTTP routes of Elastune {version}</h1>
<p>A token goes into the header <code>Authorization: Bearer elt_...</code>.
<a href="openapi.json">openapi.json</a> has every field.</p>
<table>
{rows}
</table>
</html>
"""


def add_docs(app: FastAPI) -> None:
    def docs() -> HTMLResponse:
        return HTMLResponse(_page(app), headers=HEADERS)

    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)


def _page(app: FastAPI) -> str:
    routes = [
        (path, method.upper(), operation.get("description") or operation["summary"])
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    rows = [
        f"<tr><td>{escape(method)}<td><code>{escape(path)}</code><td>{escape(text)}"
        for path, method, text in sorted(routes)
    ]
    return _PAGE.format(version=escape(app.version), rows="\n".join(rows))
