"""Where the prices that `elastune prices` shows come from: a file, AWS, or a market that is made up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from elastune.errors import SpecError, did_you_mean
from elastune.market.price_file import LINUX, load_prices
from elastune.market.prices import Prices
from elastune.market.synthetic_prices import ZONES, Style, synthetic_prices
from elastune.profile.catalog import catalog

DAYS = 7.0
EXAMPLES = ("m5.xlarge", "g5.xlarge", "p3.2xlarge")
"""The types of a market that is made up, unless others are asked for."""


def find_prices(
    file: Path | None,
    aws_until_unix_s: float | None,
    synthetic: Style | None,
    types: Collection[str] = (),
    zones: Sequence[str] = (),
    regions: Collection[str] = (),
    days: float | None = None,
    product: str | None = None,
) -> Prices:
    """From the one source that is given; what another source would need is refused."""
    given = sum(source is not None for source in (file, aws_until_unix_s, synthetic))
    if given != 1:
        raise SpecError(f"prices: {given or 'none'} of FILE, --aws and --synthetic: give one of them")
    if regions and aws_until_unix_s is None:
        raise SpecError(f"--region {min(regions)}: is for --aws; name zones with --zone")
    if file is not None:
        if days is not None:
            raise SpecError(f"--days {days:g}: is for --aws and --synthetic; a file is shown as a whole")
        return load_prices(file, types, zones, product or LINUX)
    days = DAYS if days is None else days
    if aws_until_unix_s is not None:
        from elastune.market.aws_prices import fetch_prices

        return fetch_prices(
            types, regions, until_unix_s=aws_until_unix_s, days=days, zones=zones, product=product or LINUX
        )
    if product is not None:
        raise SpecError(f"--product {product}: is for a FILE and --aws")
    return synthetic_prices(_known(types or EXAMPLES), days, zones or ZONES, 0, synthetic or "auction")


def _known(types: Collection[str]) -> dict[str, float]:
    found = on_demand_usd(types)
    for name in types:
        if name not in found:
            names = [each.name for each in catalog()]
            raise SpecError(f"--type {name}: its on-demand price is not known; {did_you_mean(name, names)}")
    return found


def on_demand_usd(types: Iterable[str]) -> dict[str, float]:
    """Dollars per hour of those machine types that the catalog knows."""
    known = {each.name: each.price_usd_per_hour for each in catalog()}
    return {kind: known[kind] for kind in types if kind in known}
