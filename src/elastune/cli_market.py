"""The commands about spot markets: what machines cost there, and how likely they are taken away."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from elastune.cli_common import explained, json_option, print_json
from elastune.errors import SpecError
from elastune.units import parse_money

if TYPE_CHECKING:
    from elastune.market.prices import Prices
    from elastune.market.synthetic_prices import Style

log = logging.getLogger("elastune")

DAY_S = 86_400.0
LONG_GAP_S = 7 * DAY_S
"""Prices change more often: without a record for so long they are more likely missing."""

prices_argument = click.argument("prices", type=click.Path(path_type=Path))


@click.group()
def revocation() -> None:
    """How likely a spot machine is taken away within the hour: train a model, judge it, ask it."""


@revocation.command("train")
@prices_argument
@click.option(
    "--model",
    type=click.Choice(["boosted", "revpred", "tributary", "logistic"]),
    default="boosted",
    show_default=True,
    help="Ours, or one of those it is compared with.",
)
@click.option("--until", metavar="DATE", help="Train on prices up to then; default: on all.")
@click.option("--market", "markets", metavar="TYPE/ZONE", multiple=True, help="Only this one; may be repeated.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--save", "file", type=click.Path(path_type=Path), required=True, help="The file to write.")
@explained
def train_revocation(
    prices: Path, model: str, until: str | None, markets: tuple[str, ...], seed: int, file: Path
) -> None:
    """Train a model on PRICES (a CSV file)."""
    from elastune.market.price_file import load_prices
    from elastune.market.prices import Prices, format_date
    from elastune.market.revocation import model_class

    kind, known = model_class(model), load_prices(prices)
    if markets:
        known = Prices({market: known[market] for market in markets})
    end_unix_s = max(series.end_unix_s for series in known.values())
    if not file.parent.is_dir():
        raise SpecError(f"save={str(file)!r}: there is no folder {file.parent}: make it, or give another file")
    until_unix_s = end_unix_s if until is None else _moment("until", until)
    if until_unix_s > end_unix_s:
        end = format_date(end_unix_s)
        raise SpecError(f"until={until!r}: must be at most {end}, where prices end; without it all are used")
    _warn_of_gaps(prices, known)
    kind.fit(known, until_unix_s, seed).save(file)
    click.echo(f"written to {file}")


@revocation.command("evaluate")
@prices_argument
@click.argument("models", metavar="FILE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of the calibration.")
@json_option
@explained
def evaluate_revocation(prices: Path, models: tuple[Path, ...], plot: Path | None, as_json: bool) -> None:
    """Judge the models in FILES by the PRICES that came after their training."""
    from elastune.market.evaluation import evaluate
    from elastune.market.price_file import load_prices
    from elastune.market.revocation import load_revocation
    from elastune.reporting.revocation import evaluation_dicts, evaluation_table

    if plot is not None:
        from elastune.reporting.calibration_plots import save_calibration  # says so now where matplotlib is missing
    known = load_prices(prices)
    found = evaluate({str(path): load_revocation(path, known) for path in models}, known)
    pictures = [] if plot is None else [str(path) for path in save_calibration(plot, found)]
    if as_json:
        print_json({"models": evaluation_dicts(found), "plots": pictures})
        return
    Console().print(evaluation_table(found))
    for path in pictures:
        click.echo(f"picture: {path}")


@revocation.command("predict")
@prices_argument
@click.argument("model", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--market", metavar="TYPE/ZONE", required=True, help="The machine type and its zone.")
@click.option("--max-price", metavar="USD", required=True, help="The most that is paid for an hour.")
@click.option("--at", metavar="DATE", help="From when on; default: the end of the prices.")
@json_option
@explained
def predict_revocation(prices: Path, model: Path, market: str, max_price: str, at: str | None, as_json: bool) -> None:
    """The probability, by the model in a FILE, that the price of a market passes a maximum within the hour."""
    from elastune.market.price_file import load_prices
    from elastune.market.prices import format_date
    from elastune.market.revocation import load_revocation

    known = load_prices(prices)
    end_unix_s = max(series.end_unix_s for series in known.values())
    at_unix_s = end_unix_s if at is None else _moment("at", at)
    usd = parse_money(max_price, "max-price")
    _check_at(format_date(at_unix_s) if at is None else at, at_unix_s, known[market].begin_unix_s, end_unix_s)
    probability = load_revocation(model, known).probability(market, usd, at_unix_s)
    if as_json:
        print_json({"market": market, "max_price": usd, "at_unix_s": at_unix_s, "probability": probability})
        return
    click.echo(f"{probability:.1%}")


def _warn_of_gaps(file: Path, prices: Prices) -> None:
    """A model learns from a price that only seems to hold that there are no revocations."""
    from elastune.market.prices import format_date, gaps

    found = [(market, *gap) for market, series in prices.items() for gap in gaps(series, LONG_GAP_S)]
    if not found:
        return
    market, begin, end = max(found, key=lambda gap: gap[2] - gap[1])
    log.warning(
        "%s: %d time%s a market has no record for more than a week, the longest is %s from %s to %s: the price is "
        "taken to have held; if records are missing, the model takes machines for safer than they are",
        *(file, len(found), "s" * (len(found) != 1), market, format_date(begin), format_date(end)),
    )


def _check_at(at: str, at_unix_s: float, begin_unix_s: float, end_unix_s: float) -> None:
    """Refuse a date of which the prices do not tell: a price holds until the next, but not for ever."""
    from elastune.market.prices import format_date, format_date_from

    first, last = begin_unix_s + 3600.0, end_unix_s + DAY_S
    if not first <= at_unix_s <= last:
        raise SpecError(
            f"at={at!r}: must be between {format_date_from(first)}, an hour after the first price, and "
            f"{format_date(last)}, a day after prices end: they end on {format_date(end_unix_s)}"
        )


def _moment(name: str, text: str) -> float:
    """Seconds since 1970 of a date, with or without a time; in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{name}={text!r}: must be a date such as 2016-04-10 or 2016-04-10T12:30") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--aws", is_flag=True, help="Ask AWS for the last days, with the credentials of this computer.")
