"""Algorithms side by side: the runs, what is made of them, and `elastune bench`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import elastune as et
from elastune.algorithm.base import Actions, AlgorithmEvent
from elastune.bench import Contest, Entry, Row, compare, run
from elastune.cli import main
from elastune.config_file import load_contest
from elastune.errors import RunFailed, SpecError
from elastune.forecast import as_text
from elastune.profile import Cloud, JobProfile, Scaling, constant
from elastune.reporting.comparison import Standing, comparison_table, standings
from elastune.spec import Mode, TrialGroup

FIELDS: dict[str, Any] = {
    "space": {"lr": et.loguniform(1e-4, 1e-1), "layers": et.choice([2, 3, 4])},
    "metric": "score",
    "deadline": "30m",
    "budget": "$4",
    "price": "$0.50",
    "machines": 2,
    "devices": 4,
    "name": "small",
}
ENTRIES = {
    "ASHA": Entry(et.ASHA(n=None, r=1, R=27)),
    "Hyperband": Entry(et.Hyperband(R=9)),
    "TPE": Entry(et.FIFO(n=12, R=9), searcher="tpe"),
}


def contest(mode: Mode = "min", entries: dict[str, Entry] | None = None, step_s: float = 20.0, **more: Any) -> Contest:
    simulation = et.Simulation(
        et.Synthetic("score", mode, step_s=step_s, seed=1), boot_s=45.0, start_s=2.0, stragglers=0.2
    )
    return Contest("small", {**FIELDS, "mode": mode, **more}, simulation, ENTRIES if entries is None else entries)


class Broken(et.Algorithm):
    """Goes wrong at the third report."""

    def __init__(self) -> None:
        self.reports = 0

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        return [self.new_runs(free, 9, final=True)]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        self.reports += 1
        if self.reports == 3:
            raise ZeroDivisionError("a slip")
        return super().on(event, at_s)


# ------------------------------------------------------------------------------------------------------------ the runs


def test_the_same_seed_gives_the_same_row_and_another_seed_another_one() -> None:
    first, again, other = (run(contest(), "ASHA", seed) for seed in (3, 3, 4))
    assert first == again
    assert first.value != other.value


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("algorithm", list(ENTRIES))
def test_a_row_is_what_the_tuner_finds(tmp_path: Path, mode: Mode, algorithm: str) -> None:
    task, entry = contest(mode), ENTRIES[algorithm]
    fields: dict[str, Any] = {**task.fields, "algorithm": entry.algorithm, "searcher": entry.searcher}
    result = et.Tuner(None, **fields, seed=5, storage=tmp_path).simulate(task.simulation)
    began = [trial for trial in result.view.trials.values() if trial.attempts]
    found = run(task, algorithm, 5)
    assert found.cost_usd == pytest.approx(result.cost)
    assert found.device_s == pytest.approx(result.view.paid_device_s()) == pytest.approx(found.cost_usd / 0.5 * 3600)
    assert found == Row(
        task="small",
        algorithm=algorithm,
        seed=5,
        value=result.best_value,
        time_s=result.view.at_s,
        deadline_s=1800.0,
        cost_usd=found.cost_usd,
        budget_usd=4.0,
        device_s=found.device_s,
        budget_device_s=None,
        trials=len(began),
        iterations=sum(trial.iteration for trial in began),
    )


def test_rows_come_by_task_seed_and_algorithm_also_from_several_processes() -> None:
    tasks = [contest(), contest("max")]
    told: list[int] = []
    rows = compare(tasks, [1, 2], jobs=2, done=told.append)
    assert [(row.seed, row.algorithm) for row in rows] == [(seed, name) for seed in (1, 2) for name in ENTRIES] * 2
    assert told == [3, 3, 3, 3]
    assert rows == compare(tasks, [1, 2], jobs=1)


def test_a_run_that_reports_nothing_by_the_deadline_has_no_value() -> None:
    row = run(contest(step_s=7200.0), "ASHA", 0)
    assert row.value is None and row.iterations == 0 and row.trials == 8
    assert row.time_s == pytest.approx(1830.0), "the deadline, and the grace for trials that are told to leave"


def test_one_that_plans_by_the_clock_and_reports_nothing_has_no_value_either() -> None:
    task = contest(entries={"SEER": Entry(et.SEER(t_min="1m"), machines=8)}, step_s=7200.0, budget="$4")
    assert run(task, "SEER", 0).value is None


def test_all_have_the_same_machines_also_those_that_cannot_be_planned() -> None:
    cloud = Cloud("big", 4, 4.0, boot=constant(120.0), minimum_s=600.0)
    planning = et.Planning(JobProfile(constant(20.0), Scaling({1: 1, 2: 1.5}), start=constant(5.0)), cloud)
    entries = {"ASHA": ENTRIES["ASHA"], "SEER": Entry(et.SEER(t_min="1m"), machines=8)}
    fields = {name: value for name, value in FIELDS.items() if name not in ("price", "devices")}
    task = Contest("small", {**fields, "budget": "$4", "planning": planning}, et.Simulation(), entries)
    asha, seer = (task.simulation.cluster(task.experiment(name, 0), 0.0) for name in entries)
    assert asha.machines == seer.machines and asha.machines.minimum_s == 600.0
    assert asha.start_s == seer.start_s == constant(5.0) and asha.speedup(2.0) == seer.speedup(2.0) == 1.5


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_names_the_algorithm_and_the_seed(jobs: int) -> None:
    task = contest(entries={"ASHA": ENTRIES["ASHA"], "my own": Entry(Broken())})
    with pytest.raises(RunFailed, match="small: my own with seed 7: ZeroDivisionError: a slip"):
        compare([task], [7, 8], jobs)


def test_what_the_user_can_mend_is_said_as_it_is() -> None:
    table = et.Table("score", [{"depth": 1.0}, {"depth": 2.0}], [[0.5], [0.4]], [[1.0], [1.0]])
    task = Contest("small", FIELDS, et.Simulation(table), ENTRIES)
    with pytest.raises(SpecError, match=r"small: ASHA with seed 0: configuration .* the table needs numbers for depth"):
        run(task, "ASHA", 0)


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    told: list[int] = []
    with pytest.raises(SpecError, match="small: deadline is missing"):
        compare([contest(deadline=None)], [0], 1, told.append)
    with pytest.raises(SpecError, match="small: ASHA: price=-1"):
        compare([contest(), contest(price=-1)], [0], 1, told.append)
    with pytest.raises(SpecError, match="small: has no algorithms"):
        compare([contest(entries={})], [0], 1, told.append)
    with pytest.raises(SpecError, match="jobs=0: must be a whole number of at least 1"):
        compare([contest()], [0], 0, told.append)
    assert told == []


# ----------------------------------------------------------------------------------------------------------- standings


def row(algorithm: str, seed: int, value: float | None, time_s: float = 10.0) -> Row:
    return Row("small", algorithm, seed, value, time_s, 20.0, 2 * time_s, 50.0, 4 * time_s, None, seed + 1, 9)


def by_name(rows: Sequence[Row], mode: Mode) -> dict[str, Standing]:
    return {each.algorithm: each for each in standings(rows, mode)}


def test_a_standing_is_the_mean_its_standard_error_and_the_wins() -> None:
    rows = [row("a", 0, 1.0), row("b", 0, 2.0), row("a", 1, 3.0, time_s=14.0), row("b", 1, 2.5)]
    rows += [row("a", 2, 5.0), row("b", 2, 4.5)]
    found = by_name(rows, "min")
    assert list(found) == ["a", "b"]
    a, b = found["a"], found["b"]
    assert (a.task, a.runs, a.without, a.mean, a.wins, a.trials) == ("small", 3, 0, 3.0, 1, 2.0)
    # The values of a are 1, 3, 5: their variance is 4, that of the mean of three 4 / 3.
    assert a.standard_error == pytest.approx(math.sqrt(4 / 3))
    assert a.time_s == pytest.approx(34 / 3) and a.cost_usd == pytest.approx(68 / 3)
    assert a.device_s == pytest.approx(136 / 3)
    assert (b.wins, b.mean) == (2, 3.0)
    assert a.best and b.best, "their means are equal"
    assert [by_name(rows, "max")[name].wins for name in "ab"] == [2, 1]


def test_who_ties_wins_and_a_single_seed_has_no_standard_error() -> None:
    found = by_name([row("a", 0, 0.5), row("b", 0, 0.5), row("c", 0, 0.7)], "max")
    assert [(each.wins, each.best) for each in found.values()] == [(0, False), (0, False), (1, True)]
    assert [each.wins for each in standings([row("a", 0, 0.5), row("b", 0, 0.5), row("c", 0, 0.7)], "min")] == [1, 1, 0]
    assert found["a"].standard_error is None


def test_a_run_without_a_value_wins_nothing_and_costs_the_first_place() -> None:
    rows = [row("a", 0, 0.1), row("a", 1, None), row("b", 0, 0.5), row("b", 1, 0.7), row("c", 0, None)]
    found = by_name([*rows, row("c", 1, None)], "min")
    assert (found["a"].mean, found["a"].without, found["a"].wins, found["a"].best) == (0.1, 1, 1, False)
    assert found["b"].mean == pytest.approx(0.6)
    assert (found["b"].wins, found["b"].best) == (1, True)
    assert (found["c"].mean, found["c"].standard_error, found["c"].without) == (None, None, 2)
    assert not any(each.best for each in standings([row("a", 0, None)], "min"))


# ---------------------------------------------------------------------------------------------------- the command line

GOOD = """
name: exp
trainable: train.py:train
space:
  lr: {loguniform: [1e-4, 1e-1]}
