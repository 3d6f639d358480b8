"""The division of devices among tenants and their jobs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from elastune.service.fair import Allowance, Demand, divide

ANY = Allowance()


def demand(job: str, tenant: str, number: int = 0, least: int = 1, most: int = 8, running: bool = False) -> Demand:
    return Demand(job, tenant, number, 0, least, most, least, running)


def test_two_tenants_get_the_same_however_many_jobs_they_have() -> None:
    demands = [demand("a0", "a", 0), demand("a1", "a", 1), demand("a2", "a", 2), demand("b0", "b", 3)]
    division = divide(8, demands, {"a": ANY, "b": ANY})
    assert division.devices["b0"] == 4
    assert sum(division.devices[job] for job in ("a0", "a1", "a2")) == 4


def test_a_tenant_with_three_times_the_share_gets_three_times_the_devices() -> None:
    division = divide(8, [demand("a", "a"), demand("b", "b", 1)], {"a": Allowance(3.0), "b": Allowance(1.0)})
    assert dict(division.devices) == {"a": 6, "b": 2}


def test_one_that_runs_keeps_what_it_began_with_and_gives_the_rest_to_one_that_waits() -> None:
    division = divide(4, [demand("old", "a", running=True), demand("new", "b", 1)], {"a": ANY, "b": ANY})
    assert dict(division.devices) == {"old": 2, "new": 2}


def test_nobody_overtakes_a_large_job_that_is_due() -> None:
    running = demand("old", "a", least=2, most=2, running=True)
    large, small = demand("large", "b", 1, least=4, most=4), demand("small", "b", 2)
    division = divide(4, [running, large, small], {"a": ANY, "b": ANY})
    assert dict(division.devices) == {"old": 2}
    assert not division.refused


def test_a_job_that_its_tenants_quota_forbids_lets_others_pass() -> None:
    demands = [demand("large", "a", 0, least=4, most=4), demand("small", "a", 1, most=1), demand("b", "b", 2, most=1)]
    division = divide(8, demands, {"a": Allowance(devices=2), "b": ANY})
    assert dict(division.devices) == {"small": 1, "b": 1}
    assert "4 devices" in division.refused["large"] and "may have 2" in division.refused["large"]


def test_the_more_urgent_job_of_a_tenant_begins_first_and_overtakes_no_other_tenant() -> None:
    urgent = Demand("urgent", "a", 9, 5, 1, 1, 1, False)
    early = demand("early", "a", 1)
    assert dict(divide(1, [early, urgent], {"a": ANY}).devices) == {"urgent": 1}
    had = {"a": Allowance(used_s=300.0), "b": ANY}
    assert dict(divide(1, [urgent, demand("b", "b", 10)], had).devices) == {"b": 1}


def test_a_large_job_does_not_starve_behind_small_ones_of_its_own_tenant() -> None:
    running = demand("old", "a", least=1, most=1, running=True)
    large, small = demand("large", "a", 1, least=4, most=4), demand("small", "a", 2, most=1)
    division = divide(8, [running, large, small, demand("b", "b", 3, most=1)], {"a": Allowance(devices=4), "b": ANY})
    assert dict(division.devices) == {"old": 1, "b": 1} and not division.refused


def test_what_a_tenant_has_in_other_pools_counts() -> None:
    quota = Allowance(devices=3, running=2, devices_elsewhere=2, running_elsewhere=1)
    division = divide(8, [demand("one", "a", 0, most=4), demand("two", "a", 1, most=4)], {"a": quota})
    assert dict(division.devices) == {"one": 1}


def test_no_more_jobs_begin_than_may_run_at_a_time() -> None:
    waiting = [demand("a", "a", 0, most=1), demand("b", "b", 1, most=1)]
    assert dict(divide(8, waiting, {"a": ANY, "b": ANY}, most_jobs=1).devices) == {"a": 1}


def test_among_tenants_that_have_nothing_it_is_the_turn_of_who_had_least() -> None:
    waiting = [demand("a", "a", 0, most=1), demand("b", "b", 1, most=1), demand("c", "c", 2, most=1)]
    had = {"a": Allowance(used_s=300.0), "b": Allowance(used_s=200.0), "c": Allowance(used_s=70.0)}
    assert dict(divide(1, waiting, had).devices) == {"c": 1}
    assert dict(divide(1, waiting, had | {"c": Allowance(0.1, used_s=70.0)}).devices) == {"b": 1}


def test_within_a_slice_the_tenant_goes_on_whose_driver_waits() -> None:
    waiting = [demand("a", "a", 0, most=1), demand("b", "b", 1, most=1)]
    had = {"a": Allowance(used_s=1.0), "b": Allowance(used_s=50.0, warm=True)}
    assert dict(divide(1, waiting, had).devices) == {"b": 1}
    assert dict(divide(1, waiting, had | {"b": Allowance(used_s=61.0, warm=True)}).devices) == {"a": 1}


demands = st.lists(
    st.builds(
        lambda tenant, priority, least, extra, running: (tenant, priority, least, least * (1 + extra), running),
        st.sampled_from("abc"),
        st.integers(-2, 2),
        st.integers(1, 4),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)
allowances = st.builds(
    Allowance,
    st.floats(0.1, 10),
    st.none() | st.integers(0, 8),
    st.none() | st.integers(0, 3),
)


@given(demands, st.fixed_dictionaries(dict.fromkeys("abc", allowances)), st.integers(1, 16))
def test_no_more_is_given_than_there_is_nor_than_a_quota_allows(
    drawn: list[tuple[str, int, int, int, bool]], quotas: dict[str, Allowance], free: int
) -> None:
    given_ = [Demand(str(n), t, n, p, least, most, least, r) for n, (t, p, least, most, r) in enumerate(drawn)]
    held = sum(each.least for each in given_ if each.running)
    division = divide(held + free, given_, quotas)
    by_job = {each.job: each for each in given_}
    assert sum(division.devices.values()) <= held + free
    before, after, jobs = Counter[str](), Counter[str](), Counter[str]()
    for each in given_:
        before[each.tenant] += each.least * each.running
    for job, devices in division.devices.items():
        its = by_job[job]
        assert its.least <= devices <= its.most and (devices - its.least) % its.quantum == 0
        after[its.tenant] += devices
        jobs[its.tenant] += 1
    for tenant, quota in quotas.items():
        running = sum(each.tenant == tenant and each.running for each in given_)
        assert quota.devices is None or after[tenant] <= max(quota.devices, before[tenant])
        assert quota.running is None or jobs[tenant] <= max(quota.running, running)
    assert all(job in division.devices for job, each in by_job.items() if each.running)
