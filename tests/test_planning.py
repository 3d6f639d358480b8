"""Planning as a user meets it: in Python and in YAML, on the command line, and when something is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.allocate.planned import forecast_of
from tests.worlds import world

import elastune as et
from elastune.algorithm.halving import halving_stages
from elastune.allocate import FirstComeFirstServed
from elastune.cli import main
from elastune.errors import Infeasible, SpecError
from elastune.forecast import Forecast
from elastune.messages import PlannedStage
from elastune.plan.dag import dot, to_dag
from elastune.plan.estimate import estimate, expect
from elastune.plan.model import Job, Plan
from elastune.planning import Planning
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant, normal
from elastune.profile.scaling import Scaling
from elastune.simulation import Simulation
from elastune.spec import Stage
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


# ------------------------------------------------------------------------------------------------- what a forecast says

GROWING = Plan((PlannedStage(4, 1, 2, 1), PlannedStage(2, 10, 4, 2, ask_s=10.0)))
"""Two of four trials at once, then a machine more, that is asked for ahead."""


def forecast_by_hand(minimum_s: float = 0.0, data_usd_per_gb: float = 0.0, others: int = 0) -> Forecast:
    """Of that plan, 20 s + 100 s at a cent a second for each machine, amid so many deadlines before and after it."""
    cloud = Cloud("m", 2, 36.0, minimum_s=minimum_s, data_gb=1.0, data_usd_per_gb=data_usd_per_gb)
    job = Job((Stage(4, 0, 1), Stage(2, 1, 11)), JobProfile(constant(10.0), Scaling({1: 1})), cloud, machines=2)
    chosen = expect(job, GROWING)
    deadlines = [(chosen.time_s + step, chosen.cost_usd - step) for step in range(-others, others + 1)]
    return Forecast((job,), (chosen,), (estimate(job, GROWING),), None, {}, tuple(deadlines))


def lines_with(text: str, note: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.rstrip().endswith(note)]


def test_a_stage_says_how_many_trials_run_at_once_and_whether_its_machines_are_asked_for_ahead() -> None:
    text = str(forecast_by_hand())
    ((*queued, _, _, _),) = lines_with(text, "2 at once")
    assert queued == ["0", "4", "1", "1", "1", "0.3", "0.30"], "the other machine comes after 10 s"
    ((*ahead, _, _, _),) = lines_with(text, "asked for ahead")
    assert ahead == ["1", "2", "10", "2", "2", "1.7", "2.00"]


def test_what_no_stage_has_cost_is_shown_as_data_and_minimum_charges() -> None:
    """One machine is held for 120 s, the other for 110 s; data is $0.50 for each."""
    assert not lines_with(str(forecast_by_hand()), "data, minimum charges")
    ((rest_usd, *_),) = lines_with(str(forecast_by_hand(data_usd_per_gb=0.5)), "data, minimum charges")
    assert rest_usd == "1.00"
    ((rest_usd, *_),) = lines_with(str(forecast_by_hand(minimum_s=300.0)), "data, minimum charges")
    assert rest_usd == "3.70"


@pytest.mark.parametrize("others", [0, 3, 21])
def test_this_plan_is_marked_among_the_deadlines(others: int) -> None:
    """Of many deadlines only some are shown, and that of the plan always."""
    found = forecast_by_hand(others=others)
    ((done_by, usd, *_),) = [cells for cells in lines_with(str(found), "this plan") if cells[0] != "instead"]
    assert (done_by, usd) == (format_duration(found.chosen[0].time_s), format_money(found.chosen[0].cost_usd))


def test_the_graph_of_a_forecast_is_that_of_the_plan_of_every_bracket(folder: Path) -> None:
    found = forecast_by_hand()
    assert found.dot() == dot(to_dag(found.jobs[0], GROWING)) and 'label="SCALE 2 machines"' in found.dot()
    brackets = forecast_of(tuner(folder, algorithm=et.Hyperband(9), deadline="3h"))
    assert len(brackets.jobs) == 3 and brackets.dot().count("digraph plan {") == 3
    assert brackets.dot().count('label="TRAIN') == sum(row["trials"] for row in brackets.stages())


# --------------------------------------------------------------------------------------------------- a list of clouds


SMALL = Cloud("small", 1, 4.0, request=constant(15.0), boot=constant(15.0))
LARGE = Cloud("large", 8, 36.0, request=constant(15.0), boot=constant(15.0))


def chosen_of(folder: Path, *clouds: Cloud, **changes: Any) -> tuple[str, Forecast]:
    made = tuner(folder, planning=Planning(JOB, clouds), **changes)
    assert made.experiment.cloud is not None
    return made.experiment.cloud.instance, forecast_of(made)


def test_of_a_list_of_clouds_the_one_with_the_cheapest_plan_is_taken(folder: Path) -> None:
    for deadline in ("20m", "2h", None):
        alone = {cloud.instance: chosen_of(folder, cloud, deadline=deadline)[1] for cloud in (SMALL, P3, LARGE)}
        best = min(alone, key=lambda name: alone[name].cost_usd.mean())
        for clouds in ((SMALL, P3, LARGE), (LARGE, P3, SMALL)):
            name, found = chosen_of(folder, *clouds, deadline=deadline)
            assert (name, found.to_dict()) == (best, alone[best].to_dict())


def test_with_a_budget_only_it_is_the_one_with_the_soonest_plan(folder: Path) -> None:
    slow = replace(P3, instance="slow", price_usd_per_hour=1.0, boot=constant(300.0))
    late, soon = (chosen_of(folder, cloud, deadline=None, budget="$60")[1] for cloud in (slow, P3))
    assert late.time_s.mean() > soon.time_s.mean() and late.cost_usd.mean() < soon.cost_usd.mean()
    for clouds in ((slow, P3), (P3, slow)):
        assert chosen_of(folder, *clouds, deadline=None, budget="$60")[0] == "p3.8xlarge"
        assert chosen_of(folder, *clouds, deadline=None)[0] == "slow"


def test_a_cloud_that_cannot_meet_the_deadline_is_passed_over(folder: Path) -> None:
    cheap_and_late = replace(P3, instance="late", price_usd_per_hour=0.1, request=constant(3600.0))
    assert chosen_of(folder, cheap_and_late, P3)[0] == chosen_of(folder, P3, cheap_and_late)[0] == "p3.8xlarge"


def test_that_no_cloud_meets_the_deadline_is_told_when_the_plan_is_asked_for(folder: Path) -> None:
    """As with one cloud."""
    made = tuner(folder, deadline="5m", planning=Planning(JOB, [P3, LARGE]))
    with pytest.raises(Infeasible, match="deadline=5m: no plan meets it"):
        made.plan()
    with pytest.raises(Infeasible, match="deadline=5m: no plan meets it"):
        made.simulate(Simulation())
    assert not (folder / "runs").exists()


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
    (SHA, "FIFO: {n: 4, R: 9, max_concurrent: 2}", "max_concurrent=2: a plan says itself how many trials train at"),
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
    (
        GOOD,
        GOOD.replace("planning: {profile: r101.profile.yaml}", "").replace("deadline: 20m", ""),
        "nothing says when the run must end: give a deadline",
    ),
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


def test_billing_by_function_is_for_plans_and_refused_in_a_run(folder: Path) -> None:
    by_function = tuner(folder, planning=Planning(JOB, replace(P3, billing="function")))
    assert by_function.plan().cost_usd.mean() > 0
    with pytest.raises(SpecError, match="billing='function' is for plans only: a run pays for machines"):
        by_function.simulate(Simulation())
    assert not (folder / "runs").exists()
    (folder / "train.py").write_text("def train(config): ...\n")
    planned = GOOD.replace("profile.yaml}", "profile.yaml, cloud: {type: p3.8xlarge, billing: function}}")
    (folder / "exp.yaml").write_text(planned + "trainable: train.py:train\n")
    assert "billing='function' is for plans only" in refused(2, "run", "exp.yaml")


def test_a_plan_needs_something_to_plan_with(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing says when the run must end: .* give planning=Planning"):
        tuner(tmp_path, planning=None, deadline=None).plan()


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


def test_a_folder_for_pictures_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    experiment = Path(__file__).parent.parent / "examples" / "resnet101" / "resnet101.yaml"
    (tmp_path / "taken").write_text("")
    said = CliRunner().invoke(main, ["plan", str(experiment), "--plot", str(tmp_path / "taken")])
    assert said.exit_code == 2 and f"{tmp_path / 'taken'}: no folder for pictures" in said.stderr


def test_very_many_iterations_are_planned_and_very_many_trials_refused(tmp_path: Path) -> None:
    planning = Planning(JOB, "p3.8xlarge")
    arguments: dict[str, Any] = {"metric": "loss", "machines": 4, "storage": tmp_path, "planning": planning}
    long = et.Tuner(None, space={"x": et.uniform(0, 1)}, algorithm=et.Stages([(4, 10**15)]), **arguments)
    assert long.plan().time_s.mean() >= 10**15 / 16
    many = et.Tuner(None, space={"x": et.uniform(0, 1)}, algorithm=et.Stages([(10**9, 1)]), **arguments)
    with pytest.raises(SpecError, match="stage 0 has 1000000000 trials: at most 20000"):
        many.plan()


def test_every_plan_that_was_made_is_in_the_report(tmp_path: Path) -> None:
    experiment = Path(__file__).parent.parent / "examples" / "resnet101" / "resnet101.yaml"
    assert CliRunner().invoke(main, ["simulate", str(experiment), "--storage", str(tmp_path)]).exit_code == 0
    said = CliRunner().invoke(main, ["report", str(tmp_path / "resnet101"), "--out", str(tmp_path / "out")]).stdout
    after = said[said.index("planned at") :].splitlines()
    assert after[1].split() == ["0s", "19m", "18s", "$12.99", "8,", "5,", "3,", "2"]
    assert len([line for line in after[1:6] if "19m 18s" in line]) == 4, "the first, and one at each barrier"
