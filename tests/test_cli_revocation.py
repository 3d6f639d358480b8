"""Predicting revocations from the command line: train, judge, ask, and bad input."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.market.markets import spiky_prices

from elastune.cli import main

MARKET = "m1.large/us-1a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days of prices, and two models that were trained on four of them."""
    folder = tmp_path_factory.mktemp("revocation")
    lines = ["timestamp,availability_zone,instance_type,price_usd_h"]
    for market, series in spiky_prices(days=5, markets=2).items():
        kind, zone = market.split("/")
        for at, price in zip(series.changed_unix_s.tolist(), series.usd_per_hour.tolist(), strict=True):
            lines.append(f"{datetime.fromtimestamp(at, UTC).isoformat()},{zone},{kind},{price}")
    (folder / "prices.csv").write_text("\n".join(lines) + "\n")
    for model in ("boosted", "logistic"):
        options = ("--until", "2016-03-04", "--save", str(folder / model))
        assert call("train", str(folder / "prices.csv"), "--model", model, *options).exit_code == 0
    return folder


def call(*arguments: str, width: str = "200") -> Result:
    return CliRunner().invoke(main, ["revocation", *arguments], env={"COLUMNS": width})


def refused(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    return " ".join(result.stderr.split())


def test_models_are_judged_by_what_came_after_their_training(folder: Path) -> None:
    prices, models = str(folder / "prices.csv"), [str(folder / "boosted"), str(folder / "logistic")]
    shown = call("evaluate", prices, *models, "--plot", str(folder / "plots"))
    assert shown.exit_code == 0, shown.output
    assert MARKET in shown.stdout and "calibration error" in shown.stdout
    narrow = call("evaluate", prices, *models, width="80").stdout
    assert narrow.count(MARKET) == 3 and "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert (folder / "plots" / "calibration.png").stat().st_size > 1000
    said = json.loads(call("evaluate", prices, *models, "--json").stdout)["models"]
    assert list(said) == models
    ours, peer = (each["markets"]["all"] for each in said.values())
    assert ours["samples"] == peer["samples"] > 200 and ours["positives"] == peer["positives"]
    assert sum(each["samples"] for each in said[models[0]]["calibration"]) == ours["samples"]


def test_a_higher_maximum_price_is_safer(folder: Path) -> None:
    asked = ("predict", str(folder / "prices.csv"), str(folder / "boosted"), "--market", MARKET, "--json")
    low, high = (json.loads(call(*asked, "--max-price", usd).stdout) for usd in ("$0.31", "$0.70"))
    assert low["probability"] > high["probability"]
    at = json.loads(call(*asked, "--max-price", "0.01", "--at", "2016-03-04T12:30").stdout)
    assert (at["probability"], at["at_unix_s"]) == (1.0, datetime(2016, 3, 4, 12, 30, tzinfo=UTC).timestamp())
    assert call(*asked[:-1], "--max-price", "0.01").stdout == "100.0%\n"


def test_only_some_markets_may_be_trained_on(folder: Path) -> None:
    prices, save = str(folder / "prices.csv"), str(folder / "one")
    options = ("--model", "logistic", "--market", MARKET, "--until", "2016-03-04", "--save", save)
    assert call("train", prices, *options).exit_code == 0
    said = json.loads(call("evaluate", prices, save, "--json").stdout)["models"][save]["markets"]
    assert list(said) == [MARKET, "all"]


def test_bad_input_is_explained(folder: Path, tmp_path: Path) -> None:
    prices, model, save = str(folder / "prices.csv"), str(folder / "boosted"), str(tmp_path / "m")
    assert "until='soon': must be a date" in refused("train", prices, "--until", "soon", "--save", save)
    assert "no market has" in refused("train", prices, "--until", "2016-02-29T02:00", "--save", save)
    assert "prices begin on 2016-02-29 " in refused("train", prices, "--until", "2015-01-01", "--save", save)
    assert "must be at most 2016-03-05" in refused("train", prices, "--until", "9999-12-31", "--save", save)
    assert "'--seed': -1 is not in the range" in refused("train", prices, "--seed", "-1", "--save", save)
    assert "there is no folder" in refused("train", prices, "--save", str(tmp_path / "no" / "m"))
    assert "did you mean" in refused("train", prices, "--market", "m1.lrge/us-1a", "--save", save)
    assert "boosted" in refused("train", prices, "--model", "best", "--save", save)
    assert "cannot be read" in refused("evaluate", prices, str(tmp_path / "none"))
    assert "is no model" in refused("evaluate", prices, prices)
    asked = ("predict", prices, model, "--market", MARKET)
    assert "max-price='free'" in refused(*asked, "--max-price", "free")
    for at in ("2016-02-29", "2016-03-08"):
        said = refused(*asked, "--max-price", "1", "--at", at)
        assert f"at='{at}': must be between 2016-02-29 " in said and "they end on 2016-03-0" in said
    assert "no prices of it" in refused("predict", prices, model, "--market", "x/y", "--max-price", "1")


def test_the_first_date_that_is_named_can_be_asked_about(tmp_path: Path) -> None:
    prices, rows = tmp_path / "seconds.csv", ["timestamp,availability_zone,instance_type,price_usd_h"]
    rows += [f"{date}T00:02:05Z,us-1a,m5.xlarge,0.05" for date in ("2024-01-13", "2024-01-15")]
    prices.write_text("\n".join(rows))
    assert call("train", str(prices), "--model", "logistic", "--save", str(tmp_path / "m")).exit_code == 0
    asked = ("predict", str(prices), str(tmp_path / "m"), "--market", "m5.xlarge/us-1a", "--max-price", "1", "--at")
    assert "between 2024-01-13 01:03, an hour after" in refused(*asked, "2024-01-13 01:02")
    assert call(*asked, "2024-01-13 01:03").exit_code == 0


def test_less_than_an_hour_of_prices_is_told_with_the_option_that_helps(folder: Path, tmp_path: Path) -> None:
    prices, rows = tmp_path / "short.csv", ["timestamp,availability_zone,instance_type,price_usd_h"]
    rows += [f"2024-01-13T00:{minute}:00Z,us-1a,m5.xlarge,0.05" for minute in ("00", "20")]
    prices.write_text("\n".join(rows))
    asked = ("predict", str(prices), str(folder / "boosted"), "--market", "m5.xlarge/us-1a", "--max-price", "1")
    assert "at='2024-01-13 00:20': must be between 2024-01-13 01:00, an hour after" in refused(*asked)
    assert call(*asked, "--at", "2024-01-13 01:00").exit_code == 0


def test_prices_that_end_with_the_training_leave_nothing_to_judge_by(folder: Path, tmp_path: Path) -> None:
    prices, save = str(folder / "prices.csv"), str(tmp_path / "m")
    assert call("train", prices, "--model", "logistic", "--save", save).exit_code == 0
    assert "train on less with --until" in refused("evaluate", prices, save)
    assert "the prices end on 2016-03-0" in refused("evaluate", prices, save)


def test_a_model_is_trained_on_a_long_gap_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prices, rows = tmp_path / "gap.csv", ["timestamp,availability_zone,instance_type,price_usd_h"]
    rows += [f"{date}T00:02:05Z,us-1a,m5.xlarge,0.05" for date in ("2024-01-13", "2024-01-14", "2024-03-14")]
    prices.write_text("\n".join(rows))
    assert call("train", str(prices), "--model", "logistic", "--save", str(tmp_path / "m")).exit_code == 0
    assert "the longest is m5.xlarge/us-1a from 2024-01-14 00:02 to 2024-03-14 00:02" in caplog.text
