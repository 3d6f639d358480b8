"""What all tests share: one way to run property tests, and a real PostgreSQL server where it is installed."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Ray looks at these when it is imported, whichever test does that first.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# The same examples every time, however busy the machine is.
settings.register_profile("elastune", derandomize=True, deadline=None)
settings.load_profile("elastune")


def _program(name: str) -> str | None:
    return shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of the server's `postgres` database; it listens on a socket in a directory of its own."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL (initdb, pg_ctl) is not installed")
    as_user: list[str] = []
    home = Path(tempfile.mkdtemp(prefix="pg-"))  # not under tmp_path: the path of a socket must be short
    if os.getuid() == 0:
        if not shutil.which("runuser"):
            pytest.skip("PostgreSQL does not run as root, and there is no runuser to become another user")
        as_user = ["runuser", "-u", "postgres", "--"]
        try:
            shutil.chown(home, "postgres")
        except LookupError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    data = str(home / "data")

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, cwd=home, stdout=subprocess.DEVNULL, timeout=60)

    options = f"-c listen_addresses='' -c unix_socket_directories={home} -c fsync=off"
    try:
        run(initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        run(pg_ctl, "-D", data, "-l", str(home / "log"), "-o", options, "-w", "start")
        try:
            yield f"postgresql://postgres@/postgres?host={home}"
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
