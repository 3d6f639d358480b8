"""A job made ready to run on this computer: its code unpacked, its dependencies installed, its experiment written down
beside it. Doing it again costs nothing.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from elastune.errors import SpecError, StorageError
from elastune.service.archive import Limits, unpack
from elastune.service.drive import SPEC
from elastune.service.environment import environment_for, environment_hash
from elastune.service.jobs import Job
from elastune.service.places import Places
from elastune.yaml_file import write_yaml


def prepare(job: Job, places: Places) -> Path:
    """The Python to run it with. Raises SpecError or BuildFailed where that cannot be, StorageError or OSError where it
    cannot be now.
    """
    folder = lay_out(job, places)
    if job.code is None:
        return Path(sys.executable)
    # Tenants that do not trust each other share no environment.
    root = places.environments / job.tenant
    _show_log(root / environment_hash(folder) / "build.log", places.build_log(job.id))
    return environment_for(folder, root).python


def lay_out(job: Job, places: Places) -> Path:
    """The folder with its code, and its experiment beside it."""
    folder = places.code(job.id)
    try:
        if job.code is None:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.exists():
            unpack(places.load_archive(job.tenant, job.code), folder, Limits())
    except OSError as error:
        raise StorageError(f"the code cannot be unpacked: {error.strerror}") from error
    settings = {"name": job.name, **job.spec, "checkpoints": places.checkpoints}
    try:
        write_yaml(folder / SPEC, settings, f"job {job.id}")  # also over a file of that name in the code
    except SpecError as error:  # the disk is full, say, and the experiment is as good as before
        raise StorageError(f"the experiment cannot be put beside its code: {error}") from error
    return folder


def _show_log(log: Path, as_file: Path) -> None:
    """The log of the build is there for its readers from the beginning."""
    as_file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        as_file.symlink_to(log.resolve())
