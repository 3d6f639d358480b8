"""The command line. Tables for people, --json for machines; exit code 0 only on success, 2 for what the user can mend,
3 where no plan meets the deadline or the budget.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from elastune.errors import ElastuneError, Infeasible, RunFailed, SpecError, StorageError, did_you_mean
from elastune.results import Result
from elastune.units import format_duration, parse_money
from elastune.worker.log import follow_log, log_path

if TYPE_CHECKING:
    from elastune.driver import Driver
    from elastune.market.synthetic_prices import Style
    from elastune.simulation import Simulation

FAILED, INFEASIBLE, INTERRUPTED = 2, 3, 130

journal_option = click.option(
    "--journal", metavar="URL", help="Where the journal is, if not in the run's folder: postgresql://..."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress line.")
experiment_option = click.option("--experiment", metavar="NAME", help="Only this one of those that share the run.")
priority_option = click.option(
    "--priority", "priorities", metavar="NAME=NUMBER", multiple=True, help="Of one of several experiments; default: 1."
)
prices_argument = click.argument("prices", type=click.Path(path_type=Path))
run_argument = click.argument("run", type=click.Path(path_type=Path))
file_argument = click.argument("experiment", type=click.Path(path_type=Path))
files_argument = click.argument("experiments", type=click.Path(path_type=Path), nargs=-1, required=True)


def _explained(command: Callable[..., None]) -> Callable[..., None]:
    """An error that is meant for the user is shown as it is, without a traceback."""

    @wraps(command)
    def explained(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except ElastuneError as error:
            Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False)
            sys.exit(INFEASIBLE if isinstance(error, Infeasible) else FAILED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    return explained


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elastune")
def main() -> None:
    """Tune machine-learning models on an elastic cluster, to a deadline and a budget."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


