"""What cannot be asked of a market is refused with the name, the value and what to do, before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.market.markets import spiky_prices

import elastune as et
from elastune.cli import main
from elastune.market.boosted import Boosted
from elastune.market.logistic import Logistic
from elastune.market.prices import Prices, PriceSeries

ROWS = "timestamp,availability_zone,instance_type,price_usd_h\n"
GOOD = ROWS + "".join(f"2016-03-{day:02d}T00:00:00Z,z,a,0.{day:02d}\n" for day in range(1, 29))

CASES: dict[str, tuple[Any, str]] = {
    "another market": ("spott", "did you mean 'spot'"),
    "an unknown field": ({"type": ["m5.xlarge"]}, "did you mean 'types'"),
    "no types": ({"types": []}, "types=[]: must be a list of at least one"),
    "one type as a text": ({"types": "m5.xlarge"}, "types='m5.xlarge'"),
    "a type that is not in the catalog": ({"types": ["m5.xlargo"]}, "did you mean 'm5.xlarge'"),
    "a price that is none": ({"types": {"a": {"price": "cheap"}}}, "types.a.price='cheap'"),
    "an unknown field of a type": (
        {"types": {"a": {"prize": 1, "speed": 0}}},
        "types.a: unknown field 'prize': did you",
    ),
    "a type that is no mapping": ({"types": {"a": 1}}, "price and speed"),
    "a speed of nothing": ({"types": {"m5.xlarge": {"speed": 0}}}, "types.m5.xlarge.speed=0"),
    "a price that cannot be": ({"types": {"a": {"price": 1e308}}}, "types.a.price=1e+308: must be at most $1,000,000"),
    "a pace that cannot be": ({"pace": 1e12}, "pace=1000000000000.0: must be at most 1,000,000"),
    "another policy": ({"policy": "cheapest"}, "did you mean 'cheapest-step'"),
    "no file of prices": ({"prices": "none.csv"}, "none.csv"),
    "a type without prices": ({"types": {"b": {"price": 1}}, "prices": "good.csv"}, "'b'"),
    "negative prices": ({"types": {"a": {"price": 1}}, "prices": "negative.csv"}, "-0.5"),
    "a date that is none": ({"types": {"a": {"price": 1}}, "prices": "good.csv", "begin": "soon"}, "begin='soon'"),
    "a date without prices": (
        {"types": {"a": {"price": 1}}, "prices": "good.csv", "begin": "2020-01-01"},
        "2016-03-28",
    ),
    "a refund that is no yes or no": ({"refund": "maybe"}, "refund='maybe'"),
    "a notice that is none": ({"notice": "-1s"}, "notice='-1s'"),
    "a pace of nothing": ({"pace": 0}, "pace=0"),
    "a negative seed": ({"types": {"a": {"price": 1}}, "prices": "good.csv", "seed": -1}, "seed=-1"),
    "a seed that is a text": ({"types": {"a": {"price": 1}}, "prices": "good.csv", "seed": "a"}, "seed='a'"),
    "an unknown model": (
        {"revocation": "bosted"},
        "revocation='bosted': there is no such file, nor a model of that name: did you mean 'boosted'? ",
    ),
    "a model without a name": ({"revocation": ""}, "revocation='': there is no such file"),
    "a date that is a number": ({"begin": 20160412}, "begin=20160412"),
    "prices that are a number": ({"prices": 5}, "prices=5"),
    "a model that is a number": ({"revocation": 5}, "revocation=5"),
    "a type that is a number": ({"types": {5: {"price": "$1"}}}, "types: 5"),
    "a policy without its deadline": ({"policy": "never-late"}, "deadline"),
}


def simulated(tmp_path: Path, market: Any, **more: Any) -> Result:
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "negative.csv").write_text(GOOD + "2016-03-29T00:00:00Z,z,a,-0.5\n")
    (tmp_path / "short.csv").write_text(ROWS + "2016-03-01T00:00:00Z,z,a,0.1\n2016-03-01T00:30:00Z,z,a,0.2\n")
    late = ROWS + "2016-03-27T23:10:00Z,y,a,0.1\n"  # a zone that begins 50 minutes before the last price of the other
    (tmp_path / "late.csv").write_text(late + GOOD.removeprefix(ROWS))
    fields = {
        "space": {"lr": {"uniform": [0, 1]}},
        "metric": "loss",
        "algorithm": {"FIFO": {"n": 2, "R": 3}},
        "cluster": {"market": market},
        **more,
    }
    path = tmp_path / "exp.yaml"
    path.write_text(yaml.safe_dump(fields))
    return CliRunner().invoke(main, ["simulate", str(path), "--storage", str(tmp_path / "runs")])


def refused(tmp_path: Path, market: Any, **more: Any) -> str:
    result = simulated(tmp_path, market, **more)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output and not (tmp_path / "runs").exists()
    return " ".join(result.output.split())


@pytest.mark.parametrize("case", CASES)
def test_a_market_that_cannot_be_is_refused(case: str, tmp_path: Path) -> None:
    market, said = CASES[case]
    assert said in refused(tmp_path, market)


def test_what_the_market_says_itself_is_not_said_again(tmp_path: Path) -> None:
    market = {"revocation": None}
    assert "market and price" in refused(tmp_path, market, price="$1")
    cluster = {"market": market, "devices": 4}
    assert "devices=4" in refused(tmp_path, market, cluster=cluster)
    assert "market and allocator" in refused(tmp_path, market, cluster={"market": market, "allocator": "Fluid"})
    assert "give market.boot" in refused(tmp_path, market, cluster={"market": market, "boot": "90s"})
    assert "leave it out" in refused(tmp_path, "spot", cluster={"market": "spot", "provider": "here"})
    assert "provider='aws'" in refused(tmp_path, market, cluster={"market": market, "provider": "aws"})
    for name in ("request", "boot", "lifetime", "notice"):
        assert f"{name}_s=90.0: machines are those of" in refused(tmp_path, market, simulation={name: "90s"})
    assert "SEER" in refused(tmp_path, market, algorithm={"SEER": {}}, deadline="1h", budget="$5")


def test_without_a_model_prices_of_half_an_hour_are_enough(tmp_path: Path) -> None:
    market = {"types": {"a": {"price": 1}}, "prices": "short.csv"}
    said = refused(tmp_path, market)
    assert "begin=2016-03-01 00:15: no market has 15 hours" in said and said.endswith("or revocation: null")
    result = simulated(tmp_path, {**market, "revocation": None})
    assert result.exit_code == 0, result.output


def test_the_first_date_that_is_named_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "seconds.csv").write_text(ROWS + "2016-03-01T00:00:05Z,z,a,0.1\n2016-03-02T00:00:05Z,z,a,0.1\n")
    market = {"types": {"a": {"price": 1}}, "prices": "seconds.csv", "revocation": None}
    assert "between 2016-03-01 01:01, an hour" in refused(tmp_path, {**market, "begin": "2016-03-01 01:00"})
    assert simulated(tmp_path, {**market, "begin": "2016-03-01 01:01"}).exit_code == 0


def test_a_market_that_is_not_asked_for_has_no_say_in_when_the_run_begins(tmp_path: Path) -> None:
    market = {"prices": "late.csv", "begin": "2016-03-10", "revocation": None}
    result = simulated(tmp_path, {**market, "types": {"a/z": {"price": 1}}})
    assert result.exit_code == 0, result.output


def test_a_market_that_begins_too_late_is_named(tmp_path: Path) -> None:
    market = {"prices": "late.csv", "begin": "2016-03-10", "types": {"a": {"price": 1}}, "revocation": None}
    assert "prices of a/y begin on 2016-03-27 23:10, and an hour later" in refused(tmp_path, market)


def test_what_a_model_cannot_be_asked_about_is_refused_before_the_run(tmp_path: Path) -> None:
    prices, kinds = spiky_prices(days=2, markets=1), {"a": {"price": 1}}
    at = min(series.begin_unix_s for series in prices.values()) + 86_400.0
    Logistic.fit(prices, at).save(tmp_path / "logistic")
    market = {"types": kinds, "prices": "short.csv", "revocation": "logistic"}
    assert "was not trained on a/z" in refused(tmp_path, market)
    Boosted.fit(prices, at).save(tmp_path / "boosted.model")
    said = refused(tmp_path, {**market, "revocation": "boosted.model"})
    assert "the run begins on 2016-03-01 00:15, prices of a/z on 2016-03-01 00:00" in said


def test_a_model_that_was_trained_on_what_is_played_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prices = spiky_prices(days=4, markets=1)
    at = min(series.begin_unix_s for series in prices.values()) + 86_400.0
    for name, until_unix_s in (("before", at), ("after", at + 86_400.0)):
        Boosted.fit(prices, until_unix_s).save(tmp_path / name)
        begin = datetime.fromtimestamp(at, UTC)
        market = et.Spot({"m0.large": {"price": 1}}, prices, begin, revocation=tmp_path / name)
        et.Tuner(None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(1, 6), market=market)
    (warned,) = [record.getMessage() for record in caplog.records]
    assert "after': was trained on prices until 2016-03-02 00:00, and is asked from 2016-03-01 00:00 on" in warned


def test_a_deadline_is_not_promised_where_it_cannot_be(tmp_path: Path) -> None:
    said = refused(tmp_path, {"revocation": None}, algorithm={"ASHA": {"n": 9, "r": 1, "R": 9}}, deadline="1h")
    assert "which a deadline implies unless another is given" in said
    assert "ASHA does not say before the run how much it trains" in said
    only_spot = {"revocation": None, "on_demand": False}
    assert "on_demand=False: a deadline is kept" in refused(tmp_path, only_spot, deadline="1h")
    result = simulated(tmp_path, {"revocation": None, "boot": "60s"}, deadline="40s")
    assert result.exit_code == 3 and "deadline=40s: a machine takes 1m to boot" in result.output
    result = simulated(tmp_path, {**only_spot, "policy": "cheapest-step"}, deadline="1h")
    assert result.exit_code == 0, result.output


def test_a_model_that_the_policy_of_a_deadline_would_not_ask_is_refused(tmp_path: Path) -> None:
    for model in ("boosted", "nofile_at_all"):
        said = refused(tmp_path, {"revocation": model}, deadline="10h")
        assert f"revocation={model!r}: policy='never-late', which a deadline implies, asks no model" in said
    result = simulated(tmp_path, {"types": {"a": {"price": 1}}, "prices": "good.csv"}, deadline="10h")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("names", [("a/z", "a"), ("a", "a/z")])
def test_what_is_said_of_one_zone_counts_there_in_any_order(names: tuple[str, str]) -> None:
    speeds = {"a": 4, "a/z": 2}
    times = np.array([0.0, 86_400.0])
    prices = Prices({f"a/{zone}": PriceSeries(f"a/{zone}", times, np.array([0.1, 0.2])) for zone in "yz"})
    cloud = et.Spot(types={name: {"price": 1, "speed": speeds[name]} for name in names}, prices=prices).cloud
    assert {market: kind.speed for market, kind in cloud.kinds.items()} == {"a/y": 4, "a/z": 2}


def test_a_market_is_an_object(tmp_path: Path) -> None:
    with pytest.raises(et.SpecError, match="must be a Spot"):
        et.Tuner(None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(1), market="spot")  # type: ignore[arg-type]
