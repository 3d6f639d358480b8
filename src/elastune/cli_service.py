"""The commands of the service: to run one, to use one, to administer one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from elastune.cli_common import explained, json_option, print_json
from elastune.errors import SpecError
from elastune.spec import require_number
from elastune.units import format_duration, parse_money

if TYPE_CHECKING:
    from elastune.service.client import Client

service_option = click.option("--service", metavar="URL", help="Of the service; default: as `elastune login` left it.")


@click.command()
@click.option("--home", type=click.Path(path_type=Path), default="elastune-service", show_default=True, help="Folder.")
@click.option("--database", metavar="URL", help="postgresql://... for several replicas; default: SQLite in the home.")
@click.option("--storage", metavar="URL", help="For code and checkpoints: any fsspec URL; default: in the home.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8700, show_default=True, type=click.IntRange(1, 65535))
@click.option("--devices", type=click.IntRange(1, 100_000), help="For all jobs together; default: one for each CPU.")
@click.option("--ray", metavar="HOST:PORT", help="A Ray cluster that this computer is part of; default: none but here.")
@click.option("--price", metavar="$0.10", help="Of a device and hour, for quotas of money; default: nothing.")
@click.option("--pool", metavar="NAME", help="Of these devices: replicas on one computer share it; default: its name.")
@click.option("--max-drivers", type=click.IntRange(1, 1000), default=8, show_default=True, help="Processes at a time.")
@click.option("--new-admin-token", is_flag=True, help="Make and print one: for who has lost all of them.")
@explained
def serve(
    home: Path,
    database: str | None,
    storage: str | None,
    host: str,
    port: int,
    devices: int | None,
    ray: str | None,
    price: str | None,
    pool: str | None,
    max_drivers: int,
    new_admin_token: bool,
) -> None:
    """Run the service, with its web portal. Ctrl-C pauses its jobs; they go on when it is started again."""
    needs("fastapi", "uvicorn", "prometheus_client", "httpx")
    from elastune.service.serve import FIRST_TOKEN, Settings, first_token, open_service, run
    from elastune.service.supervisor import Pool

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SpecError(f"--host {host} --port {port}: cannot be listened on: {error.strerror}") from None
    usd = 0.0 if price is None else parse_money(price, "price", zero=True)
    name = pool or (socket.gethostname() if ray is None else ray)
    offered = Pool(name, devices or (None if ray else os.cpu_count() or 1), usd, max_drivers, ray)
    computers = offered.by_computer()
    settings = Settings(home, database, storage, offered, host, port)
    service = open_service(settings)
    token = first_token(service, settings.url, new_admin_token)
    of_ray = "" if ray is None else f" of {len(computers)} computers in the Ray cluster {ray}"
    click.echo(f"Elastune serves {sum(computers.values())} devices{of_ray} on {settings.url}")
    if token is not None:
        click.echo(f"  portal:  {settings.url}/#token={token}")
        click.echo(f"  token:   {token}  (of the tenant 'default', an administrator; kept in {home}/{FIRST_TOKEN})")
    else:
        kept = home / FIRST_TOKEN  # other replicas on the same database have no such file
        known = f"one is in {kept}" if kept.exists() else "--new-admin-token makes one"
        click.echo(f"  portal:  {settings.url}  (log in with a token; {known})")
    click.echo(f"  submit:  {_as_typed()} submit examples/digits/digits.yaml")
    run(service, settings)


def _as_typed() -> str:
    """This command in another terminal: by its name only where a shell finds it by that."""
    name, ours = "elastune", Path(sys.executable).with_name("elastune")
    found = shutil.which(name)
    if not ours.exists() or (found is not None and Path(found).samefile(ours)):
        return name
    return os.path.relpath(ours) if ours.is_relative_to(Path.cwd()) else str(ours)


@click.command()
@click.argument("url")
@click.option("--token", help="Asked for if it is not given.")
@explained
def login(url: str, token: str | None) -> None:
    """Keep the address and the token of a service for this user."""
    needs("httpx")
    from elastune.service.client import Client, remember

    token = token or click.prompt("token", hide_input=True)
    client = Client(url, token)
    me = client.request("GET", "/me")
    click.echo(f"{me['tenant']['id']} ({me['role']}); kept in {remember(client.url, token.strip())}")


@click.command()
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--code", type=click.Path(path_type=Path), help="Folder of the code; default: that of the experiment.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True)
@click.option("--seeds", type=click.IntRange(1, 1000), help="Run it so many times with other seeds.")
@click.option("--key", help="The same submission with the same key is the same job.")
@click.option("--wait", is_flag=True, help="Until it has ended; exit code 0 if it has succeeded.")
@service_option
@json_option
@explained
def submit(
    experiment: Path,
    code: Path | None,
    priority: int,
    seeds: int | None,
    key: str | None,
    wait: bool,
    service: str | None,
    as_json: bool,
) -> None:
    """Submit an EXPERIMENT (a YAML file, or Ultron's JSON) with its code to the service."""
    client = client_of(service)
    job = client.submit(experiment, code, priority, seeds, key)
    several = job["experiment"] if seeds is not None else None
    if not as_json:
        where = f"jobs/{job['id']}" if several is None else f"experiments/{several}"
        click.echo(f"{several or job['id']}: {client.url}/#/{where}")
        if several is not None:
            click.echo(f"{seeds} jobs, {job['id']} is the first: elastune experiment {several}")
    if not wait:
        if as_json:
            print_json(job)
        return
    succeeded = _wait(client, job, as_json) if several is None else _wait_for_all(client, several, as_json)
    if not succeeded:
        raise SystemExit(2)


def _wait(client: Client, job: dict[str, Any], as_json: bool) -> bool:
    said, now = "", job
    for now in client.watch(job["id"]):
        if now["reason"] and now["reason"] != said and now["state"] == "queued":
            said = now["reason"]
            click.echo(f"queued: {said}", err=True)
    if as_json:
        print_json(now)
    else:
        click.echo(f"{now['state']}: {now['reason']}")
    return bool(now["state"] == "succeeded")


def _wait_for_all(client: Client, experiment: str, as_json: bool) -> bool:
    from elastune.cli_jobs import print_experiment

    for job in client.experiment(experiment)["jobs"]:
        client.wait(job["id"])
    found = client.experiment(experiment)
    if as_json:
        print_json(found)
    else:
        print_experiment(found)
    return all(job["state"] == "succeeded" for job in found["jobs"])


@click.command()
@click.argument("job")
@service_option
@explained
def cancel(job: str, service: str | None) -> None:
    """Cancel a JOB: what runs ends in an orderly way."""
    found = client_of(service).cancel(job)
    ended = found["ended_at"] is not None
    click.echo(f"{found['id']}: " + (f"has ended before: {found['state']}" if ended else "is being cancelled"))


@click.command()
@click.argument("job")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; default: named after the trial.")
@service_option
@explained
def download(job: str, out: Path | None, service: str | None) -> None:
    """Download the checkpoint of the best trial of a JOB: that of its best iteration if it was kept, else the last.

    A .pkl holds what the training function gave to `report`, a .tar the file or folder that it named.
    """
    click.echo(client_of(service).download(job, out))


@click.command()
@click.argument("job")
@service_option
@explained
def delete(job: str, service: str | None) -> None:
    """Delete what is stored of a JOB that has ended: its run, its logs and its checkpoints."""
    client_of(service).delete(job)
    click.echo(f"{job} is deleted")


@click.group()
def tenant() -> None:
    """Tenants of the service, for administrators."""


_quota = [
    click.option("--share", type=float, help="Of the devices, against others; 1 if nothing is said."),
    click.option("--max-devices", type=int),
    click.option("--max-running", type=int, help="Jobs at a time."),
    click.option("--max-storage-bytes", type=int),
    click.option("--max-usd-per-month", type=float),
]


NAME = r"[a-z0-9][a-z0-9-]{0,62}"
TOKEN_ID = r"[0-9a-f]{12}"
LIMITS = ("max-devices", "max-running", "max-storage-bytes", "max-usd-per-month")


def quota_options(command: Any) -> Any:
    for option in reversed(_quota):
        command = option(command)
    return command


def _given(quota: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in quota.items() if value is not None}
    for key, value in given.items():
        require_number(f"--{key.replace('_', '-')}", value, zero=key != "share")
    return given


def _named(name: str) -> str:
    """Also before it becomes part of an address, where '/', '?' and '#' would lead to something else."""
    if not re.fullmatch(NAME, name):
        raise SpecError(f"NAME={name!r}: must be at most 63 lower-case letters, digits and '-', and not begin with '-'")
    return name


@tenant.command("add")
@click.argument("name")
@quota_options
@service_option
@explained
def tenant_add(name: str, service: str | None, **quota: Any) -> None:
    """Add a tenant."""
    given = {"id": _named(name), **_given(quota)}
    client_of(service).request("POST", "/tenants", json=given)
    click.echo(f"{name}: now give it a token: elastune tenant token {name}")


@tenant.command("quota")
@click.argument("name")
@quota_options
@click.option("--unlimited", multiple=True, type=click.Choice(LIMITS), help="No such limit any more.")
@service_option
@json_option
@explained
def tenant_quota(name: str, unlimited: tuple[str, ...], service: str | None, as_json: bool, **quota: Any) -> None:
    """Change quotas of a tenant; what is not given stays as it is."""
    path, new = f"/tenants/{_named(name)}", _given(quota)
    if both := [each for each in unlimited if each.replace("-", "_") in new]:
        raise SpecError(f"--{both[0]} and --unlimited {both[0]}: give one of them")
    new |= dict.fromkeys(each.replace("-", "_") for each in unlimited)
    changed = client_of(service).request("PUT", path, json=new)
    if as_json:
        print_json(changed)
    else:
        _print_tenants([changed])


@tenant.command("list")
@service_option
@json_option
@explained
def tenant_list(service: str | None, as_json: bool) -> None:
    """All tenants and their quotas."""
    found = client_of(service).request("GET", "/tenants")
    if as_json:
        print_json(found)
        return
    _print_tenants(found)


def _print_tenants(found: list[dict[str, Any]]) -> None:
    columns = ("id", "share", *(each.replace("-", "_") for each in LIMITS))
    table = Table(*columns, box=None)
    for each in found:
        table.add_row(*("" if each[name] is None else str(each[name]) for name in columns))
    Console().print(table)


@tenant.command("tokens")
@click.argument("name")
@service_option
@json_option
@explained
def tenant_tokens(name: str, service: str | None, as_json: bool) -> None:
    """The tokens of a tenant: their ids and roles, and whether they were revoked."""
    path = f"/tenants/{_named(name)}/tokens"
    found = client_of(service).request("GET", path)
    if as_json:
        print_json(found)
        return
    table = Table("id", "role", "made", "", box=None)
    for each in found:
        made = f"{format_duration(max(0.0, time.time() - each['created_at']))} ago"
        table.add_row(each["id"], each["role"], made, "" if each["revoked_at"] is None else "revoked")
    Console().print(table)


@tenant.command("token")
@click.argument("name")
@click.option("--role", type=click.Choice(["reader", "member", "admin"]), default="member", show_default=True)
@service_option
@explained
def tenant_token(name: str, role: str, service: str | None) -> None:
    """Make a token for a tenant. It is shown now and never again."""
    path = f"/tenants/{_named(name)}/tokens"
    made = client_of(service).request("POST", path, json={"role": role})
    click.echo(f"{made['secret']}\n(id {made['id']}: elastune tenant revoke {made['id']} ends it)")


@tenant.command("revoke")
@click.argument("token")
@service_option
@explained
def tenant_revoke(token: str, service: str | None) -> None:
    """Revoke the TOKEN of this id."""
    if not re.fullmatch(TOKEN_ID, token):
        raise SpecError(
            f"TOKEN={token!r:.40}: must be an id of 12 digits and letters a-f: `elastune tenant tokens NAME`"
        )
    client_of(service).request("DELETE", f"/tokens/{token}")
    click.echo(f"{token} is refused from now on")


COMMANDS = (serve, login, submit, cancel, delete, download, tenant)


def client_of(service: str | None) -> Client:
    needs("httpx")
    from elastune.service.client import Client

    return Client(service)


def needs(*modules: str) -> None:
    import importlib.util

    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise SpecError(f"{', '.join(missing)} is missing: install it with: pip install 'elastune[service]'")