@main.command()
@files_argument
@priority_option
@click.option("--storage", type=click.Path(path_type=Path), help="Folder for runs; default: runs.")
@journal_option
@json_option
@quiet_option
@_explained
def run(
    experiments: tuple[Path, ...],
    priorities: tuple[str, ...],
    storage: Path | None,
    journal: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run an experiment (a YAML file) on this computer, or several EXPERIMENTS on the same machines.

    Several share devices by priority. Machines (the section cluster), deadline, budget and all else that is one for the
    whole run are those of the first file: another may say the same, and is refused where it says otherwise.
    """
    from elastune.tuner import Tuner

    tuner, _ = _load_files(experiments, priorities, with_trainable=True, storage=storage, journal=journal)
    if isinstance(tuner, Tuner) and tuner.has_plan and not quiet and not as_json:
        Console(stderr=True).print(tuner.plan().tables(), "")
    if not quiet and not as_json:
        click.echo(f"run {tuner.path}; if it is cut short, go on with: elastune resume {tuner.path}", err=True)
    _finish(tuner, lambda: tuner.fit(progress=not quiet and not as_json), as_json)


@main.command()
@files_argument
@priority_option
@click.option("--storage", type=click.Path(path_type=Path), help="Folder for runs; default: runs.")
@json_option
@quiet_option
@_explained
def simulate(
    experiments: tuple[Path, ...], priorities: tuple[str, ...], storage: Path | None, as_json: bool, quiet: bool
) -> None:
    """Run EXPERIMENTS on a simulated cluster: what would happen, and what it would cost.

    Several share the machines, as with `elastune run`. Each has the workload of its own file; all else of the section
    simulation is that of the first.
    """
    tuner, simulation = _load_files(experiments, priorities, with_trainable=False, storage=storage, journal=None)
    _finish(tuner, lambda: tuner.simulate(simulation), as_json)


@main.command()
@file_argument
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; default: NAME.profile.yaml.")
@click.option("--for", "seconds", default="20s", show_default=True, metavar="DURATION", help="How long at each width.")
@click.option("--widths", metavar="1,2,4", help="Which widths; default: 1, 2, 4, ... as many as there are devices.")
@click.option("--storage", type=click.Path(path_type=Path), help="Folder for runs; default: runs.")
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of what was measured.")
@json_option
@quiet_option
@_explained
def profile(
    experiment: Path,
    out: Path | None,
    seconds: str,
    widths: str | None,
    storage: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure how the training of an EXPERIMENT scales, for `elastune plan`."""
    from elastune.config_file import load_experiment

    tuner, _ = load_experiment(experiment, with_trainable=True, storage=storage, planned=False)
    out = out or experiment.with_name(f"{tuner.experiment.settings.name}.profile.yaml")
    wanted = None if widths is None else _whole_numbers("widths", widths)
    try:
        with redirect_stdout(sys.stderr):
            found = tuner.profile(seconds, wanted, progress=not quiet and not as_json)
    except KeyboardInterrupt:
        click.echo(f"interrupted; {out} was not written: a part of the widths is no profile", err=True)
        sys.exit(INTERRUPTED)
    found.save(out)
    pictures = [] if plot is None else [str(path) for path in found.save_plots(plot)]
    if as_json:
        _print({**found.to_dict(), "file": str(out), "plots": pictures}, True)
        return
    Console().print(found.tables())
    click.echo("\n".join([f"written to {out}", *(f"picture: {path}" for path in pictures)]))


@main.command()
@file_argument
@json_option
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for pictures of the plan.")
@_explained
def plan(experiment: Path, as_json: bool, plot: Path | None) -> None:
    """What an EXPERIMENT would take and cost, stage by stage, and what every other deadline would cost.

    Of an algorithm that plans by the clock, such as SEER: its rounds, and what they take and cost at most. Of one that
    holds its machines to the end, such as ASHA or HyperSched: what they cost until it must end. Nothing is started.
    Exit code 3: no plan meets the deadline or the budget.
    """
    from elastune.config_file import load_experiment

    tuner, _ = load_experiment(experiment, with_trainable=False)
    forecast = tuner.plan()
    pictures = [] if plot is None else [str(path) for path in forecast.save_plots(plot)]
    if as_json:
        _print({**forecast.to_dict(), "plots": pictures}, True)
        return
    Console().print(forecast.tables())
    if pictures:
        click.echo("\n".join(["pictures:", *(f"  {path}" for path in pictures)]))
    elif plot is not None:
        click.echo("no pictures: the machines are the same from the beginning to the end")


@main.command()
@file_argument
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs of each.")
@click.option("--algorithms", metavar="A,B", help="Which of those in the file; default: all.")
@click.option("--out", type=click.Path(path_type=Path), help="A CSV file for the results, a line for each run.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many processes; default: one for each processor.")
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of the results.")
@json_option
@_explained
def bench(
    experiment: Path,
    seeds: int,
    algorithms: str | None,
    out: Path | None,
    jobs: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare the algorithms of an EXPERIMENT on a simulated cluster, each with the same seeds."""
    from elastune.bench import compare
    from elastune.config_file import load_contest
    from elastune.reporting.comparison import comparison_table, standings, write_csv

    contest, seed = load_contest(experiment)
    if algorithms is not None:
        contest = contest.only([name.strip() for name in algorithms.split(",")])
    if out is not None and not out.parent.is_dir():
        raise SpecError(f"out={str(out)!r}: there is no folder {out.parent}: make it, or give another file")
    if plot is not None:
        from elastune.reporting.comparison_plots import save_comparison  # says so now where matplotlib is missing
    contest, left_out = contest.fitting(seed)
    for why in left_out:
        click.echo(f"left out: {why}", err=True)
    with _runs_line(seeds * len(contest.entries), shown=not as_json) as done:
        rows = compare([contest], range(seed, seed + seeds), jobs, done)
    metric, mode = contest.fields["metric"], contest.fields.get("mode", "min")
    found = standings(rows, mode)
    if out is not None:
        write_csv(out, rows)
    pictures = [] if plot is None else [str(path) for path in save_comparison(plot, rows, metric, mode)]
    if as_json:
        summary = {"task": contest.task, "metric": metric, "mode": mode, "standings": [asdict(each) for each in found]}
        _print({**summary, "rows": [asdict(row) for row in rows], "left_out": left_out, "plots": pictures}, True)
        return
    Console().print(comparison_table(found, rows, metric, mode))
    for said in [*([f"runs: {out}"] if out else []), *(f"picture: {path}" for path in pictures)]:
        click.echo(said)


@contextmanager
def _runs_line(runs: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Where a person watches, how many runs are over."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as line:
        task = line.add_task("runs", total=runs)
        yield lambda more: line.advance(task, more)


@main.group()
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
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--save", "file", type=click.Path(path_type=Path), required=True, help="The file to write.")
@_explained
def train_revocation(
    prices: Path, model: str, until: str | None, markets: tuple[str, ...], seed: int, file: Path
) -> None:
    """Train a model on PRICES (a CSV file)."""
    from elastune.market.price_file import load_prices
    from elastune.market.prices import Prices
    from elastune.market.revocation import model_class

    kind, known = model_class(model), load_prices(prices)
    if markets:
        known = Prices({market: known[market] for market in markets})
    end_unix_s = max(series.end_unix_s for series in known.values())
    if not file.parent.is_dir():
        raise SpecError(f"save={str(file)!r}: there is no folder {file.parent}: make it, or give another file")
    kind.fit(known, end_unix_s if until is None else _moment("until", until), seed).save(file)
    click.echo(f"written to {file}")


@revocation.command("evaluate")
@prices_argument
@click.argument("models", metavar="FILE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of the calibration.")
@json_option
@_explained
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
        _print({"models": evaluation_dicts(found), "plots": pictures}, True)
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
@_explained
def predict_revocation(prices: Path, model: Path, market: str, max_price: str, at: str | None, as_json: bool) -> None:
    """The probability, by the model in a FILE, that the price of a market passes a maximum within the hour."""
    from elastune.market.price_file import load_prices
    from elastune.market.revocation import load_revocation

    known = load_prices(prices)
    end_unix_s = max(series.end_unix_s for series in known.values())
    at_unix_s = end_unix_s if at is None else _moment("at", at)
    usd = parse_money(max_price, "max-price")
    probability = load_revocation(model, known).probability(market, usd, at_unix_s)
    if as_json:
        _print({"market": market, "max_price": usd, "at_unix_s": at_unix_s, "probability": probability}, True)
        return
    click.echo(f"{probability:.1%}")


def _moment(name: str, text: str) -> float:
    """Seconds since 1970 of a date, with or without a time; in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{name}={text!r}: must be a date such as 2016-04-10 or 2016-04-10T12:30") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


@main.command()
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
@_explained
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
        _print({"markets": summary_dicts(told), **written}, True)
        return
    Console().print(prices_table(told))
    for said in [*([f"prices: {save}"] if save else []), *([f"picture: {plot}"] if plot else [])]:
        click.echo(said)


@main.command()
@run_argument
@journal_option
@json_option
@quiet_option
@_explained
def resume(run: Path, journal: str | None, as_json: bool, quiet: bool) -> None:
    """Go on with a RUN (its folder) that was interrupted or crashed."""
    from elastune.together import restore

    tuner = restore(run, journal)
    _finish(tuner, lambda: tuner.fit(progress=not quiet and not as_json), as_json)


@main.command()
@run_argument
@experiment_option
@journal_option
@json_option
@_explained
def status(run: Path, experiment: str | None, journal: str | None, as_json: bool) -> None:
    """How a RUN stands: trials, best so far, time, cost."""
    result = _load(run, journal)
    _show_summary(result if experiment is None else result[experiment], as_json)
    started = result.view.started.started_unix_s
    if result.status == "running" and not as_json and started:
        silent = format_duration(max(0.0, time.time() - started - result.view.at_s))
        click.echo(f"last news: {silent} ago; if its driver is gone, go on with: elastune resume {run}")


@main.command()
@run_argument
@experiment_option
@journal_option
@json_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many trials to show.")
@_explained
def trials(run: Path, experiment: str | None, journal: str | None, as_json: bool, limit: int) -> None:
    """The trials of a RUN, best first."""
    from elastune.reporting import trial_dicts, trials_table

    def show(result: Result) -> None:
        Console().print(trials_table(result.view, limit))

    _for_each(_load(run, journal), experiment, as_json, lambda result: trial_dicts(result.view), show)


@main.command()
@run_argument
@experiment_option
@journal_option
@json_option
@_explained
def best(run: Path, experiment: str | None, journal: str | None, as_json: bool) -> None:
    """The best configuration of a RUN."""

    def found(result: Result) -> dict[str, Any]:
        return {"trial": result.best_trial.id, "value": result.best_value, "config": result.best_params}

    def show(result: Result) -> None:
        click.echo(f"{result.view.started.metric} {result.best_value:g} by trial {result.best_trial.id}")
        for name, value in result.best_params.items():
            click.echo(f"  {name}: {json.dumps(value)}")

    _for_each(_load(run, journal), experiment, as_json, found, show)


@main.command()
@run_argument
@experiment_option
@journal_option
@json_option
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the pictures; default: plots in the run's folder."
)
@_explained
def report(run: Path, experiment: str | None, journal: str | None, as_json: bool, out: Path | None) -> None:
    """All about a RUN: summary, trials, best so far, machines, and pictures of it as PNG and SVG."""
    from elastune.reporting import (
        best_table,
        devices_table,
        heading,
        ledger_dict,
        ledger_table,
        summary,
        summary_dict,
        trial_dicts,
        trials_table,
        utilisation_dict,
    )

    whole = _load(run, journal)
    result = whole if experiment is None else whole[experiment]
    pictures = [str(path) for path in result.save_plots(out)]
    shared = len(result.experiments) > 1
    if as_json:
        found = {name: trial_dicts(result[name].view) for name in result}
        told = {
            "trials": found if shared else found[result.experiments[0]],
            "ledger": ledger_dict(whole.view),
            "devices": utilisation_dict(whole.view),
            "plots": pictures,
        }
        _print({**summary_dict(result.view), **told}, True)
        return
    console = Console()
    console.print(summary(result.view), "")
    for name in result:
        if shared:
            console.print(heading(name))
        console.print(trials_table(result[name].view, 20), "")
        console.print(best_table(result[name].view), "")
    console.print(devices_table(whole.view), "")
    console.print(ledger_table(whole.view), "")
    click.echo("\n".join(["pictures:", *(f"  {path}" for path in pictures)]))


@main.command()
@run_argument
@click.argument("trial")
@click.option("--rank", type=click.IntRange(min=0), default=0, help="Which process of a trial on several devices.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the trial is over.")
@journal_option
@_explained
def logs(run: Path, trial: str, rank: int, follow: bool, journal: str | None) -> None:
    """What a TRIAL of a RUN has printed."""
    view = _load(run, journal).view
    if trial not in view.trials:
        raise SpecError(f"trial {trial!r}: run {run} has no such trial; {did_you_mean(trial, view.trials)}")
    path = log_path(run / "logs", trial, rank)
    if not follow and not path.exists():
        raise StorageError(f"{path}: trial {trial} has printed nothing as rank {rank} yet")

    def over() -> bool:
        now = _load(run, journal).view
        return now.status != "running" or now.trials[trial].status in ("completed", "stopped", "failed")

    for text in follow_log(path, over if follow else lambda: True):
        click.echo(text, nl=False)


@main.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1)
@json_option
@_explained
def gc(runs: tuple[Path, ...], as_json: bool) -> None:
    """Give back machines that crashed drivers left behind, of all RUNS (default: those in the folder runs)."""
    from elastune.run_folder import release_leftovers

    folders = runs or tuple(path for path in sorted(Path("runs").glob("*")) if path.is_dir())
    for path in runs:
        if not path.is_dir():
            raise StorageError(f"{path}: there is no such run; a run is a folder such as runs/digits")
    found = {str(path): release_leftovers(path) for path in folders}
    if as_json:
        _print({run: {"released": released, "in_use": owned} for run, (released, owned) in found.items()}, True)
        return
    for run, (released, owned) in found.items():
        if released:
            click.echo(f"{run}: released {', '.join(released)}")
        if owned:
            click.echo(f"{run}: in use by a driver that is running: {', '.join(owned)}")
    if not any(released or owned for released, owned in found.values()):
        click.echo("nothing was left behind")


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(f"{name}={text!r}: must be whole numbers with commas in between, such as 1,2,4") from None