@click.option(
    "--synthetic",
    is_flag=False,
    flag_value="auction",
    type=click.Choice(["auction", "smooth"]),
    help="Make a market up, to try it: with spikes, as it was (auction; the default), or as it is today (smooth).",
)
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this machine type; may be repeated.")
@click.option("--zone", "zones", metavar="ZONE", multiple=True, help="Only this zone; may be repeated.")
@click.option("--region", "regions", metavar="REGION", multiple=True, help="With --aws: where; may be repeated.")
@click.option("--days", type=float, help="With --aws and --synthetic: how many; default: 7.")
@click.option("--product", metavar="NAME", help="The operating system, as AWS calls it; default: Linux/UNIX.")
@click.option("--save", type=click.Path(path_type=Path), help="A CSV file for the prices, packed if it ends with .gz.")
@click.option("--plot", type=click.Path(path_type=Path), help="A file for a picture: .png, .svg or .pdf.")
@json_option
@explained
def prices(
    file: Path | None,
    aws: bool,
    synthetic: Style | None,
    types: tuple[str, ...],
    zones: tuple[str, ...],
    regions: tuple[str, ...],
    days: float | None,
    product: str | None,
    save: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """What spot machines cost, market by market, from a FILE of prices (CSV, or AWS's JSON)."""
    from elastune.market.price_file import save_prices
    from elastune.market.prices import split_market
    from elastune.pricing import find_prices, on_demand_usd
    from elastune.reporting.prices import prices_table, summaries, summary_dicts

    until = time.time() if aws else None
    found = find_prices(file, until, synthetic, types, zones, regions, days, product)
    on_demand = on_demand_usd({split_market(market)[0] for market in found})
    if save is not None:
        save_prices(found, save)
    if plot is not None:
        from elastune.reporting.price_plots import save_price_plot

        save_price_plot(plot, found, on_demand)
    told = summaries(found, on_demand)
    if as_json:
        written = {"file": None if save is None else str(save), "plot": None if plot is None else str(plot)}
        print_json({"markets": summary_dicts(told), **written})
        return
    Console().print(prices_table(told))
    for said in [*([f"prices: {save}"] if save else []), *([f"picture: {plot}"] if plot else [])]:
        click.echo(said)
