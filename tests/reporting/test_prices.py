"""What is told of spot markets: figures that can be worked out by hand, and pictures that show what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from rich.console import Console

from elastune.errors import SpecError
from elastune.market.prices import Prices, PriceSeries
from elastune.market.synthetic_prices import synthetic_prices
from elastune.reporting.price_plots import MOST_ROWS, price_lines, price_map, save_price_plot
from elastune.reporting.prices import prices_table, summaries, summary_dicts

HOUR = 3600.0


def market(name: str, *records: tuple[float, float]) -> PriceSeries:
    hours, prices = zip(*records, strict=True)
    return PriceSeries(name, np.array(hours) * HOUR, np.array(prices))


# Ten hours. It rises by more than 10% in the third, the fifth and the sixth, and is above 3 from 4.5 to 6.5.
SERIES = market("a/z", (0, 1.0), (2.5, 2.0), (3, 1.0), (4.5, 4.0), (5.5, 6.0), (6.5, 1.0), (8.2, 1.05), (10, 1.05))


def test_a_market_is_summed_up_from_its_first_record_to_its_last() -> None:
    (found,) = summaries(Prices({"a/z": SERIES}), {"a": 3.0})
    assert (found.from_unix_s, found.until_unix_s, found.records) == (0.0, 10 * HOUR, 8)
    assert (found.now_usd, found.min_usd, found.max_usd) == (1.05, 1.0, 6.0)
    mean = (2.5 * 1 + 0.5 * 2 + 1.5 * 1 + 1 * 4 + 1 * 6 + 1.7 * 1 + 1.8 * 1.05) / 10
    assert found.mean_usd == pytest.approx(mean)
    assert found.saving == pytest.approx(1 - mean / 3)
    assert found.changes_per_day == pytest.approx(6 * 2.4)  # the last record changes nothing


def test_hours_are_lost_where_the_price_passes_the_maximum_price() -> None:
    (found,) = summaries(Prices({"a/z": SERIES}), {"a": 3.0})
    assert found.lost_at_margin == pytest.approx(3 / 10)
    assert found.lost_at_on_demand == pytest.approx(1 / 8)  # hours 5 and 6 begin above it: there is no machine


def test_what_cannot_be_known_is_left_open() -> None:
    (found,) = summaries(Prices({"a/z": market("a/z", (0, 1.0))}), {})
    assert found.mean_usd == found.now_usd == 1.0
    assert found.changes_per_day is found.on_demand_usd is found.saving is None
    assert found.lost_at_margin is found.lost_at_on_demand is None
    (always_above,) = summaries(Prices({"a/z": SERIES}), {"a": 0.5})
    assert always_above.lost_at_on_demand is None
    (told,) = summary_dicts([found])
    assert told["from"] == told["until"] == "1970-01-01T00:00:00Z"


def test_the_table_fits_into_eighty_columns() -> None:
    prices = synthetic_prices({"g4dn.12xlarge": 3.912, "m5.xlarge": 0.192}, days=2)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(prices_table(summaries(prices, {"m5.xlarge": 0.192})))
    text = capture.get()
    assert "…" not in text
    for name in prices:
        assert text.count(name) == 2


def test_a_few_markets_have_a_panel_each_with_the_on_demand_price_where_it_is_known() -> None:
    prices = Prices({"a/z": SERIES, "b/z": market("b/z", (0, 1.0), (5, 1.2))})
    first, second = price_lines(prices, {"a": 3.0}).axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("a/z", "b/z")
    assert [line.get_label() for line in first.get_lines()][-1] == "on demand"
    assert "on demand" not in [line.get_label() for line in second.get_lines()]


def test_spikes_that_dwarf_the_rest_turn_the_axis_logarithmic() -> None:
    calm, wild = price_lines(
        Prices({"a": market("a", (0, 1.0), (1, 2.0)), "b": market("b", (0, 1.0), (1, 1.1), (2, 9.0))}), {}
    ).axes
    assert (calm.get_yscale(), wild.get_yscale()) == ("linear", "log")


def test_no_spike_is_lost_in_a_picture_of_many_markets() -> None:
    calm = {f"m{i:02}": market(f"m{i:02}", (0, 1.0), (5000, 1.0)) for i in range(20)}
    prices = Prices({**calm, "wild": market("wild", (0, 1.0), (2000.0, 8.0), (2000.01, 1.0), (4000, 1.0))})
    axes = price_map(prices).axes[0]
    (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
    table = np.array(mesh.get_array(), dtype=float).reshape(21, -1)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(prices)
    assert np.nanmax(table[-1]) == 8.0
    assert np.nanmax(table[:-1]) == 1.0
    assert np.isnan(table[-1][-1])  # nothing is known after its last record


def test_of_very_many_markets_those_with_the_highest_peaks_are_shown() -> None:
    prices = Prices({f"m{i:03}": market(f"m{i:03}", (0, 1.0), (50, 1.0 + i), (60, 1.0)) for i in range(MOST_ROWS + 10)})
    axes = price_map(prices).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(prices)[10:]
    assert f"the {MOST_ROWS} markets of {MOST_ROWS + 10}" in axes.get_title(loc="left")


@pytest.mark.parametrize("count", [1, 5, 50])
def test_the_same_prices_always_give_the_same_picture(tmp_path: Path, count: int) -> None:
    prices = synthetic_prices({"m5.xlarge": 0.192}, 3.0, [f"zone-{i}" for i in range(count)])
    for name in ("first.png", "second.png", "first.svg", "second.svg"):
        save_price_plot(tmp_path / name, prices, {"m5.xlarge": 0.192})
    for ending in ("png", "svg"):
        assert (tmp_path / f"first.{ending}").read_bytes() == (tmp_path / f"second.{ending}").read_bytes()
    assert (tmp_path / "first.png").stat().st_size > 5000


def test_one_record_is_enough_for_a_picture(tmp_path: Path) -> None:
    for count in (1, 12):
        prices = Prices({f"m{i}": market(f"m{i}", (0, 1.0)) for i in range(count)})
        assert save_price_plot(tmp_path / "one.png", prices, {}).stat().st_size > 1000


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    prices = Prices({"a/z": SERIES})
    with pytest.raises(SpecError, match=r"must end with one of \.png, \.svg, \.pdf"):
        save_price_plot(tmp_path / "picture.txt", prices, {})
    with pytest.raises(SpecError, match="cannot be written"):
        save_price_plot(tmp_path / "none" / "picture.png", prices, {})
