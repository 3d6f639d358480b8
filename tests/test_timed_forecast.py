"""Plans by the clock as a user meets them: what is printed is what was planned, and no run takes or costs more."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import elastune as et
from elastune.algorithm import Algorithm
from elastune.algorithm.timed import Bracket, TimedStage
from elastune.bench import Contest
from elastune.cli import main
from elastune.cluster.workload import Synthetic
from elastune.config_file import load_contest, load_experiment
from elastune.errors import Infeasible
from elastune.profile.cloud import Cloud
from elastune.profile.latency import constant
from elastune.simulation import Simulation
from elastune.spec import Limits
from elastune.timed_forecast import TimedForecast, paths

PAPER = et.SEER(eta=2, t_min="1m", fill=False, race=False)
"""The example of section 3.4, with ten minutes and 80 device-minutes."""
SEER_FILE = """
name: exp
space: {lr: {loguniform: [1e-4, 1e-1]}}
metric: loss
algorithm: {SEER: {eta: 2, t_min: 1m, race: false}}
deadline: 10m
budget: 80 device-minutes
cluster: {machines: 100, devices: 1}
"""


@contextmanager
def timed(algorithm: Algorithm, **changes: Any) -> Iterator[et.Tuner]:
    """With a storage of its own, for as long as it is used."""
    arguments: dict[str, Any] = {"deadline": "10m", "budget": "80 device-minutes", "machines": 100, "devices": 1}
    arguments["space"] = {"lr": et.loguniform(1e-4, 1e-1)}
    with tempfile.TemporaryDirectory() as folder:
        yield et.Tuner(
            None,
            metric="loss",
            algorithm=algorithm,
            name="t",
            storage=Path(folder),
            **(arguments | changes),
        )


def forecast(algorithm: Algorithm, **changes: Any) -> TimedForecast:
    with timed(algorithm, **changes) as tuner:
        found = tuner.plan()
    assert isinstance(found, TimedForecast)
    return found


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def load_contest_of(file: Path) -> tuple[Contest, int]:
    """The same experiment as one that is compared."""
    other = file.with_name("contest.yaml")
    other.write_text(file.read_text().replace("algorithm: {", "algorithms: {"))
    return load_contest(other)


def cells(text: str) -> list[list[str]]:
    """The numbers of the table, row by row."""
    rows = [line.split("  ") for line in text.split("\n\n")[0].splitlines()[1:]]
    return [[cell.strip() for cell in row if cell.strip()] for row in rows]


# --------------------------------------------------------------------------------------------- what the tables say


def test_the_example_of_the_paper_is_shown_round_by_round() -> None:
    found = forecast(PAPER)
    brackets = [(row.round, row.bracket, row.trials, row.devices_per_trial, row.go_on) for row in found.rows()]
    first, second, third = [(0, 0, 8, 1, 4), (0, 1, 4, 2, 2)], [(1, 0, 4, 1, 2), (1, 1, 2, 2, 1)], [(2, 0, 2, 1, None)]
    assert brackets == [*first, *second, *third, (2, 1, 1, 2, None)]
    assert [row.machines for row in found.rows()] == [16, 16, 8, 8, 4, 4]
    # 85.7 s in the paper: here machines take 3 s to come, and half a second to go.
    lengths = [row.end_s - row.begin_s for row in found.rows()[::2]]
    assert lengths == pytest.approx([596.5 / 7, 596.5 / 7 * 2, 596.5 / 7 * 4])
    assert cells(str(found)) == [
        ["0", "3s", "1m 28s", "0", "8", "1", "16", "4"],
        ["0", "3s", "1m 28s", "1", "4", "2", "2"],
        ["1", "1m 28s", "4m 19s", "0", "4", "1", "8", "2"],
        ["1", "1m 28s", "4m 19s", "1", "2", "2", "1"],
        ["2", "4m 19s", "10m", "0", "2", "1", "4"],
        ["2", "4m 19s", "10m", "1", "1", "2"],
    ]
    minutes = (8 * 88.714 + 4 * 259.143 + 4 * 600) / 60
    assert f"at most {minutes:.4g} device-minutes of 80 device-minutes" in str(found)
    assert "12 begin; 3 train until the end" in str(found) and "at most 10m of 10m" in str(found)
    assert f"unspent   {80 - minutes:.4g} device-minutes" in str(found)
    assert "1 device; at most 16 at once, of 100" in str(found) and "limited by" not in str(found)


def test_money_is_shown_as_money_with_the_machine_that_it_pays_for() -> None:
    cloud = Cloud("big", 4, 4.0, boot=constant(60.0), minimum_s=600.0, data_gb=10, data_usd_per_gb=0.01)
    planning = et.Planning(cloud=cloud)
    text = str(forecast(et.SEER(), deadline="60m", budget="$16", devices=None, planning=planning))
    assert re.search(r"at most \$1[0-9]\.[0-9]{2} of \$16\.00", text)
    assert "big: 4 devices, $4.00/h; at most" in text and "device-minutes" not in text
    assert cells(text)[0][1] == "1m 3s", "a machine boots for a minute, and its workers start"


def test_a_budget_in_device_time_tells_the_price_too_where_there_is_one() -> None:
    found = forecast(PAPER, price="$0.60")
    assert found.cost_usd[0] == pytest.approx(found.device_s / 3600 * 0.6)
    assert f"(${found.cost_usd[0]:.3f}) of 80 device-minutes" in str(found)


def test_brackets_side_by_side_share_the_machines_that_are_shown() -> None:
    found = forecast(et.ElasticHyperband(), deadline="60m", budget="$16", price="$1", devices=4)
    rows = found.rows()
    assert [row.begin_s for row in rows] == sorted(row.begin_s for row in rows)
    for row in rows:
        alive = sum(each.trials for each in rows if each.begin_s <= row.begin_s < each.end_s)
        assert row.machines == -(-alive // 4), "one device each, whatever the bracket"
    shown = [line[6] for line in cells(str(found)) if len(line) == 8]
    assert shown[0] == str(rows[0].machines) and len(cells(str(found))) == len(rows)
    assert "at most 1h of 1h" in str(found) and list(found.to_dict()["cost_usd"]) == ["at_most"]
    for bracket in {row.bracket for row in rows}:
        own = [row for row in rows if row.bracket == bracket]
        assert [row.go_on for row in own] == [*(row.trials for row in own[1:]), None]


def test_one_bracket_needs_no_column_and_machines_that_are_needed_later_are_held_from_the_beginning() -> None:
    found = forecast(et.ElasticGrid(p_min=3, p_max=16), budget="$2.7", price="$1")
    assert "bracket" not in str(found)
    early, late = found.rows()
    assert (early.trials, early.devices_per_trial, early.go_on) == (5, 3, 1)
    assert (late.trials, late.devices_per_trial, late.go_on) == (1, 16, None)
    assert (early.machines, late.machines) == (16, 16)
    assert found.cost_usd[0] == pytest.approx(16 * 600 / 3600)


def test_it_is_said_when_more_machines_would_be_of_use_and_only_then() -> None:
    note = "limited by machines=4: more would allow more trials, or wider ones"
    capped = forecast(et.SEER(), deadline="60m", budget="$100", price="$1", devices=4, machines=4)
    assert capped.limited_by_machines and note in str(capped) and capped.unspent > 50
    assert "at most 4 at once, of 4" in str(capped)
    one = forecast(et.SEER(t_min=1), deadline="60m", budget="$16", price="$1", devices=2, machines=1)
    assert one.time_s[0] == pytest.approx(3600), "however short t_min is: with few machines rounds are longer"
    enough = forecast(et.SEER(), deadline="60m", budget="$3", price="$1", devices=4, machines=20)
    assert not enough.limited_by_machines and "limited" not in str(enough) and enough.held[0][1] < 20
    exactly = forecast(et.SEER(), deadline="60m", budget="$3", price="$1", devices=4, machines=enough.held[0][1])
    assert not exactly.limited_by_machines and exactly.rows() == enough.rows()


@pytest.mark.parametrize("machines", [1, 2, 4, 8])
def test_elastic_hyperband_makes_the_most_of_few_machines(machines: int) -> None:
    found = forecast(
        et.ElasticHyperband(eta=2, t_min="2s"), deadline="30s", budget="3 device-minutes", machines=machines, devices=2
    )
    all_of_them = min(180.0, machines * 2 * 30.0)
    assert found.device_s >= 0.75 * all_of_them
    more = forecast(
        et.ElasticHyperband(eta=2, t_min="2s"), deadline="30s", budget="3 device-minutes", machines=100, devices=2
    )
    assert found.limited_by_machines == (more.held[0][1] > machines)


def test_elastic_hyperband_has_fewer_brackets_before_it_leaves_time_unused() -> None:
    rows = forecast(et.ElasticHyperband(eta=2, t_min="2s"), deadline="30s", machines=4, devices=2).rows()
    assert {row.bracket for row in rows} == {0, 1} and rows[-1].end_s == pytest.approx(29.8)


GRID = {"lr": et.grid_search([0.1, 0.2])}


@pytest.mark.parametrize(
    "algorithm",
    [
        et.SEER(p_max=1, t_min="2s"),
        et.SEER(t_min="2s"),
        et.SEER(t_min="2s", race=False),
        et.SEER(t_min="2s", fill=False),
        et.SEER(t_min="2s", fill=False, race=False),
        et.ElasticHyperband(eta=2, t_min="2s"),
        et.ElasticGrid(p_max=2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_no_more_trials_are_planned_than_the_grid_has_and_no_machine_is_rented_for_nobody(algorithm: Algorithm) -> None:
    few = {"space": GRID, "deadline": "30s", "budget": "3 device-minutes", "machines": 4, "devices": 2}
    with timed(algorithm, **few) as tuner:
        found = tuner.plan()
        result = tuner.simulate(Simulation(Synthetic("loss", "min", step_s=0.5)))
    assert isinstance(found, TimedForecast) and found.trials == len(result.view.trials) == 2
    assert "2 begin, all that the grid has;" in str(found) and found.to_dict()["configurations"] == 2
    assert found.time_s[0] == pytest.approx(30.0)
    assert result.view.at_s == pytest.approx(30.0, abs=1.0)
    assert len(result.view.machines) == found.held[0][1]
    first = [row for row in found.rows() if row.begin_s == found.rows()[0].begin_s]
    devices = sum(row.trials * row.devices_per_trial for row in first)
    assert devices > 2 * (found.held[0][1] - 1), "somebody is on each"


def test_a_large_grid_is_planned_like_any_space() -> None:
    large = {"lr": et.grid_search([k / 1000 for k in range(1, 1000)])}
    found, other = forecast(et.SEER(), space=large), forecast(et.SEER())
    assert found.rows() == other.rows() and "more as some fall behind" in str(found)


def test_who_goes_on_without_a_place_in_its_bracket_has_come_from_another() -> None:
    first = TimedStage(0.0, 1.0, (Bracket(0, 1, 1), Bracket(4, 2, 0)), 8)
    second = TimedStage(1.0, 2.0, (Bracket(1, 1, 1), Bracket(0, 2, 0)), 1)
    assert paths((first, second)) == [(1, 0), (1,), (1,), (1,)]


# ------------------------------------------------------------------------------------------- what a run takes and costs


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (PAPER, {"price": "$1"}),
        (et.SEER(eta=2, t_min="1m", race=False), {"price": "$1", "devices": 4}),
        (et.SEER(race=False), {"deadline": "60m", "budget": "$16", "price": "$1", "devices": 4}),
        (et.ElasticHyperband(), {"deadline": "60m", "budget": "$16", "price": "$1", "devices": 4}),
        (et.ElasticGrid(), {"deadline": "60m", "budget": "$16", "price": "$1", "devices": 4}),
        (et.SingleTrial(), {"deadline": "60m", "budget": "$16", "price": "$1", "devices": 4}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_run_whose_rounds_are_full_costs_what_was_forecast(algorithm: Algorithm, changes: dict[str, Any]) -> None:
    """But for the last steps of each round, which would not have ended in time, and the time kept for closing."""
    with timed(algorithm, **changes) as tuner:
        found = tuner.plan()
        result = tuner.simulate(Simulation(Synthetic("loss", "min", step_s=1.0)))
    assert result.status == "succeeded"
    assert len(result.view.trials) == found.to_dict()["trials"]
    assert result.view.at_s <= found.time_s[0] and result.cost <= found.cost_usd[0]
    assert result.view.at_s == pytest.approx(found.time_s[0], abs=2.0)
    assert result.cost == pytest.approx(found.cost_usd[0], rel=0.03)


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from(
        [et.SEER(t_min=30), et.SEER(eta=2, nu=3, t_min=30), et.SEER(t_min=30, fill=False), et.ElasticGrid(p_max=8)]
    )
    | st.sampled_from([et.ElasticHyperband(t_min=30), et.ElasticHyperband(eta=2, t_min=10), et.SingleTrial()]),
    deadline_s=st.floats(60, 1200),
    budget=st.floats(0.01, 3).map(lambda usd: f"${usd:.4f}")
    | st.floats(1, 150).map(lambda m: f"{m:.4f} device-minutes"),
    machines=st.integers(1, 20),
    devices=st.sampled_from([1, 2, 4, 8]),
    minimum_s=st.sampled_from([0.0, 60.0, 400.0]),
    boot_s=st.sampled_from([0.0, 5.0, 40.0]),
    step_s=st.floats(3, 100),
)
def test_no_run_takes_longer_or_costs_more_than_was_said(
    algorithm: Algorithm, deadline_s: float, budget: str, machines: int, devices: int, step_s: float, **cloud: float
) -> None:
    type_of_machine = Cloud("m", devices, float(devices), boot=constant(cloud["boot_s"]), minimum_s=cloud["minimum_s"])
    changes: dict[str, Any] = {"deadline": deadline_s, "budget": budget, "machines": machines, "devices": None}
    try:
        with timed(algorithm, planning=et.Planning(cloud=type_of_machine), **changes) as tuner:
            found = tuner.plan()
            result = tuner.simulate(Simulation(Synthetic("loss", "min", step_s=step_s), stragglers=0.3))
    except Infeasible:
        assume(False)
    except et.RunFailed:  # steps that no round is long enough for
        assume(False)
    assert isinstance(found, TimedForecast)
    assert found.unspent >= 0 and found.time_s[0] <= deadline_s + 1e-6
    assert result.cost <= found.cost_usd[0] + 1e-9
    assert result.view.at_s <= found.time_s[0] + 1e-6
    assert len(result.view.machines) <= found.held[0][1]


# --------------------------------------------------------------------------------------------------- the command line


def test_the_plan_as_json_agrees_with_the_table_and_with_python(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE)
    found = json.loads(call("plan", str(file), "--json").stdout)
    said = call("plan", str(file))
    assert said.exit_code == 0 and list(tmp_path.iterdir()) == [file], "nothing is started or written"
    for row, shown in zip(found["stages"], cells(said.stdout), strict=True):
        assert shown[:1] + shown[3:6] == [
            str(row[name]) for name in ("round", "bracket", "trials", "devices_per_trial")
        ]
    assert (found["budget_device_s"], found["budget_usd"], found["deadline_s"]) == (4800.0, None, 600.0)
    assert found["unspent_device_s"] == pytest.approx(4800 - found["device_s"]["at_most"])
    assert f"at most {found['device_s']['at_most'] / 60:.4g} device-minutes of 80" in said.stdout
    assert found["machine"] == {"type": None, "devices": 1, "price_usd_per_hour": 0, "at_most": 100, "ready_s": 3}
    assert found["held"][0]["machines"] == max(row["machines"] for row in found["stages"])
    python = forecast(et.SEER(eta=2, t_min="1m", race=False)).to_dict()
    assert {name: found[name] for name in python} == json.loads(json.dumps(python))


def test_a_budget_in_dollars_works_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE.replace("80 device-minutes", "$8\nprice: $6"))
    found = json.loads(call("plan", str(file), "--json").stdout)
    assert found["budget_usd"] == 8.0 and found["budget_device_s"] is None
    assert found["cost_usd"]["at_most"] == pytest.approx(found["device_s"]["at_most"] / 600)
    assert found["unspent_usd"] == pytest.approx(8 - found["cost_usd"]["at_most"])
    assert f"at most ${found['cost_usd']['at_most']:.2f} of $8.00" in call("plan", str(file)).stdout


def test_a_budget_that_is_too_small_is_infeasible(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE.replace("80 device-minutes", "10 device-seconds"))
    said = call("plan", str(file))
    assert said.exit_code == 3 and not said.stdout and "is too small for one trial of t_min=1m" in said.stderr


@pytest.mark.parametrize(
    ("simulation", "ready_s"), [("{}", 3.0), ("{boot: 40s}", 43.0), ("{boot: 40s, request: 10s}", 53.0)]
)
def test_machines_are_expected_when_the_simulation_of_the_file_has_them(
    tmp_path: Path, simulation: str, ready_s: float
) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE + f"simulation: {simulation}\n")
    assert json.loads(call("plan", str(file), "--json").stdout)["machine"]["ready_s"] == ready_s
    said = call("simulate", str(file), "--storage", str(tmp_path / "runs"))
    assert said.exit_code == 0, said.output
    view = et.load(tmp_path / "runs" / "exp").view
    assert view.started.plan is not None and view.started.plan.rounds[0].begin_s == ready_s
    contest, _ = load_contest_of(file)
    assert contest.experiment("SEER", 0).terms().ready_s == ready_s


def test_what_the_cluster_says_of_boots_goes_before_what_the_simulation_says_and_a_run_knows_of_no_simulation(
    tmp_path: Path,
) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(
        SEER_FILE.replace("devices: 1", "devices: 1, provider: local, boot: 5s") + "simulation: {boot: 40s}"
    )
    assert json.loads(call("plan", str(file), "--json").stdout)["machine"]["ready_s"] == 8.0
    file.write_text(SEER_FILE + "trainable: train.py:train\nsimulation: {boot: 40s}\n")
    (tmp_path / "train.py").write_text("def train(config): ...\n")
    assert load_experiment(file, with_trainable=True)[0].experiment.terms().ready_s == 3.0


def test_what_is_yet_to_be_measured_is_not_planned_for(tmp_path: Path) -> None:
    """The price is in the profile that is to be written."""
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE.replace("80 device-minutes", "$8\nplanning: {profile: exp.profile.yaml}"))
    tuner, _ = load_experiment(file, with_trainable=False, planned=False)
    assert not tuner.has_plan and tuner.experiment.settings.limits == Limits()
    (tmp_path / "exp.profile.yaml").write_text("step: 20\nscaling: {1: 1}\ncloud: {name: m, devices: 1, price: $6}\n")
    assert load_experiment(file, with_trainable=False)[0].has_plan


@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_shows_its_plan_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    """Of the run itself only the beginning is of interest here."""
    (tmp_path / "exp.yaml").write_text(SEER_FILE + "trainable: train.py:train\n")
    (tmp_path / "train.py").write_text("def train(config): ...\n")

    def interrupted(self: et.Tuner, progress: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(et.Tuner, "fit", interrupted)
    arguments = ["run", str(tmp_path / "exp.yaml"), "--storage", str(tmp_path / "runs"), *(["--quiet"] * quiet)]
    said = call(*arguments).stderr
    assert ("train until the end" in said) != quiet


def test_pictures_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(SEER_FILE)
    found = json.loads(call("plan", str(file), "--json", "--plot", str(tmp_path / "pictures")).stdout)
    written = sorted((tmp_path / "pictures").iterdir())
    assert [path.name for path in written] == ["plan.png", "plan.svg"] and sorted(found["plots"]) == list(
        map(str, written)
    )
    assert all(path.stat().st_size > 5000 for path in written)
    assert np.isclose(found["time_s"]["at_most"], 600)
