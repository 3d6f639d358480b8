"""The commands that look at jobs of the service. Those for runs (`status`, `trials`, `best`, `logs`) take jobs too."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastune.cli_common import explained, json_option, print_json
from elastune.cli_service import client_of, service_option
from elastune.units import format_duration, format_money

if TYPE_CHECKING:
    from elastune.service.client import Client

STATES = ("accepted", "building", "queued", "running", "finishing", "succeeded", "failed", "cancelled")
LONGEST_REASON = 80
POLL_S = 1.0
OVER = ("completed", "stopped", "failed")


@click.command()
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only these; may be given again.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@service_option
@json_option
@explained
def jobs(states: tuple[str, ...], limit: int, service: str | None, as_json: bool) -> None:
    """The jobs of your tenant, the newest first."""
    client = client_of(service)
    found = [_as_it_stands(client, job) for job in client.jobs(states, limit)]
    if as_json:
        print_json(found)
        return
    rows = []
    for job in found:
        now = job["summary"]
        best, cost_usd = now.get("best_value"), now.get("cost_usd")
        rows.append(
            (
                job["id"],
                job["state"],
                "" if best is None else f"{best:.6g}",
                str(now.get("trials", "")),
                "" if cost_usd is None else format_money(cost_usd),
                format_duration(max(0.0, time.time() - job["created_at"])),
                first_line(job["reason"]) if job["state"] in ("failed", "queued") else "",
            )
        )
    print_table(("job", "state", "best", "trials", "cost", "age", ""), rows)


def _as_it_stands(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """The summary of a job is written by its driver when it leaves: of one that runs, or was ended, it is made here."""
    if job["state"] != "running" and (job["summary"] or job["attempt"] == 0):
        return job
    now = client.progress(job["id"])
    best = {} if now["best"] is None else {"best_value": now["best"]["value"]}
    return {**job, "summary": {"trials": sum(now["trials"].values()), "cost_usd": now["cost_usd"], **best}}


@click.command()
@click.argument("experiment")
@service_option
@json_option
@explained
def experiment(experiment: str, service: str | None, as_json: bool) -> None:
    """The jobs of an EXPERIMENT (`submit --seeds`; one of its jobs will do): the best of each seed, their mean and
    standard deviation.
    """
    found = client_of(service).experiment(experiment)
    if as_json:
        print_json(found)
    else:
        print_experiment(found)


def print_experiment(found: dict[str, Any]) -> None:
    rows = []
    for job in found["jobs"]:
        value = job["now"]["best_value"]
        rows.append((job["id"], str(job["seed"]), job["state"], "" if value is None else f"{value:.6g}"))
    print_table(("job", "seed", "state", found["metric"] or "best"), rows)
    if found["mean"] is not None:
        deviation = "" if found["std"] is None else f" ± {found['std']:.3g}"
        count = f"{found['count']} of {len(found['jobs'])} seeds"
        click.echo(f"{found['metric']}: {found['mean']:.6g}{deviation} over {count}")


COMMANDS = (jobs, experiment)

# -------------------------------------------------------------------------------------- a job in place of a run


def is_job(given: Path) -> bool:
    """Whether a name is that of a job: it is no folder, and there is a service to ask."""
    from elastune.service.client import knows_a_service

    return given.name == str(given) and not given.exists() and knows_a_service()


def print_status_of_job(job: str, as_json: bool) -> None:
    found = client_of(None).progress(job)
    if as_json:
        print_json(found)
        return
    why = "it is being cancelled" if found["cancelling"] else found["reason"]
    click.echo(f"{job}: {found['state']}" + (f": {why}" if why else ""))
    trials = ", ".join(f"{number} {status}" for status, number in found["trials"].items() if number)
    done = "" if found["fraction"] is None else f" ({found['fraction']:.0%} done)"
    click.echo(f"  trials  {trials or 'none yet'}{done}")
    if (best := found["best"]) is not None:
        why = f" ({best['why']})" if best["why"] else ""
        click.echo(f"  best    {found['metric']} {best['value']:g} by {best['trial']}{why}")
    click.echo(f"  time    {format_duration(found['seconds'])}\n  cost    ${found['cost_usd']:.4g}")


def print_trials_of_job(job: str, limit: int, as_json: bool) -> None:
    found = client_of(None).trials(job, limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["trial"],
            each["status"],
            "" if each["best_value"] is None else f"{each['best_value']:.6g}",
            str(each["iteration"]),
            json.dumps(each["params"], ensure_ascii=False),
        )
        for each in found
    ]
    print_table(("trial", "status", "best", "iterations", "configuration"), rows)


def print_best_of_job(job: str, as_json: bool) -> None:
    best = client_of(None).best(job)
    if as_json:
        print_json(best)
        return
    why = f": {best['why']}" if best["why"] else ""
    click.echo(f"{best['metric']} {best['value']:g} by trial {best['trial']}{why}")
    for name, value in best["params"].items():
        click.echo(f"  {name}: {json.dumps(value, ensure_ascii=False)}")


def rerun_job(job: str, as_json: bool) -> None:
    """The same job again. With `reproducible: true` its numbers are the same, to the last digit."""
    client = client_of(None)
    again = client.rerun(job)
    if as_json:
        print_json(again)
    else:
        click.echo(f"{again['id']}: {client.url}/#/jobs/{again['id']}")


def print_logs_of_job(job: str, trial: str | None, rank: int, follow: bool) -> None:
    client = client_of(None)
    if trial is None:
        _print_story(client, job)
        return
    shown = ""
    while True:
        over = not follow or _is_over(client, job, trial)  # asked before the text: else its end might be missed
        found = client.log(job, trial, rank)
        if not shown and found["cut"]:
            click.echo("(the beginning is left out: only the end of a long log is sent)", err=True)
        click.echo(_added(shown, found["text"]), nl=False)
        shown = found["text"]
        if over:
            return
        time.sleep(POLL_S)


def _is_over(client: Client, job: str, trial: str) -> bool:
    found = client.progress(job)
    return found["ended_at"] is not None or client.trial(job, trial)["status"] in OVER


def _added(before: str, now: str) -> str:
    """What a text has that was not there before; of a long one only the end is sent."""
    if now.startswith(before):
        return now[len(before) :]
    tail = before[-1000:]
    at = now.rfind(tail)
    return now if at < 0 else now[at + len(tail) :]


def _print_story(client: Client, job: str) -> None:
    """What became of the job, what was said while it was built and driven, and where to look further."""
    found, said = client.job(job), client.log(job)
    for step in found["history"]:
        at = datetime.fromtimestamp(step["at"]).astimezone()
        attempt = f" (driver {step['attempt']})" if step["attempt"] > 1 else ""
        reason = _without_log(step["reason"], said["text"])
        click.echo(f"{at:%Y-%m-%d %H:%M:%S} {step['state']}{attempt} {reason}".rstrip())
    if said["text"].strip():
        click.echo(said["text"], nl=False)
    failed = client.trials(job, limit=5, status="failed")
    for each in failed:
        click.echo(f"{each['trial']} failed: {first_line(each['error'] or each['reason'])}")
    if failed:
        click.echo(f"see: elastune logs {job} {failed[0]['trial']}")


def _without_log(reason: str, log: str) -> str:
    """What the end of a log is quoted for: all of the log is shown as well."""
    head, *quoted = reason.splitlines() or [""]
    return head if quoted and quoted[-1] in log else reason


# ------------------------------------------------------------------------------------------------------- tables


def first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Nothing is folded or cut, whatever the width of the terminal: ids are there to be copied."""
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
