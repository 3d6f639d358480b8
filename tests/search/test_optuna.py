"""Optuna's samplers suggest through the adapter exactly what they suggest through Optuna's own ask and tell."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, Trial, TrialState

from elastune.messages import Config
from elastune.search import OptunaSearcher, Result, make_searcher
from elastune.space import Space, choice, lograndint, loguniform, quniform, randint, uniform
from elastune.spec import Mode

SPACE = Space(
    {
        "x": uniform(-1, 1),
        "lr": loguniform(1e-4, 1e-1),
        "drop": quniform(0, 0.5, 0.1),
        "layers": randint(1, 5),
        "width": lograndint(8, 129),
        "act": choice(["relu", "tanh", None]),
    }
)
OWN: dict[str, Callable[..., BaseSampler]] = {
    "tpe": TPESampler,
    "gp": GPSampler,
    "cmaes": CmaEsSampler,
    "qmc": QMCSampler,
}


@pytest.fixture(autouse=True)
def _experimental_samplers_are_known_here() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def ask_optuna(study: optuna.Study) -> tuple[Trial, Config]:
    trial = study.ask()
    trial.suggest_float("x", -1, 1)
    trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    trial.suggest_float("drop", 0, 0.5, step=0.1)
    trial.suggest_int("layers", 1, 4)
    trial.suggest_int("width", 8, 128, log=True)
    trial.suggest_categorical("act", ["relu", "tanh", None])
    return trial, trial.params


def worth(config: Config) -> float:
    act = {"relu": 0.0, "tanh": 0.3, None: 1.0}[config["act"]]
    return float(
        config["x"] ** 2 + abs(math.log10(config["lr"]) + 2) + abs(config["layers"] - 3) + act + config["drop"]
    )


def set_up(sampler: str | BaseSampler, space: Space = SPACE, mode: Mode = "min", seed: int = 7) -> OptunaSearcher:
    searcher = make_searcher(sampler)
    assert isinstance(searcher, OptunaSearcher)
    searcher.setup(space, mode, seed)
    return searcher


@pytest.mark.parametrize(
    ("name", "suggestions", "mode", "batch"),
    [
        ("tpe", 40, "min", 1),
        ("tpe", 40, "max", 4),
        ("cmaes", 40, "min", 1),
        ("cmaes", 40, "max", 4),
        ("qmc", 40, "min", 1),
        ("qmc", 40, "max", 4),
        ("gp", 13, "min", 1),  # slow once it has a model, which is after ten
    ],
)
def test_suggestions_equal_those_of_optuna_itself(name: str, suggestions: int, mode: Mode, batch: int) -> None:
    searcher = set_up(name, mode=mode)
    study = optuna.create_study(sampler=OWN[name](seed=7), direction="minimize" if mode == "min" else "maximize")
    for start in range(0, suggestions, batch):
        asked = [ask_optuna(study) for _ in range(batch)]
        assert [searcher.suggest() for _ in range(batch)] == [config for _, config in asked]
        for number, (trial, config) in enumerate(asked, start):
            study.tell(trial, worth(config))
            searcher.observe(Result(number, config, 1, worth(config), final=True))


def test_pauses_failures_and_trials_that_go_on_reach_tpe_as_optuna_would_tell_them() -> None:
    searcher = set_up("tpe")
    study = optuna.create_study(sampler=TPESampler(seed=7))
    for number in range(30):
        trial, config = ask_optuna(study)
        assert searcher.suggest() == config
        value = worth(config)
        if number % 5 == 4:
            study.tell(trial, state=TrialState.FAIL)
            searcher.observe(Result(number, config, 1, [None, math.nan][number % 2], final=True))
            continue
        trial.report(value, 3)
        study.tell(trial, state=TrialState.PRUNED)
        searcher.observe(Result(number, config, 3, value, final=False))
        searcher.observe(Result(number, config, 3, value + 9, final=True))  # nothing was trained since: ignored
        if number % 2:
            params, distributions = trial.params, trial.distributions
            study.add_trial(optuna.create_trial(value=value / 2, params=params, distributions=distributions))
            searcher.observe(Result(number, config, 9, value / 2, final=True))
            searcher.observe(Result(number, config, 10, None, final=True))  # Optuna would learn nothing from it


def test_conditional_spaces_and_options_that_are_no_scalars_equal_optunas_define_by_run() -> None:
    space = Space(
        {"opt": choice([{"kind": "sgd", "m": uniform(0, 0.9)}, {"kind": "adam"}]), "sizes": choice([[1], [2, 3]])}
    )
    searcher = set_up("tpe", space)
    study = optuna.create_study(sampler=TPESampler(seed=7))
    for number in range(30):
        trial = study.ask()
        sgd = trial.suggest_categorical("opt", [0, 1]) == 0
        opt: Config = {"kind": "sgd", "m": trial.suggest_float("opt.0.m", 0, 0.9)} if sgd else {"kind": "adam"}
        config = {"opt": opt, "sizes": [[1], [2, 3]][trial.suggest_categorical("sizes", [0, 1])]}
        assert searcher.suggest() == config
        value = abs(float(opt.get("m", 0.5)) - 0.2)
        study.tell(trial, value)
        searcher.observe(Result(number, config, 1, value, final=True))


def test_options_that_python_holds_equal_stay_apart() -> None:
    searcher = set_up("qmc", Space({"x": choice([1, True, 1.0])}))
    assert {type(config["x"]) for config in (searcher.suggest() for _ in range(20)) if config} == {int, bool, float}


def test_a_sampler_object_is_used_with_its_own_seed_and_two_runs_do_not_share_it() -> None:
    sampler = TPESampler(seed=123)
    first = [set_up(sampler).suggest() for _ in range(2)]
    assert first[0] == first[1] == ask_optuna(optuna.create_study(sampler=TPESampler(seed=123)))[1]


def test_a_sampler_that_has_tried_everything_ends_the_suggestions() -> None:
    searcher = set_up(BruteForceSampler(seed=0), Space({"a": choice([1, 2]), "b": randint(0, 2)}))
    seen: list[Any] = []
    while (config := searcher.suggest()) is not None:
        seen.append((config["a"], config["b"]))
        searcher.observe(Result(len(seen) - 1, config, 1, 0.0, final=True))
    assert sorted(seen) == [(1, 0), (1, 1), (2, 0), (2, 1)]


class BestAgain(RandomSampler):
    """Suggests the best of what it has been told."""

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, name: str, domain: BaseDistribution) -> Any:
        if study.get_trials(states=[TrialState.COMPLETE]):
            return study.best_params[name]
        return super().sample_independent(study, trial, name, domain)


def test_a_recorded_suggestion_takes_the_place_of_another_when_a_run_is_replayed() -> None:
    space = Space({"x": uniform(0, 1), "act": choice(["a", "b"]), "opt": choice([{"k": 1, "m": randint(0, 9)}, [2]])})
    searcher = set_up(BestAgain(seed=0), space)
    recorded: list[Config] = [
        {"x": 0.25, "act": "a", "opt": {"k": 1, "m": 3}},
        {"x": 0.75, "act": "b", "opt": {"k": 1, "m": 4}},
    ]
    for number, config in enumerate(recorded):
        searcher.resuggest(config)
        searcher.observe(Result(number, config, 1, -config["x"], final=True))
    assert searcher.suggest() == recorded[1]


def test_a_recorded_suggestion_that_the_space_no_longer_holds_is_left_out() -> None:
    searcher = set_up("tpe")
    searcher.resuggest({"x": 5})
    searcher.observe(Result(0, {"x": 5}, 1, 1.0, final=True))
    config = searcher.suggest()
    assert config is not None
    searcher.observe(Result(1, config, 1, 1.0, final=True))


def test_nothing_is_logged_or_warned_and_the_users_logging_stays_as_it_is(
    recwarn: pytest.WarningsRecorder,
) -> None:
    warnings.simplefilter("always")
    logger, lines = logging.getLogger("optuna"), io.StringIO()
    handler, level = logging.StreamHandler(lines), logger.level
    logger.addHandler(handler)
    for name in ("tpe", "qmc"):
        searcher = set_up(name, Space({"x": uniform(0, 1), "q": quniform(0, 0.55, 0.1)}))
        config = searcher.suggest()
        assert config is not None
        searcher.observe(Result(0, config, 1, math.nan, final=True))
    logger.removeHandler(handler)
    assert lines.getvalue() == ""
    assert [str(warning.message) for warning in recwarn] == []
    assert logger.level == level


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "qmc"])
def test_no_sampler_says_in_every_trial_what_it_draws_at_random(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("optuna"), "propagate", True)
    searcher = make_searcher(name)
    options = choice([{"rate": uniform(0, 1)}, {"kind": "none"}])
    searcher.setup(Space({"x": uniform(0, 1), "y": uniform(0, 1), "act": choice(["a", "b"]), "opt": options}), "min", 0)
    for number in range(14):
        config = searcher.suggest()
        assert config is not None
        searcher.observe(Result(number, config, 1, config["x"], final=True))
    assert "sampled independently" not in caplog.text


def test_cma_es_learns_from_trials_that_pause() -> None:
    searcher = make_searcher("cmaes")
    searcher.setup(Space({"x": uniform(-5, 5), "y": uniform(-5, 5)}), "min", seed=0)
    values = []
    for number in range(80):
        config = searcher.suggest()
        assert config is not None
        values.append((config["x"] - 1) ** 2 + (config["y"] + 2) ** 2)
        searcher.observe(Result(number, config, 1, values[-1], final=False))
        if number % 3 == 0:
            searcher.observe(Result(number, config, 3, values[-1], final=True))
    assert sum(values[-20:]) < sum(values[:20]) / 5