metric: loss
algorithms:
  ASHA: {n: null, r: 1, R: 9}
  random: {FIFO: {n: 100, R: 9}}
  with TPE: {algorithm: {ASHA: {n: null, r: 1, R: 9}}, searcher: tpe}
deadline: 10m
budget: $5
price: $0.50
seed: 3
cluster: {machines: 2, devices: 2}
simulation:
  workload: {synthetic: {step: 30s}}
  boot: 60s
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.yaml").write_text(GOOD)
    return tmp_path


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "exp.yaml", "--jobs", "1", *arguments], env={"COLUMNS": "200"})


def refused(*arguments: str) -> str:
    result = bench(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit) and "Traceback" not in result.output
    return " ".join(result.stderr.split())


def test_bench_prints_a_table_with_the_best_first_and_writes_every_run(folder: Path) -> None:
    result = bench("--seeds", "3", "--out", "results.csv", "--plot", "pictures")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "exp: loss (less is better) by 10m and for $5.00, 3 seeds"
    assert lines[2].split() == ["algorithm", "mean", "loss", "std.", "error", "wins", "time", "cost", "trials"]
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(line["algorithm"], line["seed"]) for line in rows] == [
        (name, seed) for seed in "345" for name in ("ASHA", "random", "with TPE")
    ]
    values = [float(line["value"]) for line in rows if line["algorithm"] == "ASHA"]
    assert len(set(values)) == 3
    width = lines[2].index("mean")
    shown = {line[:width].strip(): float(line[width:].split()[0]) for line in lines[3:6]}
    assert list(shown.values()) == sorted(shown.values())
    assert shown["ASHA"] == pytest.approx(sum(values) / 3, rel=1e-4)
    assert (folder / "pictures/comparison.png").stat().st_size > 1000
    assert sorted(path.name for path in folder.iterdir()) == ["exp.yaml", "pictures", "results.csv"], "no run is kept"


