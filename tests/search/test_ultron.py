"""An HPO algorithm with Ultron's interface, as a searcher."""

from __future__ import annotations

import pickle
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.algorithm import FIFO
from elastune.algorithm.base import TrialSource
from elastune.errors import SpecError
from elastune.messages import Config, Suggested
from elastune.search import Result, UltronSearcher, make_searcher
from elastune.space import Space, choice, uniform

SPACE = Space({"x": choice([1, 2, 3]), "y": choice(["a", "b"])})


class Remembers:
    """Writes down what it is asked and told."""

    def __init__(self, hp_ranges: dict[str, list[Any]], seed: int) -> None:
        self.ranges, self.rng = hp_ranges, random.Random(seed)
        self.calls: list[Any] = []

    def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
        self.calls.append(n)
        return [{name: self.rng.choice(values) for name, values in self.ranges.items()} for _ in range(n)]

    def update_state(self, candidates: list[Config], scores: list[float]) -> None:
        self.calls.append((candidates, scores))


def make(hpo: Any = Remembers, batch: int = 3, seed: int = 0) -> UltronSearcher:
    searcher = make_searcher(hpo, batch)
    assert isinstance(searcher, UltronSearcher)
    searcher.setup(SPACE, "max", seed)
    return searcher


def calls(searcher: UltronSearcher) -> list[Any]:
    found: list[Any] = searcher._hpo.calls
    return found


def suggest(searcher: UltronSearcher, count: int) -> list[Config]:
    return [config for config in (searcher.suggest() for _ in range(count)) if config is not None]


def scored(number: int, config: Config, value: float | None) -> Result:
    return Result(number, config, 1, value, final=True)


def test_a_batch_is_told_as_a_whole_when_its_last_score_is_in_and_what_failed_is_left_out() -> None:
    searcher = make()
    one, two, three = suggest(searcher, 3)
    assert calls(searcher) == [3]
    searcher.observe(scored(2, three, 0.3))
    searcher.observe(scored(0, one, 0.1))
    assert calls(searcher) == [3]
    searcher.observe(scored(1, two, None))
    assert calls(searcher) == [3, ([one, three], [0.1, 0.3])]
    suggest(searcher, 1)
    assert calls(searcher)[2:] == [3]


def test_it_is_ready_for_the_rest_of_a_batch_only_until_all_scores_are_in() -> None:
    searcher = make()
    assert searcher.ready() == 3
    first, second = suggest(searcher, 2)
    assert searcher.ready() == 1
    (third,) = suggest(searcher, 1)
    for number, config in enumerate((first, second)):
        searcher.observe(scored(number, config, 0.5))
        assert searcher.ready() == 0
    searcher.observe(scored(2, third, None))
    assert searcher.ready() == 3


def test_fifo_leaves_devices_idle_until_the_batch_is_complete() -> None:
    searcher, algorithm = make(), FIFO(5, R=1)
    source = TrialSource("t", searcher, SPACE)
    algorithm.setup(source)

    def begun() -> list[str]:
        return [run.trial for group in algorithm.more(2, 0.0) for run in group]

    assert [begun(), begun(), begun()] == [["t-00000", "t-00001"], ["t-00002"], []]
    for number in range(3):
        source.observe(f"t-0000{number}", {}, 1, 0.5, final=True)
    assert begun() == ["t-00003", "t-00004"]


class GivesTwo(Remembers):
    def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
        return super().sample_hyperparameter_candidates(2)


def test_fifo_waits_for_the_scores_of_a_batch_that_is_smaller_than_asked_for() -> None:
    searcher, algorithm = make(GivesTwo, batch=4), FIFO(9, R=1)
    source = TrialSource("t", searcher, SPACE)
    algorithm.setup(source)

    def begun() -> list[str]:
        return [run.trial for group in algorithm.more(4, 0.0) for run in group]

    assert [begun(), begun()] == [["t-00000", "t-00001"], []]
    assert calls(searcher) == [2]
    for number in range(2):
        source.observe(f"t-0000{number}", {}, 1, 0.5, final=True)
    assert begun() == ["t-00002", "t-00003"]


def test_who_asks_for_more_gets_another_batch_and_each_is_told_by_itself() -> None:
    searcher = make(batch=2)
    a, b, c, d = suggest(searcher, 4)
    assert calls(searcher) == [2, 2]
    for number, config in ((2, c), (0, a), (3, d), (1, b)):
        searcher.observe(scored(number, config, number / 10))
    assert calls(searcher)[2:] == [([c, d], [0.2, 0.3]), ([a, b], [0.0, 0.1])]


