"""What is read of a job over HTTP: it is what the journal of its run says, as far as that goes."""

from __future__ import annotations

import functools
import pickle
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from tests.service.made_jobs import Made, fruitless, simulated

import elastune as et
from elastune.messages import Record, TrialCheckpointed, TrialReported
from elastune.record.checkpoints import CheckpointStore
from elastune.record.journal import SqlJournal
from elastune.record.projection import RunView
from elastune.results import checkpoint_store
from elastune.service import reading
from elastune.service.app import create_app
from elastune.service.database import ServiceDatabase
from elastune.service.jobs import Job
from elastune.service.read_routes import LOG_BYTES
from elastune.service.supervisor import Pool, Supervisor
from elastune.service.tables import JOBS
from elastune.service.views import thin
from elastune.worker.log import log_path, older


@dataclass
class Site:
    made: Made
    client: TestClient
    headers: dict[str, str]

    def ask(self, path: str) -> Any:
        return self.client.get(f"/api/v1{path}", headers=self.headers)

    def get(self, path: str) -> Any:
        response = self.ask(path)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, path: str, status: int) -> str:
        response = self.ask(path)
        assert response.status_code == status, response.text
        return str(response.json()["error"])

    def running(self, part: float = 1.0) -> tuple[Job, RunView]:
        """A job whose run has come so far."""
        job, records = self.made.job("a"), run()
        return job, self.made.wrote(job, records[: int(len(records) * part)])


@functools.cache
def run(seed: int = 0, planned: bool = False) -> list[Record]:
    return simulated(seed=seed, planned=planned)


def site_of(made: Made) -> Iterator[Site]:
    headers = {"Authorization": f"Bearer {made.token('a')}"}
    with TestClient(create_app(made.service), raise_server_exceptions=False) as client:
        yield Site(made, client, headers)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(reading, "FRESH_S", -1.0)
    made = Made.in_folder(tmp_path)
    yield from site_of(made)
    made.service.database.close()


@pytest.fixture
def any_site(tmp_path: Path, database: ServiceDatabase) -> Iterator[Site]:
    """Also one whose journals are in PostgreSQL."""
    yield from site_of(Made.in_folder(tmp_path, database))


# ------------------------------------------------------------------------------------------------------------ progress


def test_progress_is_what_the_journal_says(any_site: Site) -> None:
    job, view = any_site.running(0.6)
    told = any_site.get(f"/jobs/{job.id}/progress")
    assert view.best is not None and view.status == "running"
    assert told["trials"] == view.counts() and sum(told["trials"].values()) == len(view.trials)
    assert told["best"]["trial"] == view.best.id and told["best"]["value"] == view.best.best_value
    assert told["best"]["params"] == view.best.best_config
    assert told["seconds"] == view.at_s and told["cost_usd"] == pytest.approx(view.cost_usd()) and view.cost_usd() > 0
    assert told["trials_expected"] == 30 and 0 < told["fraction"] < 1 and told["deadline_s"] == 1200
    assert told["bests"][-1][1] == view.best.best_value and told["spend"][-1][1] == pytest.approx(told["cost_usd"])
    assert told["machines"][-1] == [view.at_s, 3.0] and told["state"] == told["status"] == "running"


def test_a_run_that_has_ended_is_wholly_done(site: Site) -> None:
    job = site.made.job("a", state="succeeded", reason="all trials are done")
    site.made.wrote(job, run())
    told = site.get(f"/jobs/{job.id}/progress")
    assert told["fraction"] == 1.0 and told["status"] == "succeeded" and told["ended_at"] is not None
    row = site.get("/overview")["jobs"][0]
    assert row["now"]["best_value"] == told["best"]["value"] and row["now"]["fraction"] == 1.0


