"""Several tuners on the same machines as a user meets them: results, files, commands, and what cannot be."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from click.testing import Result as Called

import elastune as et
from elastune.cli import main
from elastune.cluster.workload import Curve
from elastune.errors import RunFailed, SpecError
from elastune.messages import Config
from elastune.reporting.ledger import ledger
from elastune.reporting.plots import timeline
from elastune.reporting.utilisation import utilisation
from elastune.simulation import PLAIN_CLOUD, PLAIN_JOB

SPACE = {"lr": et.loguniform(1e-4, 1e-1), "layers": et.choice([2, 3, 4])}


def tuner(name: str, **arguments: Any) -> et.Tuner:
    given: dict[str, Any] = {"space": SPACE, "metric": "loss", "algorithm": et.SuccessiveHalving(9, 1, 9, 3)}
    return et.Tuner(None, name=name, **{**given, **arguments})


def pair() -> list[et.Tuner]:
    return [
        tuner("nets"),
        tuner("trees", metric="accuracy", mode="max", algorithm=et.ASHA(8, 1, 4, 2), searcher="tpe", seed=3),
    ]


def together(tmp_path: Path, tuners: list[et.Tuner] | None = None, **arguments: Any) -> et.Together:
    return et.Together(tuners or pair(), **{"devices": 4, "storage": tmp_path / "runs", **arguments})


def outcome(result: et.Result) -> list[tuple[object, ...]]:
    return [(name, result[name].status, result[name].best_value, result[name].best_params) for name in result]


# ---------------------------------------------------------------------------------------------------------- the results


def test_each_has_a_result_and_the_run_has_the_folder_and_the_cost(tmp_path: Path) -> None:
    result = together(tmp_path, price="$3600").simulate(et.Simulation(boot_s=10.0))
    assert result.path == tmp_path / "runs" / "nets-trees" and list(result) == ["nets", "trees"]
    assert result.cost == pytest.approx(4 * result.view.at_s) == result["nets"].cost
    nets, trees = result["nets"], result["trees"]
    assert nets.best_value == min(r.metrics["loss"] for t in nets.view.trials.values() for r in t.reports)
    assert trees.best_value == max(r.metrics["accuracy"] for t in trees.view.trials.values() for r in t.reports)
    assert (len(nets.dataframe()), len(trees.dataframe())) == (9, 8)
    assert trees.best_trial.id in trees.summary() and nets.best_trial.id not in trees.summary()
    assert nets.best_trial.id in result.summary() and trees.best_trial.id in result.summary()
    assert [point.trial.rpartition("-")[0] for point in trees.view.best_so_far] == ["trees"] * len(
        trees.view.best_so_far
    )


def test_a_device_that_another_experiment_is_on_is_not_idle_in_the_report_of_one(tmp_path: Path) -> None:
    result = together(tmp_path, price="$1").simulate(et.Simulation())
    nets = result["nets"]
    assert utilisation(nets.view).busy == utilisation(result.view).busy == result.view.utilisation()
    assert nets.view.utilisation() == result.view.utilisation()
    assert ledger(nets.view).machines == ledger(result.view).machines
    assert set(ledger(nets.view).trials) == set(nets.view.trials), "what a trial trained for is said of its own"
    (legend,) = timeline(nets.view).legends
    assert [text.get_text() for text in legend.get_texts()] == ["held, nothing to do", "other experiments"]
    (legend,) = timeline(
        tuner("alone", storage=tmp_path, algorithm=et.FIFO(9, 2)).simulate(et.Simulation()).view
    ).legends
    assert [text.get_text() for text in legend.get_texts()] == ["held, nothing to do"]


def test_of_the_whole_there_is_no_best_and_the_error_says_what_to_write(tmp_path: Path) -> None:
    result = together(tmp_path).simulate(et.Simulation())
    with pytest.raises(SpecError, match=r"nets, trees share it, and each has a best of its own: result\['nets'\]"):
        _ = result.best_params
    with pytest.raises(SpecError, match=r"experiment='net': did you mean 'nets'\? this run has: nets, trees"):
        result["net"]


def test_a_run_of_one_has_its_result_by_name_too(tmp_path: Path) -> None:
    result = tuner("nets", devices=3, storage=tmp_path).simulate(et.Simulation())
    assert result["nets"].best_value == result.best_value and list(result) == ["nets"]


def test_the_journal_says_which_experiments_there_are(tmp_path: Path) -> None:
    result = together(tmp_path, priorities={"trees": 2}).simulate(et.Simulation())
    started = et.load(result.path).view.started
    assert isinstance(started.experiments, tuple)
    told = [(each.name, each.metric, each.mode, each.seed, each.priority) for each in started.experiments]
    assert told == [("nets", "loss", "min", 0, 1.0), ("trees", "accuracy", "max", 3, 2.0)]
    assert started.experiments[1].experiment["algorithm"] == {
        "ASHA": {"n": 8, "r": 1, "R": 4, "eta": 2, "max_concurrent": None}
    }
    assert set(started.experiments[0].experiment["space"]) == {"lr", "layers"}
    assert outcome(et.load(result.path)) == outcome(result)


def test_each_may_have_a_workload_of_its_own(tmp_path: Path) -> None:
    slow = et.Simulation(workload={"trees": et.Synthetic("accuracy", "max", step_s=100.0)})
    result = together(tmp_path).simulate(slow)
    steps = {name: result[name].best_trial.reports[0].at_s for name in result}
    assert steps["nets"] < 50 < steps["trees"]
    with pytest.raises(SpecError, match=r"workload\['tree'\]: there is no such experiment; did you mean 'trees'"):
        together(tmp_path).simulate(et.Simulation(workload={"tree": et.Synthetic("accuracy", "max")}))


class Broken(et.Synthetic):
    def curve(self, config: Config) -> Curve:
        return lambda iteration: {"accuracy": math.nan, "loss": math.nan}


def test_one_that_fails_is_told_of_and_the_other_has_its_result(tmp_path: Path) -> None:
    result = together(tmp_path).simulate(et.Simulation(workload={"trees": Broken("accuracy", "max")}))
    assert (result.status, result["nets"].status, result["trees"].status) == ("succeeded", "succeeded", "failed")
    alone = tuner("nets", devices=4, storage=tmp_path / "alone").simulate(et.Simulation())
    assert (alone.best_value, alone.best_params) == (result["nets"].best_value, result["nets"].best_params)
    with pytest.raises(RunFailed, match="no trial has reported a finite 'accuracy'"):
        _ = result["trees"].best_params
    assert "experiment trees is over" in result.summary()


def test_when_all_fail_so_does_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"every experiment failed; nets: .*; trees: "):
        together(tmp_path).simulate(et.Simulation(workload=Broken("loss", "min")))


class Crashing(et.Synthetic):
    """Breaks once, after so many steps; the next driver finds it whole."""

    left = 0

    def step_s(self, config: Config, iteration: int) -> float:
        type(self).left -= 1
        if type(self).left == 0:
            raise RuntimeError("the power is gone")
        return 1.0


@pytest.mark.parametrize("steps", [1, 6, 15, 30])
def test_a_crashed_run_is_restored_and_each_has_the_same_winner(tmp_path: Path, steps: int) -> None:
    tuners = [tuner("nets"), tuner("trees", seed=3, algorithm=et.Hyperband(9))]
    calm = together(tmp_path, tuners).simulate(et.Simulation(workload=et.Synthetic("loss", "min")))
    Crashing.left = steps
    with pytest.raises(RuntimeError, match="the power is gone"):
        together(tmp_path, tuners, name="hit").simulate(et.Simulation(workload=Crashing("loss", "min")))
    result = et.Together.restore(tmp_path / "runs" / "hit").fit(progress=False)
    assert outcome(result) == outcome(calm)


def test_a_run_is_restored_as_what_it_is(tmp_path: Path) -> None:
    shared = together(tmp_path).simulate(et.Simulation()).path
    alone = tuner("nets", devices=2, storage=tmp_path / "runs").simulate(et.Simulation()).path
    with pytest.raises(SpecError, match=r"several experiments share this run: go on with elastune.Together.restore"):
        et.Tuner.restore(shared)
    with pytest.raises(SpecError, match=r"one experiment alone: go on with elastune.Tuner.restore"):
        et.Together.restore(alone)
    with pytest.raises(SpecError, match=r"trainables\['net'\]: there is no such experiment; did you mean 'nets'"):
        et.Together.restore(shared, trainables={"net": print})
    with pytest.raises(SpecError, match=r"trainables\[1\]: there is no such experiment; allowed: nets, trees"):
        et.Together.restore(shared, trainables=cast(Any, {1: print}))
    with pytest.raises(SpecError, match="must map names of tuners to training functions"):
        et.Together.restore(shared, trainables=cast(Any, [print]))
    with pytest.raises(SpecError, match="trainable=3: must be a function of one argument"):
        et.Together.restore(shared, trainables={"nets": 3})
    with pytest.raises(SpecError, match="trainable=3: must be a function of one argument"):
        et.Tuner.restore(alone, trainable=3)
    with pytest.raises(SpecError, match="experiment=1: this run has: nets, trees"):
        et.load(shared)[cast(Any, 1)]


# ------------------------------------------------------------------------------------------------ what cannot be asked


class Mine(et.Allocator):
    def allocate(self, view: et.View, at_s: float) -> et.Target:
        return et.Target(1, dict.fromkeys([*view.widths, *view.waiting], 1))


def test_one_allocator_decides_for_all(tmp_path: Path) -> None:
    result = together(tmp_path, allocator=Mine()).simulate(et.Simulation())
    assert result.status == "succeeded"
    assert list(result.view.started.experiment["allocator"]) == ["Mine"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"deadline": "5m"}, "tuner 'b' has deadline= of its own: .* give it to Together"),
        ({"budget": "$5", "price": 1}, "tuner 'b' has budget= of its own"),
        ({"price": 1}, "tuner 'b' has price= of its own"),
        ({"machines": 3}, "tuner 'b' has machines= of its own"),
        ({"workers": et.Workers(fresh_process=True)}, "tuner 'b' has workers= of its own"),
        ({"checkpoint_every": 3}, "tuner 'b' has checkpoint_every= of its own"),
        ({"allocator": Mine()}, "tuner 'b' has allocator=Mine: one decides for all: give it to Together"),
        (
            {"algorithm": et.SEER(), "deadline": "10m", "budget": "80 device-minutes"},
            "tuner 'b': SEER plans machines and widths itself",
        ),
        ({"planning": et.Planning(PLAIN_JOB, PLAIN_CLOUD), "deadline": "1h"}, "tuner 'b' has planning="),
    ],
)
def test_what_belongs_to_the_whole_is_refused_in_one_of_them(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        together(tmp_path, [tuner("a"), tuner("b", **arguments)])
    assert not (tmp_path / "runs").exists()


def test_what_one_says_of_the_whole_may_be_what_the_whole_says(tmp_path: Path) -> None:
    endless = tuner("a", algorithm=et.ASHA(None, 1, 9), deadline="1m")
    result = together(tmp_path, [endless, tuner("b")], deadline="1m").simulate(et.Simulation())
    assert (result["a"].status, result["b"].status) == ("deadline", "succeeded")


@pytest.mark.parametrize(
    ("tuners", "arguments", "said"),
    [
        (["a", "a"], {}, "name='a' is that of 2 tuners: give each a name of its own"),
        (["a"], {}, "tuners: 1 given: must be at least two"),
        (["a", "b"], {"priorities": {"c": 1}}, r"priorities\['c'\]: there is no such experiment; .*a, b"),
        (["a", "b"], {"priorities": {1: 2}}, r"priorities\[1\]: there is no such experiment; allowed: a, b"),
        (["a", "b"], {"priorities": {"a": 0}}, r"priorities\['a'\]=0: must be a number greater than 0"),
        (["a", "b"], {"priorities": {"a": math.nan}}, r"priorities\['a'\]=nan: must be a number greater than 0"),
        (["a", "b"], {"budget": "$5"}, "needs a price"),
        (["a", "b"], {"devices": 0}, "devices=0: must be a whole number of at least 1"),
        (["a", "b"], {"name": "a/b"}, "name='a/b': must be letters"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    tmp_path: Path, tuners: list[str], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        together(tmp_path, [tuner(name) for name in tuners], **arguments)


def test_names_may_look_like_the_trials_of_another(tmp_path: Path) -> None:
    names = ["a", "a-00001", "a-00001-00000"]
    result = together(tmp_path, [tuner(name) for name in names]).simulate(et.Simulation())
    assert [len(result[name].view.trials) for name in names] == [9, 9, 9]


def test_a_run_on_machines_needs_all_trainables(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="tuner 'nets' has trainable=None: a run on machines needs"):
        together(tmp_path).fit()
    with pytest.raises(SpecError, match="must be a list of Tuner objects"):
        et.Together(["a", "b"])  # type: ignore[list-item]


# ----------------------------------------------------------------------------------------------------- the command line

NETS = """
space: {lr: {loguniform: [1e-4, 1e-1]}}
metric: loss
algorithm: {SuccessiveHalving: {n: 9, r: 1, R: 9, eta: 3}}
deadline: 1h
price: $0.50
cluster: {machines: 2, devices: 2}
simulation:
  workload: {synthetic: {step: 30s}}
  boot: 60s
