"""What packing and spreading cost, and how far either pays."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.groups import laws

from elastune.allocate.overheads import Overheads, most_packed, paleo, widest
from elastune.errors import SpecError
from elastune.profile.scaling import Scaling
from elastune.spec import Width

MEASURED = Overheads((1.0, 1.2, 1.5), Scaling({1: 1, 2: 1.8, 4: 3.0}), 4)


@pytest.mark.parametrize(
    ("width", "factor"),
    [(1, 1), (Fraction(1, 2), 1.2), (Fraction(1, 3), 1.5), (2, 1 / 1.8), (3, 1 / 2.4), (4, 1 / 3), (8, 1 / 3)],
)
def test_a_trial_takes_as_much_longer_or_shorter_as_was_measured(width: Width, factor: float) -> None:
    assert MEASURED.factor(width) == pytest.approx(factor)


def test_more_trials_on_a_device_than_pay_train_no_more_together() -> None:
    assert MEASURED.factor(Fraction(1, 6)) == pytest.approx(2 * MEASURED.factor(Fraction(1, 3)))


def test_as_many_are_packed_as_there_are_slowdowns() -> None:
    assert (MEASURED.c, MEASURED.d) == (3, 4)


def test_the_law_of_the_paper() -> None:
    law = Overheads.law(alpha=1.1, beta=1.05, c=3, d=4)
    assert (law.c, law.d) == (3, 4)
    assert [law.factor(Fraction(1, k)) for k in (2, 3)] == pytest.approx([1.1, 1.21])
    assert [law.factor(w) for w in (1, 2, 4)] == pytest.approx([1, 1.05 / 2, 1.05**3 / 4])


@given(laws())
def test_in_the_range_of_the_paper_packing_saves_devices_and_spreading_saves_time(law: Overheads) -> None:
    together = [law.factor(Fraction(1, k)) / k for k in range(1, law.c + 1)]
    alone = [law.factor(w) for w in range(1, law.d + 1)]
    assert together == sorted(together, reverse=True) and alone == sorted(alone, reverse=True)


@pytest.mark.parametrize("slowdowns", [(), (1.5, 2.0), (1.0, 0.0), (1.0, nan), (1.0, inf)])
def test_slowdowns_begin_with_a_trial_alone_and_are_numbers(slowdowns: tuple[float, ...]) -> None:
    with pytest.raises(SpecError, match="slowdowns="):
        Overheads(slowdowns, Scaling({1: 1}), 1)


# ------------------------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize(
    ("slowdowns", "threshold", "c"),
    [
        # 1 - 1/2 x 1.2 = 0.4; 1 - 2/3 x 1.5 / 1.2 = 1/6; 1 - 3/4 x 2.4 / 1.5 = -0.2
        ([1.0, 1.2, 1.5, 2.4], 0.1, 3),
        ([1.0, 1.2, 1.5, 2.4], 0.2, 2),
        ([1.0, 1.2, 1.5, 2.4], 0.5, 1),
        ([1.0, 1.2, 1.5, 2.4], -0.3, 4),
        ([30.0, 36.0, 45.0, 72.0], 0.1, 3),
        # Nobody notices the others: 1/2, 1/3, 1/4.
        ([1.0, 1.0, 1.0, 1.0], 0.3, 3),
        ([1.0, 1.0, 1.0, 1.0], 0.25, 3),
        ([1.0, 1.0, 1.0, 1.0], 0.24, 4),
        # The device was full: 0 for each.
        ([1.0, 2.0, 3.0], 0.01, 1),
        # The first that does not pay ends it, whatever comes then: 0.05 and then 0.6.
        ([1.0, 1.9, 1.14], 0.1, 1),
        ([1.0], 0.1, 1),
    ],
)
def test_trials_are_packed_while_the_marginal_benefit_is_above_the_threshold(
    slowdowns: Sequence[float], threshold: float, c: int
) -> None:
    assert most_packed(slowdowns, threshold) == c


# ----------------------------------------------------------------------------------------------------------- spreading


@pytest.mark.parametrize(
    ("speedups", "threshold", "d"),
    [
        # 0.9, then 1.2 for two devices, then 0.4 for four.
        ({1: 1.0, 2: 1.9, 4: 3.1, 8: 3.5}, 0.95, 1),
        ({1: 1.0, 2: 1.9, 4: 3.1, 8: 3.5}, 0.75, 2),
        ({1: 1.0, 2: 1.9, 4: 3.1, 8: 3.5}, 0.5, 4),
        ({1: 1.0, 2: 1.9, 4: 3.1, 8: 3.5}, 0.05, 8),
        ({1: 2.0, 2: 3.8, 4: 6.2, 8: 7.0}, 0.75, 2),
        ({1: 1.0, 2: 0.8, 4: 3.0}, 0.3, 1),
        ({1: 1.0, 2: 1.5}, 0.5, 2),
        ({1: 1.0}, 0.5, 1),
    ],
)
def test_trials_are_spread_while_each_added_device_brings_the_threshold(
    speedups: dict[int, float], threshold: float, d: int
) -> None:
    assert widest(speedups, threshold) == d


def test_paleo_shares_the_computing_and_adds_the_ring() -> None:
    # 100 MB at 1 GB/s, once per step of 1 s: 0.1 s on two devices, 0.15 s on four.
    scaling = paleo(1.0, 100e6, 1, 1e9, most=4)
    assert [scaling(w) for w in (1, 2, 3, 4)] == pytest.approx(
        [1, 1 / (0.5 + 0.1), 1 / (1 / 3 + 2 / 3 * 0.2), 1 / (0.25 + 0.15)]
    )


def test_paleo_without_anything_to_pass_on_scales_perfectly() -> None:
    assert paleo(0.2, 0, 1, 1e9, most=8)(8) == pytest.approx(8)
    assert paleo(0.2, 1e6, 0, 1e9, most=8)(8) == pytest.approx(8)


def test_paleo_says_so_where_more_devices_are_slower() -> None:
    assert paleo(0.01, 1e9, 2, 1e9, most=2)(2) < 1


@given(st.floats(1e-3, 10), st.floats(0, 1e10), st.floats(0, 4), st.floats(1e6, 1e11), st.integers(1, 32))
def test_paleo_is_never_faster_than_perfect_and_never_slower_than_the_ring(
    step_s: float, sync_bytes: float, syncs: float, bandwidth: float, most: int
) -> None:
    scaling = paleo(step_s, sync_bytes, syncs, bandwidth, most)
    ring_s = 2 * syncs * sync_bytes / bandwidth
    assert all(step_s / (step_s / w + ring_s) * (1 - 1e-9) <= scaling(w) <= w * (1 + 1e-9) for w in range(1, most + 1))


@pytest.mark.parametrize(
    ("given_", "message"),
    [((0, 1, 1, 1, 2), "step_s=0"), ((1, 1, 1, 0, 2), "bandwidth_bytes_per_s=0"), ((1, 1, 1, 1, 0), "most=0")],
)
def test_paleo_refuses_what_cannot_be(given_: tuple[float, float, float, float, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        paleo(*given_)
