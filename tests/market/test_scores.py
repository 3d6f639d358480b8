"""Scores of predictions, by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.market.scores import best_threshold, calibration_curve, score

LABELS = np.array([True, False, True, False, False])
SAID = np.array([0.9, 0.8, 0.4, 0.1, 0.1])


def test_scores_by_hand() -> None:
    found = score(LABELS, SAID)
    assert (found.samples, found.positives, found.majority) == (5, 0.4, 0.6)
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.f1 == pytest.approx(2 * 1 / (2 + 2))
    assert found.log_loss == pytest.approx(-(log(0.9) + log(0.2) + log(0.4) + 2 * log(0.9)) / 5)
    assert found.brier == pytest.approx((0.01 + 0.64 + 0.36 + 0.01 + 0.01) / 5)
    assert found.calibration_error == pytest.approx((0.1 + 0.8 + 0.6 + 2 * 0.1) / 5)


def test_f1_of_never_saying_yes_is_0_and_sure_mistakes_cost_a_finite_amount() -> None:
    assert score(LABELS, np.zeros(5)).f1 == 0.0
    assert score(np.zeros(3, dtype=bool), np.zeros(3)).f1 == 0.0
    assert score(LABELS, np.zeros(5)).log_loss < 10


def test_a_calibration_curve_compares_what_was_said_with_what_happened() -> None:
    (low, middle, *high) = calibration_curve(LABELS, SAID)
    assert low.predicted == pytest.approx(0.1) and (low.observed, low.samples) == (0.0, 2)
    assert middle.predicted == pytest.approx(0.4) and (middle.observed, middle.samples) == (1.0, 1)
    assert [each.observed for each in high] == [0.0, 1.0]
    assert calibration_curve(np.array([True]), np.array([1.0]))[0].samples == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])), min_size=1, max_size=30))
def test_no_threshold_has_a_better_f1_than_the_best(samples: list[tuple[bool, float]]) -> None:
    labels, said = np.array([label for label, _ in samples]), np.array([p for _, p in samples])
    best = score(labels, said, best_threshold(labels, said)).f1
    assert all(score(labels, said, threshold).f1 <= best + 1e-12 for threshold in (0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 1.1))
