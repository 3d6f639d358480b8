"""What algorithms plan by the clock is in the journal, and stands next to what came of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import elastune as et
from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.algorithm.timed import Bracket, TimedStage, TimedStages
from elastune.cli import main
from elastune.cluster.workload import Synthetic
from elastune.messages import Config
from elastune.record.projection import RunView
from elastune.reporting import ledger_dict, ledger_table, summary_dict
from elastune.run_folder import closing, open_journal
from elastune.simulation import Simulation
from elastune.timed_forecast import TimedForecast

SEER = et.SEER(eta=2, t_min="1m")
PLANS: dict[str, Algorithm] = {
    "SEER": SEER,
    "ElasticGrid": et.ElasticGrid(),
    "ElasticHyperband": et.ElasticHyperband(),
    "SingleTrial": et.SingleTrial(),
    "HyperSched": et.HyperSched(r=1, R=200),
}


class Dying(Synthetic):
    """The driver is killed after so many steps."""

    left = 0

    def step_s(self, config: Config, iteration: int) -> float:
        type(self).left -= 1
        if type(self).left == 0:
            raise RuntimeError("the power is gone")
        return 1.0


def tuner(storage: Path, algorithm: Algorithm = SEER, **changes: Any) -> et.Tuner:
    asked: dict[str, Any] = {"deadline": "10m", "budget": "$5", "price": "$1", "machines": 40, "devices": 4}
    space = {"lr": et.loguniform(1e-4, 1e-1)}
    return et.Tuner(
        None, space=space, metric="loss", algorithm=algorithm, storage=storage, **({"name": "t"} | asked | changes)
    )


def records(path: Path) -> list[bytes]:
    with closing(open_journal(path, None, must_exist=True)) as journal:
        return list(journal.read())


def shown(view: RunView) -> list[list[str]]:
    """The tables of the ledger, as cells."""
    out = io.StringIO()
    Console(file=out, width=200).print(ledger_table(view))
    return [line.split() for line in out.getvalue().splitlines()]


def row(view: RunView, name: str) -> list[str]:
    return next(cells for cells in shown(view) if cells and cells[0] == name)


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_in_the_first_record_and_the_run_stays_within_it(tmp_path: Path, name: str) -> None:
    asked = tuner(tmp_path, PLANS[name])
    found = asked.plan()
    result = asked.simulate(Simulation(Synthetic("loss", "min", step_s=2.0)))
    plan = result.view.started.plan
    assert plan is not None
    assert (plan.finish_s, plan.cost_usd) == (found.time_s[0], found.cost_usd[0])
    if isinstance(found, TimedForecast):
        assert list(plan.rounds) == found.rows() and plan.device_s == found.device_s
    assert plan.machines == len(result.view.machines)
    assert result.view.at_s <= plan.finish_s and result.cost <= plan.cost_usd
    assert result.view.paid_device_s() <= plan.device_s


def test_forecast_and_bill_are_side_by_side(tmp_path: Path) -> None:
    view = tuner(tmp_path).simulate(Simulation(Synthetic("loss", "min", step_s=2.0))).view
    plan = view.started.plan
    assert plan is not None
    assert shown(view)[0] == ["forecast", "(at", "most)", "actual", "off", "by"]
    off = f"{view.cost_usd() / plan.cost_usd - 1:+.1%}"
    assert row(view, "cost") == ["cost", f"${plan.cost_usd:.2f}", f"${view.cost_usd():.2f}", off]
    assert row(view, "time")[0] == "time" and not [cells for cells in shown(view) if cells[:1] == ["device"]]
    first = shown(view).index(["planned", "round", "from", "to", "trials", "devices", "per", "trial", "machines"]) + 1
    for cells, planned in zip(shown(view)[first:], plan.rounds, strict=False):
        counts = (planned.trials, planned.devices_per_trial, planned.machines)
        assert cells[0] == str(planned.round) and cells[-3:] == [str(count) for count in counts]
    found = ledger_dict(view)["forecast"]
    assert (found["time_s"], found["cost_usd"]) == (plan.finish_s, plan.cost_usd)
    assert [each["trials"] for each in found["rounds"]] == [each.trials for each in plan.rounds]
    assert summary_dict(view)["forecast"] == found and json.dumps(found)


def test_a_budget_of_time_on_devices_is_compared_as_such(tmp_path: Path) -> None:
    free = tuner(tmp_path, budget="80 device-minutes", price=None).simulate(Simulation()).view
    assert free.started.plan is not None
    assert row(free, "device")[:3] == ["device", "time", f"{free.started.plan.device_s / 60:.4g}"]
    assert not [cells for cells in shown(free) if cells[:1] == ["cost"]], "it costs nothing, as was planned"


def test_the_same_run_has_the_same_plan_in_its_journal(tmp_path: Path) -> None:
    first, second = (tuner(tmp_path / folder).simulate(Simulation()) for folder in ("a", "b"))
    assert records(first.path) == records(second.path)


@pytest.mark.parametrize("name", PLANS)
def test_a_run_that_was_cut_off_and_goes_on_keeps_its_plan(tmp_path: Path, name: str) -> None:
    Dying.left = 300
    asked = tuner(tmp_path, PLANS[name])
    with pytest.raises(RuntimeError, match="the power is gone"):
        asked.simulate(Simulation(Dying("loss", "min", step_s=2.0)))
    before = et.load(asked.path).view
    assert before.started.plan is not None and before.at_s < before.started.plan.finish_s
    after = et.Tuner.restore(asked.path).fit(progress=False)
    assert after.view.started.plan == before.started.plan and after.status == "succeeded"


def test_a_journal_from_before_plans_were_in_it_is_read_and_has_no_forecast(tmp_path: Path) -> None:
    written = records(tuner(tmp_path).simulate(Simulation()).path)

    def older() -> Iterator[m.Record]:
        for body in written:
            record = json.loads(body)
            for event in record["events"]:
                event.pop("plan", None)
            yield m.decode_record(json.dumps(record).encode())

    view = RunView.of(older())
    assert view.status == "succeeded" and view.started.plan is None
    assert ledger_dict(view)["forecast"] is None and shown(view)[0][0] == "machine"


def test_no_plan_is_made_up_where_there_is_none(tmp_path: Path) -> None:
    stage = TimedStage(0.0, 30.0, (Bracket(2, 1),), 2)
    for algorithm in (et.ASHA(9, 1, 9), TimedStages((stage,))):
        asked = tuner(tmp_path, algorithm, budget=None, price=None)
        assert not asked.has_plan and asked.simulate(Simulation()).view.started.plan is None


def test_the_command_line_shows_what_was_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp.yaml").write_text(
        "name: exp\nspace: {lr: {loguniform: [1e-4, 1e-1]}}\nmetric: loss\nalgorithm: {SEER: {t_min: 30s}}\n"
        "deadline: 10m\nbudget: $5\nprice: $1\ncluster: {machines: 20, devices: 4}\n"
    )
    planned = json.loads(_call("plan", "exp.yaml", "--json"))
    _call("simulate", "exp.yaml")
    report = json.loads(_call("report", "runs/exp", "--json"))
    assert report["ledger"]["forecast"]["cost_usd"] == planned["cost_usd"]["at_most"]
    assert report["ledger"]["forecast"]["rounds"] == planned["stages"]
    assert f"forecast  at most 10m, ${planned['cost_usd']['at_most']:.2f}" in _call("status", "runs/exp")
    assert "forecast (at most)" in _call("report", "runs/exp")


def _call(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout
