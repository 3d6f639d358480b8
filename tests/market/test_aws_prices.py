"""Prices of AWS, against a mock of it: nothing leaves this computer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from elastune.errors import SpecError, StorageError
from elastune.market.aws_prices import fetch_prices

NOW = datetime(2026, 3, 10, tzinfo=UTC)
NOW_UNIX_S = NOW.timestamp()


@pytest.fixture(autouse=True)
def _own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever account this computer has, it is not asked."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def record(day: int, price: str, zone: str = "us-east-1a", kind: str = "g5.xlarge") -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": kind,
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": price,
        "Timestamp": datetime(2026, 3, day, tzinfo=UTC),
    }


@contextmanager
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    client = boto3.client("ec2", region_name="us-east-1")
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def test_every_page_is_read_and_the_records_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {
        "InstanceTypes": ["g5.xlarge"],
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": datetime(2026, 3, 7, tzinfo=UTC),
        "EndTime": NOW,
    }
    method = "describe_spot_price_history"
    with stubbed(monkeypatch) as stub:
        first = [record(9, "0.44"), record(8, "0.43"), record(9, "0.50", "us-east-1b")]
        stub.add_response(method, {"SpotPriceHistory": first, "NextToken": "more"}, asked)
        second = [record(6, "0.42"), record(9, "0.44")]  # the last price before those days; a record once more
        stub.add_response(method, {"SpotPriceHistory": second, "NextToken": ""}, {**asked, "NextToken": "more"})
        prices = fetch_prices(["g5.xlarge"], ["us-east-1"], until_unix_s=NOW_UNIX_S, days=3)
    assert list(prices) == ["g5.xlarge/us-east-1a", "g5.xlarge/us-east-1b"]
    series = prices["g5.xlarge/us-east-1a"]
    assert series.usd_per_hour.tolist() == [0.42, 0.43, 0.44]
    assert series.changed_unix_s.tolist() == [datetime(2026, 3, day, tzinfo=UTC).timestamp() for day in (6, 8, 9)]


def test_zones_are_asked_for_in_their_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws():
        prices = fetch_prices(["m5.large"], zones=["us-west-2b", "us-east-1a"], until_unix_s=NOW_UNIX_S)
    assert list(prices) == ["m5.large/us-east-1a", "m5.large/us-west-2b"]


def test_all_zones_of_a_region_are_found() -> None:
    with mock_aws():
        prices = fetch_prices(["m5.large", "c5.large"], ["us-west-2"], until_unix_s=NOW_UNIX_S)
    assert {"m5.large/us-west-2a", "c5.large/us-west-2c"} <= set(prices)


def test_a_type_without_prices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with stubbed(monkeypatch) as stub:
        stub.add_response("describe_spot_price_history", {"SpotPriceHistory": [record(9, "0.44")], "NextToken": ""})
        with pytest.raises(SpecError, match=r"machine type 'g5\.xlarg': AWS has no prices of it"):
            fetch_prices(["g5.xlarge", "g5.xlarg"], ["us-east-1"], until_unix_s=NOW_UNIX_S)


def test_what_aws_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with stubbed(monkeypatch) as stub:
        stub.add_client_error("describe_spot_price_history", "UnauthorizedOperation", "You are not allowed.")
        with pytest.raises(SpecError, match=r"us-east-1 refuses \(UnauthorizedOperation\): You are not allowed"):
            fetch_prices(["g5.xlarge"], ["us-east-1"], until_unix_s=NOW_UNIX_S)


def test_without_credentials_it_says_how_to_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SpecError, match="aws configure"):
        fetch_prices(["g5.xlarge"], ["us-east-1"], until_unix_s=NOW_UNIX_S)


def test_without_a_network_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"us-east-1 cannot be reached: .*is there a network"):
        fetch_prices(["g5.xlarge"], ["us-east-1"], until_unix_s=NOW_UNIX_S)


def test_without_boto3_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SpecError, match=r"pip install 'elastune\[aws\]'"):
        fetch_prices(["g5.xlarge"], ["us-east-1"], until_unix_s=NOW_UNIX_S)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"types": []}, "say of which machine types"),
        ({"regions": []}, "say in which regions"),
        ({"regions": [], "zones": ["somewhere"]}, "zone 'somewhere': must be"),
        ({"regions": ["us east"]}, "region 'us east'"),
        ({"days": 0}, "days=0"),
        ({"days": 120}, "days=120: AWS keeps the prices of 90 days"),
    ],
)
def test_what_cannot_be_asked_is_refused(changed: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"types": ["g5.xlarge"], "regions": ["us-east-1"], "until_unix_s": NOW_UNIX_S}
    with pytest.raises(SpecError, match=said):
        fetch_prices(**{**asked, **changed})
