from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import play, ready

from elastune.algorithm import PBT, Actions, Ended, Run
from elastune.errors import SpecError


def generation(algorithm: PBT, runs: list[Run], losses: Mapping[str, float | None]) -> list[Run]:
    """All trials of a generation end; who is not in `losses` fails. Returns the next one."""
    answers: list[Actions] = []
    for run in runs:
        assert run.until is not None
        loss = losses.get(run.trial)
        answers.append(algorithm.on(Ended(run.trial, run.until, loss, over=loss is None), 0.0))
    assert not any(actions.groups for actions in answers[:-1]), "all meet at the barrier"
    return [run for group in answers[-1].groups for run in group]


def first(algorithm: PBT) -> list[Run]:
    (group,) = algorithm.more(1, 0.0)
    return list(group)


def by_number(runs: list[Run]) -> dict[str, float]:
    return {run.trial: float(number) for number, run in enumerate(runs)}


def test_the_worst_quarter_take_over_from_the_best_quarter_and_the_others_go_on() -> None:
    algorithm = ready(PBT(8, 20, 5, resample_probability=0.0))
    assert isinstance(algorithm, PBT)
    begun = first(algorithm)
    assert [(run.until, run.final, run.start_from) for run in begun] == [(5, False, None)] * 8
    configs = {run.trial: run.config for run in begun}
    following = {run.trial: run for run in generation(algorithm, begun, by_number(begun))}
    assert following.keys() == configs.keys() and {run.until for run in following.values()} == {10}
    for trial in ("t-00006", "t-00007"):
        run = following.pop(trial)
        assert run.start_from in ("t-00000", "t-00001")
        taken = configs[run.start_from]["x"]
        assert run.config["x"] in (taken * 0.8, min(1.0, taken * 1.2))
    assert all(run.start_from is None and run.config == configs[run.trial] for run in following.values())


def test_generations_follow_one_another_until_R() -> None:
    algorithm = PBT(4, 10, 4)
    assert [(stage.trials, stage.start, stage.until) for stage in algorithm.stages()] == [
        (4, 0, 4),
        (4, 4, 8),
        (4, 8, 10),
    ]
    history = play(ready(algorithm), seed=0, devices=3)
    assert [(run.until, run.final, run.stage) for run in history.runs] == [
        *[(4, False, 0)] * 4,
        *[(8, False, 1)] * 4,
        *[(10, True, 2)] * 4,
    ]
    assert sum(run.start_from is not None for run in history.runs) == 2


def test_what_was_taken_over_is_what_the_next_generation_goes_on_with() -> None:
    algorithm = ready(PBT(2, 6, 2, quantile_fraction=0.5))
    assert isinstance(algorithm, PBT)
    begun = first(algorithm)
    second = generation(algorithm, begun, by_number(begun))
    heir = second[1]
    assert (heir.trial, heir.start_from) == ("t-00001", "t-00000")
    third = generation(algorithm, second, {"t-00001": 0.0, "t-00000": 1.0})
    assert [(run.trial, run.start_from) for run in third] == [("t-00001", None), ("t-00000", "t-00001")]
    assert third[0].config == heir.config


def test_who_fails_leaves_the_population() -> None:
    algorithm = ready(PBT(5, 6, 2))
    assert isinstance(algorithm, PBT)
    begun = first(algorithm)
    following = generation(algorithm, begun, {"t-00001": 0.0, "t-00003": 1.0})
    assert [(run.trial, run.start_from) for run in following] == [("t-00001", None), ("t-00003", "t-00001")]
    alone = generation(algorithm, following, {"t-00003": 0.5})
    assert [(run.trial, run.start_from) for run in alone] == [("t-00003", None)], "there is nobody to take over from"
    assert generation(algorithm, alone, {}) == []


@settings(max_examples=50)
@given(n=st.integers(2, 30), fraction=st.floats(0.01, 0.5), seed=st.integers(0, 99))
def test_nobody_takes_over_from_one_who_does(n: int, fraction: float, seed: int) -> None:
    history = play(ready(PBT(n, 6, 2, quantile_fraction=fraction)), seed=seed, levels=3)
    for stage in (1, 2):
        runs = {run.trial: run.start_from for run in history.runs if run.stage == stage}
        heirs = {trial: donor for trial, donor in runs.items() if donor is not None}
        assert len(runs) == n and 1 <= len(heirs) <= n // 2
        assert not heirs.keys() & set(heirs.values())


def test_the_seed_of_the_experiment_decides_what_is_explored() -> None:
    def explored(seed: int) -> list[Run]:
        algorithm = PBT(8, 20, 5)
        ready(algorithm)._source.seed = seed
        algorithm.setup(algorithm._source)
        return play(algorithm, seed=1).runs

    assert explored(3) == explored(3) != explored(4)


def test_many_generations_are_made_in_a_moment() -> None:
    begun_s = time.process_time()
    assert len(PBT(2, 200_000, 1).stages()) == 200_000
    assert time.process_time() - begun_s < 10  # where each stage copied those before it, it was a minute


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n": 1}, "n=1: must be a whole number of at least 2"),
        ({"R": 10**30}, r"R=2\*\*99 or more: must be at most 9007199254740992 \(2\*\*53\)"),
        ({"perturbation_interval": 0}, "perturbation_interval=0"),
        ({"perturbation_interval": 20}, "perturbation_interval=20, R=20: .* give an interval below R"),
        ({"quantile_fraction": 0}, "quantile_fraction=0: must be a number greater than 0"),
        ({"quantile_fraction": 0.6}, "quantile_fraction=0.6: must be at most 0.5"),
        ({"resample_probability": 1.5}, "resample_probability=1.5: must be at most 1"),
        ({"resample_probability": -1}, "resample_probability=-1"),
        ({"perturbation_factors": 1.2}, r"perturbation_factors=1.2: must be numbers, such as \[0.8, 1.2\]"),
        ({"perturbation_factors": []}, r"perturbation_factors=\[\]: must have at least one"),
        ({"perturbation_factors": [0.8, 0]}, "perturbation_factors=0: must be a number greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        PBT(**({"n": 8, "R": 20, "perturbation_interval": 5} | changes))
