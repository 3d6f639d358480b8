"""The command line. Tables for people, --json for machines; exit code 0 only on success, 2 for what the user can mend,
3 where no plan meets the deadline or the budget.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from elastune import cli_jobs, cli_runs
from elastune.cli_common import (
    INFEASIBLE,
    INTERRUPTED,
    explained,
    journal_option,
    json_option,
    print_json,
    run_argument,
)
from elastune.cli_market import prices, revocation
from elastune.cli_runs import show_summary
from elastune.cli_service import COMMANDS
from elastune.errors import SpecError
from elastune.results import Result

if TYPE_CHECKING:
    from elastune.driver import Driver
    from elastune.simulation import Simulation

quiet_option = click.option("--quiet", is_flag=True, help="No progress line.")
priority_option = click.option(
    "--priority", "priorities", metavar="NAME=NUMBER", multiple=True, help="Of one of several experiments; default: 1."
)
file_argument = click.argument("experiment", type=click.Path(path_type=Path))
files_argument = click.argument("experiments", type=click.Path(path_type=Path), nargs=-1, required=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elastune")
def main() -> None:
    """Tune machine-learning models on an elastic cluster, to a deadline and a budget."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


for _command in (*cli_runs.COMMANDS, prices, revocation, *COMMANDS, *cli_jobs.COMMANDS):
    main.add_command(_command)


@main.command()
@files_argument
@priority_option
@click.option("--storage", type=click.Path(path_type=Path), help="Folder for runs; default: runs.")
@journal_option
@json_option
@quiet_option
@explained
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
@explained
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
@click.option(
    "--packed", type=click.IntRange(1, 64), default=1, metavar="N", help="Also 2, ... N trials on a device: for Fluid."
)
@click.option("--storage", type=click.Path(path_type=Path), help="Folder for runs; default: runs.")
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of what was measured.")
@json_option
@quiet_option
@explained
def profile(
    experiment: Path,
    out: Path | None,
    seconds: str,
    widths: str | None,
    packed: int,
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
            found = tuner.profile(seconds, wanted, not quiet and not as_json, packed)
    except KeyboardInterrupt:
        click.echo(f"interrupted; {out} was not written: a part of the widths is no profile", err=True)
        sys.exit(INTERRUPTED)
    found.save(out)
    pictures = [] if plot is None else [str(path) for path in found.save_plots(plot)]
    if as_json:
        print_json({**found.to_dict(), "file": str(out), "plots": pictures})
        return
    Console().print(found.tables())
    click.echo("\n".join([f"written to {out}", *(f"picture: {path}" for path in pictures)]))


@main.command()
@file_argument
@json_option
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for pictures of the plan.")
@explained
def plan(experiment: Path, as_json: bool, plot: Path | None) -> None:
    """What an EXPERIMENT would take and cost, stage by stage, and what every other deadline would cost.

    Of an algorithm that plans by the clock, such as SEER: its rounds, and what they take and cost at most. Of one that
    holds its machines to the end, such as ASHA or HyperSched: what they cost until it must end. On a market: what it
    takes and costs from several moments of the prices on. Nothing is started. Exit code 3: no plan meets the deadline
    or the budget.
    """
    from elastune.config_file import load_experiment
    from elastune.market_forecast import MarketForecast

    tuner, simulation = load_experiment(experiment, with_trainable=False)
    with Console(stderr=True).status("planning"):
        forecast = tuner.plan(simulation)
    pictures = [] if plot is None else [str(path) for path in forecast.save_plots(plot)]
    if as_json:
        print_json({**forecast.to_dict(), "plots": pictures})
    else:
        Console().print(forecast.tables())
        if pictures:
            click.echo("\n".join(["pictures:", *(f"  {path}" for path in pictures)]))
        elif plot is not None:
            click.echo("no pictures: the machines are the same from the beginning to the end")
    if isinstance(forecast, MarketForecast) and not forecast.within_limits:
        sys.exit(INFEASIBLE)


@main.command()
@file_argument
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs of each.")
@click.option("--algorithms", metavar="A,B", help="Which of those in the file; default: all.")
@click.option("--out", type=click.Path(path_type=Path), help="A CSV file for the results, a line for each run.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many processes; default: one for each processor.")
@click.option("--plot", type=click.Path(path_type=Path), help="Folder for a picture of the results.")
@json_option
@explained
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
        print_json({**summary, "rows": [asdict(row) for row in rows], "left_out": left_out, "plots": pictures})
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


@main.command()
@run_argument
@journal_option
@json_option
@quiet_option
@explained
def resume(run: Path, journal: str | None, as_json: bool, quiet: bool) -> None:
    """Go on with a RUN (its folder) that was interrupted or crashed."""
    from elastune.together import restore

    tuner = restore(run, journal)
    _finish(tuner, lambda: tuner.fit(progress=not quiet and not as_json), as_json)


@main.command()
@run_argument
@click.option(
    "--storage", type=click.Path(path_type=Path), help="Folder for the second run; default: beside the first."
)
@journal_option
@json_option
@quiet_option
@explained
def rerun(run: Path, storage: Path | None, journal: str | None, as_json: bool, quiet: bool) -> None:
    """Run the experiment of a RUN again, and compare all that was reported, to the last digit.

    Exit code 1: they differ, and it says where first. A job of the service is submitted again, and not compared.
    """
    if cli_jobs.is_job(run):
        cli_jobs.rerun_job(str(run), as_json)
        return
    from elastune.rerun import rerun

    with redirect_stdout(sys.stderr):
        again = rerun(run, storage=storage, journal=journal, progress=not quiet and not as_json)
    told = again.told
    if as_json:
        print_json({"same": again.same, **told._asdict(), "run": str(again.result.path)})
    else:
        seen = f"{told.trials} trials, {told.reports} reports"
        click.echo(f"the same: {seen}" if again.same else f"not the same: {told.difference}")
        for said in (*(f"  {hint}" for hint in told.hints), f"the second run: {again.result.path}"):
            click.echo(said)
    if not again.same:
        sys.exit(1)


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(f"{name}={text!r}: must be whole numbers with commas in between, such as 1,2,4") from None


def _load_files(
    paths: tuple[Path, ...],
    priorities: tuple[str, ...],
    with_trainable: bool,
    storage: Path | None,
    journal: str | None,
) -> tuple[Driver, Simulation]:
    from elastune.config_file import load_experiment, load_together

    given: dict[str, float] = {}
    for name, number in map(_priority, priorities):
        if name in given:
            raise SpecError(f"--priority {name}={number:g}: {name} has {given[name]:g} already: give each name once")
        given[name] = number
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


def _finish(tuner: Driver, go: Callable[[], Result], as_json: bool) -> None:
    try:
        with redirect_stdout(sys.stderr):  # what Ray and the user's modules print is not the answer
            result = go()
    except KeyboardInterrupt:  # the second Ctrl-C: nobody waits for checkpoints any more
        result = None
    if result is not None:
        show_summary(result, as_json)
    if result is None or result.status == "interrupted":
        click.echo(f"interrupted; to go on: elastune resume {tuner.path}", err=True)
        sys.exit(INTERRUPTED)