def _load(run: Path, journal: str | None) -> Result:
    from elastune.tuner import load

    return load(run, journal)


def _load_files(
    paths: tuple[Path, ...],
    priorities: tuple[str, ...],
    with_trainable: bool,
    storage: Path | None,
    journal: str | None,
) -> tuple[Driver, Simulation]:
    from elastune.config_file import load_experiment, load_together

    given = dict(map(_priority, priorities))
    if len(paths) > 1:
        return load_together(paths, with_trainable, storage, journal, given)
    if given:
        raise SpecError(f"--priority {priorities[0]}: {paths[0]} has the machines for itself; leave it out")
    return load_experiment(paths[0], with_trainable, storage, journal)


def _priority(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise SpecError(f"--priority {text}: must be the name of an experiment and a number, such as a=2") from None


def _for_each(
    whole: Result,
    chosen: str | None,
    as_json: bool,
    found: Callable[[Result], Any],
    show: Callable[[Result], None],
) -> None:
    """What was found; of experiments that share the run, under a heading each or by name."""
    from elastune.reporting import heading

    if chosen is not None or len(whole.experiments) == 1:
        result = whole if chosen is None else whole[chosen]
        if as_json:
            _print(found(result), True)
        else:
            show(result)
        return
    if as_json:
        _print({name: _unless_nothing(found, whole[name]) for name in whole}, True)
        return
    for name in whole:
        Console().print(heading(name))
        _unless_nothing(show, whole[name])
        click.echo()


def _unless_nothing(tell: Callable[[Result], Any], result: Result) -> Any:
    """One that has found nothing is no reason not to tell of the others."""
    try:
        return tell(result)
    except RunFailed as error:
        click.echo(str(error), err=True)
        return None


def _finish(tuner: Driver, go: Callable[[], Result], as_json: bool) -> None:
    try:
        with redirect_stdout(sys.stderr):  # what Ray and the user's modules print is not the answer
            result = go()
    except KeyboardInterrupt:  # the second Ctrl-C: nobody waits for checkpoints any more
        result = None
    if result is not None:
        _show_summary(result, as_json)
    if result is None or result.status == "interrupted":
        click.echo(f"interrupted; to go on: elastune resume {tuner.path}", err=True)
        sys.exit(INTERRUPTED)


def _show_summary(result: Result, as_json: bool) -> None:
    from elastune.reporting import summary, summary_dict

    if as_json:
        _print({**summary_dict(result.view), "run": str(result.path)}, True)
        return
    console = Console()
    console.print(summary(result.view))
    console.print(f"run: {result.path}", highlight=False, soft_wrap=True)


def _print(value: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(value, indent=2))
    else:
        Console().print(value)
