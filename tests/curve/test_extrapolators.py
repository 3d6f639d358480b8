"""What every extrapolator keeps, whatever curve it is given."""

from __future__ import annotations

import math
import pickle
import sys
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastune.curve import EXTRAPOLATORS, Extrapolator, LastValue, make_extrapolator
from elastune.curve.earlycurve import EarlyCurve
from elastune.curve.power import PowerLaw
from elastune.curve.slaq import SLAQ
from elastune.errors import SpecError

NAMES = pytest.mark.parametrize("name", EXTRAPOLATORS)
ABSOLUTE = {"earlycurve", "slaq"}
"""To these a loss of zero means something: no positive loss falls below it."""
Curve = tuple[list[int], list[float]]


def made(name: str) -> Extrapolator:
    extrapolator = make_extrapolator(name)
    assert extrapolator is not None
    return extrapolator


@st.composite
def curves(draw: st.DrawFn, losses: st.SearchStrategy[float], most: int = 60) -> Curve:
    """Iterations with gaps, from anywhere."""
    values = draw(st.lists(losses, min_size=1, max_size=most))
    gaps = draw(st.lists(st.integers(1, 1000), min_size=len(values), max_size=len(values)))
    return list(accumulate(gaps)), values


any_finite = curves(st.floats(allow_nan=False, allow_infinity=False))
plain = curves(st.integers(-1000, 1000).map(lambda cents: cents / 100))
further = st.one_of(st.floats(0, 1e6), st.just(1e300), st.just(math.inf))
LARGEST = sys.float_info.max


@NAMES
@given(curve=any_finite, more=further)
@example(curve=([1, 2, 3, 4, 5], [1e-320, LARGEST / 2, 1e308, -1e308, LARGEST]), more=1e6)
@example(curve=([1, 2, 3, 4, 5, 6, 7], [-1e308, 1.0, LARGEST, -1e308, LARGEST, LARGEST / 2, LARGEST]), more=1e6)
def test_the_answer_is_finite_for_every_finite_curve(name: str, curve: Curve, more: float) -> None:
    iterations, losses = curve
    predicted = made(name).predict(iterations, losses, iterations[-1] + more)
    assert math.isfinite(predicted.loss)
    assert math.isfinite(predicted.std) and predicted.std >= 0


@NAMES
@given(curve=plain, more=further)
def test_the_same_curve_gives_the_same_answer_and_is_left_as_it_was(name: str, curve: Curve, more: float) -> None:
    iterations, losses = list(curve[0]), list(curve[1])
    extrapolator = made(name)
    first = extrapolator.predict(iterations, losses, iterations[-1] + more)
    extrapolator.predict([1, 2, 3], [3.0, 2.0, 1.0], 9)
    assert (iterations, losses) == curve
    copy = pickle.loads(pickle.dumps(extrapolator))
    assert first == extrapolator.predict(*curve, iterations[-1] + more)
    assert first == copy.predict(tuple(iterations), tuple(losses), iterations[-1] + more)


@NAMES
@given(curve=plain, more=further)
def test_the_answer_is_within_what_was_seen_and_as_far_below(name: str, curve: Curve, more: float) -> None:
    iterations, losses = curve
    predicted = made(name).predict(iterations, losses, iterations[-1] + more).loss
    slack = 1e-9 * (1 + max(map(abs, losses)))
    assert min(losses) - (max(losses) - min(losses)) - slack <= predicted <= max(losses) + slack


@NAMES
@given(curve=plain, steps=st.lists(st.floats(0, 1e6), min_size=2, max_size=5))
def test_further_on_no_loss_is_higher(name: str, curve: Curve, steps: list[float]) -> None:
    predicted = [made(name).predict(*curve, curve[0][-1] + more).loss for more in sorted(steps)]
    assert all(later <= sooner + 1e-9 for sooner, later in pairwise(predicted))


@NAMES
@given(curve=plain, more=further, factor=st.sampled_from([1e-6, 0.3, 7.0, 1e6]))
def test_the_unit_of_the_loss_does_not_matter(name: str, curve: Curve, more: float, factor: float) -> None:
    check_moved(made(name), curve, more, factor, shift=0)


@pytest.mark.parametrize("name", [name for name in EXTRAPOLATORS if name not in ABSOLUTE])
@given(curve=plain, more=further, factor=st.sampled_from([1e-6, 0.3, 7.0, 1e6]), shift=st.integers(-100, 100))
def test_the_origin_of_the_loss_does_not_matter(
    name: str, curve: Curve, more: float, factor: float, shift: int
) -> None:
    check_moved(made(name), curve, more, factor, shift)


def check_moved(extrapolator: Extrapolator, curve: Curve, more: float, factor: float, shift: int) -> None:
    iterations, losses = curve
    before = extrapolator.predict(iterations, losses, iterations[-1] + more)
    moved = [factor * (loss + shift) for loss in losses]
    after = extrapolator.predict(iterations, moved, iterations[-1] + more)
    close = 1e-4 * (max(losses) - min(losses)) + 1e-9
    assert after.loss / factor - shift == pytest.approx(before.loss, abs=close)
    assert after.std / factor == pytest.approx(before.std, abs=close)


@NAMES
def test_one_report_is_predicted_to_stay(name: str) -> None:
    assert made(name).predict([7], [0.25], 50).loss == 0.25


def test_the_last_value_is_the_last_and_varies_as_the_last_ones_did() -> None:
    predicted = LastValue().predict([1, 2, 3, 4, 5, 6, 7], [900.0, 5.0, 4.0, 3.0, 2.0, 3.0, 2.0], 100)
    assert predicted.loss == 2.0
    assert predicted.std == pytest.approx(1.0)


def test_differences_that_are_no_float_are_the_largest_one() -> None:
    assert LastValue().predict([1, 2], [1.7e308, -1.7e308], 3).std == sys.float_info.max


def test_names_stand_for_extrapolators() -> None:
    assert isinstance(make_extrapolator("last"), LastValue)
    assert isinstance(make_extrapolator("power"), PowerLaw)
    assert isinstance(make_extrapolator("earlycurve"), EarlyCurve)
    assert isinstance(make_extrapolator("slaq"), SLAQ)
    own = PowerLaw()
    assert make_extrapolator(own) is own


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("powr", r"rank='powr': did you mean 'power'\? allowed: earlycurve, last, power, slaq"),
        ("", "rank='': allowed: earlycurve, last, power, slaq"),
        (3, r"rank=3: must be a name \(last, power, earlycurve, slaq\) or an object of an Extrapolator class"),
        (PowerLaw, r"must be a name \(last, power, earlycurve, slaq\) or an object"),
    ],
)
def test_what_stands_for_none_is_refused(value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_extrapolator(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["earlycurve", "slaq"])
def test_without_scipy_the_error_names_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastune.curve.find_spec", lambda package: None)
    with pytest.raises(
        SpecError, match=rf"rank='{name}': needs the package scipy; run: pip install 'elastune\[spot\]'"
    ):
        make_extrapolator(name)
