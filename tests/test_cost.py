from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.cost import MachineUse, cost_usd, reached_s

held = st.lists(
    st.builds(
        MachineUse,
        st.just("n"),
        st.integers(1, 8),
        st.sampled_from([0.0, 0.36, 7.2]),
        st.floats(0, 100),
        minimum_s=st.sampled_from([0.0, 0.0, 60.0, 500.0]),
        data_usd=st.sampled_from([0.0, 0.0, 0.01, 1.0]),
    ),
    max_size=4,
)


def test_every_machine_costs_its_own_price_for_as_long_as_it_is_held() -> None:
    uses = [
        MachineUse("a", 4, 3.6, 0.0, 1000.0),
        MachineUse("b", 1, 36.0, 500.0, 600.0),
        MachineUse("c", 1, 9.0, 7.0, 5.0),
    ]
    assert cost_usd(uses) == pytest.approx(1.0 + 1.0)
    assert cost_usd(use.until(500.0) for use in uses) == pytest.approx(0.5)
    assert cost_usd([]) == 0.0


@given(held, st.floats(100, 200), st.floats(0.001, 5))
def test_an_amount_is_reached_when_the_bill_says_so(machines: list[MachineUse], at_s: float, amount_usd: float) -> None:
    found_s = reached_s(amount_usd, machines, at_s)
    assert found_s >= at_s
    if math.isinf(found_s):
        assert not any(machine.price_usd_per_hour for machine in machines)
    elif found_s > at_s:
        assert cost_usd(machine.until(found_s) for machine in machines) == pytest.approx(amount_usd)
    else:
        assert cost_usd(machine.until(at_s) for machine in machines) >= amount_usd - 1e-9


def test_what_is_spent_is_spent_also_when_nothing_is_held_any_more() -> None:
    assert reached_s(0.0, [], 5.0) == 5.0


def test_a_machine_costs_its_minimum_even_if_it_is_given_back_sooner_and_its_data_once() -> None:
    use = MachineUse("a", 4, 3.6, 100.0, 110.0, minimum_s=60.0, data_usd=0.5)
    assert use.cost_usd == pytest.approx(0.06 + 0.5)
    assert MachineUse("a", 4, 3.6, 100.0, 160.0, 60.0, 0.5).cost_usd == use.cost_usd
    assert MachineUse("a", 4, 3.6, 100.0, 200.0, 60.0, 0.5).cost_usd == pytest.approx(0.1 + 0.5)
    assert use.until(105.0).cost_usd == use.cost_usd, "it is owed from the beginning"
    assert use.until(99.0).cost_usd == 0.0, "and not before"


@given(held, st.floats(0, 300), st.floats(0, 300))
def test_the_bill_never_falls(machines: list[MachineUse], one_s: float, other_s: float) -> None:
    early_s, late_s = sorted((one_s, other_s))
    early, late = (cost_usd(machine.until(at_s) for machine in machines) for at_s in (early_s, late_s))
    assert early <= late + 1e-12


@given(held, st.floats(100, 200), st.floats(0.001, 5), st.floats(0.001, 5))
def test_a_larger_amount_is_reached_no_sooner(
    machines: list[MachineUse], at_s: float, one_usd: float, other_usd: float
) -> None:
    less, more = sorted((one_usd, other_usd))
    assert reached_s(less, machines, at_s) <= reached_s(more, machines, at_s)


@given(held, st.floats(100, 200), st.floats(0.001, 5))
def test_just_before_an_amount_is_reached_less_has_been_paid(
    machines: list[MachineUse], at_s: float, amount_usd: float
) -> None:
    found_s = reached_s(amount_usd, machines, at_s)
    if at_s < found_s < math.inf:
        before_s = found_s - 0.5 * min(found_s - at_s, 1.0)
        assert cost_usd(machine.until(before_s) for machine in machines) < amount_usd


def test_nothing_more_is_paid_until_the_minimum_is_used_up() -> None:
    young = MachineUse("a", 1, 3600.0, 0.0, minimum_s=60.0)
    assert reached_s(60.0, [young], 10.0) == 10.0, "that much is owed already"
    assert reached_s(61.0, [young], 10.0) == pytest.approx(61.0)
    older = MachineUse("b", 1, 3600.0, -100.0)
    assert reached_s(110.0 + 60.0 + 20.0, [young, older], 10.0) == pytest.approx(30.0), "the other one goes on costing"
    assert reached_s(160.0 + 60.0 + 20.0, [young, older], 10.0) == pytest.approx(70.0)


prices = st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 10)), max_size=5)


@given(prices, st.floats(0, 2000), st.floats(0, 2000), st.sampled_from([0.0, 60.0, 700.0]))
def test_a_price_that_changes_counts_for_as_long_as_it_held(
    changes: list[tuple[float, float]], end_s: float, asked_s: float, minimum_s: float
) -> None:
    use = whole = MachineUse("n", 1, 3.6, 0.0, minimum_s=minimum_s)
    changes = sorted(changes)
    for at_s, price in changes:
        if at_s <= end_s:
            whole = whole.repriced(at_s, price)
    whole = whole.until(end_s)

    def expected(until_s: float) -> float:
        total, price, since_s = 0.0, use.price_usd_per_hour, 0.0
        for at_s, new in changes:
            if at_s < until_s:
                total, price, since_s = total + price * (at_s - since_s), new, at_s
        missing_s = max(0.0, minimum_s - until_s)  # at the first price: it is gone because that has risen
        return (total + price * (until_s - since_s) + use.price_usd_per_hour * missing_s) / 3600

    assert whole.cost_usd == pytest.approx(expected(end_s))
    if asked_s < end_s:
        assert whole.until(asked_s).cost_usd == pytest.approx(expected(asked_s))


def test_what_is_missing_to_the_minimum_is_not_billed_at_the_price_that_took_the_machine_away() -> None:
    use = MachineUse("n", 1, 3.6, 0.0, minimum_s=60.0).repriced(40.0, 900.0).until(40.0, revoked=True)
    assert use.cost_usd == pytest.approx(0.06)


def test_a_machine_that_is_taken_away_before_its_refund_ends_costs_nothing() -> None:
    use = MachineUse("n", 1, 3.6, 0.0, data_usd=1.0, refund_s=3600.0)
    assert use.until(3599.0, revoked=True).cost_usd == 0.0
    assert use.until(3600.0, revoked=True).cost_usd == pytest.approx(4.6)
    assert use.until(100.0).cost_usd == pytest.approx(1.1)
    assert use.repriced(200.0, 9.9).until(100.0, revoked=True).cost_usd == 0.0
    assert use.until(100.0, revoked=True).in_device_hours.cost_usd == pytest.approx(100 / 3600)
