from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready

from elastune.algorithm import ASHA, Actions, Algorithm, Ended
from elastune.algorithm.base import NOTHING, AlgorithmEvent
from elastune.errors import SpecError
from elastune.messages import Config
from elastune.spec import Run, TrialGroup


class PlainASHA(Algorithm):
    """The rule, written down as it is said: sorts every rung anew for every free device."""

    def __init__(self, n: int, r: int, R: int, eta: int) -> None:
        self.n, self.R, self.eta = n, R, eta
        self.untils = [r * eta**k for k in range(40) if r * eta**k < R]
        self.rungs: list[list[tuple[float, int]]] = [[] for _ in self.untils]
        self.promoted: list[set[int]] = [set() for _ in self.untils]
        self.trials: list[tuple[str, Config]] = []
        self.at: dict[str, tuple[int, int]] = {}

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        groups: list[TrialGroup] = []
        while len(groups) < free and (run := self.next_run()) is not None:
            groups.append((run,))
        return groups

    def next_run(self) -> Run | None:
        for k in reversed(range(len(self.rungs))):
            top = sorted(self.rungs[k])[: len(self.rungs[k]) // self.eta]
            for _, number in top:
                if number not in self.promoted[k]:
                    self.promoted[k].add(number)
                    return self.run(number, k + 1)
        if len(self.trials) < self.n and (new := self.new_trial()) is not None:
            self.trials.append(new)
            return self.run(len(self.trials) - 1, 0)
        return None

    def run(self, number: int, k: int) -> Run:
        trial, config = self.trials[number]
        self.at[trial] = (number, k)
        final = k == len(self.untils)
        return Run(trial, config, self.R if final else self.untils[k], final)

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Ended) and event.loss is not None and not event.over:
            number, k = self.at[event.trial]
            if k < len(self.rungs):
                self.rungs[k].append((event.loss, number))
        return NOTHING


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 60),
    r=st.integers(1, 3),
    R=st.integers(3, 40),
    eta=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    devices=st.integers(1, 9),
    levels=st.sampled_from([1, 2, 5, 10**9]),
    fail=st.sampled_from([0.0, 0.03]),
)
def test_promotes_whom_the_plain_rule_promotes_in_the_same_order(
    n: int, r: int, R: int, eta: int, seed: int, devices: int, levels: int, fail: float
) -> None:
    fast = play(ready(ASHA(n, r, R, eta)), seed=seed, devices=devices, levels=levels, fail=fail)
    plain = play(ready(PlainASHA(n, r, R, eta)), seed=seed, devices=devices, levels=levels, fail=fail)
    assert fast.runs == plain.runs


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), devices=st.integers(1, 9), eta=st.integers(2, 4))
def test_whoever_is_promoted_is_then_among_the_best_share_of_its_rung(seed: int, devices: int, eta: int) -> None:
    algorithm = ready(ASHA(40, 1, 30, eta))
    reached: dict[int, list[tuple[float, str]]] = {}
    promoted: dict[int, set[str]] = {}
    running: list[Run] = []
    while groups := [*algorithm.more(devices - len(running), 0.0)]:
        for (run,) in groups:
            assert run.until is not None
            below = [until for until in reached if until < run.until and any(t == run.trial for _, t in reached[until])]
            if below:  # not a new trial
                rung = max(below)
                share = len(reached[rung]) // eta
                assert run.trial in {trial for _, trial in sorted(reached[rung])[:share]}
                assert run.trial not in promoted.setdefault(rung, set())
                promoted[rung].add(run.trial)
            running.append(run)
        while len(running) >= devices:
            run = running.pop(seed % len(running))
            assert run.until is not None
            loss = (seed * 31 + len(reached.get(run.until, [])) * 17) % 101 / 101
            reached.setdefault(run.until, []).append((loss, run.trial))
            algorithm.on(Ended(run.trial, run.until, loss), 0.0)
    assert promoted


def told(algorithm: Algorithm, trial: str, iteration: int, loss: float) -> list[Run]:
    algorithm.on(Ended(trial, iteration, loss), 0.0)
    return [run for group in algorithm.more(1, 0.0) for run in group]


def test_a_paused_trial_is_promoted_later_when_its_rung_has_grown() -> None:
    algorithm = ready(ASHA(4, 1, 9, eta=3))
    begun = [group[0] for group in algorithm.more(3, 0.0)]
    assert [(run.trial, run.until, run.final) for run in begun] == [(f"t-0000{k}", 1, False) for k in range(3)]
    assert [run.trial for run in told(algorithm, "t-00000", 1, 0.1)] == ["t-00003"], "one of one is not a third"
    assert told(algorithm, "t-00001", 1, 0.5) == []
    (promoted,) = told(algorithm, "t-00002", 1, 0.9)
    assert (promoted.trial, promoted.until, promoted.final) == ("t-00000", 3, False)


def test_the_highest_rung_goes_first_and_the_last_run_is_final() -> None:
    algorithm = ready(ASHA(12, 1, 9, eta=3))
    assert len(algorithm.more(12, 0.0)) == 12
    for number in range(9):
        algorithm.on(Ended(f"t-{number:05d}", 1, number / 10), 0.0)
    assert [group[0].trial for group in algorithm.more(9, 0.0)] == ["t-00000", "t-00001", "t-00002"]
    for number in range(3):
        algorithm.on(Ended(f"t-{number:05d}", 3, -number / 10), 0.0)
    for number in range(9, 12):
        algorithm.on(Ended(f"t-{number:05d}", 1, 0.05), 0.0)
    (last,), (lower,) = algorithm.more(2, 0.0)
    assert (last.trial, last.until, last.final) == ("t-00002", 9, True)
    assert (lower.trial, lower.until, lower.final) == ("t-00009", 3, False)


def test_r_equal_to_R_is_random_search() -> None:
    history = play(ready(ASHA(5, 4, 4)), seed=0)
    assert [(run.until, run.final) for run in history.runs] == [(4, True)] * 5


@pytest.mark.parametrize(("n", "said"), [(0, "n=0"), (2.5, "n=2.5")])
def test_a_number_of_trials_that_cannot_be_is_an_error(n: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ASHA(n, 1, 9)