def test_a_run_that_failed_has_done_what_it_has_done(site: Site) -> None:
    job = site.made.job("a", state="failed", reason="flaky")
    site.made.wrote(job, fruitless("flaky"))
    told = site.get(f"/jobs/{job.id}/progress")
    assert told["fraction"] == 0.0 and told["trials"] == {"failed": 9} and told["error"] == "flaky"
    assert told["best"] is None and told["checkpoint_iteration"] is None and told["priced"] is False
    assert site.get("/overview")["jobs"][0]["now"]["fraction"] is None


def test_a_best_value_that_was_judged_says_what_it_is(site: Site) -> None:
    job = site.made.job("a", state="succeeded")
    view = site.made.wrote(job, simulated(algorithm=et.KFold(3, 4), space={"lr": 0.1}))
    assert view.best is not None and view.best.verdict.startswith("the mean of 3 folds")
    assert site.get(f"/jobs/{job.id}/best")["why"] == view.best.verdict
    whys = [trial["why"] for trial in site.get(f"/jobs/{job.id}/trials")["trials"]]
    assert whys == [view.best.verdict, None, None, None]


def test_a_plan_is_shown_next_to_what_came_of_it(site: Site) -> None:
    job = site.made.job("a", state="succeeded")
    view = site.made.wrote(job, run(planned=True))
    plan = site.get(f"/jobs/{job.id}/progress")["plan"]
    first = view.plans[0][1]
    assert (plan["finish_s"], plan["cost_usd"]) == (first.finish_s, first.cost_usd) and not plan["at_most"]
    assert [stage["trials"] for stage in plan["stages"]] == [stage.trials for stage in first.brackets[0]]
    assert [stage["actual_trials"] for stage in plan["stages"]] == [stage.trials for stage in first.brackets[0]]
    ends = [stage["actual_end_s"] for stage in plan["stages"]]
    assert ends == sorted(ends) and [stage["actual_begin_s"] for stage in plan["stages"]] == [0.0, *ends[:-1]]
    assert all(1 <= stage["actual_machines"] <= 16 for stage in plan["stages"])


@pytest.mark.parametrize("begun", ["not accepted yet", "no file", "an empty journal"])
def test_a_job_whose_run_has_not_begun_has_nothing_to_show(site: Site, begun: str) -> None:
    job = site.made.job("a", state="queued" if begun == "not accepted yet" else "running")
    if begun != "not accepted yet":
        site.made.wrote(job, [])
        file = site.made.service.places.run(job.id) / "journal.db"
        assert file.exists()
        if begun == "no file":
            file.unlink()
    told = site.get(f"/jobs/{job.id}/progress")
    assert told["status"] is told["best"] is told["plan"] is None and told["trials"] == {} and told["job"] == job.id
    assert site.get(f"/jobs/{job.id}/trials") == {"trials": [], "total": 0}
    assert site.get(f"/jobs/{job.id}/curves")["curves"] == []
    assert site.get(f"/jobs/{job.id}/logs") == {"text": "", "cut": False}
    assert site.get("/overview")["jobs"][0]["now"]["trials"] == 0
    assert "no trial" in site.refused(f"/jobs/{job.id}/trials/digits-00000", 404)
    assert "has reported a finite value yet" in site.refused(f"/jobs/{job.id}/best", 404)
    assert "no checkpoint" in site.refused(f"/jobs/{job.id}/download", 404)


# -------------------------------------------------------------------------------------------------------------- trials


def test_pages_of_trials_put_together_are_all_of_them(site: Site) -> None:
    job, view = site.running(0.6)
    for asked in ("", "&sort=number", "&descending=true", "&sort=number&descending=true"):
        pages = [site.get(f"/jobs/{job.id}/trials?limit=7&offset={offset}{asked}") for offset in range(0, 42, 7)]
        every = site.get(f"/jobs/{job.id}/trials?limit=1000{asked}")
        assert [trial for page in pages for trial in page["trials"]] == every["trials"]
        assert {page["total"] for page in pages} == {every["total"]} == {len(view.trials)}
        assert {trial["trial"] for trial in every["trials"]} == set(view.trials)


def test_trials_are_sorted_as_asked_and_those_without_a_value_come_last(site: Site) -> None:
    job, view = site.running(0.25)
    without = sum(trial.best_value is None for trial in view.trials.values())
    assert view.best is not None and 0 < without < len(view.trials)
    best_first = [each["best_value"] for each in site.get(f"/jobs/{job.id}/trials")["trials"]]
    valued = best_first[: len(best_first) - without]
    assert valued == sorted(valued, reverse=True) and valued[0] == view.best.best_value  # the mode is max
    assert best_first[len(valued) :] == [None] * without
    worst_first = [each["best_value"] for each in site.get(f"/jobs/{job.id}/trials?descending=true")["trials"]]
    assert worst_first == [*valued[::-1], *[None] * without]
    by_number = [each["number"] for each in site.get(f"/jobs/{job.id}/trials?sort=number")["trials"]]
    assert by_number == list(range(len(view.trials)))


def test_trials_with_one_status_are_found_without_the_others(site: Site) -> None:
    job, view = site.running(0.6)
    for status, number in view.counts().items():
        told = site.get(f"/jobs/{job.id}/trials?status={status}&limit=1")
        assert (told["total"], [each["status"] for each in told["trials"]]) == (number, [status] * min(number, 1))
    site.refused(f"/jobs/{job.id}/trials?status=broken", 422)


