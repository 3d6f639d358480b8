"""How a service begins: where it keeps things, and its first token. How it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.made_jobs import SPEC
from tests.service.storm import running

from elastune.cli_service import _as_typed
from elastune.errors import SpecError
from elastune.service.database import ServiceDatabase
from elastune.service.serve import Settings, open_service
from elastune.service.supervisor import Pool
from elastune.service.tables import DRIVERS, TOKENS
from elastune.service.tenants import Tenants


def test_a_relative_storage_is_the_same_for_drivers_in_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = open_service(Settings(Path("home"), None, "./store/", Pool("here", 1)))
    assert service.places.storage == str(tmp_path / "store") and service.places.home == tmp_path / "home"
    service.database.close()


@pytest.mark.parametrize("home", ["file", "file/below"])
def test_a_home_that_can_be_no_folder_is_refused(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=f"--home .*{home}: cannot be made a folder: "):
        open_service(Settings(tmp_path / home, None, None, Pool("here", 1)))


def test_a_storage_of_no_known_kind_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--storage nope://"):
        open_service(Settings(tmp_path / "home", None, "nope://user:secret@host", Pool("here", 1)))
    assert not (tmp_path / "home").exists()


def test_what_the_start_says_to_type_is_found_by_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tmp_path / ".venv" / "bin" / "elastune"
    ours.parent.mkdir(parents=True)
    ours.touch(0o755)
    monkeypatch.setattr("sys.executable", str(ours.with_name("python")))
    monkeypatch.setenv("PATH", str(ours.parent))
    assert _as_typed() == "elastune"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _as_typed() == str(ours)
    monkeypatch.chdir(tmp_path)
    assert _as_typed() == ".venv/bin/elastune"


def test_a_first_token_that_cannot_be_kept_is_not_made(database: ServiceDatabase) -> None:
    tenants, kept = Tenants(database), list[str]()

    def fails(secret: str) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        tenants.create_first("default", fails)
    assert tenants.all() == []
    secret = tenants.create_first("default", kept.append)
    assert secret is not None and kept == [secret]
    token = tenants.who(secret)
    assert token is not None and token.role == "admin"
    assert tenants.create_first("default", kept.append) is None and kept == [secret]


def test_there_is_always_a_way_back_to_an_administrator(database: ServiceDatabase) -> None:
    tenants, kept = Tenants(database), list[str]()
    tenants.create("a")
    tenants.create_token("a", "member")
    first = tenants.create_first("default", kept.append)
    assert first is not None, "a member is no administrator"
    (last,) = tenants.tokens("default")
    with pytest.raises(SpecError, match="make another first"):
        tenants.revoke(last.id)
    assert tenants.who(first) == last
    other = tenants.create_first("default", kept.append, anyway=True)
    assert other is not None and other != first and kept == [first, other]
    tenants.revoke(last.id)
    tenants.revoke(last.id)
    assert tenants.who(first) is None and tenants.who(other) is not None
    with database.write() as connection:
        connection.execute(sa.update(TOKENS).values(revoked_at=1.0))
    assert tenants.create_first("default", kept.append) is not None


@pytest.mark.timeout(120)
def test_a_service_that_is_told_to_end_pauses_its_jobs_first(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as driver, running(tmp_path, 1) as service:
        row: dict[str, object] = {
            "id": "100",
            "pool": socket.gethostname(),
            "tenant": "default",
            "host": socket.gethostname(),
        }
        row |= {"pid": driver.pid, "job": None, "leave": False, "alive_until": time.time() + 100.0}
        database, process = service.database, service.process
        assert process is not None
        with database.write() as connection:
            connection.execute(sa.insert(DRIVERS), row)
        process.terminate()
        assert process.wait(60.0) == 128 + signal.SIGTERM
        with database.read() as connection:
            assert connection.execute(sa.select(DRIVERS.c.leave)).scalar() is True
        database.close()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_service_that_is_told_to_end_does_not_wait_for_a_build(tmp_path: Path) -> None:
    code, begun = tmp_path / "code", tmp_path / "begun"
    code.mkdir()
    (code / "train.py").write_text("")
    setup = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    (code / "setup.py").write_text(setup)
    with running(tmp_path, 1) as service:
        process = service.process
        assert process is not None
        service.admin().submit({**SPEC, "metric": "loss"}, code)
        while not begun.exists() or not begun.read_text():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 128 + signal.SIGINT
    builds = Path(f"/proc/{begun.read_text()}/cmdline")
    while builds.exists() and builds.read_bytes():  # one that has ended, and that nobody has asked for, has no words
        time.sleep(0.05)
