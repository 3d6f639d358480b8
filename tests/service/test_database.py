"""The tables of the service and their version."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from elastune.errors import StorageError
from elastune.service.database import ServiceDatabase
from elastune.service.tables import REPLICAS, VERSION, VERSIONS


def test_tables_are_made_once_and_have_a_version(database: ServiceDatabase) -> None:
    database.create()
    with database.read() as connection:
        assert connection.execute(sa.select(VERSIONS.c.number)).scalars().all() == [VERSION]


def test_a_database_of_another_version_is_refused_and_left_as_it_is(database: ServiceDatabase) -> None:
    with database.write() as connection:
        connection.execute(sa.update(VERSIONS).values(number=VERSION + 1))
        REPLICAS.drop(connection)
    with pytest.raises(StorageError, match=f"has tables of version {VERSION + 1}, and this Elastune needs {VERSION}"):
        database.create()
    with database.read() as connection:
        assert not sa.inspect(connection).has_table(REPLICAS.name)


def test_tables_without_a_version_are_refused(database: ServiceDatabase) -> None:
    with database.write() as connection:
        VERSIONS.drop(connection)
    with pytest.raises(StorageError, match="has tables of version unknown"):
        database.create()
