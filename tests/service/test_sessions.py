"""A page of the portal: logged in with a cookie that scripts cannot read, and nothing from another host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.service.made_jobs import Made

from elastune.service.access import COOKIE
from elastune.service.app import create_app


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made.in_folder(tmp_path)
    yield made
    made.service.database.close()


@pytest.fixture
def client(made: Made) -> Iterator[TestClient]:
    with TestClient(create_app(made.service)) as client:
        yield client


def log_in(client: TestClient, token: str) -> str:
    response = client.post("/api/v1/session", json={"token": token})
    assert response.status_code == 204, response.text
    return str(response.headers["set-cookie"])


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(made: Made, client: TestClient) -> None:
    token = made.token("a")
    parts = {part.strip().lower() for part in log_in(client, token).split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= parts and "secure" not in parts
    assert client.get("/api/v1/me").json()["tenant"]["id"] == "a"
    with TestClient(create_app(made.service), base_url="https://tuning.example") as encrypted:
        assert "; Secure" in log_in(encrypted, token)


def test_a_wrong_token_is_no_session(client: TestClient) -> None:
    response = client.post("/api/v1/session", json={"token": "elt_wrong"})
    assert response.status_code == 401 and "not valid" in response.json()["error"]
    assert "set-cookie" not in response.headers and client.get("/api/v1/me").status_code == 401


def test_another_site_cannot_log_somebody_in(made: Made, client: TestClient) -> None:
    body = f'{{"token": "{made.token("a")}"}}'
    response = client.post("/api/v1/session", content=body, headers={"Content-Type": "text/plain"})
    assert response.status_code == 422 and "set-cookie" not in response.headers


def test_with_a_cookie_what_changes_something_needs_the_header_of_the_portal(made: Made, client: TestClient) -> None:
    log_in(client, made.token("a"))
    job = made.job("a", state="queued").id
    refused = client.post(f"/api/v1/jobs/{job}/cancel")
    assert refused.status_code == 403 and "X-Elastune" in refused.json()["error"]
    assert client.delete(f"/api/v1/jobs/{job}").status_code == 403
    assert client.put("/api/v1/code", content=b"x").status_code == 403
    assert client.get(f"/api/v1/jobs/{job}").json()["state"] == "queued"
    assert client.post(f"/api/v1/jobs/{job}/cancel", headers={"X-Elastune": "1"}).status_code == 200


def test_with_a_token_in_the_header_no_other_is_needed(made: Made, client: TestClient) -> None:
    headers = {"Authorization": f"Bearer {made.token('a')}"}
    job = made.job("a", state="queued").id
    assert client.post(f"/api/v1/jobs/{job}/cancel", headers=headers).status_code == 200


def test_logging_out_forgets_the_cookie(made: Made, client: TestClient) -> None:
    log_in(client, made.token("a"))
    assert client.get("/api/v1/me").status_code == 200
    assert client.delete("/api/v1/session").status_code == 204
    assert COOKIE not in client.cookies and client.get("/api/v1/me").status_code == 401


def test_a_revoked_token_ends_its_sessions(made: Made, client: TestClient) -> None:
    log_in(client, made.token("a"))
    for token in made.service.tenants.tokens("a"):
        made.service.tenants.revoke(token.id)
    assert client.get("/api/v1/me").status_code == 401


def test_the_list_of_routes_is_complete_and_nothing_comes_from_another_host(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path in client.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in page.text
    for text in (page.text, client.get("/").text):
        assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text) and "cdn" not in text
    assert client.get("/redoc").status_code == 404
