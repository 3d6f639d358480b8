"""One suite for every journal, then what only a database can suffer."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from elastune.errors import JournalDamaged, JournalTaken, SpecError, StorageError
from elastune.record.journal import Journal, MemoryJournal, SqlJournal

BODIES = [b'{"n":%d}' % n for n in range(5)]


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """An empty schema of its own for every test."""
    name = f"test_{secrets.token_hex(8)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{postgres_server}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "journal.db")


@pytest.fixture(params=["memory", "sqlite", "sqlite in groups", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    opened: Journal
    if request.param == "memory":
        opened = MemoryJournal()
    elif request.param == "postgres":
        opened = SqlJournal(request.getfixturevalue("postgres_url"), "r")
    else:
        opened = SqlJournal(tmp_path / "journal.db", "r", group=3 if "groups" in request.param else 1)
    with closing(opened):
        yield opened


def fill(journal: Journal, bodies: list[bytes] = BODIES) -> None:
    for seq, body in enumerate(bodies):
        journal.append(seq, body)


def write_run(url: str, run: str = "r") -> None:
    with closing(SqlJournal(url, run)) as journal:
        fill(journal)


def read_run(url: str, run: str = "r") -> list[bytes]:
    with closing(SqlJournal(url, run, must_exist=True)) as journal:
        return list(journal.read())


def tamper(url: str, statement: str) -> None:
    """Change the database behind the journal's back."""
    full = url.replace("postgresql:", "postgresql+psycopg:") if "://" in url else f"sqlite:///{url}"
    engine = sa.create_engine(full, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


# ----------------------------------------------------------------------------------------------------- every journal


def test_bodies_come_back_in_order_from_any_start(journal: Journal) -> None:
    fill(journal)
    assert list(journal.read()) == BODIES
    assert list(journal.read(3)) == BODIES[3:]
    assert list(journal.read(5)) == []
    assert journal.warnings == []


@pytest.mark.parametrize("seq", [0, 4, 6, 100])
def test_only_the_next_seq_can_be_appended(journal: Journal, seq: int) -> None:
    fill(journal)
    with pytest.raises(JournalTaken, match="another driver writes to run"):
        journal.append(seq, b"x")
    journal.append(5, b"y")
    assert list(journal.read()) == [*BODIES, b"y"]


def test_appending_goes_on_while_reading(journal: Journal) -> None:
    fill(journal)
    for seq, _ in enumerate(journal.read(), start=5):
        journal.append(seq, b"more")
    assert len(list(journal.read())) == 10


def test_snapshot_comes_back_by_its_key(journal: Journal) -> None:
    fill(journal)
    journal.save_snapshot(2, "v1", b"two")
    journal.save_snapshot(4, "v2", b"four")
    assert journal.newest_snapshot("v2") == (4, b"four")
    assert journal.newest_snapshot("v1") == (2, b"two")
    assert journal.newest_snapshot("v3") is None


def test_only_the_newest_two_snapshots_are_kept(journal: Journal) -> None:
    fill(journal)
    for seq, key in [(1, "old"), (2, "new"), (3, "new"), (3, "other")]:
        journal.save_snapshot(seq, key, key.encode())
    assert journal.newest_snapshot("old") is None
    assert journal.newest_snapshot("new") == (2, b"new")
    assert journal.newest_snapshot("other") == (3, b"other")


def test_blob_is_replaced_by_a_newer_one(journal: Journal) -> None:
    assert journal.get_blob("experiment") is None
    journal.put_blob("experiment", b"one")
    journal.put_blob("experiment", b"\x00two")
    assert journal.get_blob("experiment") == b"\x00two"


# --------------------------------------------------------------------------------------------------------- databases


@given(bodies=st.lists(st.binary(max_size=50), max_size=12), group=st.integers(1, 5), start=st.integers(0, 12))
@settings(max_examples=20, deadline=None)
def test_what_was_appended_is_there_after_reopening(bodies: list[bytes], group: int, start: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with closing(SqlJournal(path, "r", group=group)) as journal:
            fill(journal, bodies)
        with closing(SqlJournal(path, "r")) as journal:
            assert list(journal.read(start)) == bodies[start:]
            journal.append(len(bodies), b"next")


def test_more_records_than_a_page_are_read(tmp_path: Path) -> None:
    bodies = [b"%d" % n for n in range(2500)]
    with closing(SqlJournal(tmp_path / "journal.db", "r", group=1000)) as journal:
        fill(journal, bodies)
        assert list(journal.read()) == bodies


def test_runs_share_a_database_and_do_not_mix(url: str) -> None:
    for run in ("b", "a"):
        with closing(SqlJournal(url, run)) as journal:
            journal.append(0, run.encode())
            journal.put_blob("name", run.encode())
            journal.save_snapshot(1, "k", run.encode())
    with closing(SqlJournal(url, "a", must_exist=True)) as journal:
        assert list(journal.read()) == [b"a"]
        assert journal.get_blob("name") == b"a"
        assert journal.newest_snapshot("k") == (1, b"a")


@pytest.mark.parametrize("damage", ["body = 'garbage'", "crc = 1"])
def test_damaged_last_record_is_left_out_and_the_next_append_takes_its_place(url: str, damage: str) -> None:
    write_run(url)
    tamper(url, f"UPDATE records SET {damage} WHERE run = 'r' AND seq = 4")
    with closing(SqlJournal(url, "r")) as journal:
        assert list(journal.read()) == BODIES[:4]
        assert len(journal.warnings) == 1 and "last record (4) of run 'r'" in journal.warnings[0]
        journal.append(4, b"again")
        assert list(journal.read()) == [*BODIES[:4], b"again"]
    assert read_run(url) == [*BODIES[:4], b"again"]


def test_second_driver_does_not_replace_what_the_first_put_over_a_damaged_record(url: str) -> None:
    write_run(url)
    tamper(url, "UPDATE records SET body = 'garbage' WHERE run = 'r' AND seq = 4")
    with closing(SqlJournal(url, "r")) as first, closing(SqlJournal(url, "r")) as second:
        first.append(4, BODIES[4])  # the same record as before: its checksum equals that of the damaged one
        with pytest.raises(JournalTaken):
            second.append(4, b"second")
    assert read_run(url) == BODIES


def test_snapshot_that_knows_a_dropped_record_is_forgotten(url: str) -> None:
    write_run(url)
    with closing(SqlJournal(url, "r")) as journal:
        journal.save_snapshot(4, "k", b"four")
        journal.save_snapshot(5, "k", b"five")
    tamper(url, "UPDATE records SET body = 'garbage' WHERE run = 'r' AND seq = 4")
    with closing(SqlJournal(url, "r")) as journal:
        assert journal.newest_snapshot("k") == (4, b"four")
        journal.append(4, b"another")
        assert journal.newest_snapshot("k") == (4, b"four")


def test_damaged_snapshot_is_as_if_not_there(url: str) -> None:
    write_run(url)
    with closing(SqlJournal(url, "r")) as journal:
        journal.save_snapshot(2, "k", b"two")
        journal.save_snapshot(4, "k", b"four")
        tamper(url, "UPDATE snapshots SET data = 'garbage' WHERE seq = 4")
        assert journal.newest_snapshot("k") == (2, b"two")


@pytest.mark.parametrize("seq", [0, 3])
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE records SET body = 'garbage' WHERE seq = {}", "not what was written"),
        ("DELETE FROM records WHERE seq = {}", "missing"),
    ],
)
def test_damage_before_the_last_record_is_named(url: str, seq: int, statement: str, what: str) -> None:
    write_run(url)
    tamper(url, statement.format(seq))
    with closing(SqlJournal(url, "r")) as journal:
        records = journal.read()
        assert [next(records) for _ in range(seq)] == BODIES[:seq]
        with pytest.raises(JournalDamaged, match=f"record {seq} of run 'r' .*{what}.*backup"):
            next(records)


