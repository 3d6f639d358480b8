from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.cost import MachineUse, cost_usd, reached_s

held = st.lists(
    st.builds(MachineUse, st.just("n"), st.integers(1, 8), st.sampled_from([0.0, 0.36, 7.2]), st.floats(0, 100)),
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
