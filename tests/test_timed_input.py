"""What algorithms that plan to a deadline and a budget are given, and what cannot be: the message names it, its value,
and what is possible instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import elastune as et
from elastune.algorithm import Algorithm
from elastune.allocate import FirstComeFirstServed
from elastune.cli import main
from elastune.errors import ElastuneError, Infeasible, SpecError
from elastune.experiment import COLD_START_S, Experiment
from elastune.profile import Cloud, JobProfile, Scaling, constant
from elastune.spec import Limits, Terms

CLOUD = Cloud("c4", 4, 4.0, request=constant(2.0), boot=constant(30.0), minimum_s=60.0, data_gb=2, data_usd_per_gb=0.05)
PROFILE = JobProfile(constant(10.0), Scaling({1: 1, 2: 1.8}), start=constant(1.0), cold_start=constant(5.0))
TIMED: dict[str, Algorithm] = {
    "SEER": et.SEER(),
    "ElasticGrid": et.ElasticGrid(),
    "ElasticHyperband": et.ElasticHyperband(),
    "SingleTrial": et.SingleTrial(),
}
every_one = pytest.mark.parametrize("name", TIMED)


def experiment(algorithm: Algorithm, **changes: Any) -> Experiment:
    asked: dict[str, Any] = {
        "space": {"x": et.uniform(0, 1)},
        "metric": "loss",
        "deadline": "10m",
        "budget": "80 device-minutes",
        "machines": 20,
        "devices": 4,
    }
    return et.Tuner(None, algorithm=algorithm, **asked | changes).experiment


def planned(algorithm: Algorithm, **changes: Any) -> Experiment:
    return experiment(algorithm, devices=None, planning=et.Planning(cloud=CLOUD, profile=PROFILE), **changes)


def refused(algorithm: Algorithm, kind: type[ElastuneError] = SpecError, **changes: Any) -> str:
    with pytest.raises(kind) as error:
        experiment(algorithm, **changes)
    return str(error.value)


# ----------------------------------------------------------------------------------------------------- what is possible


class Told(et.Algorithm):
    """Keeps what it is told."""

    terms: Terms

    def more(self, free: int, at_s: float) -> Any:
        return []

    def prepare(self, terms: Terms) -> FirstComeFirstServed:
        self.terms = terms
        return FirstComeFirstServed(1)


def test_an_algorithm_that_plans_itself_is_told_what_there_is() -> None:
    made = experiment(Told(), price="$0.50")
    assert isinstance(made.algorithm, Told) and isinstance(made.allocator, FirstComeFirstServed)
    limits = Limits(600.0, budget_device_s=4800.0)
    assert made.algorithm.terms == Terms(limits, 20, 4, 0.5, ready_s=COLD_START_S)


def test_an_algorithm_that_plans_itself_is_told_what_was_profiled_and_what_the_cloud_is_like() -> None:
    made = planned(Told(), budget="$20")
    assert isinstance(made.algorithm, Told)
    assert made.algorithm.terms == Terms(
        Limits(600.0, 20.0),
        20,
        4,
        1.0,
        minimum_s=60.0,
        data_usd=0.1,
        ready_s=2.0 + 30.0 + 5.0,
        start_s=1.0,
        step_s=10.0,
        speedup=PROFILE.scaling,
    )
    assert (made.devices, made.cloud, made.profile) == (4, CLOUD, PROFILE)


def test_one_algorithm_can_be_planned_for_several_experiments() -> None:
    algorithm = et.SEER(race=False)
    short, long = (experiment(algorithm, deadline=deadline) for deadline in ("5m", "20m"))
    assert isinstance(short.algorithm, et.SEER) and isinstance(long.algorithm, et.SEER)
    assert short.algorithm.plan[-1].until_s < 300 < long.algorithm.plan[-1].until_s and algorithm.plan == ()


def test_the_least_time_of_a_trial_is_two_steps_as_they_were_profiled() -> None:
    plans = [
        planned(et.SEER(t_min=t_min, race=False), deadline="30m", budget="$5").algorithm.plan  # type: ignore[attr-defined]
        for t_min in (None, "20s")
    ]
    assert plans[0] == plans[1]


def test_a_width_above_all_devices_is_what_there_is() -> None:
    made = experiment(et.ElasticGrid(p_max=200), budget="800 device-hours")
    assert isinstance(made.algorithm, et.ElasticGrid)
    assert [bracket.width for stage in made.algorithm.plan for bracket in stage.brackets] == [1, 80]


# ------------------------------------------------------------------------------------------------------ what cannot be


@every_one
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline": None}, "NAME needs a deadline and a budget: deadline is missing: give deadline='20m', and"),
        ({"budget": None}, "NAME needs a deadline and a budget: budget is missing: give deadline='20m', and"),
        ({"budget": None, "deadline": None}, "NAME needs a deadline and a budget: deadline and budget are missing"),
        ({"budget": "$5"}, "NAME needs a price for its budget of $5.00: give price='$0.10', per device"),
        ({"budget": "$5", "price": 0}, "NAME needs a price for its budget of $5.00"),
        ({"devices_per_trial": 2}, "NAME says itself how many devices each trial gets: leave out devices_per_trial=2"),
        ({"allocator": FirstComeFirstServed(1)}, "NAME says itself how many devices each trial gets: leave out First"),
        (
            {"planning": et.Planning(cloud=[CLOUD, Cloud("c8", 8, 8.0)])},
            "cloud: NAME plans for one machine type: give one of c4, c8",
        ),
        ({"planning": et.Planning()}, "cloud is missing: give a machine type"),
        ({"planning": et.Planning(cloud=CLOUD), "devices": 2}, "devices=2: the machines of cloud 'c4' have 4"),
    ],
    ids=lambda value: None,
)
def test_what_no_plan_can_be_made_of_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    said = refused(TIMED[name], **changes)
    assert said.startswith(message.replace("NAME", name)), said


@every_one
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline": "2s"}, "the deadline of 2s is too early: machines need 3.2s to come and to go. Give a later one"),
        (
            {"deadline": "100s", "provider": "local", "boot": "10m"},
            "the deadline of 1m 40s is too early: machines need 10m 4s to come and to go. Give a later one",
        ),
        ({"budget": "1 device-seconds"}, "the budget of 0.01667 device-minutes is too small for one"),
        ({"budget": "$0.001", "price": 1}, "the budget of $0.001 is too small for one"),
    ],
    ids=lambda value: None,
)
def test_limits_that_no_plan_meets_are_infeasible(name: str, changes: dict[str, Any], message: str) -> None:
    said = refused(TIMED[name], Infeasible, **changes)
    assert said.startswith(message), said


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (et.SEER(), "too small for one trial of t_min=1m"),
        (et.ElasticHyperband(), "too small for one trial of t_min=1m"),
        (et.ElasticGrid(), "too small for one trial on 1 and then 4 devices until the deadline"),
        (et.SingleTrial(), "too small for one machine until the deadline"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Algorithm) else "",
)
def test_a_budget_that_is_too_small_says_what_would_do_and_that_does(algorithm: Algorithm, message: str) -> None:
    said = refused(algorithm, Infeasible, budget="3 device-minutes")
    takes = re.search(r": it takes ([0-9.]+) device-minutes", said)
    assert message in said and "Give a larger budget, " in said and takes is not None
    experiment(algorithm, budget=f"{float(takes[1]) + 0.01} device-minutes")


def test_a_least_time_above_the_deadline_says_what_would_do_and_that_does() -> None:
    said = refused(et.SEER(t_min="11m"), Infeasible)
    assert said == (
        "t_min=11m does not fit into the deadline of 10m, of which machines take 3.5s to come, to begin and to go: "
        "give t_min of at most 9m 56s, or a deadline of at least 11m 4s"
    )
    experiment(et.SEER(t_min="9m56s"))
    experiment(et.SEER(t_min="11m"), deadline="11m4s")
    assert refused(et.ElasticHyperband(t_min="11m"), Infeasible) == (
        "t_min=11m does not fit into the 9m 56s that there are for training until the deadline: give a smaller t_min, "
        "or a later deadline"
    )


def test_what_is_used_up_before_the_first_step_is_no_time_for_a_smaller_one() -> None:
    slow = JobProfile(constant(1.0), Scaling({1: 1}), start=constant(700.0))
    planning = et.Planning(cloud=Cloud("c4", 4, 4.0), profile=slow)
    said = refused(et.SEER(t_min="1m"), Infeasible, devices=None, planning=planning)
    assert said == (
        "t_min=1m does not fit into the deadline of 10m, of which machines take 11m 40s to come, to begin and to go: "
        "give a later deadline of at least 12m 40s"
    )


@pytest.mark.parametrize("kind", [et.SEER, et.ElasticGrid])
def test_widths_that_no_machines_can_offer_are_refused(kind: Any) -> None:
    with pytest.raises(SpecError, match=r"^p_min=4, p_max=2: trials have p_min to p_max devices: give p_min <= p_max$"):
        kind(p_min=4, p_max=2)
    assert refused(kind(p_min=81, p_max=100)) == (
        "p_min=81: there are 80 devices on all machines together: give a smaller p_min, or more machines"
    )
    assert refused(kind(p_min=5, p_max=6)) == (
        "p_min=5, p_max=6: a trial is on one machine of 4 devices or on whole ones, which makes p_min 8: give a p_max "
        "of at least that, or a p_min of at most 4"
    )
    experiment(kind(p_min=5, p_max=8), budget="800 device-minutes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 1}, "eta=1: must be above 1: each round keeps 1/eta of its trials"),
        ({"eta": "4"}, "eta='4': must be a number"),
        ({"eta": float("inf")}, "eta=inf: must be a number"),
        ({"nu": 0.5}, "nu=0.5: must be at least 1: each bracket has nu times the devices of the one before"),
        ({"nu": float("nan")}, "nu=nan: must be a number"),
        ({"p_min": 0}, "p_min=0: must be a whole number of at least 1"),
        ({"p_max": 1.5}, "p_max=1.5: must be a whole number of at least 1"),
        ({"t_min": "soon"}, "t_min='soon': must be a positive duration"),
        ({"t_min": 0}, "t_min=0: must be a positive duration"),
        ({"fill": 1}, "fill=1: must be true or false"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(message)}"):
        et.SEER(**arguments)


@pytest.mark.parametrize("name", ["plan", "first"])
def test_a_single_trial_has_no_settings(tmp_path: Path, name: str) -> None:
    (tmp_path / "exp.yaml").write_text(FILE.replace("{SEER: {eta: 2, t_min: 20s}}", f"{{SingleTrial: {{{name}: 1}}}}"))
    result = CliRunner().invoke(main, ["plan", str(tmp_path / "exp.yaml")], env={"COLUMNS": "400"})
    assert result.exit_code == 2 and f"SingleTrial: unknown field {name!r}; allowed: none" in result.stderr


@pytest.mark.parametrize("budget", ["lots", "-5 device-minutes", "80 gpu-minutes", "80 minutes", 0])
def test_a_budget_that_is_none_says_both_ways_to_give_one(budget: object) -> None:
    assert refused(et.SEER(), budget=budget) == (
        f'budget={budget!r}: must be a positive amount of US dollars such as "$20" or "20 USD", or a time on devices '
        'such as "80 device-minutes"'
    )


def test_a_plan_in_dollars_is_not_made_for_time_on_devices() -> None:
    with pytest.raises(SpecError, match="planning and budget='80 device-minutes': a plan is made in dollars"):
        planned(et.SuccessiveHalving(8, 1, 8, 2))


# ----------------------------------------------------------------------------------------------------- the command line

FILE = """
name: exp
trainable: train.py:train
space: {lr: {loguniform: [1e-4, 1e-1]}}
metric: loss
algorithm: {SEER: {eta: 2, t_min: 20s}}
deadline: 10m
budget: 80 device-minutes
cluster: {machines: 20, devices: 4}
simulation: {workload: {synthetic: {step: 5s}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.yaml").write_text(FILE)
    return tmp_path


def test_a_file_with_a_budget_of_time_on_devices_is_simulated_and_kept_to(folder: Path) -> None:
    result = CliRunner().invoke(main, ["simulate", "exp.yaml"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    view = et.load("runs/exp").view
    assert view.status == "succeeded" and view.at_s <= 600
    assert 0.5 * 4800 < view.paid_device_s() <= 4800
    assert "device-minutes of 80 device-minutes ($0.00)" in result.stdout


@pytest.mark.parametrize("command", ["plan", "simulate", "run"])
@pytest.mark.parametrize(
    ("good", "bad", "message", "exit_code"),
    [
        ("deadline: 10m\n", "", "SEER needs a deadline and a budget: deadline is missing", 2),
        ("budget: 80 device-minutes\n", "", "SEER needs a deadline and a budget: budget is missing", 2),
        ("80 device-minutes", "$5", "SEER needs a price for its budget of $5.00", 2),
        ("80 device-minutes", "1 device-seconds", "the budget of 0.01667 device-minutes is too small for one trial", 3),
        ("80 device-minutes", "0 device-minutes", "budget='0 device-minutes': must be a positive time on devices", 2),
        ("deadline: 10m", "deadline: 2s", "the deadline of 2s is too early: machines need 3.2s to come and to go", 3),
        ("t_min: 20s", "t_min: 20m", "t_min=20m does not fit into the deadline of 10m", 3),
        ("t_min: 20s", "p_min: 4, p_max: 2", "p_min=4, p_max=2: trials have p_min to p_max devices", 2),
        ("t_min: 20s", "p_min: 99", "p_min=99: there are 80 devices on all machines together", 2),
        ("eta: 2", "eta: 1", "eta=1: must be above 1", 2),
        ("eta: 2", "nu: 0.5", "nu=0.5: must be at least 1", 2),
        ("devices: 4", "devices: 4, devices_per_trial: 2", "SEER says itself how many devices each trial gets", 2),
    ],
)
def test_a_file_that_cannot_be_planned_is_refused_and_nothing_is_written(
    folder: Path, command: str, good: str, bad: str, message: str, exit_code: int
) -> None:
    assert good in FILE
    (folder / "exp.yaml").write_text(FILE.replace(good, bad))
    (folder / "train.py").write_text("def train(config): ...\n")
    result = CliRunner().invoke(main, [command, "exp.yaml"], env={"COLUMNS": "400"})
    assert result.exit_code == exit_code and "Traceback" not in result.output and not result.stdout
    said = " ".join(result.stderr.split())
    assert message in said and "exp.yaml" in said
    assert {path.name for path in folder.iterdir()} <= {"exp.yaml", "train.py", "__pycache__"}


def test_a_comparison_says_which_algorithm_no_plan_was_found_for(folder: Path) -> None:
    text = FILE.replace("algorithm: {SEER", "algorithms: {SEER").replace("80 device-minutes", "10 device-seconds")
    (folder / "exp.yaml").write_text(text)
    result = CliRunner().invoke(main, ["bench", "exp.yaml", "--seeds", "1"], env={"COLUMNS": "400"})
    assert result.exit_code == 3 and "exp: SEER: the budget of 0.1667 device-minutes is too small" in result.stderr
