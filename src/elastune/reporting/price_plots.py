"""A picture of spot prices: a line each for a few markets, a row of colours each for many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# First, because it says so where matplotlib is not installed.
from elastune.reporting.plots import BEST_COLOUR, DOTS_PER_INCH, FEW, LIMIT_COLOUR, styled

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from elastune.errors import SpecError
from elastune.market.prices import Floats, Prices, PriceSeries, split_market
from elastune.units import format_money

ENDINGS = (".png", ".svg", ".pdf")
DWARFED = 5.0
"""Where the highest price is so many times the usual one, a plain axis would show nothing but the spikes."""
MOST_ROWS = 60
COLUMNS = 480
HIGHEST = 20.0
"""Multiples of the median beyond this have one colour, so that smaller ones can be told apart."""


@styled
def save_price_plot(path: Path, prices: Prices, on_demand_usd: Mapping[str, float]) -> Path:
    if path.suffix.lower() not in ENDINGS:
        raise SpecError(f"plot={str(path)!r}: the name must end with one of {', '.join(ENDINGS)}")
    figure = price_lines(prices, on_demand_usd) if len(prices) <= FEW else price_map(prices)
    metadata = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata[path.suffix.lower()])
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}; give another file") from None
    return path


@styled
def price_lines(prices: Prices, on_demand_usd: Mapping[str, float]) -> Figure:
    """A panel for each market, from its first record to its last: lines on top of each other hide one another."""
    figure = Figure(figsize=(10, 4.5 if len(prices) == 1 else 1.0 + 1.5 * len(prices)), layout="constrained")
    panels = figure.subplots(len(prices), sharex=True, squeeze=False)[:, 0]
    for axes, series in zip(panels, prices.values(), strict=True):
        times, usd = as_dates(series.changed_unix_s), series.usd_per_hour
        axes.step(times, usd, where="post", color=BEST_COLOUR, linewidth=1.0)
        axes.plot(times[-1:], usd[-1:], "o", color=BEST_COLOUR, markersize=4)
        on_demand = on_demand_usd.get(split_market(series.market)[0])
        if on_demand is not None:
            axes.axhline(on_demand, color=LIMIT_COLOUR, linestyle="dashed", linewidth=1.2, label="on demand")
        _price_axis(axes, series)
        axes.set_title(series.market if len(prices) > 1 else f"Spot price of {series.market}", pad=4)
    date_axis(panels[-1])
    figure.supylabel("dollars per hour", fontsize="medium")
    if known := next((axes for axes in panels if axes.get_legend_handles_labels()[0]), None):
        figure.legend(*known.get_legend_handles_labels(), loc="outside lower right")
    return figure


@styled
def price_map(prices: Prices) -> Figure:
    """A row for each market: how many times its median price it cost. Highest prices of each stretch of time, so that
    no spike is lost; of very many markets those that vary most.
    """
    begin = min(each.begin_unix_s for each in prices.values())
    end = max(each.end_unix_s for each in prices.values())
    edges = np.linspace(begin, max(end, begin + 1.0), COLUMNS + 1)
    rows = {market: _row(series, edges) for market, series in prices.items()}
    shown = sorted(sorted(rows, key=lambda market: -float(np.nanmax(rows[market])))[:MOST_ROWS])
    table = np.array([rows[market] for market in shown])
    figure = Figure(figsize=(10, 1.6 + 0.17 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    most = min(max(2.0, float(np.nanmax(table))), HIGHEST)
    colours = axes.pcolormesh(
        as_dates(edges), np.arange(len(shown) + 1), table, norm=LogNorm(1 / most, most), cmap="RdBu_r", rasterized=True
    )
    axes.set_yticks(np.arange(len(shown)) + 0.5, shown, fontsize=7)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    date_axis(axes)
    tall = min(1.0, 4.0 / figure.get_figheight())
    bar = figure.colorbar(colours, ax=axes, pad=0.01, extend="both", shrink=tall, anchor=(0, 1))
    bar.set_label("price, as a multiple of the market's median")
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.minorticks_off()
    which = f"the {len(shown)} markets of {len(prices)} with the highest peaks"
    axes.set_title(f"Spot prices of {which if len(shown) < len(prices) else f'{len(shown)} markets'}")
    return figure


def _row(series: PriceSeries, edges: Floats) -> Floats:
    highest = series.highest(edges[:-1], edges[1:])
    highest[(edges[1:] < series.begin_unix_s) | (edges[:-1] > series.end_unix_s)] = np.nan  # not known
    return highest / np.nanmedian(highest)


def as_dates(unix_s: Floats) -> NDArray[np.datetime64]:
    return (unix_s * 1000).astype("datetime64[ms]")


def date_axis(axes: Axes) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.margins(x=0.01)
    axes.set_xlabel("time (UTC)")


def _price_axis(axes: Axes, series: PriceSeries) -> None:
    """By orders of magnitude where spikes would press the rest flat."""
    usd = series.usd_per_hour
    if usd.max() > DWARFED * np.median(usd):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_money(value)))
