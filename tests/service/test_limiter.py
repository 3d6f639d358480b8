"""The resource limiter on a real database, also when several decide at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.stores import driver_of, queued, tenant

from elastune.service.completion import complete
from elastune.service.database import ServiceDatabase
from elastune.service.drivers import Drivers
from elastune.service.jobs import Jobs, finish
from elastune.service.limiter import LOOK_AHEAD, Limiter, spent_this_month_usd
from elastune.service.places import Places
from elastune.service.tables import GRANTS, JOBS, REPLICAS
from elastune.service.tenants import Quota, Tenants

PLACES = Places(home=Path("nowhere"), storage="memory://x", journal=None)


def held(database: ServiceDatabase) -> Counter[str]:
    with database.read() as connection:
        rows = connection.execute(sa.select(GRANTS.c.job).where(GRANTS.c.released_at.is_(None)))
        return Counter(rows.scalars())


def end(database: ServiceDatabase, job: str) -> None:
    with database.write() as connection:
        assert finish(connection, job, "succeeded", "done")
    assert complete(database, PLACES, Jobs(database).get(job))


def test_a_job_begins_with_its_devices_and_gives_them_back_at_its_end(database: ServiceDatabase) -> None:
    limiter, job = Limiter(database), queued(database, tenant(database, "a"), least=2, most=2)
    limiter.offer("here", {"": 4}, 0.0)
    assert limiter.schedule("here") == [job.id]
    assert Jobs(database).get(job.id).state == "running"
    assert [grant.device for grant in limiter.grants(job.id)] == [0, 1]
    assert limiter.schedule("here") == []
    end(database, job.id)
    assert not held(database)


def test_when_another_comes_the_first_is_asked_for_what_it_has_too_much(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 4}, 0.0)
    first = queued(database, tenant(database, "a"), most=4)
    assert limiter.schedule("here") == [first.id] and held(database) == {first.id: 4}
    second = queued(database, tenant(database, "b"), most=4)
    assert limiter.schedule("here") == []
    leaving = [grant.device for grant in limiter.grants(first.id) if grant.leaving_at is not None]
    assert leaving == [2, 3]
    limiter.release(first.id, driver_of(database, first), leaving)
    assert limiter.schedule("here") == [second.id]
    assert held(database) == {first.id: 2, second.id: 2}
    end(database, second.id)
    limiter.schedule("here")
    assert held(database) == {first.id: 4}


def test_a_device_that_is_not_let_go_of_yet_counts_for_the_quota(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 4}, 0.0)
    name = tenant(database, "a", quota=Quota(max_devices=2))
    first = queued(database, name, most=2)
    limiter.schedule("here")
    second = queued(database, name, most=2)
    assert limiter.schedule("here") == []  # asked for one of its two, the first has not answered
    assert held(database) == {first.id: 2}
    limiter.release(first.id, driver_of(database, first), [1])
    assert limiter.schedule("here") == [second.id]
    assert held(database) == {first.id: 1, second.id: 1}


def test_a_job_over_quota_is_put_off_for_longer_and_longer_until_another_ends(database: ServiceDatabase) -> None:
    limiter, jobs = Limiter(database), Jobs(database)
    limiter.offer("here", {"": 4}, 0.0)
    name = tenant(database, "a", quota=Quota(max_running=1))
    first, second = queued(database, name), queued(database, name)
    assert limiter.schedule("here") == [first.id]
    put_off = jobs.get(second.id)
    assert "quota of 1 running jobs" in put_off.reason and put_off.not_before > time.time()
    delays = []
    for _ in range(3):
        with database.write() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == second.id).values(not_before=0.0))
        limiter.schedule("here")
        delays.append(jobs.get(second.id).not_before - time.time())
    assert delays == sorted(delays) and delays[2] > 3 * delays[0]
    end(database, first.id)
    assert limiter.schedule("here") == [second.id]


def test_a_job_that_was_put_off_need_not_wait_when_its_tenant_is_given_more(database: ServiceDatabase) -> None:
    limiter, jobs = Limiter(database), Jobs(database)
    limiter.offer("here", {"": 2}, 0.0)
    name = tenant(database, "a", quota=Quota(max_running=0))
    first, second = (queued(database, name, least=2, most=2) for _ in range(2))
    assert limiter.schedule("here") == [] and "quota of 0 running jobs" in jobs.get(second.id).reason
    Tenants(database).change(name, max_running=None)
    assert limiter.schedule("here") == [first.id]
    assert jobs.get(second.id).reason == ""  # it waits for devices, and for no quota


def test_who_has_spent_the_money_of_the_month_begins_nothing(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 2}, 3600.0)
    name = tenant(database, "a", quota=Quota(max_usd_per_month=130.0))
    first = queued(database, name)
    assert limiter.schedule("here") == [first.id]
    with database.write() as connection:  # at a dollar a second
        connection.execute(sa.update(GRANTS).values(granted_at=time.time() - 20.0))
    end(database, first.id)
    second = queued(database, name)
    assert limiter.schedule("here") == []
    reason = Jobs(database).get(second.id).reason
    assert (
        reason.startswith("of the tenant's $130.00 of this month $1") and "two minutes of a device cost $120" in reason
    )


def test_a_job_that_needs_more_devices_than_there_are_says_so(database: ServiceDatabase) -> None:
    limiter, job = Limiter(database), queued(database, tenant(database, "a"), least=8, most=8)
    limiter.offer("here", {"": 2}, 0.0)
    assert limiter.schedule("here") == []
    assert "needs 8 devices on one computer, and the largest has 2" in Jobs(database).get(job.id).reason


def test_many_who_schedule_at_once_never_exceed_a_quota_or_begin_a_job_twice(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 6}, 0.0)
    limiter.offer("there", {"": 3}, 0.0)
    names = [tenant(database, f"t{n}", quota=Quota(max_devices=2, max_running=2)) for n in range(4)]
    waiting = {queued(database, name, most=2).id for name in names for _ in range(5)}
    begun, lock, stop = Counter[str](), threading.Lock(), threading.Event()

    def work(pool: str) -> None:
        while not stop.is_set():
            jobs = limiter.schedule(pool)
            with lock:
                begun.update(jobs)
            for job in jobs:
                end(database, job)

    give_up_s = time.monotonic() + 60.0
    threads = [threading.Thread(target=work, args=(pool,)) for pool in ("here", "there", "here", "there")]
    for thread in threads:
        thread.start()
    while len(begun) < len(waiting) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(begun) == waiting and set(begun.values()) == {1}
    assert most_at_once(database, GRANTS.c.tenant) <= 2
    assert most_at_once(database, GRANTS.c.device, GRANTS.c.pool) == 1


def most_at_once(database: ServiceDatabase, *of: sa.Column[object]) -> int:
    """The most grants that anybody ever held at the same time."""
    with database.read() as connection:
        rows = connection.execute(sa.select(GRANTS.c.granted_at, GRANTS.c.released_at, *of)).all()
    changes = [(row[0], 1, tuple(row[2:])) for row in rows] + [(row[1], -1, tuple(row[2:])) for row in rows]
    now, most = Counter[tuple[object, ...]](), 0
    for _, change, key in sorted(changes, key=lambda each: (each[0], each[1])):
        now[key] += change
        most = max(most, now[key])
    return most


@pytest.mark.parametrize("devices", [1, 3])
def test_a_pool_can_shrink_and_grow(database: ServiceDatabase, devices: int) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 2}, 0.0)
    limiter.offer("here", {"": devices}, 0.0)
    job = queued(database, tenant(database, "a"), most=8)
    limiter.schedule("here")
    assert held(database) == {job.id: devices}


def test_a_machine_of_several_devices_is_on_one_computer(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("ray", {"a": 3, "b": 2}, 0.0)
    one, two = (queued(database, tenant(database, name), least=2, most=4) for name in ("x", "y"))
    assert sorted(limiter.schedule("ray")) == sorted([one.id, two.id])
    nodes = [[grant.node for grant in limiter.grants(job.id)] for job in (one, two)]
    assert sorted(nodes) == [["a", "a"], ["b", "b"]]
    small = queued(database, tenant(database, "z"))
    assert limiter.schedule("ray") == [small.id]
    assert [grant.node for grant in limiter.grants(small.id)] == ["a"]


def test_a_job_whose_machine_is_larger_than_any_computer_is_put_off_and_told_why(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("ray", {"a": 2, "b": 2}, 0.0)
    job = queued(database, tenant(database, "x"), least=3, most=3)
    assert limiter.schedule("ray") == []
    found = Jobs(database).get(job.id)
    assert (
        found.reason == "it needs 3 devices on one computer, and the largest has 2" and found.not_before > time.time()
    )
    other = queued(database, tenant(database, "y"), least=2, most=2)
    assert limiter.schedule("ray") == [other.id]


def test_devices_of_a_computer_that_is_gone_go_when_nobody_holds_them(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("ray", {"a": 1, "b": 1}, 0.0)
    job = queued(database, tenant(database, "x"), least=1, most=2)
    limiter.schedule("ray")
    limiter.offer("ray", {"a": 1, "c": 1}, 0.0)
    assert {grant.node for grant in limiter.grants(job.id)} == {"a", "b"}
    lost = next(grant.device for grant in limiter.grants(job.id) if grant.node == "b")
    limiter.release(job.id, driver_of(database, job, "ray"), [lost])
    limiter.offer("ray", {"a": 1, "c": 1}, 0.0)
    limiter.schedule("ray")
    assert {grant.node for grant in limiter.grants(job.id)} == {"a", "c"}


def test_a_driver_that_was_given_up_can_neither_let_go_nor_want(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 2}, 0.0)
    job = queued(database, tenant(database, "a"), most=2)
    limiter.schedule("here")
    limiter.release(job.id, "another", [0, 1])
    limiter.want(job.id, "another", 1)
    limiter.schedule("here")
    assert held(database) == {job.id: 2}
    assert all(grant.leaving_at is None for grant in limiter.grants(job.id))


def test_one_that_waits_for_weeks_stops_nobody(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 2}, 0.0)
    job = queued(database, tenant(database, "a"), least=3, most=3)
    with database.write() as connection:
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(put_offs=5000))
    other = queued(database, tenant(database, "b"))
    assert limiter.schedule("here") == [other.id]


def test_no_more_jobs_begin_than_drivers_may_run(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 4}, 0.0)
    jobs = [queued(database, tenant(database, name)) for name in "abc"]
    assert len(limiter.schedule("here", 2)) == 2 and limiter.schedule("here", 2) == []
    assert sum(held(database).values()) == 2
    end(database, next(job.id for job in jobs if Jobs(database).get(job.id).state == "running"))
    assert len(limiter.schedule("here", 2)) == 1


def test_running_jobs_count_in_other_pools_also_when_they_hold_nothing(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    for pool in ("here", "there"):
        limiter.offer(pool, {"": 2}, 0.0)
    of = tenant(database, "a", quota=Quota(max_running=1))
    first, _ = queued(database, of), queued(database, of)
    assert limiter.schedule("here") == [first.id]
    limiter.release(first.id, driver_of(database, first), [0])  # its run is over, its completion is to come
    assert limiter.schedule("there") == []


def test_a_job_that_only_another_pool_has_room_for_is_not_put_off(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("small", {"": 2}, 0.0)
    limiter.offer("large", {"": 4}, 0.0)
    with database.write() as connection:
        row = {"id": "r", "pool": "large", "alive_until": time.time() + 60}
        connection.execute(sa.insert(REPLICAS), row)
    job = queued(database, tenant(database, "a"), least=4, most=4)
    assert limiter.schedule("small") == []
    assert limiter.schedule("large") == [job.id]


def test_a_computer_is_kept_for_a_machine_that_is_due(database: ServiceDatabase) -> None:
    """A small job runs on each of two computers, and more come: they must not keep both busy for ever."""
    limiter = Limiter(database)
    limiter.offer("ray", {"a": 4, "b": 4}, 0.0)
    first = [queued(database, tenant(database, f"s{n}")) for n in range(8)]
    assert len(limiter.schedule("ray")) == 8
    stay = {limiter.grants(job.id)[0].node: job for job in first}
    for job in first:
        if job not in stay.values():
            end(database, job.id)
    large = queued(database, tenant(database, "l"), least=4, most=4)
    assert limiter.schedule("ray") == []
    late = [queued(database, tenant(database, f"t{n}")) for n in range(4)]
    assert len(limiter.schedule("ray")) == 2
    (busy,) = {limiter.grants(job.id)[0].node for job in late if job.id in held(database)}
    end(database, stay["b" if busy == "a" else "a"].id)
    assert large.id in limiter.schedule("ray")


def test_a_computer_that_is_kept_for_one_machine_is_not_given_to_the_next(database: ServiceDatabase) -> None:
    """Three devices are free on one computer, one on each of the others; a machine of four is due, then one of two."""
    limiter = Limiter(database)
    limiter.offer("ray", dict.fromkeys("abcd", 4), 0.0)
    small = [queued(database, tenant(database, f"s{n}")) for n in range(16)]
    assert len(limiter.schedule("ray")) == 16
    on = {node: [job for job in small if limiter.grants(job.id)[0].node == node] for node in "abcd"}
    for job in (*on["a"][:3], on["b"][0], on["c"][0], on["d"][0]):
        end(database, job.id)
    large = queued(database, tenant(database, "l"), least=4, most=4)
    late = queued(database, tenant(database, "m"), least=2, most=2)
    assert limiter.schedule("ray") == []
    end(database, on["a"][3].id)
    assert limiter.schedule("ray") == [large.id] and late.id not in held(database)


def test_what_waits_for_its_tenants_own_quota_keeps_no_computer_from_others(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 8}, 0.0)
    a, b = tenant(database, "a", share=4.0, quota=Quota(max_devices=2)), tenant(database, "b")
    first = queued(database, a, most=2)
    assert limiter.schedule("here") == [first.id] and held(database)[first.id] == 2
    second, other = queued(database, a), queued(database, b, most=4)
    assert limiter.schedule("here") == [other.id], "the second one waits until the first has let go of a device"
    leaving = [grant.device for grant in limiter.grants(first.id) if grant.leaving_at is not None]
    limiter.release(first.id, driver_of(database, first), leaving)
    assert limiter.schedule("here") == [second.id]


def test_jobs_that_only_another_pool_has_room_for_are_not_in_the_way_of_smaller_ones(
    database: ServiceDatabase,
) -> None:
    limiter = Limiter(database)
    for pool, devices in (("small", 2), ("large", 8)):
        limiter.offer(pool, {"": devices}, 0.0)
        with database.write() as connection:
            connection.execute(sa.insert(REPLICAS), {"id": pool, "pool": pool, "alive_until": time.time() + 60})
    of = tenant(database, "a")
    for _ in range(2 * LOOK_AHEAD):
        queued(database, of, least=4, most=4)
    fits = queued(database, of)
    assert limiter.schedule("small") == [fits.id]


def test_a_month_costs_what_was_held_in_it(database: ServiceDatabase) -> None:
    """Of two hours on a device until ten minutes past midnight on the first, ten minutes."""
    limiter, of = Limiter(database), tenant(database, "a")
    limiter.offer("here", {"": 1}, 6.0)
    queued(database, of)
    limiter.schedule("here")
    midnight = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    with database.write() as connection:
        connection.execute(sa.update(GRANTS).values(granted_at=midnight - 6600.0))
        assert spent_this_month_usd(connection, of, midnight + 600.0) == pytest.approx(1.0)
        connection.execute(sa.update(GRANTS).values(released_at=midnight + 300.0))
        assert spent_this_month_usd(connection, of, midnight + 600.0) == pytest.approx(0.5)
        connection.execute(sa.update(GRANTS).values(released_at=midnight - 300.0))
        assert spent_this_month_usd(connection, of, midnight + 600.0) == 0.0


def test_money_for_leaving_is_kept_back(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 2}, 3600.0)  # a dollar a second
    of = tenant(database, "a", quota=Quota(max_usd_per_month=250.0))
    job = queued(database, of, least=2, most=2)
    assert limiter.schedule("here") == [job.id]
    driver = driver_of(database, job)
    for spent_s, leaves in ((60.0, False), (70.0, True)):
        with database.write() as connection:
            connection.execute(sa.update(GRANTS).values(granted_at=time.time() - spent_s))
        limiter.schedule("here")
        assert Drivers(database).get(driver).leave is leaves  # type: ignore[union-attr]


def test_no_job_begins_and_none_grows_that_would_have_to_leave_at_once(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 4}, 3600.0)
    of = tenant(database, "a", quota=Quota(max_usd_per_month=200.0))
    large, small = queued(database, of, least=2, most=2), queued(database, of, most=4)
    for _ in range(2):
        limiter.schedule("here")
    assert held(database) == {small.id: 1}
    assert Jobs(database).get(large.id).reason == "it needs 2 devices, and the tenant may have 1"


def test_devices_that_cost_nothing_are_had_without_money(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 1}, 0.0)
    job = queued(database, tenant(database, "a", quota=Quota(max_usd_per_month=0.0)))
    assert limiter.schedule("here") == [job.id] and limiter.schedule("here") == []
    assert held(database) == {job.id: 1}


@pytest.mark.parametrize("driven", [True, False])
def test_when_the_money_is_spent_what_costs_nothing_goes_on_and_more_of_it_begins(
    database: ServiceDatabase, driven: bool
) -> None:
    limiter = Limiter(database)
    limiter.offer("dear", {"": 1}, 3600.0)
    limiter.offer("free", {"": 2}, 0.0)
    of = tenant(database, "a", quota=Quota(max_usd_per_month=130.0))
    paid = queued(database, of)
    assert limiter.schedule("dear") == [paid.id]
    free = queued(database, of)
    assert limiter.schedule("free") == [free.id]
    drivers = [driver_of(database, job, pool) for job, pool in ((paid, "dear"), (free, "free"))] if driven else []
    with database.write() as connection:
        connection.execute(sa.update(GRANTS).where(GRANTS.c.job == paid.id).values(granted_at=time.time() - 140.0))
    more = queued(database, of)
    assert limiter.schedule("free") == [more.id]
    limiter.schedule("dear")
    assert [Drivers(database).get(driver).leave for driver in drivers] == [True, False][: len(drivers)]  # type: ignore[union-attr]
    assert held(database) == {free.id: 1, more.id: 1} | ({paid.id: 1} if driven else {})


def test_a_job_without_a_driver_does_not_pay_on_when_the_money_is_spent(database: ServiceDatabase) -> None:
    limiter = Limiter(database)
    limiter.offer("here", {"": 1}, 3600.0)
    job = queued(database, tenant(database, "a", quota=Quota(max_usd_per_month=130.0)))
    assert limiter.schedule("here") == [job.id]
    with database.write() as connection:
        connection.execute(sa.update(GRANTS).values(granted_at=time.time() - 80.0))
    limiter.schedule("here")
    assert not held(database) and Jobs(database).get(job.id).state == "queued"
