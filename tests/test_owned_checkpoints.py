"""Two runs of one name that keep their checkpoints in one place: the second is refused, and neither loses anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import elastune as et
from elastune.driver import OWNER, Driver
from elastune.errors import StorageError
from elastune.record.checkpoints import CheckpointStore
from elastune.record.journal import SqlJournal
from elastune.simulation import Simulation

TAKEN = r"the checkpoints in .*/far/digits are those of another run of that name: give another name, or delete"


def train(config: et.Config) -> None:
    et.report({"loss": config["lr"]})


def tuner(tmp_path: Path, storage: str) -> et.Tuner:
    return et.Tuner(
        train,
        space={"lr": et.uniform(0.0, 1.0)},
        metric="loss",
        algorithm=et.FIFO(1, R=3),
        storage=tmp_path / storage,
        name="digits",
        checkpoints=str(tmp_path / "far"),
    )


class Cut(Exception):
    """The driver is gone."""


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run ends where its cluster would begin."""

    def gone(*_: Any) -> None:
        raise Cut

    monkeypatch.setattr(Driver, "_cluster", gone)


@pytest.mark.usefixtures("cut")
def test_a_second_run_of_a_name_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        tuner(tmp_path, "a").fit(progress=False)
    with pytest.raises(StorageError, match=TAKEN):
        tuner(tmp_path, "b").fit(progress=False)
    assert not (tmp_path / "b" / "digits").exists()
    with pytest.raises(Cut):  # in the same storage it gets another name
        tuner(tmp_path, "a").fit(progress=False)
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["digits", "digits-2"]


@pytest.mark.usefixtures("cut")
def test_a_run_goes_on_with_its_own_checkpoints_and_not_with_those_of_another(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        tuner(tmp_path, "a").fit(progress=False)
    with pytest.raises(Cut):
        et.Tuner.restore(tmp_path / "a" / "digits").fit(progress=False)
    (tmp_path / "far" / "digits" / "owner").write_text("another")
    with pytest.raises(StorageError, match=TAKEN):
        et.Tuner.restore(tmp_path / "a" / "digits").fit(progress=False)


@pytest.mark.usefixtures("cut")
def test_a_run_without_an_owner_goes_on_and_becomes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(Driver, "_claim_store", lambda *_: None)
        with pytest.raises(Cut):
            tuner(tmp_path, "a").fit(progress=False)
    assert not (tmp_path / "far" / "digits" / "owner").exists()
    with pytest.raises(Cut):
        et.Tuner.restore(tmp_path / "a" / "digits").fit(progress=False)
    journal = SqlJournal(tmp_path / "a" / "digits" / "journal.db", "digits")
    assert (tmp_path / "far" / "digits" / "owner").read_bytes() == journal.get_blob(OWNER)
    journal.close()


def test_a_simulation_that_goes_on_leaves_the_checkpoints_of_a_run_alone(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "far" / "digits"))
    saved = store.save("state", trial="digits-00000", lineage=0, iteration=9, attempt=1)
    tuner(tmp_path, "a").simulate(Simulation())
    path = tmp_path / "a" / "digits"
    journal = SqlJournal(path / "journal.db", "digits")
    with journal._write() as connection:  # as if the driver had died before the last turns
        connection.exec_driver_sql("DELETE FROM records WHERE seq > 2")
    journal.close()
    assert et.Tuner.restore(path).fit(progress=False).status == "succeeded"
    assert store.load(saved) == "state"