def test_a_batch_of_failures_is_not_told_and_the_next_is_asked_for() -> None:
    searcher = make(batch=1)
    (config,) = suggest(searcher, 1)
    searcher.observe(scored(0, config, None))
    suggest(searcher, 1)
    assert calls(searcher) == [1, 1]


def test_when_it_has_no_more_candidates_there_are_no_more() -> None:
    class Few(Remembers):
        def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
            return super().sample_hyperparameter_candidates(1) if not self.calls else []

    searcher = make(Few)
    assert searcher.suggest() is not None and searcher.suggest() is None


def test_numbers_of_numpy_become_plain_ones() -> None:
    class Drawn(Remembers):
        def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
            return [{"x": np.int64(2), "y": np.str_("a"), "both": [np.float64(0.5)]}]

    (config,) = suggest(make(Drawn), 1)
    assert config == {"x": 2, "y": "a", "both": [0.5]}
    assert (type(config["x"]), type(config["y"]), type(config["both"][0])) == (int, str, float)


def test_a_replayed_one_is_told_of_what_was_recorded() -> None:
    original, replayed = make(batch=2), make(batch=2, seed=9)
    for number in range(2):
        config = original.suggest()
        replayed.resuggest(config)
        assert config is not None
        for searcher in (original, replayed):
            searcher.observe(scored(number, config, 0.5))
    assert calls(original) == calls(replayed)


class Dry(Remembers):
    def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
        return []


def test_a_replay_takes_what_was_recorded_also_where_nothing_is_sampled_now() -> None:
    searcher, algorithm = make(Dry), FIFO(9, R=1)
    source = TrialSource("t", searcher, SPACE)
    algorithm.setup(source)
    source.recorded = deque(Suggested(f"t-0000{number}", {"x": number}) for number in range(2))
    assert [run.trial for group in algorithm.more(4, 0.0) for run in group] == ["t-00000", "t-00001"]
    source.recorded = None
    for number in (1, 0):
        source.observe(f"t-0000{number}", {}, 1, number / 10, final=True)
    assert calls(searcher) == [([{"x": 1}], [0.1]), ([{"x": 0}], [0.0])]


def test_what_is_told_may_be_changed_and_the_trials_keep_theirs() -> None:
    class Spoils(Remembers):
        def update_state(self, candidates: list[Config], scores: list[float]) -> None:
            candidates[0].clear()

    searcher = make(Spoils, batch=1)
    (config,) = suggest(searcher, 1)
    searcher.observe(scored(0, config, 0.5))
    assert config.keys() == {"x", "y"}


@given(data=st.data())
def test_pickling_after_any_event_changes_nothing(data: st.DataObject) -> None:
    original, copied = make(), make()
    suggested: list[Config] = []
    for kind in data.draw(st.lists(st.sampled_from(["suggest", "finish", "fail"]), max_size=25)):
        if kind == "suggest" or not suggested:
            suggested += suggest(original, 1)
            assert suggest(copied, 1) == suggested[-1:]
        else:
            number = data.draw(st.integers(0, len(suggested) - 1))
            event = scored(number, suggested[number], None if kind == "fail" else data.draw(st.floats(-9, 9)))
            original.observe(event)
            copied.observe(event)
        copied = pickle.loads(pickle.dumps(copied))
    assert calls(original) == calls(copied) and original.ready() == copied.ready()


def test_an_object_is_taken_as_it_is() -> None:
    hpo = Remembers({"x": [7]}, seed=0)
    assert suggest(make(hpo), 1) == [{"x": 7}]


class NeedsMore(Remembers):
    def __init__(self, budget: int) -> None: ...


class Fails(Remembers):
    def sample_hyperparameter_candidates(self, n: int) -> list[Config]:
        raise ValueError("no idea")


class Listless(Remembers):
    def sample_hyperparameter_candidates(self, n: int) -> Any:
        return {"x": 1}


class Pairs(Remembers):
    def sample_hyperparameter_candidates(self, n: int) -> Any:
        return [("x", 1)]


@pytest.mark.parametrize(
    ("hpo", "said"),
    [
        (NeedsMore, "searcher NeedsMore: it cannot be made: TypeError: .*budget.*hp_ranges and seed"),
        (Fails, "searcher Fails: its sample_hyperparameter_candidates failed: ValueError: no idea"),
        (Listless, r"sample_hyperparameter_candidates\(3\) gave {'x': 1}: must be a list of dicts"),
        (Pairs, r"gave \[\('x', 1\)\]: must be a list of dicts"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_says_so(hpo: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        make(hpo).suggest()


def test_ranges_are_lists_of_values_only() -> None:
    with pytest.raises(SpecError, match="hp_ranges has lists of values, so x must be a choice"):
        make_searcher(Remembers, 1).setup(Space({"x": uniform(0, 1)}), "max", 0)
