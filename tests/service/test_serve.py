"""How a service begins: where it keeps things, and its first token."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastune.service.database import ServiceDatabase
from elastune.service.serve import Settings, open_service
from elastune.service.supervisor import Pool
from elastune.service.tenants import Tenants


def test_a_relative_storage_is_the_same_for_drivers_in_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = open_service(Settings(Path("home"), None, "./store/", Pool("here", 1)))
    assert service.places.storage == str(tmp_path / "store") and service.places.home == tmp_path / "home"
    service.database.close()


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
