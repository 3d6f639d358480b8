"""A market that is made up behaves like the real ones, and is the same whenever it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elastune.errors import SpecError
from elastune.market.prices import Prices, split_market
from elastune.market.synthetic_prices import HIGHEST, STYLES, Style, synthetic_prices

TYPES = {"small": 0.05, "medium": 0.5, "large": 4.0, "huge": 30.0}
ZONES = ("a", "b", "c")


def over_on_demand(prices: Prices) -> list[np.ndarray[Any, Any]]:
    return [series.usd_per_hour / TYPES[split_market(market)[0]] for market, series in prices.items()]


@pytest.mark.parametrize("style", STYLES)
def test_the_same_seed_gives_the_same_prices_and_another_one_others(style: Style) -> None:
    first, again, other = (synthetic_prices(TYPES, 2.0, ZONES, seed, style) for seed in (3, 3, 4))
    for market in first:
        assert first[market].changed_unix_s.tolist() == again[market].changed_unix_s.tolist()
        assert first[market].usd_per_hour.tolist() == again[market].usd_per_hour.tolist()
        assert first[market].usd_per_hour.tolist() != other[market].usd_per_hour.tolist()


def test_a_market_does_not_depend_on_the_others() -> None:
    alone = synthetic_prices({"large": TYPES["large"]}, 2.0, ["b"])["large/b"]
    among = synthetic_prices(TYPES, 2.0, ZONES)["large/b"]
    assert alone.usd_per_hour.tolist() == among.usd_per_hour.tolist()


def test_every_type_has_a_market_in_every_zone_for_as_long_as_is_asked() -> None:
    prices = synthetic_prices(TYPES, 5.0, ZONES)
    assert set(prices) == {f"{kind}/{zone}" for kind in TYPES for zone in ZONES}
    assert len({series.begin_unix_s for series in prices.values()}) == 1
    assert all(4 * 86400 < series.end_unix_s - series.begin_unix_s <= 5 * 86400 for series in prices.values())


def test_an_auction_is_cheap_changes_often_and_has_spikes_above_the_on_demand_price() -> None:
    parts = over_on_demand(synthetic_prices(TYPES, 30.0, ZONES))
    assert all(0.08 < np.median(part) < 0.6 for part in parts)
    assert 30 < np.mean([len(part) / 30.0 for part in parts]) < 400
    spikes = [np.count_nonzero((part[1:] > 1) & (part[:-1] <= 1)) / 30.0 for part in parts]
    assert 0.1 < np.mean(spikes) < 1.5
    assert max(part.max() for part in parts) <= HIGHEST + 1e-6


def test_a_smooth_market_changes_a_few_times_a_day_by_little_and_never_passes_the_on_demand_price() -> None:
    parts = over_on_demand(synthetic_prices(TYPES, 60.0, ZONES, style="smooth"))
    assert 2 < np.mean([len(part) / 60.0 for part in parts]) < 5
    assert all(part.max() <= 1 for part in parts)
    assert all(np.median(np.abs(np.diff(part)) / part[:-1]) < 0.02 for part in parts)


def test_even_the_cheapest_machine_costs_something() -> None:
    prices = synthetic_prices({"tiny": 0.0002}, 3.0)
    assert all((series.usd_per_hour > 0).all() for series in prices.values())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"types": {}}, "at least one machine type"),
        ({"zones": []}, "one zone"),
        ({"types": {"a": -1.0}}, "on-demand price of a=-1.0"),
        ({"types": {"a": float("nan")}}, "on-demand price of a=nan"),
        ({"types": {"a/b": 1.0}}, "machine type 'a/b': must be a name"),
        ({"days": 0}, "days=0"),
        ({"days": 1e300}, "days=1e\\+300: must be at most 3650"),
        ({"seed": -1}, "seed=-1"),
        ({"style": "smoth"}, "style='smoth': did you mean 'smooth'"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        synthetic_prices(**{"types": TYPES, **changed})
