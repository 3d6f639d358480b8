"""Ultron's JSON becomes an experiment; what it cannot be says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elastune.algorithm import FIFO
from elastune.config_file import load_experiment
from elastune.errors import SpecError
from elastune.search import RandomSearcher
from elastune.service.check import check
from elastune.ultron_spec import REQUIRED, from_ultron

FIGURE_2 = """
{
  "model_classname" : "Model",
  "module_name" : "train",
  "package_name" : "modelpkg",

  "hp_ranges" : {
    "optimizer": ["adam", "sgd", "rmsprop"],
    "pca_components": [50, 51, 52],
    "num_layers": [1, 2, 3, 4],
    "lr": [1e-3, 5e-3, 1e-4]
  },
  "strategy" : "RANDOM",
  "num_iterations" : 150,
  "jobname" : "SampleModel",
  "parallelism_fact" : 8,
  "compute": "gpu",
  "file_name": "/sample_model.tar.gz",
  "cpu_per_pod": "5",
  "memory_per_pod": "100000Mi",
  "gpu_per_pod": "1"
}
"""


def job(**changes: Any) -> dict[str, Any]:
    changed = {**json.loads(FIGURE_2), **changes}
    return {name: value for name, value in changed.items() if value != "left out"}


def test_the_printed_job_is_150_trials_on_8_machines_of_one_device() -> None:
    assert from_ultron(job()) == {
        "name": "SampleModel",
        "trainable": "modelpkg.train:Model",
        "space": {
            "optimizer": {"choice": ["adam", "sgd", "rmsprop"]},
            "pca_components": {"choice": [50, 51, 52]},
            "num_layers": {"choice": [1, 2, 3, 4]},
            "lr": {"choice": [1e-3, 5e-3, 1e-4]},
        },
        "metric": "score",
        "mode": "max",
        "algorithm": {"FIFO": {"n": 150, "R": 1}},
        "searcher": "random",
        "seed": 0,
        "cluster": {"machines": 8, "devices": 1, "devices_per_trial": 1},
    }


def test_a_file_with_the_printed_job_is_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(FIGURE_2)
    tuner, _ = load_experiment(tmp_path / "job.json", with_trainable=False)
    experiment = tuner.experiment
    assert isinstance(experiment.algorithm, FIFO) and experiment.algorithm.n == 150
    assert isinstance(experiment.searcher, RandomSearcher)
    assert (experiment.machines, experiment.devices, experiment.settings.mode) == (8, 1, "max")


def test_the_service_takes_it_with_the_devices_that_ultron_would_take() -> None:
    submitted = check(job(compute="cpu"), None, None, 0)
    assert (submitted.name, submitted.quantum, submitted.most) == ("SampleModel", 5, 40)


def test_the_service_loads_nothing_of_an_hpo_algorithm_to_check_it() -> None:
    own = job(strategy="left out", hpo_classname="Own", hpo_module_name="not_there")
    assert check(own, None, None, 0).spec["searcher"] == "modelpkg.not_there:Own"


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"strategy": "TPE"}, "searcher", "tpe"),
        ({"strategy": "REINFORCE"}, "searcher", "remaade"),
        (
            {"strategy": "left out", "hpo_classname": "Own", "hpo_module_name": "hpo"},
            "searcher",
            "modelpkg.hpo:Own",
        ),
        ({"package_name": ""}, "trainable", "train:Model"),
        ({"mode": "min"}, "mode", "min"),
        ({"seed": 3}, "seed", 3),
        ({"jobname": "  My model, v2! "}, "name", "My-model-v2"),
        ({"jobname": "x" * 300}, "name", "x" * 60),
        (
            {"compute": "cpu", "cpu_per_pod": "1500m"},
            "cluster",
            {"machines": 8, "devices": 2, "devices_per_trial": 2},
        ),
        ({"compute": "cpu", "cpu_per_pod": 0.5}, "cluster", {"machines": 8, "devices": 1, "devices_per_trial": 1}),
        ({"parallelism_fact": "left out"}, "cluster", {"machines": 1, "devices": 1, "devices_per_trial": 1}),
    ],
)
def test_every_field_has_its_place(changes: dict[str, Any], field: str, value: object) -> None:
    assert from_ultron(job(**changes))[field] == value


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(SpecError, match=f"{name} is missing"):
        from_ultron(job(**{name: "left out"}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_iteration": 1}, "unknown field 'num_iteration'; did you mean 'num_iterations'"),
        ({"strategy": "RANDON"}, "strategy='RANDON': did you mean 'RANDOM'"),
        ({"strategy": ["TPE"]}, r"strategy=\['TPE'\]: "),
        ({"strategy": "left out"}, "strategy is missing; allowed: RANDOM, TPE, REINFORCE"),
        ({"hpo_classname": "Own", "hpo_module_name": "hpo"}, "strategy='RANDOM' and hpo_classname='Own': give one"),
        ({"strategy": "left out", "hpo_classname": "Own"}, "hpo_classname='Own': .* give both"),
        ({"num_iterations": "150"}, "num_iterations='150': must be a whole number of at least 1"),
        ({"num_iterations": 0}, "num_iterations=0"),
        ({"parallelism_fact": 0}, "parallelism_fact=0"),
        ({"seed": -1}, "seed=-1"),
        ({"mode": "maximum"}, "mode='maximum': must be 'max'"),
        ({"compute": "tpu"}, "compute='tpu': must be 'cpu' or 'gpu'"),
        ({"cpu_per_pod": "five"}, "cpu_per_pod='five': must be a number"),
        ({"cpu_per_pod": True}, "cpu_per_pod=True"),
        ({"cpu_per_pod": "9" * 400}, "cpu_per_pod='9+': must be a number"),
        ({"gpu_per_pod": 10**400}, "gpu_per_pod='10+': must be a number"),
        ({"gpu_per_pod": "0"}, "gpu_per_pod='0': must be at least 1 with compute='gpu'"),
        ({"memory_per_pod": "much"}, "memory_per_pod='much': must be an amount"),
        ({"file_name": 3}, "file_name=3: must be the name of an archive"),
        ({"hp_ranges": {}}, "hp_ranges={}: must be a mapping"),
        ({"hp_ranges": {"lr": 0.1}}, r"hp_ranges\['lr'\]=0.1: must be a list of values"),
        ({"hp_ranges": {"lr": []}}, r"hp_ranges\['lr'\]=\[\]: must be a list"),
        ({"jobname": "!!!"}, "jobname='!!!': must be a text"),
        ({"jobname": 3}, "jobname=3"),
        ({"model_classname": "my model"}, "model_classname='my model': must be the name of a class"),
        ({"module_name": "train.py:x"}, "module_name='train.py:x': must be the name of a module"),
        ({"package_name": None}, "package_name=None: must be the name of a package"),
    ],
)
def test_what_is_malformed_is_refused_with_its_name_and_value(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        from_ultron(job(**changes))
