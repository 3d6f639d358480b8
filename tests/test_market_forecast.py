"""What a run on spot machines is said to take and to cost, before it begins: what simulations of it say."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from matplotlib.lines import Line2D
from tests.market.markets import spiky_prices

import elastune as et
from elastune.cli import main
from elastune.errors import SpecError
from elastune.market.prices import Prices, PriceSeries, format_date
from elastune.market_forecast import MOMENTS, MarketForecast
from elastune.reporting.market_plots import by_moment
from elastune.spec import Limits

HOUR_S, DAY_S = 3600.0, 86_400.0
SIMULATION = et.Simulation(workload=et.Synthetic("loss", "min", step_s=1200.0))
HALVING = et.SuccessiveHalving(n=6, r=1, R=9, eta=3)
TYPES = {"m0.large": {"price": 1.0}, "m1.large": {"price": 1.0, "speed": 2.0}}


def tuner(tmp_path: Path, prices: Prices | None = None, begin: str | None = None, **changes: Any) -> et.Tuner:
    market = et.Spot(TYPES, prices or spiky_prices(6, 2), begin, revocation=changes.pop("revocation", None))
    fields: dict[str, Any] = {"algorithm": HALVING, "machines": 4} | changes
    return et.Tuner(
        None,
        space={"lr": et.loguniform(1e-4, 1e-1)},
        metric="loss",
        market=market,
        storage=tmp_path,
        name="t",
        **fields,
    )


def forecast(tmp_path: Path, **changes: Any) -> MarketForecast:
    found = tuner(tmp_path, **changes).plan(SIMULATION)
    assert isinstance(found, MarketForecast) and not list(tmp_path.iterdir()), "nothing is written"
    return found


@pytest.mark.parametrize("deadline", [None, "10h"], ids=["cheapest step", "in time"])
def test_every_play_is_the_simulation_of_a_run_that_begins_then(tmp_path: Path, deadline: str | None) -> None:
    found = forecast(tmp_path, deadline=deadline)
    assert len(found.plays) == MOMENTS and len(set(found.cost_usd)) > 1
    for play in (found.plays[0], found.plays[4]):
        begin = np.datetime64(round(play.begin_unix_s * 1e6), "us").item().isoformat()
        result = tuner(tmp_path, begin=begin, deadline=deadline).simulate(SIMULATION)
        assert (result.view.at_s, result.cost) == pytest.approx((play.time_s, play.cost_usd), rel=1e-6)
        assert len(result.view.machines) == play.machines


def test_the_last_play_leaves_as_much_of_the_record_as_the_first_took(tmp_path: Path) -> None:
    prices = spiky_prices(6, 2)
    found = forecast(tmp_path, prices=prices)
    end_unix_s = max(series.end_unix_s for series in prices.values())
    assert found.plays[-1].begin_unix_s == pytest.approx(end_unix_s - found.plays[0].time_s)


def test_a_record_that_is_too_short_for_more_is_played_once(tmp_path: Path) -> None:
    prices = Prices(
        {
            name: PriceSeries(name, np.array([0.0, 2 * HOUR_S]), np.array([0.2, 0.2]))
            for name in ("m0.large/z", "m1.large/z")
        }
    )
    found = forecast(tmp_path, prices=prices)
    assert len(found.plays) == 1 and "the record is too short for more" in str(found)


def test_a_model_is_trained_on_what_is_past_at_the_first_moment_only(tmp_path: Path) -> None:
    """Each play asks the same model, at moments that it has not seen."""
    found = forecast(tmp_path, revocation="logistic")
    assert len(found.plays) == MOMENTS and found.within_limits


def test_how_many_plays_a_limit_was_enough_for_is_told(tmp_path: Path) -> None:
    usual = forecast(tmp_path)
    middle = float(np.median(usual.cost_usd))
    found = forecast(tmp_path, budget=middle)
    short = [play for play in found.plays if play.status == "budget"]
    assert 0 < len(short) < MOMENTS and found.within_limits
    said = " ".join(str(found).split())
    assert f"enough in {MOMENTS - len(short)} of {MOMENTS}" in said and f"cut short in {len(short)} of" in said
    assert found.to_dict()["cut_short"] == len(short)


def test_a_deadline_is_not_said_to_be_enough_for_a_play_that_the_budget_has_ended(tmp_path: Path) -> None:
    found = forecast(tmp_path, deadline="10h", budget=float(np.median(forecast(tmp_path, deadline="10h").cost_usd)))
    statuses = Counter(play.status for play in found.plays)
    assert set(statuses) == {"succeeded", "budget"}
    said = " ".join(str(found).split())
    assert f"enough in {statuses['succeeded']} of {MOMENTS} cut short in {statuses['budget']} of {MOMENTS}" in said


def test_each_reason_for_which_plays_were_cut_short_is_told(tmp_path: Path) -> None:
    play = forecast(tmp_path).plays[0]
    found = MarketForecast(
        (play, replace(play, status="budget", reason="dear"), replace(play, status="deadline", reason="late")),
        Limits(HOUR_S, 5.0),
    )
    said = str(found)
    assert "deadline 1h and budget $5.00: enough in 1 of 3" in said
    assert "cut short in 1 of 3: dear" in said and "cut short in 1 of 3: late" in said


@pytest.mark.parametrize("simulation", [None, et.Simulation()], ids=["none", "without a workload"])
def test_how_long_steps_take_must_be_said(tmp_path: Path, simulation: et.Simulation | None) -> None:
    with pytest.raises(SpecError, match=r"^market: what a run costs depends on how long its steps take: say it in the"):
        tuner(tmp_path).plan(simulation)


def test_the_picture_has_every_play_and_the_limits() -> None:
    begins, time_s, cost_usd = [0.0, DAY_S], np.array([HOUR_S, 2 * HOUR_S]), np.array([1.0, 2.0])
    figure = by_moment(begins, time_s, cost_usd, 3 * cost_usd, Limits(4 * HOUR_S, 5.0), [False, False])
    top, bottom = figure.axes
    assert [heights(line) for line in top.lines] == [[1.0, 2.0], [3.0, 6.0], [5.0, 5.0]]
    assert [heights(line) for line in bottom.lines] == [[1.0, 2.0], [4.0, 4.0]] and bottom.get_ylabel() == "time (h)"
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["this run", "the same machines on demand", "budget", "deadline"]


def test_a_play_that_was_cut_short_looks_otherwise() -> None:
    usd = np.array([1.0, 2.0])
    top, bottom = by_moment([0.0, DAY_S], HOUR_S * usd, usd, usd, Limits(2 * HOUR_S, None), [False, True]).axes
    for axes, end in ((top, 2.0), (bottom, 120.0)):
        assert heights(axes.lines[-1]) == [end] and axes.lines[-1].get_markerfacecolor() == "white"


def test_no_point_of_the_picture_is_cut_off() -> None:
    """Also where all are nearly alike."""
    usd = np.array([1.0, 1.001])
    figure = by_moment([0.0, DAY_S], HOUR_S * usd, usd, usd, Limits(None, None), [False, False])
    assert all(axes.get_ylim()[1] > 1.05 * axes.dataLim.y1 for axes in figure.axes)


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


# --------------------------------------------------------------------------------------------------- the command line


def planned(tmp_path: Path, *options: str, **changes: Any) -> Result:
    fields = {
        "name": "exp",
        "space": {"lr": {"uniform": [0, 1]}},
        "metric": "loss",
        "algorithm": {"SuccessiveHalving": {"n": 4, "r": 1, "R": 9, "eta": 3}},
        "cluster": {"machines": 4, "market": {"types": ["m5.xlarge"], "revocation": None}},
        "simulation": {"workload": {"synthetic": {"step": "20m"}}},
    }
    path = tmp_path / "exp.yaml"
    path.write_text(yaml.safe_dump(fields | changes))
    return CliRunner().invoke(main, ["plan", str(path), *options], env={"COLUMNS": "200"})


def test_the_plan_of_a_file_as_table_and_as_json(tmp_path: Path) -> None:
    table = planned(tmp_path, "--plot", str(tmp_path / "pictures"))
    assert table.exit_code == 0, table.output
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["market.png", "market.svg"]
    found = json.loads(planned(tmp_path, "--json").stdout)
    costs = [play["cost_usd"] for play in found["plays"]]
    assert found["cost_usd"] == {"least": min(costs), "median": float(np.median(costs)), "most": max(costs)}
    first, last = (format_date(found["plays"][place]["begin_unix_s"]) for place in (0, -1))
    assert f"played {MOMENTS} times, begun between {first} and {last}" in table.stdout


def test_a_deadline_that_is_met_at_no_moment_is_infeasible(tmp_path: Path) -> None:
    said = planned(tmp_path, deadline="10m")
    assert said.exit_code == 3 and "deadline 10m: enough in 0 of 10" in said.stdout
    assert planned(tmp_path, deadline="10h").exit_code == 0


def test_a_run_that_trains_until_its_deadline_is_not_cut_short_by_it(tmp_path: Path) -> None:
    market = {"types": ["m5.xlarge"], "revocation": None, "policy": "cheapest-step"}
    endless = {"algorithm": {"ASHA": {"n": None, "r": 1, "R": 9}}, "cluster": {"machines": 2, "market": market}}
    said = planned(tmp_path, deadline="3h", **endless)
    assert said.exit_code == 0 and "cut short" not in said.stdout and "enough in" not in said.stdout, said.output


def test_a_file_that_does_not_say_how_long_steps_take_is_refused(tmp_path: Path) -> None:
    said = planned(tmp_path, simulation={})
    assert said.exit_code == 2 and "simulation: {workload: {synthetic: {step: 5m}}}" in said.stderr