def test_a_trial_has_its_reports_and_the_end_of_its_log(site: Site) -> None:
    job, view = site.running()
    assert view.best is not None
    log = log_path(site.made.service.places.run(job.id) / "logs", view.best.id, 0)
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1: \x1b[1;31mmärchenhaft\x1b[0m\n")
    told = site.get(f"/jobs/{job.id}/trials/{view.best.id}")
    assert told["log"] == "epoch 1: märchenhaft\n" and told["best_value"] == view.best.best_value
    assert [(report["iteration"], report["metrics"]) for report in told["reports"]] == [
        (report.iteration, report.metrics) for report in view.best.reports
    ]
    assert told["reports_in_all"] == len(view.best.reports) and told["attempts"] >= 1 and told["seconds"] > 0
    assert told["failures"] == 0 and not told["log_cut"]
    log.write_text("x" * (LOG_BYTES + 1))
    assert site.get(f"/jobs/{job.id}/trials/{view.best.id}")["log_cut"]
    assert "'nobody'" in site.refused(f"/jobs/{job.id}/trials/nobody", 404)
    site.refused(f"/jobs/{job.id}/trials/..%2F..%2Fjournal", 404)


def test_numbers_that_json_has_no_word_for_are_told_by_name(site: Site) -> None:
    job, view = site.running(0.6)
    trial = next(iter(view.trials.values()))
    event = TrialReported(trial.id, trial.attempt or 1, trial.iteration + 1, {"accuracy": "NaN", "loss": "Infinity"})
    site.made.wrote(job, [Record(view.at_s + 1, (event,), (), ())])
    told = site.get(f"/jobs/{job.id}/trials/{trial.id}")
    assert told["reports"][-1]["metrics"] == {"accuracy": "NaN", "loss": "Infinity"}
    assert told["best_value"] == trial.best_value


def test_curves_are_of_the_best_and_thinned_to_as_many_points_as_asked(site: Site) -> None:
    job, view = site.running()
    told = site.get(f"/jobs/{job.id}/curves?number=3&points=1000")
    best = site.get(f"/jobs/{job.id}/trials?limit=3")["trials"]
    assert [curve["trial"] for curve in told["curves"]] == [trial["trial"] for trial in best]
    assert told["left_out"] == len(view.trials) - 3 and told["metric"] == "accuracy" and told["mode"] == "max"
    whole = told["curves"][0]["points"]
    assert [point[0] for point in whole] == list(range(1, 28))
    few = site.get(f"/jobs/{job.id}/curves?number=3&points=6")["curves"][0]["points"]
    assert len(few) <= 6 and (few[0], few[-1]) == (whole[0], whole[-1]) and all(point in whole for point in few)


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(4, 60))
def test_thinning_keeps_the_ends_and_the_extremes_in_order(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    kept = thin(points, most, lambda point: point[1])
    assert len(kept) <= most and kept == sorted(kept)
    if values:
        assert kept[0] == points[0] and kept[-1] == points[-1]
        inside = [value for _, value in kept]
        assert min(inside) == min(values) and max(inside) == max(values)


# ---------------------------------------------------------------------------------------------------------------- logs


def test_a_log_that_is_on_another_computer_is_said_to_be_there(site: Site) -> None:
    service, (job, view) = site.made.service, site.running()
    service.supervisor = Supervisor(service.database, service.places, Pool("here", 1))
    trial = next(iter(view.trials))

    def logs() -> list[str]:
        paths = (f"logs?trial={trial}", "logs?of=driver", "logs?of=build", "logs")
        told = [site.get(f"/jobs/{job.id}/{path}")["text"] for path in paths]
        return [*told, site.get(f"/jobs/{job.id}/trials/{trial}")["log"]]

    for pool, said in (("there", True), ("here", False)):
        with service.database.write() as connection:
            connection.execute(sa.update(JOBS).values(pool=pool))
        assert ["the log is on the computer of pool 'there'" in text for text in logs()] == [said] * 5
    service.places.driver_log(job.id).parent.mkdir(parents=True)
    service.places.driver_log(job.id).write_text("driven here before\n")
    with service.database.write() as connection:
        connection.execute(sa.update(JOBS).values(pool="there"))
    assert site.get(f"/jobs/{job.id}/logs")["text"] == "driven here before\n"


def test_logs_of_build_driver_and_trials_are_read_from_their_end(site: Site) -> None:
    job, view = site.running(0.6)
    places, trial = site.made.service.places, next(iter(view.trials))
    first, second = (log_path(places.run(job.id) / "logs", trial, rank) for rank in (0, 1))
    texts = {places.build_log(job.id): "built\n", places.driver_log(job.id): "driven\n", first: "rank 0\n"}
    texts |= {second: "newer\n", older(second): "older\n"}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    logs = f"/jobs/{job.id}/logs"
    assert site.get(logs) == {"text": "built\ndriven\n", "cut": False}
    assert site.get(f"{logs}?of=build")["text"] == "built\n" and site.get(f"{logs}?of=driver")["text"] == "driven\n"
    assert site.get(f"{logs}?of=driver&most=3") == {"text": "en\n", "cut": True}
    assert site.get(f"{logs}?trial={trial}")["text"] == "rank 0\n"
    assert site.get(f"{logs}?trial={trial}&rank=1") == {"text": "older\nnewer\n", "cut": False}
    assert site.get(f"{logs}?trial={trial}&rank=1&most=8") == {"text": "r\nnewer\n", "cut": True}
    assert site.get(f"{logs}?trial={trial}&rank=1&most=6") == {"text": "newer\n", "cut": True}
    for wrong in ("nobody", "../../../service.db", f"{trial}.1"):
        assert "has no trial" in site.refused(f"{logs}?trial={wrong}", 404)


# ----------------------------------------------------------------------------------------------------- best, download


def saved(site: Site, value: Any) -> tuple[Job, CheckpointStore, Path]:
    """A job whose best trial has saved this, and the file that it is in."""
    job, view = site.running(0.6)
    best = view.best
    assert best is not None and best.best_iteration is not None
    store = checkpoint_store(site.made.service.places.run(job.id), view.started.checkpoints)
    lineage, iteration = best.best_lineage or 0, best.best_iteration
    checkpoint = store.save(value, trial=best.id, lineage=lineage, iteration=iteration, attempt=9)
    event = TrialCheckpointed(best.id, best.attempt or 1, checkpoint)
    site.made.wrote(job, [Record(view.at_s + 1, (event,), (), ())])
    return job, store, Path(store.url, checkpoint.path)


def test_a_checkpoint_is_downloaded_as_it_was_written(site: Site, tmp_path: Path) -> None:
    value = {"weights": b"\0\1\2" * 1_000_000}
    job, _, file = saved(site, value)
    got = site.ask(f"/jobs/{job.id}/download")
    assert got.status_code == 200 and got.content == file.read_bytes() and pickle.loads(got.content) == value
    assert got.headers["content-length"] == str(file.stat().st_size) and ".pkl" in got.headers["content-disposition"]
    assert got.headers["content-type"] == "application/octet-stream"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.txt").write_text("1 2 3")
    job, _, file = saved(site, folder)
    got = site.ask(f"/jobs/{job.id}/download")
    assert got.content == file.read_bytes() and ".tar" in got.headers["content-disposition"]
    with tarfile.open(fileobj=BytesIO(got.content)) as tar:
        assert {"model/weights.txt"} <= set(tar.getnames())


@pytest.mark.parametrize("harm", ["missing", "no manifest", "cut off", "changed"])
def test_a_damaged_checkpoint_is_refused_and_its_place_is_not_told(site: Site, harm: str) -> None:
    job, _, file = saved(site, {"weights": 1})
    match harm:
        case "missing":
            file.unlink()
        case "no manifest":
            file.with_suffix(".json").unlink()
        case "cut off":
            file.write_bytes(file.read_bytes()[:-1])
        case "changed":
            file.write_bytes(bytes(len(file.read_bytes())))
    error = site.refused(f"/jobs/{job.id}/download", 404)
    assert "checkpoint" in error and str(site.made.service.places.home) not in error


def test_a_job_that_has_ended_without_a_best_trial_says_why(site: Site) -> None:
    why = "no trial has reported a finite 'loss'"
    job = site.made.job("a", state="failed", reason=why)
    site.made.wrote(job, fruitless("loss=inf at iteration 1: must be a finite number"))
    error = site.refused(f"/jobs/{job.id}/best", 404)
    assert error == f"job {job.id!r} has ended without a best trial: {why}"
    error = site.refused(f"/jobs/{job.id}/download", 404)
    assert error == f"job {job.id!r} has ended without a checkpoint of a best trial"


def test_the_best_is_that_of_the_run(site: Site) -> None:
    job, view = site.running()
    best = site.get(f"/jobs/{job.id}/best")
    assert view.best is not None
    assert (best["trial"], best["value"], best["params"]) == (view.best.id, view.best.best_value, view.best.best_config)


# ----------------------------------------------------------------------------------------------------- many jobs, usage


def test_an_experiment_has_mean_and_deviation_of_the_seeds_that_have_succeeded(site: Site) -> None:
    values = []
    for seed in range(3):
        view = site.made.wrote(site.made.job("a", "net", "succeeded", "", "exp-1", seed), run(seed))
        assert view.best is not None and view.best.best_value is not None
        values.append(view.best.best_value)
    site.made.wrote(site.made.job("a", "net", "running", "", "exp-1", 3), run(3)[:200])
    site.made.job("a", "net", "failed", "no code", "exp-1", 4)
    told = site.get("/experiments/exp-1")
    assert len(set(values)) > 1 and told["count"] == 3 and told["metric"] == "accuracy"
    assert told["mean"] == pytest.approx(fmean(values)) and told["std"] == pytest.approx(stdev(values))
    assert told["best"] == max(values) and [row["seed"] for row in told["jobs"]] == [0, 1, 2, 3, 4]
    assert "exp-2" in site.refused("/experiments/exp-2", 404)
    stranger = {"Authorization": f"Bearer {site.made.token('b')}"}
    assert site.client.get("/api/v1/experiments/exp-1", headers=stranger).status_code == 404


def test_one_seed_has_no_deviation(site: Site) -> None:
    site.made.wrote(site.made.job("a", "net", "succeeded", "", "exp-1"), run())
    told = site.get("/experiments/exp-1")
    assert told["mean"] == told["best"] and told["std"] is None


def test_usage_shows_an_administrator_every_tenant(site: Site) -> None:
    assert "admin" in site.refused("/usage", 403)
    site.made.token("b")
    site.made.job("b", state="running")
    admin = {"Authorization": f"Bearer {site.made.token('a', 'admin')}"}
    told = site.client.get("/api/v1/usage", headers=admin).json()
    assert {row["tenant"]["id"]: row["usage"]["running"] for row in told} == {"a": 0, "b": 1}


def test_the_overview_has_pages(site: Site) -> None:
    jobs = [site.made.job("a", f"job-{number}", "queued").id for number in range(5)]
    first = site.get("/overview?limit=3")
    rest = site.get(f"/overview?limit=3&before={first['next']}")
    assert [row["id"] for row in first["jobs"] + rest["jobs"]] == jobs[::-1] and rest["next"] is None


# ------------------------------------------------------------------------------------------------------------ journals


def test_a_journal_that_grows_is_read_from_where_it_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, read = [], SqlJournal.read

    def spied(journal: SqlJournal, start: int = 0) -> Iterator[bytes]:
        starts.append(start)
        return read(journal, start)

    job, records = site.made.job("a"), run()
    site.made.wrote(job, records[:100])
    monkeypatch.setattr(SqlJournal, "read", spied)
    before = site.get(f"/jobs/{job.id}/progress")
    monkeypatch.setattr(SqlJournal, "read", read)
    site.made.wrote(job, records[100:])
    monkeypatch.setattr(SqlJournal, "read", spied)
    after = site.get(f"/jobs/{job.id}/progress")
    assert starts == [0, 100] and before["seconds"] == records[99].at_s and after["seconds"] == records[-1].at_s
    assert after["trials"] == RunView.of(records).counts()


def test_of_one_that_has_ended_nothing_is_read_twice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = site.made.job("a", state="succeeded")
    site.made.wrote(job, run(), ago_s=10_000)
    first = site.get(f"/jobs/{job.id}/trials")
    monkeypatch.delattr(SqlJournal, "read")
    assert site.get(f"/jobs/{job.id}/trials") == first


def test_only_so_many_runs_are_kept_and_those_left_out_are_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_VIEWS", 2)
    jobs = [site.running(0.3)[0] for _ in range(4)]
    told = [site.get(f"/jobs/{job.id}/trials") for job in jobs]
    assert told == [site.get(f"/jobs/{job.id}/trials") for job in jobs] and told[0]["total"] > 0
    assert len(site.client.app.state.runs._kept) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("harm", ["a record changed", "a record gone", "no database", "a record of something else"])
def test_a_damaged_journal_is_said_to_be_and_hides_no_other_job(site: Site, harm: str) -> None:
    job, _ = site.running(0.6)
    sound, _ = site.running(0.6)
    file = site.made.service.places.run(job.id) / "journal.db"
    if harm == "no database":
        file.write_bytes(b"not a database" * 1000)
    elif harm == "a record of something else":
        with closing(SqlJournal(file, job.id, must_exist=True)) as journal:
            suggested = b'{"type":"Suggested","trial":"t-00000","config":5}'
            body = b'{"at_s":1.0,"events":[],"decisions":[%s],"commands":[]}' % suggested
            journal.append(len(list(journal.read())), body)
    else:
        change = "DELETE FROM records" if harm == "a record gone" else "UPDATE records SET body = x'00'"
        with sqlite3.connect(file) as connection:
            connection.execute(f"{change} WHERE seq = 20")
        connection.close()
    for path in ("progress", "trials", "trials/x", "curves", "best", "logs?trial=x", "download"):
        error = site.refused(f"/jobs/{job.id}/{path}", 503)
        assert job.id in error and "damaged" in error and "run the job again" in error
        assert str(site.made.service.places.home) not in error
    rows = {row["id"]: row["now"]["trials"] for row in site.get("/overview")["jobs"]}
    assert rows[job.id] == 0 and rows[sound.id] > 0
