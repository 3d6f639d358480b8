"""What administrators mistype is told before the service is asked."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from elastune.cli import main


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["add", "Vision"], "NAME='Vision': must be at most 63 lower-case letters"),
        (["add", "-"], "NAME='-': must be"),
        (["add", "vision", "--share", "nan"], "--share=nan: must be a number greater than 0"),
        (["add", "vision", "--max-usd-per-month", "inf"], "--max-usd-per-month=inf: must be a number of at least 0"),
        (["tokens", "a/../../jobs"], "NAME='a/../../jobs': must be"),
        (["token", "vision?x"], "NAME='vision?x': must be"),
        (["quota", "vision#x", "--max-devices", "1"], "NAME='vision#x': must be"),
        (
            ["quota", "vision", "--max-devices", "1", "--unlimited", "max-devices"],
            "--max-devices and --unlimited max-d",
        ),
        (["revoke", "0123456789ab#"], "TOKEN='0123456789ab#': must be an id"),
        (["quota", "vision", "--max-devices", "-1"], "--max-devices=-1: must be a number of at least 0"),
    ],
)
def test_what_no_tenant_can_have_is_refused(command: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["tenant", *command, "--service", "http://127.0.0.1:1"])
    assert result.exit_code == 2 and told in result.output and "Traceback" not in result.output