def test_bench_as_json_has_standings_and_rows(folder: Path) -> None:
    found = json.loads(bench("--seeds", "2", "--json", "--algorithms", "random, ASHA").stdout)
    assert (found["task"], found["metric"], found["mode"]) == ("exp", "loss", "min")
    task, seed = load_contest(folder / "exp.yaml")
    rows = compare([task.only(["ASHA", "random"])], [seed, seed + 1], 1)
    assert found["rows"] == [asdict(row) for row in rows]
    assert found["standings"] == [asdict(each) for each in standings(rows, "min")]


def test_every_way_to_write_an_algorithm_means_the_same(folder: Path) -> None:
    one = "  random: {FIFO: {n: 100, R: 9}}\n"
    more = "  a: {algorithm: {FIFO: {n: 100, R: 9}}}\n  FIFO: {n: 100, R: 9}\n  ASHA: {FIFO: {n: 100, R: 9}}\n"
    start, end = GOOD.index("  ASHA"), GOOD.index("deadline")
    (folder / "exp.yaml").write_text(GOOD[:start] + one + more + GOOD[end:])
    task, seed = load_contest(folder / "exp.yaml")
    assert len({run(task, name, seed).value for name in ("random", "a", "FIFO", "ASHA")}) == 1


def test_the_curves_are_the_same_for_all_seeds(folder: Path) -> None:
    for text in (GOOD, GOOD[: GOOD.index("simulation")]):
        (folder / "exp.yaml").write_text(text)
        task, _ = load_contest(folder / "exp.yaml")
        losses = []
        for seed in (3, 4):
            workload = task.simulation.cluster(task.experiment("ASHA", seed), 0.0).workload
            losses.append(workload.curve({"lr": 0.01})(1))
        assert losses[0] == losses[1] == et.Synthetic("loss", "min", seed=3).curve({"lr": 0.01})(1)


