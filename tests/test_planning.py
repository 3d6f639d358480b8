"""Planning as a user meets it: in Python and in YAML, on the command line, and when something is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.worlds import world

import elastune as et
from elastune.algorithm.halving import halving_stages
from elastune.allocate import FirstComeFirstServed
from elastune.cli import main
from elastune.errors import Infeasible, SpecError
from elastune.planning import Planning
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant, normal
from elastune.profile.scaling import Scaling
from elastune.units import format_duration, format_money

PROFILE_FILE = """
step: 109
scaling: {1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4}
start: 2s
cloud: {type: p3.8xlarge, request: 15s, boot: 15s}
"""
GOOD = """
name: exp
space: {lr: {loguniform: [1e-4, 1e-1]}}
metric: loss
algorithm: {SuccessiveHalving: {n: 32, r: 1, R: 50, eta: 3}}
deadline: 20m
cluster: {machines: 64}
planning: {profile: r101.profile.yaml}
"""
JOB = JobProfile(constant(109.0), Scaling({1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4}), start=constant(2.0))
P3 = Cloud("p3.8xlarge", 4, 12.24, request=constant(15.0), boot=constant(15.0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.yaml").write_text(GOOD)
    (tmp_path / "r101.profile.yaml").write_text(PROFILE_FILE)
    return tmp_path


def tuner(folder: Path, **changes: Any) -> et.Tuner:
    arguments: dict[str, Any] = {
        "space": {"lr": et.loguniform(1e-4, 1e-1)},
        "metric": "loss",
        "algorithm": et.SuccessiveHalving(32, 1, 50, 3),
        "deadline": "20m",
        "machines": 64,
        "storage": folder / "runs",
        "name": "t",
        "planning": Planning(JOB, P3),
    }
    return et.Tuner(None, **(arguments | changes))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def refused(exit_code: int, *arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert "Traceback" not in result.output and not result.stdout
    return " ".join(result.stderr.split())


# --------------------------------------------------------------------------------------------------- the command line


def test_the_plan_as_json_agrees_with_the_table_and_with_python(folder: Path) -> None:
    before = sorted(folder.iterdir())
    found = json.loads(call("plan", "exp.yaml", "--json").stdout)
    table = call("plan", "exp.yaml").stdout
    assert sorted(folder.iterdir()) == before, "nothing is started or written"
    rows = [line.split() for line in table.splitlines()[1:5]]
    names = ("stage", "trials", "iterations", "devices_per_trial", "machines")
    for row, stage in zip(rows, found["stages"], strict=True):
        assert [int(cell) for cell in row[:5]] == [stage[name] for name in names]
        assert float(row[5]) == pytest.approx((stage["end_s"] - stage["begin_s"]) / 60, abs=0.051)
        assert float(row[6]) == pytest.approx(stage["cost_usd"], abs=0.0051)
    mean_s, mean_usd = found["time_s"]["mean"], found["cost_usd"]["mean"]
    assert f"{format_duration(mean_s)} of 20m" in table and format_money(mean_usd) in table
    assert sum(stage["cost_usd"] for stage in found["stages"]) == pytest.approx(mean_usd), "no minimum is charged here"
    assert found["stages"][-1]["end_s"] == pytest.approx(mean_s) and mean_s <= found["deadline_s"] == 1200.0
    for name, other in found["others"].items():
        line = next(line for line in table.splitlines() if line.startswith(name))
        assert format_money(other["cost_usd"]) in line and format_duration(other["time_s"]) in line
        assert mean_usd <= other["cost_usd"] and other["time_s"] <= 1200.0
    frontier = [(point["time_s"], point["cost_usd"]) for point in found["frontier"]]
    assert frontier == sorted(frontier) and [usd for _, usd in frontier] == sorted(
        (c for _, c in frontier), reverse=True
    )
    assert min(usd for time_s, usd in frontier if time_s <= 1200.0) == pytest.approx(mean_usd)
    assert tuner(folder).plan().to_dict() == {name: found[name] for name in found if name != "plots"}


def test_what_a_plan_promises_is_what_a_simulation_takes_and_costs(folder: Path) -> None:
    found = json.loads(call("plan", "exp.yaml", "--json").stdout)
    assert call("simulate", "exp.yaml").exit_code == 0
    report = json.loads(call("report", "runs/exp", "--json").stdout)
    assert report["ledger"]["forecast"]["cost_usd"] == pytest.approx(found["cost_usd"]["mean"])
    assert report["ledger"]["paid_usd"]["total"] == pytest.approx(found["cost_usd"]["mean"])
    assert et.load(folder / "runs/exp").view.at_s == pytest.approx(found["time_s"]["mean"])


def test_pictures_are_written_where_they_are_asked_for(folder: Path) -> None:
    found = json.loads(call("plan", "exp.yaml", "--json", "--plot", "pictures").stdout)
    written = sorted(path.name for path in (folder / "pictures").iterdir())
    assert written == ["frontier.png", "frontier.svg", "plan.png", "plan.svg"]
    assert sorted(Path(path).name for path in found["plots"]) == written
    assert all((folder / "pictures" / name).stat().st_size > 1000 for name in written)
    (folder / "exp.yaml").write_text(
        GOOD.replace("SuccessiveHalving: {n: 32, r: 1, R: 50, eta: 3}", "Hyperband: {R: 9}").replace("20m", "3h")
    )
    brackets = call("plan", "exp.yaml", "--plot", "brackets")
    assert brackets.exit_code == 0 and brackets.stdout.startswith("bracket")
    assert len(list((folder / "brackets").iterdir())) == 4


def test_a_deadline_that_cannot_be_met_has_an_exit_code_of_its_own_and_nothing_is_written(folder: Path) -> None:
    soonest = json.loads(call("plan", "exp.yaml", "--json").stdout)["frontier"][0]
    (folder / "exp.yaml").write_text(GOOD.replace("deadline: 20m", "deadline: 10m"))
    with (folder / "exp.yaml").open("a") as file:
        file.write("trainable: train.py:train\n")
    (folder / "train.py").write_text("def train(config): ...\n")
    for command in (["plan"], ["plan", "--json"], ["plan", "--plot", "pictures"], ["simulate"], ["run"]):
        said = refused(3, command[0], "exp.yaml", *command[1:])
        assert said == (
            "error: deadline=10m: no plan meets it. The soonest finish expected is "
            f"{format_duration(soonest['time_s'])}, for {format_money(soonest['cost_usd'])}: give a later deadline, or "
            "more machines"
        )
    assert not (folder / "runs").exists() and not (folder / "pictures").exists()


def test_a_budget_that_is_too_small_too(folder: Path) -> None:
    (folder / "exp.yaml").write_text(GOOD.replace("deadline: 20m", "budget: $3"))
    assert "budget=$3.00: the cheapest plan is expected to cost $" in refused(3, "plan", "exp.yaml")
    (folder / "exp.yaml").write_text(GOOD.replace("deadline: 20m", "deadline: 20m\nbudget: $3"))
    said = refused(3, "plan", "exp.yaml")
    assert "by the deadline of 20m is expected to cost $" in said and "or a later deadline" in said


def test_uncertainty_is_told(folder: Path) -> None:
    (folder / "r101.profile.yaml").write_text(
        PROFILE_FILE.replace("step: 109", "step: {lognormal: {mean: 109, std: 30}}")
    )
    (folder / "exp.yaml").write_text(GOOD.replace("deadline: 20m", "deadline: 30m"))
    expecting = json.loads(call("plan", "exp.yaml", "--json").stdout)
    assert expecting["time_s"]["p5"] < expecting["time_s"]["p50"] < expecting["time_s"]["p95"]
    assert "90% of the time" in call("plan", "exp.yaml").stdout
    (folder / "exp.yaml").write_text(
        GOOD.replace("deadline: 20m", "deadline: 30m").replace("profile.yaml}", "profile.yaml, confidence: 0.9}")
    )
    sure = json.loads(call("plan", "exp.yaml", "--json").stdout)
    assert sure["time_s"]["p95"] <= 1.1 * 1800.0 and sure["cost_usd"]["mean"] >= 0.98 * expecting["cost_usd"]["mean"]


# ------------------------------------------------------------------------------------------------------- what is wrong

SHA = "SuccessiveHalving: {n: 32, r: 1, R: 50, eta: 3}"
BAD = [
    (SHA, "Stages: {stages: [[4, 1], [8, 2]]}", "num_trials of stage 1=8: the stage before has 4, and only those can"),
    (SHA, "Stages: {stages: [[4, 0]]}", "iters of stage 0=0: must be a whole number of at least 1"),
    (SHA, "Stages: {stages: [[0, 4]]}", "num_trials of stage 0=0: must be a whole number of at least 1"),
    (SHA, "Stages: {stages: [4, 2]}", "stages: 4: must be a pair of trials and iterations, such as [32, 1]"),
    (SHA, "Stages: {stages: 4}", "stages=4: must be pairs of trials and iterations, such as [[32, 1], [10, 3]]"),
    (SHA, "Stages: {stages: []}", "Stages() has no stage: add one with add_stage(num_trials, iters)"),
    (SHA, "ASHA: {n: 32, r: 1, R: 50}", "ASHA cannot be planned: which trials it trains is not known before the run"),
    (SHA, "FIFO: {n: 4}", "FIFO cannot be planned"),
    ("machines: 64", "machines: 64, devices_per_trial: 2", "planning and devices_per_trial=2: a plan says how many"),
    ("machines: 64", "machines: 64, devices: 2", "devices=2: the machines of cloud 'p3.8xlarge' have 4"),
    ("machines: 64", "machines: 0", "machines=0: must be a whole number of at least 1"),
    ("deadline: 20m", "deadline: 20m\nprice: $1", "planning and price='$1': the price is that of the planned cloud"),
    ("deadline: 20m", "deadline: -20m", "deadline='-20m': must be a positive duration"),
    ("r101.profile.yaml", "nothing.yaml", "nothing.yaml: cannot be read: No such file"),
    ("{profile: r101.profile.yaml}", "{}", "planning: profile is missing"),
    (
        "{profile: r101.profile.yaml}",
        "{profile: 5}",
        "planning.profile=5: must be a file that 'elastune profile' wrote",
    ),
    ("r101.profile.yaml}", "r101.profile.yaml, cloud: p3.8xlarg}", "did you mean 'p3.8xlarge'?"),
    ("r101.profile.yaml}", "r101.profile.yaml, cloud: {name: m, devices: 0, price: 1}}", "devices=0: must be a whole"),
    ("r101.profile.yaml}", "r101.profile.yaml, cloud: {name: m, price: 1}}", "cloud: devices is missing"),
    ("r101.profile.yaml}", "r101.profile.yaml, cloud: {name: m, devices: 1, price: -1}}", "price=-1: must be"),
    ("r101.profile.yaml}", "r101.profile.yaml, cloud: 7}", "cloud=7: must be a machine type"),
    ("r101.profile.yaml}", "r101.profile.yaml, confidence: 1.5}", "confidence=1.5: must be a probability from 0.5"),
    ("r101.profile.yaml}", "r101.profile.yaml, confidence: 0.2}", "confidence=0.2: must be a probability from 0.5"),
    ("r101.profile.yaml}", "r101.profile.yaml, replan: often}", "replan='often': must be true or false"),
    ("r101.profile.yaml}", "r101.profile.yaml, replans: true}", "unknown field 'replans'; did you mean 'replan'?"),
    ("deadline: 20m\n", "", "confidence=0.9 is that of meeting a deadline: give a deadline too"),
    (
        f"{SHA}}}\ndeadline: 20m\ncluster: {{machines: 64}}",
        "Hyperband: {R: 81}}\ncluster: {machines: 4}",
        "machines=4: 5",
    ),
    (GOOD, GOOD.replace("planning: {profile: r101.profile.yaml}", ""), "there is nothing to plan with: give planning="),
]


@pytest.mark.parametrize(("good", "bad", "message"), BAD, ids=[message[:50] for _, _, message in BAD])
def test_a_bad_file_is_refused_and_nothing_is_written(folder: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    text = GOOD.replace(good, bad)
    if not bad:
        text = text.replace("profile.yaml}", "profile.yaml, confidence: 0.9}")
    (folder / "exp.yaml").write_text(text)
    before = sorted(folder.iterdir())
    assert message in refused(2, "plan", "exp.yaml")
    assert sorted(folder.iterdir()) == before


BAD_PROFILES = [
    ("step: 109", "step: 0", "step"),
    ("step: 109", "step: .nan", "step=nan: must be a positive duration"),
    ("step: 109", "step: {normal: {mean: 5}}", "step.normal: std is missing"),
    ("step: 109\n", "", "step is missing: give step and scaling, or step_s"),
    ("start: 2s", "start: -2s", "start='-2s': must be a duration of at least 0"),
    ("start: 2s", "start: {lognormal: {mean: .inf, std: 1}}", "start.lognormal.mean=inf"),
    ("{1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4}", "{2: 1.89}", "scaling={2: 1.89}: must say the speed-up of width 1"),
    ("2: 1.89", "2: -1", "scaling[2]=-1: must be a number greater than 0"),
    ("request: 15s", "request: .nan", "request=nan: must be a duration of at least 0"),
    ("request: 15s", "price: -3", "price=-3: must be an amount"),
    ("p3.8xlarge", "p9.8xlarge", "'p9.8xlarge'"),
    ("start: 2s", "strat: 2s", "unknown field 'strat'; did you mean 'start'?"),
    (
        "cloud: {type: p3.8xlarge, request: 15s, boot: 15s}\n",
        "",
        "cloud is missing: give a machine type, such as cloud=",
    ),
]


@pytest.mark.parametrize(("good", "bad", "message"), BAD_PROFILES, ids=[bad or good for good, bad, _ in BAD_PROFILES])
def test_a_bad_profile_is_refused(folder: Path, good: str, bad: str, message: str) -> None:
    assert good in PROFILE_FILE
    (folder / "r101.profile.yaml").write_text(PROFILE_FILE.replace(good, bad))
    assert message in refused(2, "plan", "exp.yaml")


BAD_IN_PYTHON: list[tuple[Callable[[], dict[str, Any]], str]] = [
    (lambda: {"algorithm": et.Stages([(4, 1), (8, 2)])}, "num_trials of stage 1=8: the stage before has 4"),
    (lambda: {"algorithm": et.Stages().add_stage(4, 0)}, "iters of stage 0=0: must be a whole number of at least 1"),
    (lambda: {"algorithm": et.Stages().add_stage(True, 1)}, "num_trials of stage 0=True: must be a whole number"),
    (lambda: {"algorithm": et.Stages()}, "Stages() has no stage"),
    (lambda: {"algorithm": et.ASHA(9, 1, 9)}, "ASHA cannot be planned"),
    (lambda: {"algorithm": et.Hyperband(81), "machines": 4}, "machines=4: 5 brackets run side by side"),
    (lambda: {"price": "$1"}, "planning and price='$1': the price is that of the planned cloud; give it there"),
    (lambda: {"devices_per_trial": "1/2"}, "planning and devices_per_trial='1/2': a plan says how many devices"),
    (lambda: {"allocator": FirstComeFirstServed()}, "planning and allocator: a plan says how many devices each trial"),
    (lambda: {"devices": 3}, "devices=3: the machines of cloud 'p3.8xlarge' have 4"),
    (lambda: {"planning": "r101.profile.yaml"}, "planning='r101.profile.yaml': must be a Planning(profile=..., cloud="),
    (lambda: {"planning": Planning(JOB)}, "cloud is missing: give a machine type, such as cloud='p3.8xlarge'"),
    (lambda: {"planning": Planning(JOB, "p3.8xlarg")}, "did you mean 'p3.8xlarge'?"),
    (lambda: {"planning": Planning(7)}, "profile=7: must be a file that 'elastune profile' wrote"),  # type: ignore[arg-type]
    (lambda: {"planning": Planning("nothing.yaml")}, "nothing.yaml: cannot be read: No such file"),
    (
        lambda: {"planning": Planning(JOB, P3, confidence=2.0)},
        "confidence=2.0: must be a probability from 0.5 to below",
    ),
    (lambda: {"planning": Planning(JOB, P3, confidence=0.9), "deadline": None}, "give a deadline too"),
    (lambda: {"planning": Planning(JOB, P3, replan=1)}, "replan=1: must be true or false"),  # type: ignore[arg-type]
    (
        lambda: {"planning": Planning(JOB, Cloud("m", 4, -1.0))},
        "price_usd_per_hour=-1.0: must be a number of at least 0",
    ),
    (lambda: {"planning": Planning(JOB, Cloud("m", 4, math.nan))}, "price_usd_per_hour=nan"),
    (lambda: {"planning": Planning(JOB, Cloud("m", 4, 1.0, boot=3.0))}, "boot=3.0: must be a Latency"),  # type: ignore[arg-type]
    (lambda: {"planning": Planning(JOB, Cloud("m", 4, 1.0, boot=normal(math.nan, 1.0)))}, "mean=nan: must be a number"),
    (lambda: {"planning": Planning(JobProfile(constant(0.0), JOB.scaling), P3)}, "an iteration must take time"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_IN_PYTHON, ids=[message[:50] for _, message in BAD_IN_PYTHON])
def test_bad_arguments_are_refused(arguments: Callable[[], dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        tuner(tmp_path, **arguments())
    assert message in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_a_plan_needs_something_to_plan_with(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is nothing to plan with: give planning=Planning"):
        tuner(tmp_path, planning=None).plan()


def test_an_infeasible_plan_raises_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="deadline=5m: no plan meets it"):
        tuner(tmp_path, deadline="5m").plan()
    assert not (tmp_path / "runs").exists()


def test_the_cloud_that_is_given_goes_before_that_of_the_file(folder: Path) -> None:
    file = folder / "r101.profile.yaml"
    assert Planning(file).load() == (JOB, [P3])
    profile, [cloud] = Planning(str(file), "p3.2xlarge").load()
    assert profile == JOB and (cloud.instance, cloud.devices) == ("p3.2xlarge", 1)
    assert Planning(file, {"type": "p3.2xlarge", "price": 9}).load()[1][0].price_usd_per_hour == 9.0


# ------------------------------------------------------------------------------------------------------ stages by hand


def test_stages_by_hand_in_yaml_and_halving_are_the_same(folder: Path) -> None:
    pairs = [(stage.trials, stage.iterations) for stage in halving_stages(32, 1, 50, 3)]
    by_hand = et.Stages()
    for trials, iterations in pairs:
        by_hand = by_hand.add_stage(num_trials=trials, iters=iterations)
    assert by_hand.stages() == et.Stages(pairs).stages() == et.SuccessiveHalving(32, 1, 50, 3).stages()
    halving = tuner(folder).plan().to_dict()
    assert tuner(folder, algorithm=by_hand).plan().to_dict() == halving
    (folder / "exp.yaml").write_text(GOOD.replace(SHA, f"Stages: {{stages: {[list(pair) for pair in pairs]}}}"))
    found = json.loads(call("plan", "exp.yaml", "--json").stdout)
    assert {name: found[name] for name in halving} == halving


def test_stages_by_hand_train_what_halving_trains() -> None:
    pairs = [(stage.trials, stage.iterations) for stage in halving_stages(9, 1, 20, 3)]
    one = world(et.SuccessiveHalving(9, 1, 20, 3), devices=4, stragglers=0.3).run()
    two = world(et.Stages(pairs), devices=4, stragglers=0.3).run()
    assert one.records == two.records
