"""How often a trial is saved."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import elastune as et
from elastune.saving import SavingRule, daly_period_s

costs = st.floats(1e-3, 1e3)
means = st.floats(1.0, 1e7)


def wasted(period_s: float, cost_s: float, failure_mean_s: float) -> float:
    """The time that a run takes, for each second of training, with failures that come as chance has it: Daly's model
    of a whole run, where a failure may also come in a checkpoint.
    """
    return failure_mean_s * math.expm1((period_s + cost_s) / failure_mean_s) / period_s


def test_period_is_that_of_young_where_a_checkpoint_costs_little() -> None:
    assert daly_period_s(1.0, 86400.0) == pytest.approx(math.sqrt(2 * 86400.0), rel=0.01)


def test_free_checkpoints_are_always_due_and_hopeless_ones_once_in_a_while() -> None:
    assert daly_period_s(0.0, 3600.0) == 0.0
    assert daly_period_s(7200.0, 3600.0) == daly_period_s(1e6, 3600.0) == 3600.0


@given(costs, means, st.floats(0.2, 5.0))
def test_no_other_period_wastes_noticeably_less(cost_s: float, mean_s: float, factor: float) -> None:
    if cost_s < mean_s / 2:
        best = daly_period_s(cost_s, mean_s)
        assert wasted(best, cost_s, mean_s) <= 1.01 * wasted(factor * best, cost_s, mean_s)


@given(costs, means, st.floats(1.0, 10.0))
def test_dearer_checkpoints_and_rarer_failures_mean_longer_periods(cost_s: float, mean_s: float, more: float) -> None:
    if more * cost_s < mean_s:
        period_s = daly_period_s(cost_s, mean_s)
        assert daly_period_s(more * cost_s, mean_s) >= period_s
        assert daly_period_s(cost_s, more * mean_s) >= period_s


def test_fixed_period_stays_as_it_is() -> None:
    assert SavingRule(60.0).period_s(held_s=10.0, needed_s=100.0) == 60.0
    assert SavingRule(0.0).period_s(held_s=10.0, needed_s=100.0) == 0.0


def test_machines_that_are_taken_away_count_only_if_the_notice_is_too_short() -> None:
    rule = SavingRule(failure_mean_s=86400.0, notice_s=120.0, noticed_mean_s=3600.0)
    assert rule.fits(120.0) and rule.period_s(1.0, 120.0) == daly_period_s(1.0, 86400.0)
    assert not rule.fits(121.0)
    assert rule.period_s(1.0, 121.0) == pytest.approx(daly_period_s(1.0, 1 / (1 / 86400 + 1 / 3600)))


def test_auto_goes_by_the_market_where_there_is_one(tmp_path: Path) -> None:
    told: dict[str, Any] = {"space": {"x": et.uniform(0, 1)}, "metric": "loss", "algorithm": et.FIFO(1, 1)}
    plain = et.Tuner(None, **told, checkpoint_every="auto", storage=tmp_path).experiment.checkpoint_every_s
    assert plain == SavingRule()
    market = et.Spot(revocation=None, notice="60s", pace=2.0)
    spot = et.Tuner(
        None, **told, checkpoint_every="auto", market=market, storage=tmp_path
    ).experiment.checkpoint_every_s
    assert isinstance(spot, SavingRule) and spot.notice_s == 30.0
    assert 0 < spot.noticed_mean_s < math.inf
    with pytest.raises(et.SpecError, match="auto"):
        et.Tuner(None, **told, checkpoint_every="often", storage=tmp_path)


def test_where_a_deadline_reckons_with_it_nothing_stays_unsaved_for_longer() -> None:
    usual, bound = SavingRule(), SavingRule(longest_s=600.0)
    assert usual.period_s(5.0, 5.0) > 600.0 and bound.period_s(5.0, 5.0) == 600.0
    assert bound.period_s(0.01, 0.01) == usual.period_s(0.01, 0.01)