BAD = [
    ("deadline: 10m\n", "", "deadline is missing: algorithms are compared by what they find until then"),
    ("deadline: 10m", "deadline: soon", "exp: ASHA: deadline='soon': must be a positive duration"),
    ("algorithms:", "algorithm:", "unknown field 'algorithm'; did you mean 'algorithms'?"),
    ("random: {FIFO: {n: 100, R: 9}}", "random: {FIFI: {n: 1}}", "algorithms.random='FIFI': did you mean 'FIFO'?"),
    (
        "random: {FIFO: {n: 100, R: 9}}",
        "fifo: {n: 100, R: 9}",
        "algorithms: unknown algorithm 'fifo'; did you mean 'FI",
    ),
    ("random: {FIFO: {n: 100, R: 9}}", "Foo: {}", "algorithms: unknown algorithm 'Foo'; allowed: ASHA, BOHB, "),
    ("random: {FIFO: {n: 100, R: 9}}", "Foo:", "algorithms: unknown algorithm 'Foo'"),
    ("random: {FIFO: {n: 100, R: 9}}", "Foo: {n: 1}", "own say which it is: Foo: {ASHA: {...}}"),
    ("random: {FIFO: {n: 100, R: 9}}", "random: 5", "algorithms.random=5: must be one name with its arguments"),
    ("random: {FIFO: {n: 100, R: 9}}", "FIFO: {R: 9}", "exp.yaml: algorithms FIFO: n is missing"),
    ("ASHA: {n: null, r: 1, R: 9}\n", "ASHA: {n: null, r: 1, R: 0}\n", "algorithms ASHA: R=0: must be a whole number"),
    ("searcher: tpe", "search: tpe", "algorithms.with TPE: unknown field 'search'; did you mean 'searcher'?"),
    ("searcher: tpe", "searcher: tpo", "exp: with TPE: searcher='tpo'"),
    ("seed: 3", "seed: -1", "seed=-1: must be a whole number of at least 0"),
    ("seed: 3", "planning: {}", "cloud is missing"),
    ("boot: 60s", "boat: 60s", "simulation: unknown field 'boat'; did you mean 'boot'?"),
    ("price: $0.50\n", "", "budget='$5' needs a price"),
]


@pytest.mark.parametrize(("was", "now", "said"), BAD, ids=[now or f"without {was.strip()}" for was, now, _ in BAD])
def test_a_bad_file_is_refused(folder: Path, was: str, now: str, said: str) -> None:
    assert was in GOOD
    (folder / "exp.yaml").write_text(GOOD.replace(was, now, 1))
    assert said in refused()


@pytest.mark.parametrize("given", ["[ASHA]", "{}", "ASHA"])
def test_algorithms_that_are_no_mapping_are_refused(folder: Path, given: str) -> None:
    start, end = GOOD.index("algorithms"), GOOD.index("deadline")
    (folder / "exp.yaml").write_text(f"{GOOD[:start]}algorithms: {given}\n{GOOD[end:]}")
    assert "must map names to algorithms" in refused()


def test_bad_options_are_refused_before_anything_runs(folder: Path) -> None:
    assert "algorithms='ASH': exp has no such algorithm; did you mean 'ASHA'?" in refused("--algorithms", "ASH")
    assert "there is no folder nowhere: make it, or give another file" in refused("--out", "nowhere/results.csv")
    assert "--seeds" in refused("--seeds", "0")


def test_a_run_that_fails_is_an_error_that_names_algorithm_and_seed(folder: Path) -> None:
    write_with_table(folder, {"lr": 1, "x": 1})
    assert "exp: ASHA with seed 3: configuration" in refused()


def write_with_table(folder: Path, config: dict[str, float]) -> None:
    (folder / "curves.jsonl").write_text(json.dumps({"config": config, "learning_curve": [1.0], "time_steps": [1.0]}))
    (folder / "exp.yaml").write_text(GOOD.replace("{synthetic: {step: 30s}}", "{table: {file: curves.jsonl}}"))


