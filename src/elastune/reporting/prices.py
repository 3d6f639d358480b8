"""What spot markets cost and how long a machine lasts there: a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.cost import SECONDS_PER_HOUR
from elastune.market.prices import Prices, PriceSeries, split_market
from elastune.units import format_money

DAY_S = 86_400.0
MARGIN = 1.1
"""A maximum price a little above the present one, in the column `lost_at_margin`."""


@dataclass(frozen=True, slots=True)
class MarketSummary:
    """A market from its first record to its last. Prices are dollars per hour; None is what cannot be known.

    `lost_at_margin` and `lost_at_on_demand`: of all hours, from one full hour after the first record to the next, in
    how many a machine is taken away before they are over, if its maximum price is 10% above the price at the beginning
    of the hour, or the on-demand price. Hours that begin above the on-demand price are left out: there is no machine.
    """

    market: str
    from_unix_s: float
    until_unix_s: float
    records: int
    now_usd: float
    mean_usd: float
    min_usd: float
    max_usd: float
    changes_per_day: float | None
    on_demand_usd: float | None
    saving: float | None
    """The part of the on-demand price that the mean price leaves."""
    lost_at_margin: float | None
    lost_at_on_demand: float | None


def summaries(prices: Prices, on_demand_usd: Mapping[str, float]) -> list[MarketSummary]:
    """By market; on-demand prices are by machine type, as far as they are known."""
    return [_summary(series, on_demand_usd.get(split_market(market)[0])) for market, series in prices.items()]


def _summary(series: PriceSeries, on_demand_usd: float | None) -> MarketSummary:
    begin, end = series.begin_unix_s, series.end_unix_s
    mean = series.mean(begin, end)
    hours = np.arange(begin, end - SECONDS_PER_HOUR + 1e-6, SECONDS_PER_HOUR)
    at_first, highest = series.highest(hours, hours), series.highest(hours, hours + SECONDS_PER_HOUR)
    lost_at_on_demand = None
    if on_demand_usd is not None and (had := at_first <= on_demand_usd).any():
        lost_at_on_demand = float(np.mean(highest[had] > on_demand_usd))
    return MarketSummary(
        market=series.market,
        from_unix_s=begin,
        until_unix_s=end,
        records=len(series.usd_per_hour),
        now_usd=series.at(end),
        mean_usd=mean,
        min_usd=float(series.usd_per_hour.min()),
        max_usd=float(series.usd_per_hour.max()),
        changes_per_day=np.count_nonzero(np.diff(series.usd_per_hour)) / (end - begin) * DAY_S if end > begin else None,
        on_demand_usd=on_demand_usd,
        saving=1 - mean / on_demand_usd if on_demand_usd else None,
        lost_at_margin=float(np.mean(highest > MARGIN * at_first)) if len(hours) else None,
        lost_at_on_demand=lost_at_on_demand,
    )


def summary_dicts(found: Sequence[MarketSummary]) -> list[dict[str, Any]]:
    """For JSON: times are ISO 8601."""
    return [{**asdict(each), "from": _iso(each.from_unix_s), "until": _iso(each.until_unix_s)} for each in found]


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def prices_table(found: Sequence[MarketSummary]) -> RenderableType:
    """Two tables that fit into a narrow window: the prices; and what a machine saves there, and how long it lasts."""
    prices = _table("market", "records", "now", "mean", "min", "max", "changes\na day")
    for each in found:
        prices.add_row(
            Text(each.market),
            str(each.records),
            *map(format_money, (each.now_usd, each.mean_usd, each.min_usd, each.max_usd)),
            "-" if each.changes_per_day is None else f"{each.changes_per_day:.3g}",
        )
    lasting = _table("market", "from", "until", "on\ndemand", "saving", "lost at\n+10%", "lost at\non demand")
    for each in found:
        lasting.add_row(
            Text(each.market),
            _day(each.from_unix_s),
            _day(each.until_unix_s),
            "-" if each.on_demand_usd is None else format_money(each.on_demand_usd),
            *map(_part, (each.saving, each.lost_at_margin, each.lost_at_on_demand)),
        )
    title = f"{len(found)} market{'s' * (len(found) != 1)}, dollars per hour, times in UTC"
    note = (
        "lost: hours in which the machine is taken away, if its maximum price is 10% above the price at the beginning "
    )
    note += "of the hour, or the on-demand price"
    return Group(Text(title), Text(), prices, Text(), lasting, Text(), Text(note, style="dim"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column(first, no_wrap=True, vertical="bottom")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _day(unix_s: float) -> str:
    return _iso(unix_s)[:10]


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"
