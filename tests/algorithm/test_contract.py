"""What every algorithm must keep to, also one of the user's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready, through_pickle

from elastune.algorithm import (
    ASHA,
    BOHB,
    FIFO,
    PBT,
    SEER,
    Actions,
    Algorithm,
    ElasticGrid,
    ElasticHyperband,
    Hyperband,
    HyperSched,
    KFold,
    Reported,
    SingleTrial,
    SpotTune,
    SuccessiveHalving,
    SyncBOHB,
)
from elastune.algorithm.base import NOTHING, AlgorithmEvent
from elastune.spec import Limits, Terms, TrialGroup


class MedianStopping(Algorithm):
    """A user's own: a trial that is worse than the median of the others at the same iteration stops."""

    def __init__(self, n: int, R: int) -> None:
        self.n, self.R = n, R
        self.begun = 0
        self.losses: dict[int, list[float]] = {}

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        group = self.new_runs(min(free, self.n - self.begun), self.R, final=True)
        self.begun += len(group)
        return [group]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if not isinstance(event, Reported):
            return NOTHING
        others = self.losses.setdefault(event.iteration, [])
        bad = len(others) >= 3 and event.loss > statistics.median(others)
        others.append(event.loss)
        return Actions(stops=(event.trial,)) if bad else NOTHING


def prepared(algorithm: Algorithm) -> Algorithm:
    algorithm.prepare(Terms(Limits(200.0, 1.0), machines=4, devices=4, price_usd_per_device_hour=1.0))
    return algorithm


ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "ASHA": lambda: ASHA(20, 1, 20, 3),
    "BOHB": lambda: BOHB(9, n=25),
    "BOHB with a limit": lambda: BOHB(9, n=25, max_concurrent=3),
    "ElasticGrid": lambda: prepared(ElasticGrid()),
    "ElasticHyperband": lambda: prepared(ElasticHyperband(eta=2, t_min=20.0)),
    "FIFO": lambda: FIFO(8, 5),
    "Hyperband": lambda: Hyperband(9, eta=3),
    "HyperSched": lambda: prepared(HyperSched(1, 20, 3)),
    "KFold": lambda: KFold(5, 7, 2),
    "PBT": lambda: PBT(7, 9, 2),
    "SEER": lambda: prepared(SEER(eta=2, t_min=10.0)),
    "SingleTrial": lambda: prepared(SingleTrial()),
    "SpotTune": lambda: SpotTune(9, 10, 0.6, 2),
    "SuccessiveHalving": lambda: SuccessiveHalving(16, 1, 15, 2),
    "SyncBOHB": lambda: SyncBOHB(9, n=25),
    "MedianStopping": lambda: MedianStopping(12, 6),
}
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
histories = given(seed=st.integers(0, 10**6), devices=st.integers(1, 7), fail=st.sampled_from([0.0, 0.05]))
few = settings(max_examples=25, deadline=None, derandomize=True)


@every_algorithm
@few
@histories
def test_pickling_after_any_call_changes_nothing(name: str, seed: int, devices: int, fail: float) -> None:
    straight = play(ready(ALGORITHMS[name]()), seed=seed, devices=devices, fail=fail)
    pickled = play(ready(ALGORITHMS[name]()), seed=seed, devices=devices, fail=fail, again=through_pickle)
    assert pickled == straight


@every_algorithm
@few
@histories
def test_runs_are_in_order(name: str, seed: int, devices: int, fail: float) -> None:
    """A trial is never asked to go back, to go on after its final run, or to go on after it failed or was stopped."""
    history = play(ready(ALGORITHMS[name]()), seed=seed, devices=devices, fail=fail)
    untils: dict[str, list[float]] = {}
    final: set[str] = set()
    over = {end.trial for end in history.ends if end.over}
    for run in history.runs:
        before = untils.setdefault(run.trial, [0])
        until = run.until_s if run.until is None else run.until
        assert until is not None and until > before[-1] and run.trial not in final
        before.append(until)
        if run.final:
            final.add(run.trial)
    for trial in over:
        ends = [end for end in history.ends if end.trial == trial]
        assert len(ends) == len(untils[trial]) - 1 and ends[-1].over, "it went on after it was over"


@every_algorithm
def test_a_declared_schedule_is_what_is_asked_for(name: str) -> None:
    algorithm = ready(ALGORITHMS[name]())
    stages = algorithm.stages()
    history = play(algorithm, seed=5)
    if stages is not None:
        declared = sorted(stage.until for stage in stages for _ in range(stage.trials))
        asked = sorted(run.until for run in history.runs if run.until is not None)
        if name == "KFold":  # what the folds will find is the most it can be
            assert 0 < asked.pop(0) <= declared.pop(0)
        assert asked == declared


@every_algorithm
def test_asking_for_more_when_there_is_no_more_stays_without_answer(name: str) -> None:
    algorithm = ready(ALGORITHMS[name]())
    history = play(algorithm, seed=1)
    assert [run for _ in range(3) for group in algorithm.more(100, history.at_s) for run in group] == []
