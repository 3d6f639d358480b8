"""The commands that look at a run: how it stands, its trials, the best, a report, what a trial has printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from elastune import cli_jobs
from elastune.cli_common import explained, journal_option, json_option, print_json, run_argument
from elastune.errors import RunFailed, SpecError, StorageError, did_you_mean
from elastune.results import Result
from elastune.units import format_duration
from elastune.worker.log import follow_log, log_path

if TYPE_CHECKING:
    from elastune.record.projection import TrialView

experiment_option = click.option("--experiment", metavar="NAME", help="Only this one of those that share the run.")


@click.command()
@run_argument
@experiment_option
@journal_option
@json_option
@explained
def status(run: Path, experiment: str | None, journal: str | None, as_json: bool) -> None:
    """How a RUN stands, or a job of the service: trials, best so far, time, cost."""
    if cli_jobs.is_job(run):
        cli_jobs.print_status_of_job(str(run), as_json)
        return
    result = _load(run, journal)
    show_summary(result if experiment is None else result[experiment], as_json)
    started = result.view.started.started_unix_s
    if result.status == "running" and not as_json and started:
        silent = format_duration(max(0.0, time.time() - started - result.view.at_s))
        click.echo(f"last news: {silent} ago; if its driver is gone, go on with: elastune resume {run}")


@click.command()
@run_argument
@experiment_option
@journal_option
@json_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many trials to show.")
@explained
def trials(run: Path, experiment: str | None, journal: str | None, as_json: bool, limit: int) -> None:
    """The trials of a RUN, or of a job of the service, best first."""
    if cli_jobs.is_job(run):
        cli_jobs.print_trials_of_job(str(run), limit, as_json)
        return
    from elastune.reporting import trial_dicts, trials_table

    def show(result: Result) -> None:
        Console().print(trials_table(result.view, limit))

    _for_each(_load(run, journal), experiment, as_json, lambda result: trial_dicts(result.view), show)


@click.command()
@run_argument
@experiment_option
@journal_option
@json_option
@explained
def best(run: Path, experiment: str | None, journal: str | None, as_json: bool) -> None:
    """The best configuration of a RUN: a folder, or the id of a job of the service."""
    if cli_jobs.is_job(run):
        cli_jobs.print_best_of_job(str(run), as_json)
        return

    def found(result: Result) -> dict[str, Any]:
        best = result.best_trial
        why = {"why": best.verdict} if best.verdict else {}
        return {"trial": best.id, "value": result.best_value, "config": result.best_params} | why

    def show(result: Result) -> None:
        why = f": {result.best_trial.verdict}" if result.best_trial.verdict else ""
        click.echo(f"{result.view.started.metric} {result.best_value:g} by trial {result.best_trial.id}{why}")
        for name, value in result.best_params.items():
            click.echo(f"  {name}: {json.dumps(value, ensure_ascii=False)}")

    _for_each(_load(run, journal), experiment, as_json, found, show)


@click.command()
@run_argument
@experiment_option
@journal_option
@json_option
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the pictures; default: plots in the run's folder."
)
@explained
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
        print_json({**summary_dict(result.view), **told})
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


@click.command()
@run_argument
@click.argument("trial", required=False)
@click.option("--rank", type=click.IntRange(min=0), default=0, help="Which process of a trial on several devices.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the trial is over.")
@journal_option
@explained
def logs(run: Path, trial: str | None, rank: int, follow: bool, journal: str | None) -> None:
    """What a TRIAL of a RUN has printed: of a folder, or of a job of the service. Without a trial: what the service
    has to say of the job.
    """
    if cli_jobs.is_job(run):
        cli_jobs.print_logs_of_job(str(run), trial, rank, follow)
        return
    from elastune.driver import watch

    looks = watch(run, journal)
    view = next(looks).view
    if trial is None:
        raise SpecError(f"trial is missing: give one of run {run}: {', '.join(view.trials)}")
    if trial not in view.trials:
        raise SpecError(f"trial {trial!r}: run {run} has no such trial; {did_you_mean(trial, view.trials)}")
    path = log_path(run / "logs", trial, rank)
    found = view.trials[trial]
    if not follow and not path.exists() and not _went_wrong(found):
        raise StorageError(f"{path}: trial {trial} has printed nothing as rank {rank} yet")

    def over() -> bool:
        next(looks)
        return view.status != "running" or found.status in ("completed", "stopped", "failed")

    for text in follow_log(path, over if follow else lambda: True):
        click.echo(text, nl=False)
    if _went_wrong(found):  # a process that died could not say so in its log
        doing = "has failed" if found.status == "failed" else "waits to be tried again"
        click.echo(f"trial {trial} {doing}: {' '.join(found.reason.split())}", err=True)


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1)
@json_option
@explained
def gc(runs: tuple[Path, ...], as_json: bool) -> None:
    """Give back machines that crashed drivers left behind, of all RUNS (default: those in the folder runs)."""
    from elastune.run_folder import release_leftovers

    folders = runs or tuple(path for path in sorted(Path("runs").glob("*")) if path.is_dir())
    for path in runs:
        if not path.is_dir():
            raise StorageError(f"{path}: there is no such run; a run is a folder such as runs/digits")
    found = {str(path): release_leftovers(path) for path in folders}
    if as_json:
        print_json({run: {"released": released, "in_use": owned} for run, (released, owned) in found.items()})
        return
    for run, (released, owned) in found.items():
        if released:
            click.echo(f"{run}: released {', '.join(released)}")
        if owned:
            click.echo(f"{run}: in use by a driver that is running: {', '.join(owned)}")
    if not any(released or owned for released, owned in found.values()):
        click.echo("nothing was left behind")


def _went_wrong(trial: TrialView) -> bool:
    return trial.status in ("failed", "waiting") and trial.reason != ""


def _load(run: Path, journal: str | None) -> Result:
    from elastune.tuner import load

    return load(run, journal)


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
            print_json(found(result))
        else:
            show(result)
        return
    if as_json:
        print_json({name: _unless_nothing(found, whole[name]) for name in whole})
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


def show_summary(result: Result, as_json: bool) -> None:
    from elastune.reporting import summary, summary_dict

    if as_json:
        print_json({**summary_dict(result.view), "run": str(result.path)})
        return
    console = Console()
    console.print(summary(result.view))
    console.print(f"run: {result.path}", highlight=False, soft_wrap=True)


COMMANDS = (status, trials, best, report, logs, gc)
