"""The database of the service, as SQLite and as PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from elastune.service.database import ServiceDatabase
from elastune.service.tables import METADATA


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceDatabase]:
    if request.param == "sqlite":
        made = ServiceDatabase(str(tmp_path / "service.db"))
    else:
        made = ServiceDatabase(request.getfixturevalue("postgres_server"))
        with made.write() as connection:
            METADATA.drop_all(connection)
            connection.execute(sa.text("SELECT 1"))
    made.create()
    yield made
    made.close()