"""
TREES = """
space: {depth: {randint: [1, 20]}}
metric: accuracy
mode: max
algorithm: {ASHA: {n: null, r: 1, R: 4, eta: 2}}
simulation:
  workload: {synthetic: {step: 10s}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.yaml").write_text(NETS)
    (tmp_path / "trees.yaml").write_text(TREES)
    return tmp_path


def call(*arguments: str) -> Called:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def refused(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.output
    return " ".join(result.stderr.split())


def test_files_are_simulated_together_and_looked_at_one_by_one(folder: Path) -> None:
    assert call("simulate", "nets.yaml", "trees.yaml", "--priority", "nets=2").exit_code == 0
    run = "runs/nets-trees"
    status = json.loads(call("status", run, "--json").stdout)
    assert status["status"] == "deadline" and status["deadline_s"] == 3600
    assert [(name, each["metric"], each["status"]) for name, each in status["experiments"].items()] == [
        ("nets", "loss", "succeeded"),
        ("trees", "accuracy", "deadline"),
    ]
    best = json.loads(call("best", run, "--json").stdout)
    trials = json.loads(call("trials", run, "--json").stdout)
    for name, pick in (("nets", min), ("trees", max)):
        values = [trial["best_value"] for trial in trials[name] if trial["best_value"] is not None]
        assert best[name]["value"] == pick(values)
        assert json.loads(call("best", run, "--experiment", name, "--json").stdout) == best[name]
    for command in ("status", "best", "trials"):
        assert_one_after_the_other(call(command, run).stdout)
        only = call(command, run, "--experiment", "trees").stdout
        assert "accuracy" in only and "loss" not in only
        assert "experiment='tree': did you mean 'trees'? this run has: nets, trees" in refused(
            command, run, "--experiment", "tree"
        )
    report = call("report", run).stdout
    assert_one_after_the_other(report)
    for name in ("nets", "trees"):
        assert (folder / run / "plots" / name / "learning_curves.png").stat().st_size > 1000
    told = json.loads(call("report", run, "--experiment", "trees", "--json").stdout)
    assert told["trials"] == trials["trees"] and told["metric"] == "accuracy"
    assert told["ledger"]["paid_usd"]["total"] == pytest.approx(status["cost_usd"]), "the cost is that of the whole"


def assert_one_after_the_other(printed: str) -> None:
    assert 0 <= printed.index("experiment nets") < printed.index("experiment trees")


def test_what_was_cut_short_is_resumed(folder: Path) -> None:
    call("simulate", "nets.yaml", "trees.yaml")
    whole = json.loads(call("best", "runs/nets-trees", "--json").stdout)
    with closing(sqlite3.connect(folder / "runs/nets-trees/journal.db")) as database, database:
        database.execute("delete from records where seq > 40")
    resumed = call("resume", "runs/nets-trees")
    assert resumed.exit_code == 0, resumed.output
    assert json.loads(call("best", "runs/nets-trees", "--json").stdout)["nets"] == whole["nets"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("cluster: {machines: 3}", "trees.yaml: machines=3: nets.yaml says 2, and the first file says it for all"),
        ("cluster: {boot: 3}", "trees.yaml: boot=3: nets.yaml says nothing of it"),
        ("deadline: 2h", "trees.yaml: deadline='2h': nets.yaml says '1h'"),
        ("max_retries: 9", "trees.yaml: max_retries=9: nets.yaml says nothing of it"),
        ("name: nets", "name='nets' is that of 2 tuners"),
        ("metrik: x", "trees.yaml: unknown field 'metrik'"),
    ],
)
def test_a_file_that_says_otherwise_than_the_first_is_refused(folder: Path, more: str, said: str) -> None:
    (folder / "trees.yaml").write_text(f"{TREES}{more}\n")
    assert said in refused("simulate", "nets.yaml", "trees.yaml")
    assert not (folder / "runs").exists()


def test_a_file_may_say_the_same_as_the_first(folder: Path) -> None:
    (folder / "trees.yaml").write_text(f"{TREES}cluster: {{machines: 2}}\ndeadline: 1h\n")
    assert call("simulate", "nets.yaml", "trees.yaml").exit_code == 0
    (folder / "trees.yaml").write_text(TREES.replace("step: 10s}}", "step: 10s}}\n  boot: 10s"))
    assert "trees.yaml: simulation.boot='10s': nets.yaml says '60s'" in refused("simulate", "nets.yaml", "trees.yaml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nets.yaml", "trees.yaml", "--priority", "nets"), "--priority nets: must be the name of an experiment and"),
        (("nets.yaml", "trees.yaml", "--priority", "x=2"), "priorities['x']: there is no such experiment"),
        (
            ("nets.yaml", "trees.yaml", "--priority", "nets=2", "--priority", "nets=1"),
            "--priority nets=1: nets has 2 already: give each name once",
        ),
        (("nets.yaml", "--priority", "nets=2"), "nets.yaml has the machines for itself"),
        (("nets.yaml", "nets.yaml"), "the same file twice"),
    ],
)
def test_priorities_and_files_that_cannot_be_are_refused(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused("simulate", *arguments)
