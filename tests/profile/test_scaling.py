from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.profile import Scaling

WIDTHS = st.integers(1, 64)
SPEEDUPS = st.dictionaries(WIDTHS, st.floats(0.1, 100), min_size=1).map(lambda known: {1: 1.0, **known})


@pytest.mark.parametrize(
    ("scaling", "width", "expected"),
    [
        ({1: 1}, 0.5, 0.5),
        ({1: 2, 4: 6}, 0.25, 0.5),
        ({0.5: 0.7, 1: 1}, 0.5, 0.7),
        ({0.5: 0.7, 1: 1}, 0.25, 0.35),
        ({1: 1}, Fraction(1, 4), 0.25),
    ],
)
def test_a_part_of_a_device_trains_as_was_measured_or_slower_in_proportion(
    scaling: Mapping[float, float], width: Any, expected: float
) -> None:
    assert Scaling(scaling)(width) == pytest.approx(expected)


@pytest.mark.parametrize(("width", "expected"), [(1, 1), (2, 1.8), (3, 2.6), (4, 3.4), (6, 3.2), (8, 3.0), (99, 3.0)])
def test_between_known_widths_it_is_interpolated_and_above_them_it_stays(width: float, expected: float) -> None:
    assert Scaling({8: 3.0, 1: 1, 2: 1.8, 4: 3.4})(width) == pytest.approx(expected)


@given(SPEEDUPS, st.floats(1, 100))
def test_a_speed_up_lies_between_those_of_its_neighbours_and_a_known_one_is_exact(
    known: dict[int, float], width: float
) -> None:
    scaling = Scaling(known)
    below = known[max(each for each in known if each <= width)]
    above = known[min((each for each in known if each >= width), default=max(known))]
    assert min(below, above) - 1e-9 <= scaling(width) <= max(below, above) + 1e-9
    assert all(scaling(each) == factor for each, factor in known.items())


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("abc", "scaling='abc': must map widths to speed-ups"),
        ({2: 1.9}, "must say the speed-up of width 1"),
        ({1: 0}, r"scaling\[1\]=0: must be a number greater than 0"),
        ({1: 1, 2: float("nan")}, r"scaling\[2\]=nan"),
        ({1: 1, -2: 1}, "scaling width=-2"),
        ({1: 1, "2": 1}, "scaling width='2'"),
    ],
)
def test_what_is_no_scaling_is_refused(scaling: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Scaling(scaling)


def test_scalings_with_the_same_speed_ups_are_equal_in_any_order() -> None:
    one, other = Scaling({1: 1, 2: 1.9}), Scaling({2: 1.9, 1: 1.0})
    assert one == other and hash(one) == hash(other) and one != Scaling({1: 1, 2: 1.8})


def test_a_scaling_needs_no_numpy() -> None:
    code = "import sys, elastune; from elastune.profile import Scaling; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
