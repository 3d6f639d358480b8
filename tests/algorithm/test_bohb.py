from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready
from tests.worlds import world

from elastune.algorithm import BOHB, Ended, Hyperband, Reported, Run
from elastune.algorithm.base import Algorithm, TrialSource
from elastune.errors import SpecError
from elastune.messages import Config, StatusChanged
from elastune.search import Searcher
from elastune.space import Space, uniform

FIRST = [*[1] * 9, *[4] * 3, 9]
SECOND = [*[3] * 5, 9]
THIRD = [9] * 3
"""Until where the trials of the brackets of Hyperband(R=9, eta=3) train."""


def more(algorithm: Algorithm, free: int) -> list[Run]:
    return [run for group in algorithm.more(free, 0.0) for run in group]


def end(algorithm: Algorithm, run: Run, loss: float | None) -> list[Run]:
    assert run.until is not None
    actions = algorithm.on(Ended(run.trial, run.until, loss, over=loss is None), 0.0)
    return [run for group in actions.groups for run in group]


def test_its_brackets_are_those_of_hyperband_over_and_over() -> None:
    history = play(ready(BOHB(R=9, eta=3, n=34)), seed=1, devices=1)
    assert [run.until for run in history.runs] == 2 * [*FIRST, *SECOND, *THIRD]
    stages = [stage.until for stage in Hyperband(R=9, eta=3).stages() for _ in range(stage.trials)]
    assert stages == [*FIRST, *SECOND, *THIRD]


def test_a_trial_is_suggested_only_when_a_device_is_free_for_it() -> None:
    algorithm = ready(BOHB(R=9))
    assert [len(more(algorithm, free)) for free in (1, 2, 4)] == [1, 2, 4]
    assert algorithm._source.count == 7


def test_while_a_bracket_waits_at_its_barrier_free_devices_begin_the_next() -> None:
    algorithm = ready(BOHB(R=9))
    runs = more(algorithm, 9)
    assert [run.until for run in runs] == [1] * 9
    assert [end(algorithm, run, float(loss)) for loss, run in enumerate(runs[1:], 1)] == [[]] * 8
    assert [run.until for run in more(algorithm, 8)] == [3] * 5 + [9] * 3
    promoted = end(algorithm, runs[0], 0.0)
    assert [(run.trial, run.until) for run in promoted] == [(run.trial, 4) for run in runs[:3]]


def test_nobody_is_promoted_before_the_bracket_is_full() -> None:
    algorithm = ready(BOHB(R=9))
    (first,) = more(algorithm, 1)
    assert end(algorithm, first, 0.0) == []
    others = more(algorithm, 8)
    assert [end(algorithm, run, 1.0) for run in others[1:]] == [[]] * 7
    assert [run.until for run in end(algorithm, others[0], 1.0)] == [4, 4, 4]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 10**6)), min_size=1, max_size=60), st.integers(1, 30))
def test_a_free_device_never_waits(steps: list[tuple[int, int]], R: int) -> None:
    """Without `n` there are always as many runs as devices, whoever ends when."""
    algorithm = ready(BOHB(R))
    losses = count()
    running: list[Run] = []
    for free, pick in steps:
        begun = more(algorithm, free)
        assert len(begun) == free
        running += begun
        loss = next(losses)
        running += end(algorithm, running.pop(pick % len(running)), None if loss % 7 == 6 else float(loss))


@pytest.mark.parametrize("n", [1, 9, 12, 20])
def test_it_ends_after_n_trials_and_the_last_bracket_is_no_larger_than_what_is_left(n: int) -> None:
    history = play(ready(BOHB(R=9, eta=3, n=n)), seed=2, devices=1)
    assert len({run.trial for run in history.runs}) == n
    cut = {1: [9], 9: FIRST, 12: [*FIRST, 3, 3, 3, 9], 20: [*FIRST, *SECOND, *THIRD, 1, 1, 1, 9]}
    assert [run.until for run in history.runs] == cut[n]


class Few(Searcher):
    def __init__(self, left: int) -> None:
        self.left = left

    def suggest(self) -> Config | None:
        self.left -= 1
        return {"x": 0.5} if self.left >= 0 else None


@pytest.mark.parametrize("devices", [1, 4, 20])
@pytest.mark.parametrize("configurations", [0, 4, 9, 11])
def test_a_bracket_that_a_searcher_cannot_fill_goes_on_with_what_it_has(configurations: int, devices: int) -> None:
    algorithm, searcher = BOHB(R=9, eta=3), Few(configurations)
    searcher.setup(Space({"x": uniform(0, 1)}), "min", 0)
    algorithm.setup(TrialSource("t", searcher, searcher.space))
    history = play(algorithm, seed=3, devices=devices)
    expected = {0: [], 4: [1, 1, 1, 1, 4, 4, 4, 9], 9: FIRST, 11: [*FIRST, 3, 3, 9]}[configurations]
    assert sorted(run.until for run in history.runs if run.until) == sorted(expected)


def test_who_is_not_promoted_when_a_searcher_has_no_more_is_stopped_too() -> None:
    algorithm, searcher = BOHB(R=9, eta=3), Few(5)
    searcher.setup(Space({"x": uniform(0, 1)}), "min", 0)
    algorithm.setup(TrialSource("t", searcher, searcher.space))
    begun = more(algorithm, 5)
    assert [end(algorithm, run, float(loss)) for loss, run in enumerate(begun)] == [[]] * 5, "there may be more"
    promoted = more(algorithm, 5)
    assert [(run.trial, run.until) for run in promoted] == [(run.trial, 4) for run in begun[:3]]
    actions = [algorithm.on(Reported(run.trial, 2, 0.0), 0.0) for run in promoted]
    assert [each.stops for each in actions] == [tuple(run.trial for run in begun[3:]), (), ()]


def test_a_run_stops_them_as_soon_as_the_others_go_on() -> None:
    session = world(BOHB(R=9, eta=3), searcher=Few(5), space=Space({"x": uniform(0, 1)}), devices=5).run()
    stopped_s = [
        record.at_s
        for record in session.records
        for decision in record.decisions
        if isinstance(decision, StatusChanged) and decision.status == "stopped"
    ]
    assert stopped_s == [2.0, 2.0, 4.0, 4.0], "with the first report of those that go on, and at the barrier"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"R": 9, "n": 0}, "n=0: must be a whole number of at least 1"),
        ({"R": 2, "r": 3}, "r=3, R=2"),
        ({"R": 9, "eta": 1}, "eta=1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        BOHB(**arguments)
