"""The life of a job, in the database."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.service.stores import submission, tenant

from elastune.errors import SpecError
from elastune.service.database import ServiceDatabase
from elastune.service.jobs import Conflict, Jobs, NoSuchJob, finish, move
from elastune.service.states import FOLLOWS, OPEN, State
from elastune.service.tables import CODES, JOBS


def test_the_same_submission_with_the_same_key_is_one_job(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    found: list[tuple[str, bool]] = []

    def submit() -> None:
        job, new = jobs.submit(name, submission(), "key")
        found.append((job.id, new))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({job for job, _ in found}) == 1
    assert sum(new for _, new in found) == 1


def test_another_submission_with_the_same_key_is_refused(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    job, _ = jobs.submit(name, submission(lr=0.1), "key")
    with pytest.raises(Conflict, match=job.id):
        jobs.submit(name, submission(lr=0.2), "key")
    other, new = jobs.submit(tenant(database, "b"), submission(lr=0.2), "key")  # keys are a tenant's own
    assert new and other.id != job.id


def test_jobs_without_a_key_are_each_their_own(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    assert jobs.submit(name, submission())[0].id != jobs.submit(name, submission())[0].id


@pytest.mark.parametrize("state", list(FOLLOWS))
def test_only_the_steps_of_its_life_are_taken(database: ServiceDatabase, state: State) -> None:
    way: dict[State, list[State]] = {
        "accepted": [],
        "building": ["building"],
        "queued": ["building", "queued"],
        "running": ["building", "queued", "running"],
        "finishing": ["finishing"],
        "succeeded": ["finishing", "succeeded"],
        "failed": ["finishing", "failed"],
        "cancelled": ["finishing", "cancelled"],
    }
    name = tenant(database, "a")
    for to in FOLLOWS:
        job, _ = Jobs(database).submit(name, submission())
        with database.write() as connection:
            for step in way[state]:
                assert move(connection, job.id, step)
            assert move(connection, job.id, to) == (to in FOLLOWS[state])
        last = Jobs(database).history(job.id)[-1]["state"]
        assert last == (to if to in FOLLOWS[state] else state)


def test_how_it_ends_is_said_once(database: ServiceDatabase) -> None:
    job, _ = Jobs(database).submit(tenant(database, "a"), submission())
    with database.write() as connection:
        assert finish(connection, job.id, "failed", "first")
        assert not finish(connection, job.id, "succeeded", "second")
    found = Jobs(database).get(job.id)
    assert (found.outcome, found.reason) == ("failed", "first")


def test_a_job_that_does_not_run_is_cancelled_at_once_and_one_that_runs_is_told(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    waiting, running = jobs.submit(name, submission())[0], jobs.submit(name, submission())[0]
    with database.write() as connection:
        for step in ("building", "queued", "running"):
            move(connection, running.id, step)
    assert jobs.cancel(waiting.id, name).state == "finishing"
    told = jobs.cancel(running.id, name)
    assert told.state == "running" and told.cancelled
    assert jobs.cancel(running.id, name) == told


def test_a_job_of_another_tenant_is_not_there(database: ServiceDatabase) -> None:
    jobs = Jobs(database)
    job, _ = jobs.submit(tenant(database, "a"), submission())
    tenant(database, "b")
    with pytest.raises(NoSuchJob):
        jobs.get(job.id, "b")
    with pytest.raises(NoSuchJob):
        jobs.cancel(job.id, "b")
    with pytest.raises(NoSuchJob):
        jobs.get("nothing")


def test_an_experiment_in_place_of_a_job_is_said_to_be_one_to_its_tenant(database: ServiceDatabase) -> None:
    jobs = Jobs(database)
    job, _ = jobs.submit(tenant(database, "a"), replace(submission(), seeds=2))
    tenant(database, "b")
    assert job.experiment is not None
    with pytest.raises(NoSuchJob, match=f"it is an experiment, and `elastune experiment {job.experiment}` shows"):
        jobs.cancel(job.experiment, "a")
    with pytest.raises(NoSuchJob, match=f"there is no job '{job.experiment}'$"):
        jobs.cancel(job.experiment, "b")


def test_pages_of_jobs_have_each_once_and_the_newest_first(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    made = [jobs.submit(name, submission())[0].id for _ in range(7)]
    seen: list[str] = []
    before = None
    while page := jobs.page(name, OPEN, before, limit=3):
        seen += [job.id for job in page]
        before = page[-1].number
    assert seen == made[::-1]


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_that_is_empty_or_too_long_is_refused(database: ServiceDatabase, key: str) -> None:
    with pytest.raises(SpecError, match="1 to 200"):
        Jobs(database).submit(tenant(database, "a"), submission(), key)


def test_a_list_of_jobs_does_not_read_their_specifications(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    job, _ = jobs.submit(name, submission())
    with database.write() as connection:  # what is not read need not be readable
        connection.execute(sa.update(JOBS).values(spec=sa.literal_column("'[1'" if database.sqlite else "'[1]'")))
    (listed,) = jobs.page(name)
    assert listed.id == job.id and not hasattr(listed, "spec")


def test_the_seeds_of_an_experiment_are_known(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    plain = submission()
    first, _ = jobs.submit(name, replace(plain, spec={**plain.spec, "seed": 2**40}, seeds=3))
    assert first.experiment is not None
    assert sorted(jobs.seeds(first.experiment).values()) == [2**40, 2**40 + 1, 2**40 + 2]


def test_a_specification_counts_as_stored_until_its_job_is_deleted(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    job, _ = jobs.submit(name, submission())
    query = sa.select(JOBS.c.spec_bytes, JOBS.c.spec)
    with database.read() as connection:
        assert connection.execute(query).one() == (len(json.dumps(job.spec)), job.spec)
    jobs.forget(job.id)
    with database.read() as connection:
        assert connection.execute(query).one() == (0, {})


def test_a_job_is_accepted_only_as_long_as_its_code_is_there_and_keeps_it(database: ServiceDatabase) -> None:
    jobs, name = Jobs(database), tenant(database, "a")
    wanted = replace(submission(), code="c")
    with pytest.raises(SpecError, match="code='c': it was not uploaded"):
        jobs.submit(name, wanted)
    assert jobs.page(name) == []
    with database.write() as connection:
        connection.execute(sa.insert(CODES), {"tenant": name, "hash": "c", "bytes": 1, "created_at": 0.0})
    jobs.submit(name, wanted)
    with database.read() as connection:
        assert connection.execute(sa.select(CODES.c.created_at)).scalar_one() > 0