def test_bodies_that_changed_places_are_noticed(url: str) -> None:
    write_run(url)
    tamper(url, "UPDATE records SET seq = CASE seq WHEN 1 THEN 12 ELSE 11 END WHERE seq IN (1, 2)")
    tamper(url, "UPDATE records SET seq = seq - 10 WHERE seq > 10")
    with pytest.raises(JournalDamaged, match="record 1 "):
        read_run(url)


def test_run_or_database_that_must_exist_is_missed(url: str) -> None:
    with pytest.raises(StorageError, match="no journal"):
        SqlJournal(url, "r", must_exist=True)
    write_run(url, "mnist-1")
    with pytest.raises(StorageError, match=r"no run 'mnist-2' .*did you mean 'mnist-1'"):
        SqlJournal(url, "mnist-2", must_exist=True)


def test_folder_that_was_renamed_is_told_its_name(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    with closing(SqlJournal(tmp_path / "mnist" / "journal.db", "mnist")) as journal:
        journal.append(0, b"0")
    moved = (tmp_path / "mnist").rename(tmp_path / "best")
    with pytest.raises(StorageError, match=r"best.journal.db is the journal of run 'mnist': give its folder that name"):
        SqlJournal(moved / "journal.db", "best", must_exist=True)


def test_reader_sees_every_committed_record_while_a_run_writes(url: str) -> None:
    with closing(SqlJournal(url, "r")) as writer:
        writer.append(0, BODIES[0])
        with closing(SqlJournal(url, "r", must_exist=True)) as reader:
            for seq in range(1, 5):
                writer.append(seq, BODIES[seq])
                assert list(reader.read()) == BODIES[: seq + 1]
                assert read_run(url) == BODIES[: seq + 1]


APPENDER = """
import sys
from elastune.errors import JournalTaken
from elastune.record.journal import SqlJournal
print("up", flush=True)
sys.stdin.readline()
journal = SqlJournal(sys.argv[1], "r")
print("open", flush=True)
sys.stdin.readline()
try:
    for seq in range(50):
        journal.append(seq, sys.argv[2].encode())
    print("all")
except JournalTaken as error:
    print("taken" if "another driver writes to run 'r'" in str(error) else error)
journal.close()
"""


def test_of_processes_that_append_to_the_same_run_exactly_one_wins(url: str) -> None:
    command = [sys.executable, "-c", APPENDER, url]
    drivers = [subprocess.Popen([*command, name], stdin=-1, stdout=-1, text=True) for name in ("a", "b", "c")]
    for state in ("up\n", "open\n"):  # all open the new database at the same moment, then all append
        assert [driver.stdout.readline() for driver in drivers if driver.stdout] == [state] * 3
        for driver in drivers:
            assert driver.stdin
            driver.stdin.write("go\n")
            driver.stdin.flush()
    said = [driver.communicate(timeout=30)[0].strip() for driver in drivers]
    assert sorted(said) == ["all", "taken", "taken"]
    assert read_run(url) == [b"abc"[said.index("all") :][:1]] * 50


# ------------------------------------------------------------------------------------------------------------ errors


def test_torn_write_ahead_log_loses_no_more_than_its_end(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed.db"
    with closing(SqlJournal(tmp_path / "journal.db", "r")) as journal:
        fill(journal)
        for end in ("", "-wal"):  # as a power failure would leave them
            Path(f"{crashed}{end}").write_bytes(Path(f"{tmp_path / 'journal.db'}{end}").read_bytes())
    log = Path(f"{crashed}-wal")
    os.truncate(log, log.stat().st_size - 100)
    kept = read_run(str(crashed))
    assert kept == BODIES[: len(kept)] and len(kept) >= 4
    with closing(SqlJournal(crashed, "r")) as journal:
        journal.append(len(kept), b"next")


def test_truncated_file_is_reported_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(SqlJournal(path, "r", group=1000)) as journal:
        fill(journal, [b"x" * 500] * 200)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(JournalDamaged, match=f"{path}.*backup"):
        read_run(str(path))


def test_file_that_is_no_database_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk" * 100)
    with pytest.raises(JournalDamaged, match=f"{path}.*not a database.*another path"):
        SqlJournal(path, "r")
    assert path.read_text() == "remember the milk" * 100


def test_path_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"{tmp_path}/file/journal.db.*(exists|directory)"):
        SqlJournal(tmp_path / "file" / "journal.db", "r")
    with pytest.raises(StorageError, match=f"{tmp_path}: unable to open"):
        SqlJournal(tmp_path, "r")


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A directory, and not the rights of root, who may write everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if os.geteuid() != 0:
            yield Path(folder)
            return
        nobody = 65534
        os.chown(folder, nobody, nobody)
        os.seteuid(nobody)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def test_read_only_place_is_reported(ordinary_user: Path) -> None:
    path = ordinary_user / "journal.db"
    write_run(str(path))
    path.chmod(0o444)
    with closing(SqlJournal(path, "r")) as journal, pytest.raises(StorageError, match=f"{path}.*readonly"):
        journal.append(5, b"x")
    ordinary_user.chmod(0o555)
    with pytest.raises(StorageError, match=r"other\.db: unable to open"):
        SqlJournal(ordinary_user / "other.db", "r")
    ordinary_user.chmod(0o755)


FULL_DISK = """
import resource, sys
from elastune.errors import StorageError
from elastune.record.journal import SqlJournal
journal = SqlJournal(sys.argv[1], "r")
journal.append(0, b"fits")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for big in (b"x" * 1_000_000, b"y" * 1_000_000):
    try:
        journal.append(1, big)
    except StorageError as error:
        print(type(error).__name__, error)
journal.append(1, b"small")
"""


def test_append_that_finds_no_room_is_reported_and_leaves_the_journal_usable(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith(f"StorageError cannot use the journal {path}: ")
    assert read_run(path) == [b"fits", b"small"]


def test_unreachable_server_is_reported_without_the_password() -> None:
    for url in ("postgresql://me:secret@127.0.0.1:1/db", "postgresql://me@127.0.0.1:1/db?password=secret"):
        with pytest.raises(StorageError, match=r"127\.0\.0\.1:1/db.*refused") as caught:
            SqlJournal(url, "r")
        assert "secret" not in str(caught.value)


def test_lost_server_connection_is_reported(postgres_server: str, postgres_url: str) -> None:
    journal = SqlJournal(postgres_url, "r")
    fill(journal)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StorageError, match="cannot use the journal postgresql"):
        journal.append(5, b"x")
    journal.close()
    assert read_run(postgres_url) == BODIES


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "postgresql://me:secret@host:port/db", "sqlite://"])
def test_url_that_cannot_be_says_what_is_allowed(url: str) -> None:
    with pytest.raises(SpecError, match="allowed are a path") as caught:
        SqlJournal(url, "r")
    assert "secret" not in str(caught.value)
