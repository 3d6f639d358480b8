"""`elastune prices` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner, Result
from moto import mock_aws

from elastune.cli import main
from elastune.market.price_file import load_prices

PRICES = """timestamp,availability_zone,instance_type,price_usd_h
2024-01-13T00:00:00Z,us-east-1a,g5.xlarge,0.40
2024-01-13T10:00:00Z,us-east-1a,g5.xlarge,0.50
2024-01-13T00:00:00Z,us-east-1b,g5.xlarge,0.45
2024-01-13T20:00:00Z,us-east-1b,my.type,0.10
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    (tmp_path / "prices.csv").write_text(PRICES)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments], env={"COLUMNS": "200"})


def refused(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


def test_a_file_is_shown_market_by_market() -> None:
    shown = call("prices.csv")
    assert shown.exit_code == 0, shown.output
    assert "3 markets" in shown.stdout and "my.type/us-east-1b" in shown.stdout
    told = json.loads(call("prices.csv", "--json", "--type", "g5.xlarge", "--zone", "us-east-1a").stdout)
    (market,) = told["markets"]
    assert (market["market"], market["now_usd"], market["mean_usd"]) == ("g5.xlarge/us-east-1a", 0.5, 0.4)
    assert (market["from"], market["until"]) == ("2024-01-13T00:00:00Z", "2024-01-13T10:00:00Z")
    assert market["on_demand_usd"] == 1.006
    assert market["lost_at_margin"] == 0.1


def test_a_picture_and_a_copy_are_written(folder: Path) -> None:
    shown = call("prices.csv", "--type", "g5.xlarge", "--plot", "prices.png", "--save", "copy.csv.gz")
    assert shown.exit_code == 0, shown.output
    assert "picture: prices.png" in shown.stdout and "prices: copy.csv.gz" in shown.stdout
    assert (folder / "prices.png").stat().st_size > 5000
    assert list(load_prices(folder / "copy.csv.gz")) == ["g5.xlarge/us-east-1a", "g5.xlarge/us-east-1b"]


def test_a_market_that_is_made_up_needs_no_file() -> None:
    spiky = json.loads(call("--synthetic", "--json").stdout)["markets"]
    calm = json.loads(call("--synthetic", "smooth", "--type", "g5.xlarge", "--days", "3", "--json").stdout)["markets"]
    assert len(spiky) == 6 and all(each["on_demand_usd"] for each in spiky)
    assert max(each["max_usd"] / each["on_demand_usd"] for each in spiky) > 1
    assert [each["market"] for each in calm] == ["g5.xlarge/us-east-1a", "g5.xlarge/us-east-1b"]
    assert all(each["max_usd"] < each["on_demand_usd"] for each in calm)


def test_prices_of_aws_are_saved_for_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        shown = call("--aws", "--type", "m5.xlarge", "--region", "us-west-2", "--days", "2", "--save", "aws.csv")
    assert shown.exit_code == 0, shown.output
    assert "m5.xlarge/us-west-2a" in load_prices(folder / "aws.csv")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "none of FILE, --aws and --synthetic: give one of them"),
        (["prices.csv", "--synthetic", "smooth"], "2 of FILE, --aws and --synthetic"),
        (["none.csv"], "none.csv: cannot be read: No such file"),
        (["prices.csv", "--type", "g5.xlarg"], "'g5.xlarg': there are no prices of it; did you mean 'g5.xlarge'?"),
        (["prices.csv", "--zone", "mars"], "zone 'mars': there are no prices of it"),
        (["prices.csv", "--region", "us-east-1"], "--region us-east-1: is for --aws"),
        (["prices.csv", "--days", "3"], "--days 3: is for --aws and --synthetic"),
        (["prices.csv", "--plot", "prices.doc"], "must end with one of"),
        (["prices.csv", "--save", "none/copy.csv"], "cannot be written"),
        (["--synthetic", "rough"], "'rough' is not one of 'auction', 'smooth'"),
        (["--synthetic", "--type", "g5.xlarg"], "--type g5.xlarg: its on-demand price is not known; did you mean"),
        (["--synthetic", "--days", "0"], "days=0"),
        (["--synthetic", "--product", "Windows"], "--product Windows: is for a FILE and --aws"),
        (["--aws"], "say of which machine types"),
        (["--aws", "--type", "g5.xlarge"], "say in which regions"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments)


def test_a_line_that_is_no_price_is_named(folder: Path) -> None:
    (folder / "prices.csv").write_text(PRICES.replace("0.50", "-0.50"))
    assert "prices.csv, line 3: price '-0.50': must be dollars per hour, greater than 0" in refused("prices.csv")
