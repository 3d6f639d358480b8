"""The spot prices of the last days, as AWS tells them to everybody with an account."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np

from elastune.errors import SpecError, StorageError
from elastune.market.price_file import LINUX
from elastune.market.prices import Prices, market_name, sorted_series
from elastune.spec import require_number

DAY_S = 86_400.0
MOST_DAYS = 90
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")


def fetch_prices(
    types: Collection[str],
    regions: Collection[str] = (),
    *,
    until_unix_s: float,
    days: float = 7.0,
    zones: Collection[str] = (),
    product: str = LINUX,
) -> Prices:
    """Prices of machine types in all zones of some regions, or in some zones, of the days before a time.

    Regions may be left out where zones are given. The first record of a market may be older than that: it is the
    price that held when those days began.
    """
    require_number("days", days)
    if days > MOST_DAYS:
        raise SpecError(f"days={days:g}: AWS keeps the prices of {MOST_DAYS} days: ask for no more")
    if not types:
        raise SpecError("prices of AWS: say of which machine types, such as g5.xlarge: there are many hundreds")
    asked: dict[str, Any] = {
        "InstanceTypes": sorted(types),
        "ProductDescriptions": [product],
        "StartTime": datetime.fromtimestamp(until_unix_s - days * DAY_S, UTC),
        "EndTime": datetime.fromtimestamp(until_unix_s, UTC),
    }
    if zones:
        asked["Filters"] = [{"Name": "availability-zone", "Values": sorted(zones)}]
    times: dict[str, list[float]] = defaultdict(list)
    prices: dict[str, list[float]] = defaultdict(list)
    for region in sorted(set(regions)) or _regions_of(zones):
        for record in _records(region, asked):
            market = market_name(record["InstanceType"], record["AvailabilityZone"])
            times[market].append(record["Timestamp"].timestamp())
            prices[market].append(float(record["SpotPrice"]))
    _require_all(types, zones, times)
    return Prices({name: sorted_series(name, np.array(times[name]), np.array(prices[name]))[0] for name in times})


def _regions_of(zones: Collection[str]) -> list[str]:
    if not zones:
        raise SpecError("prices of AWS: say in which regions, such as us-east-1, or in which zones")
    found = {zone: _REGION.match(zone) for zone in zones}
    for zone, region in found.items():
        if region is None:
            raise SpecError(f"zone {zone!r}: must be the name of a zone such as us-east-1a")
    return sorted({region[0] for region in found.values() if region})


def _records(region: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        import boto3
    except ImportError:
        raise SpecError("prices of AWS need boto3, which is not installed: pip install 'elastune[aws]'") from None
    with _explained(region):
        pages = boto3.client("ec2", region_name=region).get_paginator("describe_spot_price_history").paginate(**asked)
        for page in pages:
            yield from page["SpotPriceHistory"]


@contextmanager
def _explained(region: str) -> Iterator[None]:
    """What goes wrong on the way to AWS, in words that say what to do."""
    from botocore import exceptions as aws

    try:
        yield
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.ProfileNotFound) as error:
        raise SpecError(
            f"AWS in {region}: {error}: run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    except aws.ClientError as error:
        told = error.response.get("Error", {})
        raise SpecError(
            f"AWS in {region} refuses ({told.get('Code', 'no code')}): {told.get('Message', error)}"
        ) from None
    except aws.InvalidRegionError:
        raise SpecError(f"region {region!r}: must be the name of a region such as us-east-1") from None
    except aws.BotoCoreError as error:
        raise StorageError(
            f"AWS in {region} cannot be reached: {error}: is there a network, and a region of that name?"
        ) from None


def _require_all(types: Collection[str], zones: Collection[str], markets: Collection[str]) -> None:
    """A type that is nowhere is a slip of the pen; one that only some zones have is not."""
    for what, place, wanted in (("machine type", 0, types), ("zone", 2, zones)):
        found = {market.partition("/")[place] for market in markets}
        for name in sorted(set(wanted) - found):
            raise SpecError(
                f"{what} {name!r}: AWS has no prices of it for these types, zones, days and product: leave it out, or "
                "look at its name"
            )
