from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready

from elastune.algorithm import SuccessiveHalving
from elastune.errors import SpecError


def shape(algorithm: SuccessiveHalving) -> list[tuple[int, int]]:
    return [(stage.trials, stage.until) for stage in algorithm.stages()]


def test_stages_of_the_example_of_the_documentation() -> None:
    assert shape(SuccessiveHalving(32, 1, 50, 3)) == [(32, 1), (10, 4), (3, 13), (1, 50)]


@pytest.mark.parametrize(
    ("n", "r", "R", "eta", "stages", "last"),
    [(64, 4, 508, 2, 7, (1, 508)), (512, 4, 4096, 2, 10, (1, 4096)), (128, 4, 508, 2, 7, (2, 508))],
)
def test_stages_of_the_published_experiments(
    n: int, r: int, R: int, eta: int, stages: int, last: tuple[int, int]
) -> None:
    found = shape(SuccessiveHalving(n, r, R, eta))
    assert (len(found), found[-1]) == (stages, last)


def test_a_single_trial_or_r_equal_to_R_is_one_stage() -> None:
    assert shape(SuccessiveHalving(1, 1, 50)) == [(1, 50)]
    assert shape(SuccessiveHalving(9, 50, 50)) == [(9, 50)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((4, 10, 9, 3), "r=10, R=9"),
        ((0, 1, 9, 3), "n=0"),
        ((4, 0, 9, 3), "r=0"),
        ((4, 1, 0, 3), "R=0"),
        ((4, 1, 9, 1), "eta=1"),
        ((4.0, 1, 9, 3), "n=4.0"),
        ((True, 1, 9, 3), "n=True"),
    ],
)
def test_what_cannot_be_halved_is_an_error_that_names_it(arguments: tuple[int, int, int, int], said: str) -> None:
    with pytest.raises(SpecError, match="must") as error:
        SuccessiveHalving(*arguments)
    assert str(error.value).startswith(said)


def schedules(most: int, longest: int) -> st.SearchStrategy[tuple[int, int, int, int]]:
    first_and_last = st.tuples(st.integers(1, longest), st.integers(1, longest)).map(sorted)
    return st.tuples(st.integers(1, most), first_and_last, st.integers(2, 6)).map(
        lambda it: (it[0], it[1][0], it[1][1], it[2])
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(schedules(300, 600))
def test_every_schedule_narrows_and_ends_at_R(schedule: tuple[int, int, int, int]) -> None:
    n, r, R, eta = schedule
    stages = SuccessiveHalving(n, r, R, eta).stages()
    assert stages[0].trials == n and stages[0].start == 0 and stages[-1].until == R
    for k, (before, after) in enumerate(pairwise(stages)):
        assert after.trials == max(1, n // eta ** (k + 1)) <= before.trials
        assert after.start == before.until
        assert before.iterations == r * eta**k
    assert all(stage.iterations > 0 and stage.trials > 0 for stage in stages)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(schedules(60, 40), st.integers(0, 99), st.sampled_from([0.0, 0.05]))
def test_the_best_of_each_stage_go_on_and_nobody_else(
    schedule: tuple[int, int, int, int], seed: int, fail: float
) -> None:
    algorithm = SuccessiveHalving(*schedule)
    history = play(ready(algorithm), seed=seed, devices=5, fail=fail, levels=7)
    stages = algorithm.stages()
    for before, after in pairwise(stages):
        began = {run.trial for run in history.runs if run.until == before.until}
        ends = [e for e in history.ends if e.trial in began and e.iteration == before.until and not e.over]
        able = [(end.loss or 0.0, end.trial) for end in ends]
        went_on = [run.trial for run in history.runs if run.until == after.until]
        assert went_on == [trial for _, trial in sorted(able)][: after.trials]
        assert {run.final for run in history.runs if run.until == after.until} <= {after == stages[-1]}
        stopped = {trial for _, trial in able} - set(went_on)
        assert stopped <= set(history.stopped)
    assert len(history.stopped) == len(set(history.stopped))
