"""The HTTP interface: who may do what, what is refused, and that a refusal says why."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from elastune.service.app import JSON_BYTES, create_app
from elastune.service.archive import pack
from elastune.service.database import ServiceDatabase
from elastune.service.jobs import finish, move
from elastune.service.limiter import Limiter
from elastune.service.places import Places
from elastune.service.service import Service
from elastune.service.tables import REPLICAS
from elastune.service.tenants import Quota, Role

SPEC: dict[str, Any] = {
    "name": "line",
    "trainable": "train.py:train",
    "space": {"lr": {"loguniform": [0.001, 1.0]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 2, "R": 2}},
}
OPEN_TO_ALL = {"/healthz", "/metrics", "/", "/api/v1/session"}


@dataclass
class Site:
    service: Service
    client: TestClient

    def token(self, tenant: str = "a", role: Role = "member", quota: Quota | None = None) -> dict[str, str]:
        if tenant not in {each.id for each in self.service.tenants.all()}:
            self.service.tenants.create(tenant, 1.0, quota or Quota())
        return {"Authorization": f"Bearer {self.service.tenants.create_token(tenant, role)[1]}"}

    def upload(self, headers: dict[str, str], data: bytes) -> str:
        response = self.client.put("/api/v1/code", content=data, headers=headers)
        assert response.status_code == 200, response.text
        return str(response.json()["code"])

    def submit(self, headers: dict[str, str], code: str, **more: Any) -> Any:
        response = self.client.post("/api/v1/jobs", json={"spec": SPEC, "code": code, **more}, headers=headers)
        assert response.status_code in (200, 201), response.text
        return response.json()

    def end(self, job: str) -> None:
        with self.service.database.write() as connection:
            assert finish(connection, job, "succeeded", "done") and move(connection, job, "succeeded")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    database = ServiceDatabase(str(tmp_path / "service.db"))
    database.create()
    service = Service(database, Places(tmp_path, str(tmp_path / "storage"), None))
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        yield Site(service, client)
    database.close()


@pytest.fixture
def code(tmp_path: Path) -> bytes:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("def train(config): pass\n")
    return pack(folder)


def routes(site: Site) -> list[tuple[str, str]]:
    """Every route that there is, so that a new one is tried too."""
    paths = site.client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def filled(path: str, job: str) -> str:
    known = {"job": job, "tenant": "a", "token_id": "0" * 12, "trial": "line-00000", "experiment": "none"}
    return re.sub(r"{(\w+)(:path)?}", lambda match: known.get(match[1], "x"), path)


@pytest.mark.parametrize("body", [b"{", b'{"spec": {},}', b"\xff\xfe"])
def test_what_is_no_json_is_said_to_be_none(site: Site, body: bytes) -> None:
    headers = {**site.token(), "Content-Type": "application/json"}
    response = site.client.post("/api/v1/jobs", content=body, headers=headers)
    assert response.status_code == 422 and response.json()["error"].startswith("the body is not JSON: ")


@pytest.mark.parametrize(
    ("body", "kind"), [(b"", "application/json"), (b"[]", "application/json"), (b"{}", "text/plain")]
)
def test_what_is_no_json_object_or_not_sent_as_one_is_told_what_to_send(site: Site, body: bytes, kind: str) -> None:
    response = site.client.post("/api/v1/jobs", content=body, headers={**site.token(), "Content-Type": kind})
    expected = "the body: must be a JSON object, sent with Content-Type: application/json"
    assert (response.status_code, response.json()["error"]) == (422, expected)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 100_000, "recursion depth"),
        (b'{"spec": {"seed": ' + b"9" * 5000 + b"}}", "Exceeds the limit (4300 digits)"),
        ('{"spec": {"name": "groß"}}'.encode("latin-1"), "'utf-8' codec can't decode byte 0xdf in position 22"),
    ],
    ids=["deep", "long", "latin-1"],
)
def test_what_json_chokes_on_is_named(site: Site, body: bytes, why: str) -> None:
    headers = {**site.token(), "Content-Type": "application/json"}
    response = site.client.post("/api/v1/jobs", content=body, headers=headers)
    error = response.json()["error"]
    assert response.status_code == 400 and error.startswith("the body is not JSON: ") and why in error


def test_every_route_wants_a_token(site: Site, code: bytes) -> None:
    job = site.submit(site.token(), site.upload(site.token(), code))["id"]
    tried = 0
    for method, path in routes(site):
        if path in OPEN_TO_ALL or not path.startswith("/api/"):
            continue
        for headers in ({}, {"Authorization": "Bearer elt_wrong"}, {"Authorization": "Basic x"}):
            response = site.client.request(method, filled(path, job), headers=headers)
            assert response.status_code == 401, f"{method} {path}: {response.status_code}"
            assert "token" in response.json()["error"]
            tried += 1
    assert tried >= 30


def test_a_token_of_another_tenant_finds_nothing_on_any_route(site: Site, code: bytes) -> None:
    job = site.submit(site.token(), site.upload(site.token(), code))["id"]
    strangers = [site.token("b", role) for role in ("reader", "member", "admin")]
    tried = 0
    for method, path in routes(site):
        if "{job}" not in path:
            continue
        for stranger in strangers:
            response = site.client.request(method, filled(path, job), headers=stranger)
            assert response.status_code in (403, 404), f"{method} {path}: {response.status_code} {response.text[:200]}"
            assert job in response.json()["error"] or response.status_code == 403
            tried += 1
    assert tried >= 9
    for stranger in strangers:
        assert site.client.get("/api/v1/jobs", headers=stranger).json()["jobs"] == []
        body = {"spec": SPEC, "code": site.upload(site.token(), code)}
        assert site.client.post("/api/v1/jobs", json=body, headers=stranger).status_code in (403, 422)
    assert site.client.get(f"/api/v1/jobs/{job}", headers=site.token()).json()["state"] == "accepted"


@pytest.mark.parametrize(
    ("role", "method", "path"),
    [
        ("reader", "POST", "/api/v1/jobs"),
        ("reader", "PUT", "/api/v1/code"),
        ("reader", "POST", "/api/v1/jobs/x/cancel"),
        ("reader", "DELETE", "/api/v1/jobs/x"),
        ("member", "GET", "/api/v1/tenants"),
        ("member", "POST", "/api/v1/tenants"),
        ("member", "PUT", "/api/v1/tenants/a"),
        ("member", "GET", "/api/v1/tenants/a/tokens"),
        ("member", "POST", "/api/v1/tenants/a/tokens"),
        ("member", "DELETE", "/api/v1/tokens/000000000000"),
    ],
)
def test_what_a_role_may_not_do_is_refused(site: Site, role: Role, method: str, path: str) -> None:
    response = site.client.request(method, path, headers=site.token(role=role), json={})
    assert response.status_code == 403 and role in response.json()["error"]


def test_a_change_of_a_tenant_changes_what_is_given_and_null_takes_a_limit_away(site: Site) -> None:
    headers = site.token("a", "admin")
    limits = {"max_devices": 8, "max_running": 2, "max_storage_bytes": 10**6, "max_usd_per_month": 9.5}
    site.client.post("/api/v1/tenants", json={"id": "b", "share": 2.5, **limits}, headers=headers)

    def changed(**given: Any) -> dict[str, Any]:
        response = site.client.put("/api/v1/tenants/b", json=given, headers=headers)
        assert response.status_code == 200, response.text
        return {name: response.json()[name] for name in ("share", *limits)}

    assert changed() == {"share": 2.5, **limits}
    assert changed(max_devices=3) == {"share": 2.5, **limits, "max_devices": 3}
    assert changed(share=1.5, max_running=None) == {"share": 1.5, **limits, "max_devices": 3, "max_running": None}


def test_a_change_that_cannot_be_or_of_a_tenant_that_is_not_there_is_refused(site: Site) -> None:
    headers = site.token("a", "admin")
    for tenant, given in (("b", {"max_devices": 3}), ("a", {"max_devices": -1}), ("a", {"share": None})):
        response = site.client.put(f"/api/v1/tenants/{tenant}", json=given, headers=headers)
        assert response.status_code == 422 and response.json()["error"]


def test_a_revoked_token_is_refused_from_then_on(site: Site) -> None:
    admin, member = site.token("a", "admin"), site.token("b")
    assert site.client.get("/api/v1/me", headers=member).status_code == 200
    known = site.client.get("/api/v1/tenants/b/tokens", headers=admin).json()
    assert "hash" not in known[0] and "secret" not in known[0]
    assert site.client.delete(f"/api/v1/tokens/{known[0]['id']}", headers=admin).status_code == 204
    assert site.client.get("/api/v1/me", headers=member).status_code == 401


def test_a_secret_is_shown_once_and_is_not_in_the_database(site: Site, tmp_path: Path) -> None:
    site.token("b")
    made = site.client.post("/api/v1/tenants/b/tokens", json={"role": "reader"}, headers=site.token("a", "admin"))
    secret = made.json()["secret"]
    assert site.client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()["role"] == "reader"
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("service.db*"))
    assert secret.encode() not in stored and secret.removeprefix("elt_").encode() not in stored


def test_the_same_submission_twice_is_one_job(site: Site, code: bytes) -> None:
    headers = site.token()
    uploaded = site.upload(headers, code)
    keyed = {**headers, "Idempotency-Key": "k"}
    first, second = site.submit(keyed, uploaded), site.submit(keyed, uploaded)
    assert first["id"] == second["id"]
    other = site.client.post("/api/v1/jobs", json={"spec": {**SPEC, "seed": 1}, "code": uploaded}, headers=keyed)
    assert other.status_code == 409 and first["id"] in other.json()["error"]


def test_the_same_submission_is_known_again_whatever_has_become_of_quotas_and_stores(site: Site, code: bytes) -> None:
    headers = {**site.token("full"), "Idempotency-Key": "k"}
    uploaded = site.upload(headers, code)
    first = site.submit(headers, uploaded)
    site.service.tenants.change("full", max_storage_bytes=1)
    site.service.places.remove_archive("full", uploaded)
    assert site.submit(headers, uploaded)["id"] == first["id"]
    new = site.client.post(
        "/api/v1/jobs", json={"spec": SPEC, "code": uploaded}, headers={**headers, "Idempotency-Key": "l"}
    )
    assert new.status_code in (409, 503)


def test_uploads_at_the_same_time_do_not_exceed_the_quota_together(site: Site, tmp_path: Path) -> None:
    headers, archives = site.token("small", quota=Quota(max_storage_bytes=1500)), []
    for number in range(8):
        folder = tmp_path / f"code{number}"
        folder.mkdir()
        (folder / "train.py").write_bytes(random.Random(number).randbytes(400))
        archives.append(pack(folder))
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda data: site.client.put("/api/v1/code", content=data, headers=headers), archives))
    stored = site.service.usage("small").stored_bytes
    assert max(map(len, archives)) <= stored <= 1500
    kept = [path.stat().st_size for path in (tmp_path / "storage" / "code" / "small").iterdir()]
    assert sum(kept) == stored


def test_an_experiment_is_as_many_jobs_as_it_has_seeds(site: Site, code: bytes) -> None:
    headers = site.token()
    first = site.submit({**headers, "Idempotency-Key": "k"}, site.upload(headers, code), seeds=3)
    again = site.submit({**headers, "Idempotency-Key": "k"}, site.upload(headers, code), seeds=3)
    jobs = site.client.get("/api/v1/jobs", headers=headers).json()["jobs"]
    assert again["id"] == first["id"] and len(jobs) == 3 and first["experiment"]
    assert {job["experiment"] for job in jobs} == {first["experiment"]}
    specs = [site.client.get(f"/api/v1/jobs/{job['id']}", headers=headers).json()["spec"] for job in jobs]
    assert sorted(spec["seed"] for spec in specs) == [0, 1, 2]


def test_a_budget_is_that_of_devices_at_the_price_of_the_service(site: Site, code: bytes) -> None:
    headers, database = site.token(), site.service.database
    hash, spec = site.upload(headers, code), {**SPEC, "budget": "$1"}
    refused = site.client.post("/api/v1/jobs", json={"spec": spec, "code": hash}, headers=headers)
    assert refused.status_code == 422 and "needs a price" in refused.json()["error"]
    Limiter(database).offer("here", {"": 2}, 3.5)
    with database.write() as connection:
        connection.execute(sa.insert(REPLICAS), {"id": "r", "pool": "here", "alive_until": time.time() + 60.0})
    for given in ({}, {"price": "$0.10"}):
        assert site.submit(headers, hash, spec={**spec, **given})["spec"]["price"] == 3.5
    planned = {"deadline": "1h", "algorithm": {"SEER": {"t_min": "1m"}}}
    assert site.submit(headers, hash, spec={**spec, **planned})["spec"]["price"] == 3.5
    assert "price" not in site.submit(headers, hash, spec=SPEC)["spec"]


def test_seeds_count_from_0_where_the_seed_is_null(site: Site, code: bytes) -> None:
    headers = site.token()
    first = site.submit(headers, site.upload(headers, code), spec={**SPEC, "seed": None}, seeds=2)
    found = site.client.get(f"/api/v1/experiments/{first['experiment']}", headers=headers).json()
    assert sorted(job["seed"] for job in found["jobs"]) == [0, 1]


def test_an_experiment_whose_last_seed_is_too_large_is_refused_as_a_whole(site: Site, code: bytes) -> None:
    headers = site.token()
    body = {"spec": {**SPEC, "seed": 2**53 - 1}, "code": site.upload(headers, code), "seeds": 3}
    response = site.client.post("/api/v1/jobs", json=body, headers=headers)
    assert response.status_code == 422 and "seed of the last job=9007199254740993" in response.json()["error"]
    assert site.client.get("/api/v1/jobs", headers=headers).json()["jobs"] == []


def test_a_job_can_be_run_again_and_what_is_stored_of_it_deleted(site: Site, code: bytes, tmp_path: Path) -> None:
    headers = site.token()
    job = site.submit(headers, site.upload(headers, code))
    (tmp_path / "runs" / job["id"]).mkdir(parents=True)
    (tmp_path / "storage" / "checkpoints" / job["id"]).mkdir(parents=True)
    busy = site.client.delete(f"/api/v1/jobs/{job['id']}", headers=headers)
    assert busy.status_code == 409 and "cancel it first" in busy.json()["error"]
    site.end(job["id"])
    again = site.client.post(f"/api/v1/jobs/{job['id']}/rerun", headers=headers)
    assert again.status_code == 201 and again.json()["spec"] == job["spec"] and again.json()["id"] != job["id"]
    assert site.client.delete(f"/api/v1/jobs/{job['id']}", headers=headers).status_code == 204
    assert site.client.get(f"/api/v1/jobs/{job['id']}", headers=headers).status_code == 404
    assert not (tmp_path / "runs" / job["id"]).exists()
    assert not (tmp_path / "storage" / "checkpoints" / job["id"]).exists()
    assert [each["id"] for each in site.client.get("/api/v1/jobs", headers=headers).json()["jobs"]] == [
        again.json()["id"]
    ]


def test_the_key_of_a_deleted_job_can_be_used_again(site: Site, code: bytes) -> None:
    headers = {**site.token(), "Idempotency-Key": "k"}
    hashed = site.upload(headers, code)
    job = site.submit(headers, hashed)["id"]
    site.end(job)
    assert site.client.delete(f"/api/v1/jobs/{job}", headers=headers).status_code == 204
    again = site.submit(headers, hashed)
    assert again["id"] != job and again["state"] == "accepted"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"algorithm": {"FIFI": {}}}, "FIFO"),
        ({"space": {"lr": {"loguniform": [1.0, 0.1]}}}, "lr"),
        ({"metric": None}, "metric"),
        ({"deadline": "soon"}, "deadline"),
        ({"colour": "red"}, "colour"),
        ({"storage": "/etc"}, "the service keeps runs itself"),
        ({"journal": "postgresql://x"}, "the service keeps journals itself"),
        ({"cluster": {"provider": "local"}}, "devices of the service"),
        ({"trainable": 3}, "trainable"),
        ({"trainable": f"{os.__file__}:getcwd"}, "os.py in the code"),
        ({"searcher": "search.py:Search"}, "searcher='search.py:Search': there is no search.py in the code"),
        ({"searcher": f"{os.__file__}:PathLike"}, "os.py in the code"),
        ({"trainable": f"{'a' * 300}.py:train"}, "must have at most 255 bytes"),
        ({"trainable": f"{'ä' * 130}.py:train"}, "must have at most 255 bytes"),
        ({"algorithm": {"PBT": {"n": 4, "R": 10**30, "perturbation_interval": 10**28}}}, "at most 9007199254740992"),
        ({"algorithm": {"SpotTune": {"n": 4, "R": 10**400}}}, "at most 9007199254740992"),
        ({"space": {"lr": {"quniform": [0, 1e30, 1]}}}, "must have at most 2**53 steps"),
        ({"metric": "\ud800"}, "cannot be stored"),
        ({"space": {"a\0": 1}}, "cannot be stored"),
        ({"space": {"lr": nested(300)}}, "nested more than 50 deep"),
        ({"grace": "30d"}, "grace='30d': must be at most 30s"),
        ({"algorithm": {"PBT": {"n": 4, "R": 10**6, "perturbation_interval": 1}}}, "more than 10,000 such intervals"),
        ({"algorithm": {"SuccessiveHalving": {"n": 10**9, "r": 1, "R": 9}}}, "a stage of 1,000,000,000 trials"),
        ({"algorithm": {"Hyperband": {"R": 2**40}}}, "no more than 1,000,000 are allowed here"),
        ({"algorithm": {"Hyperband": {"R": 10**400}}}, "R=2**1328 or more: must be at most 9007199254740992 (2**53)"),
        ({"planning": {"profile": "/etc/passwd"}}, "must be a file in the folder of the code"),
        ({"planning": {"profile": "../../other.yaml"}}, "must be a file in the folder of the code"),
        ({"allocator": {"Fluid": {"profile": "/etc/passwd"}}}, "must be a file in the folder of the code"),
        (
            {"cluster": {"allocator": {"Fluid": {"profile": "../o.yaml"}}}},
            "must be a file in the folder of the code",
        ),
    ],
)
def test_a_bad_experiment_is_refused_with_what_is_wrong(
    site: Site, code: bytes, change: dict[str, Any], said: str
) -> None:
    headers = site.token()
    body = json.dumps({"spec": {**SPEC, **change}, "code": site.upload(headers, code)})
    as_json = {**headers, "Content-Type": "application/json"}
    response = site.client.post("/api/v1/jobs", content=body, headers=as_json)
    assert response.status_code == 422 and said in response.json()["error"]
    assert str(site.service.places.home) not in response.json()["error"] and "tmp" not in response.json()["error"]
    assert site.client.get("/api/v1/jobs", headers=headers).json()["jobs"] == []


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_refused_while_it_arrives(site: Site, declared: bool) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1 << 16
            yield b" " * (1 << 16)

    content: Any = b" " * (JSON_BYTES + 1) if declared else endless()
    headers = {**site.token(), "Content-Type": "application/json"}
    response = site.client.post("/api/v1/jobs", content=content, headers=headers)
    assert response.status_code == 413 and f"{JSON_BYTES:,}" in response.json()["error"]


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for header, data in members:
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, target
    return header


ATTACKS: dict[str, Callable[[], bytes]] = {
    "an absolute path": lambda: archive((member("/tmp/elastune-evil"), b"x")),
    "a path upwards": lambda: archive((member("a/../../evil"), b"x")),
    "a link": lambda: archive((member("link", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "a hard link": lambda: archive((member("link", tarfile.LNKTYPE, "train.py"), b"")),
    "a device": lambda: archive((member("device", tarfile.CHRTYPE), b"")),
    "a pipe": lambda: archive((member("pipe", tarfile.FIFOTYPE), b"")),
    "a bomb": lambda: gzip.compress(archive_of_zeros(), 9),
    "no archive": lambda: b"hello",
    "a cut-off archive": lambda: archive((member("train.py"), b"x" * 100_000))[:-20],
}


def archive_of_zeros() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        header = tarfile.TarInfo("zeros")
        header.size = 64 << 20
        tar.addfile(header, io.BytesIO(bytes(header.size)))
    return packed.getvalue()


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_code_that_attacks_is_refused_and_leaves_nothing_behind(site: Site, tmp_path: Path, attack: str) -> None:
    headers = site.token()
    response = site.client.put("/api/v1/code", content=ATTACKS[attack](), headers=headers)
    assert response.status_code == 422, response.text
    assert "archive" in response.json()["error"] or "code" in response.json()["error"]
    assert not Path("/tmp/elastune-evil").exists() and not list(tmp_path.rglob("*.tar.gz"))
    assert site.client.get("/api/v1/me", headers=headers).json()["usage"]["stored_bytes"] == 0


def test_code_that_the_store_has_lost_is_stored_again(site: Site, code: bytes) -> None:
    headers = site.token()
    hashed = site.upload(headers, code)
    site.service.places.remove_archive("a", hashed)
    assert site.upload(headers, code) == hashed
    assert site.submit(headers, hashed)["state"] == "accepted"


def with_folder(tmp_path: Path, name: str) -> bytes:
    folder = tmp_path / "odd"
    (folder / name).mkdir(parents=True)
    (folder / name / "x").write_text("")
    (folder / "train.py").write_text("def train(config): pass\n")
    return pack(folder)


def test_code_with_a_folder_where_the_experiment_is_put_is_refused(site: Site, tmp_path: Path) -> None:
    headers = site.token()
    code = site.upload(headers, with_folder(tmp_path, "elastune-job.yaml"))
    response = site.client.post("/api/v1/jobs", json={"spec": SPEC, "code": code}, headers=headers)
    assert response.status_code == 422
    assert response.json()["error"].startswith("the code has a folder elastune-job.yaml: give it another name")


def test_a_folder_may_have_the_name_of_any_other_file(site: Site, tmp_path: Path) -> None:
    headers = site.token()
    assert site.submit(headers, site.upload(headers, with_folder(tmp_path, "job.yaml")))["state"] == "accepted"


def test_more_code_than_the_quota_has_room_for_is_refused(site: Site, code: bytes) -> None:
    headers = site.token("small", quota=Quota(max_storage_bytes=len(code) - 1))
    response = site.client.put("/api/v1/code", content=code, headers=headers)
    assert response.status_code == 409 and "ask for more room" in response.json()["error"]


def test_health_metrics_and_the_description_are_there(site: Site) -> None:
    assert site.client.get("/healthz").json() == {"status": "ok"}
    assert 'elastune_jobs{state="running"} 0.0' in site.client.get("/metrics").text
    paths = site.client.get("/openapi.json").json()["paths"]
    assert {"/api/v1/jobs", "/api/v1/code", "/healthz", "/metrics"} <= set(paths)


def test_where_the_database_is_and_whose_is_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = ServiceDatabase("postgresql://someone:secret@127.0.0.1:1/theirs")
    app = create_app(Service(database, Places(tmp_path, str(tmp_path / "storage"), None)))
    with TestClient(app) as client:
        for path in ("/healthz", "/metrics", "/api/v1/jobs"):
            response = client.get(path, headers={"Authorization": "Bearer elt_x"})
            assert response.status_code == 503 and "cannot be used at the moment" in response.json()["error"]
            assert not any(word in response.text for word in ("someone", "secret", "127.0.0.1", "theirs"))
    assert "127.0.0.1" in caplog.text and "secret" not in caplog.text, "who serves is told"
    database.close()


def wide(parameters: int) -> dict[str, Any]:
    return {
        **SPEC,
        "trainable": "package.module:train",
        "space": {f"x{i}": {"uniform": [0, 1]} for i in range(parameters)},
    }


@pytest.mark.parametrize(("parameters", "seeds"), [(2000, 200), (2000, None), (4, 20)])
def test_a_submission_that_would_itself_exceed_the_quota_is_refused(
    site: Site, parameters: int, seeds: int | None
) -> None:
    headers = site.token("small", quota=Quota(max_storage_bytes=1000))
    given = {"spec": wide(parameters), "seeds": seeds}
    response = site.client.post("/api/v1/jobs", json=given, headers=headers)
    assert response.status_code == 409 and "its quota is 1,000" in response.json()["error"]
    assert site.service.usage("small").stored_bytes == 0
    assert site.client.get("/api/v1/jobs", headers=headers).json()["jobs"] == []


def test_submissions_at_the_same_time_do_not_exceed_the_quota_together(site: Site) -> None:
    headers, body = site.token("small", quota=Quota(max_storage_bytes=1000)), {"spec": wide(10)}
    with ThreadPoolExecutor(8) as clients:
        posted = clients.map(lambda _: site.client.post("/api/v1/jobs", json=body, headers=headers), range(8))
    assert {response.status_code for response in posted} == {201, 409}
    assert 0 < site.service.usage("small").stored_bytes <= 1000


def test_specifications_count_as_stored(site: Site, code: bytes) -> None:
    headers = site.token()
    hashed = site.upload(headers, code)
    before = site.service.usage("a").stored_bytes
    site.submit(headers, hashed, spec={**SPEC, "metric": "m" * 5000})
    assert site.service.usage("a").stored_bytes >= before + 5000


def test_what_is_not_there_is_said_in_the_same_form(site: Site) -> None:
    for method, path in (("GET", "/api/v1/nothing"), ("PATCH", "/api/v1/jobs")):
        response = site.client.request(method, path, headers=site.token())
        assert response.status_code in (404, 405) and response.json()["error"]
