from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready

from elastune.algorithm import Hyperband
from elastune.errors import SpecError


def test_the_classic_brackets() -> None:
    brackets = Hyperband(R=81, eta=3).brackets
    assert [(b.n, b.r) for b in brackets] == [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.integers(1, 9), st.integers(2, 7))
def test_brackets_follow_the_formula_exactly(R: int, r: int, eta: int) -> None:
    if r > R:
        with pytest.raises(SpecError, match=f"r={r}, R={R}"):
            Hyperband(R, r, eta)
        return
    brackets = Hyperband(R, r, eta).brackets
    s_max = len(brackets) - 1
    assert r * eta**s_max <= R < r * eta ** (s_max + 1)
    for s, bracket in zip(range(s_max, -1, -1), brackets, strict=True):
        assert bracket.n == ceil(Fraction(s_max + 1, s + 1) * eta**s)
        assert bracket.r == R // eta**s >= r
        assert bracket.stages()[-1].until == R


def test_no_bracket_is_off_by_one_from_rounding() -> None:
    for eta in range(2, 8):
        for s_max in range(14):
            if eta**s_max > 10**7:
                break
            found = [b.n for b in Hyperband(R=eta**s_max, r=1, eta=eta).brackets]
            assert found == [ceil(Fraction(s_max + 1, s + 1) * eta**s) for s in range(s_max, -1, -1)]


def test_its_stages_are_those_of_its_brackets_in_order() -> None:
    stages = Hyperband(R=9, eta=3).stages()
    assert [(s.bracket, s.trials, s.start, s.until) for s in stages] == [
        *[(0, 9, 0, 1), (0, 3, 1, 4), (0, 1, 4, 9)],
        *[(1, 5, 0, 3), (1, 1, 3, 9)],
        (2, 3, 0, 9),
    ]


def test_every_stage_of_every_bracket_is_trained() -> None:
    algorithm = Hyperband(R=27, eta=3)
    history = play(ready(algorithm), seed=3, devices=6)
    trained = sorted(run.until for run in history.runs if run.until is not None)
    assert trained == sorted(stage.until for stage in algorithm.stages() for _ in range(stage.trials))
