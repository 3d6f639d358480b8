"""What the commands of the command line share: how errors are told, and JSON instead of tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from elastune.errors import ElastuneError, Infeasible

FAILED, INFEASIBLE, INTERRUPTED = 2, 3, 130

journal_option = click.option(
    "--journal", metavar="URL", help="Where the journal is, if not in the run's folder: postgresql://..."
)
run_argument = click.argument("run", type=click.Path(path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def explained(command: Callable[..., None]) -> Callable[..., None]:
    """An error that is meant for the user is shown as it is, without a traceback."""

    @wraps(command)
    def told(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except ElastuneError as error:
            Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
            sys.exit(INFEASIBLE if isinstance(error, Infeasible) else FAILED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    return told


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