def test_a_parameter_that_the_curves_do_not_know_is_refused_before_anything_runs(folder: Path) -> None:
    write_with_table(folder, {"learning_rate": 1, "units": 1})
    said = "exp: ASHA: space.lr: the curves of the workload know no such parameter; they know: learning_rate, units"
    assert said in refused()


IN_DEVICE_TIME = GOOD.replace("budget: $5\nprice: $0.50\n", "budget: 40 device-minutes\n")


@pytest.mark.parametrize("more", ["", "price: $0.50"])
def test_what_was_paid_is_shown_as_time_on_devices_where_the_budget_is_given_so(folder: Path, more: str) -> None:
    (folder / "exp.yaml").write_text(IN_DEVICE_TIME + more)
    result = bench("--seeds", "1", "--algorithms", "ASHA", "--out", "results.csv")
    heading, _, names, row = result.stdout.splitlines()[:4]
    assert heading == "exp: loss (less is better) by 10m and for 40 device-minutes, 1 seed"
    assert names.split()[-3:] == ["time", "device-minutes", "trials"]
    with (folder / "results.csv").open() as file:
        (line,) = csv.DictReader(file)
    # Four devices for ten minutes, and the grace of 30 seconds.
    assert (float(line["device_s"]), line["budget_device_s"], line["budget_usd"]) == (2520.0, "2400.0", "")
    assert float(line["cost_usd"]) == (pytest.approx(0.35) if more else 0.0)
    assert row.split()[-2] == "42" and "$" not in result.stdout


def test_without_a_price_time_on_devices_is_shown(folder: Path) -> None:
    (folder / "exp.yaml").write_text(GOOD.replace("budget: $5\nprice: $0.50\n", ""))
    shown = bench("--seeds", "1", "--algorithms", "ASHA").stdout
    assert shown.startswith("exp: loss (less is better) by 10m, 1 seed\n")
    assert shown.splitlines()[2].split()[-2:] == ["device-minutes", "trials"]
    assert shown.splitlines()[3].split()[-2] == "42" and "$" not in shown


def test_what_was_paid_is_shown_in_one_unit_for_all() -> None:
    hours = {"a": 2, "b": 12_345}
    rows = [replace(row(name, 0, 1.0), device_s=3600 * hours[name], budget_device_s=3.6e7) for name in hours]
    shown = as_text(comparison_table(standings(rows, "min"), rows, "loss", "min")).splitlines()
    assert " and for 10,000 device-hours, 1 seed" in shown[0] and shown[2].split()[-2:] == ["device-hours", "trials"]
    assert [line.split()[-2] for line in shown[3:5]] == ["2", "12,345"]


def test_who_does_not_fit_the_limits_is_left_out_with_the_reason_before_the_runs(folder: Path) -> None:
    text = IN_DEVICE_TIME.replace("algorithms:\n", "algorithms:\n  ElasticGrid: {p_max: 8}\n")
    (folder / "exp.yaml").write_text(text.replace("40 device", "10 device"))
    result = bench("--seeds", "1", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [row["algorithm"] for row in found["rows"]] == ["ASHA", "random", "with TPE"]
    (why,) = found["left_out"]
    assert why.startswith(
        "exp: ElasticGrid: the budget of 10 device-minutes is too small for one trial on 1 and then 8"
    )
    assert f"left out: {why}\n" == result.stderr
    alone = bench("--algorithms", "ElasticGrid")
    assert alone.exit_code == 3 and "error: exp: ElasticGrid: the budget" in " ".join(alone.stderr.split())
    assert bench("--seeds", "1", "--algorithms", "ASHA").stderr.strip() == ""


def test_a_schedule_that_cannot_be_planned_is_left_out_too() -> None:
    planning = et.Planning(JobProfile(constant(20.0), Scaling({1: 1})), Cloud("big", 4, 4.0))
    entries = {"ASHA": ENTRIES["ASHA"], "halving": Entry(et.SuccessiveHalving(n=9, r=1, R=900))}
    fields = {name: value for name, value in FIELDS.items() if name not in ("price", "devices")}
    task, left_out = Contest("small", {**fields, "planning": planning}, et.Simulation(), entries).fitting(0)
    assert list(task.entries) == ["ASHA"] and len(left_out) == 1
    assert left_out[0].startswith("small: halving: ")
