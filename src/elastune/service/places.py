"""Where the service keeps what is not in its database: code, runs, logs of drivers, checkpoints."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import fsspec

from elastune.errors import StorageError
from elastune.record.journal import forget_run
from elastune.record.scores import Scores
from elastune.worker.log import older


@dataclass(frozen=True, slots=True)
class Places:
    """`home` is a folder of this computer, for what can be made again and for journals that are not in PostgreSQL;
    `storage` is for code and checkpoints, under any URL of fsspec.
    """

    home: Path
    storage: str
    journal: str | None
    """None: in the run's folder."""

    def run(self, job: str) -> Path:
        return self.home / "runs" / job

    def code(self, job: str) -> Path:
        """The code of a job, unpacked."""
        return self.home / "code" / job

    @property
    def environments(self) -> Path:
        return self.home / "environments"

    def driver_log(self, job: str) -> Path:
        return self.home / "logs" / f"{job}.driver.log"

    def build_log(self, job: str) -> Path:
        return self.home / "logs" / f"{job}.build.log"

    @property
    def checkpoints(self) -> str:
        return f"{self.storage}/checkpoints"

    def checkpoints_of(self, job: str) -> str:
        return f"{self.checkpoints}/{job}"

    def stored_bytes(self, job: str) -> int:
        """What a job takes up: its run on this computer, and its checkpoints."""
        with _explained(self.checkpoints_of(job), "read"):
            file_system, path = fsspec.core.url_to_fs(self.checkpoints_of(job))
            saved = int(file_system.du(path)) if file_system.exists(path) else 0
        return saved + folder_bytes(self.run(job))

    def codes_here(self) -> set[str]:
        """The jobs whose code is unpacked on this computer."""
        folder = self.home / "code"
        return {each.name for each in folder.iterdir() if each.name[0] != "."} if folder.exists() else set()

    def remove_here(self, job: str) -> None:
        """What this computer has of a job; what is not there makes no difference."""
        for folder in (self.run(job), self.code(job)):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.driver_log(job), older(self.driver_log(job)), self.build_log(job)):
            file.unlink(missing_ok=True)

    def remove(self, job: str) -> None:
        """All that is stored of a job."""
        self.remove_here(job)
        if self.journal is not None:
            forget_run(self.journal, job)
        with _explained(self.checkpoints_of(job), "removed"):
            file_system, path = fsspec.core.url_to_fs(self.checkpoints_of(job))
            if file_system.exists(path):
                file_system.rm(path, recursive=True)

    def jobs_here(self) -> set[str]:
        """Those of which this computer has something."""
        folders = (self.home / "runs", self.home / "code")
        return {each.name for folder in folders if folder.exists() for each in folder.iterdir()}

    def archive(self, tenant: str, code: str) -> str:
        return f"{self.storage}/code/{tenant}/{code}.tar.gz"

    def save_archive(self, tenant: str, code: str, data: bytes) -> None:
        """Whoever reads it finds all of it or nothing."""
        with _explained(self.storage, "written"):
            file_system, path = fsspec.core.url_to_fs(self.archive(tenant, code))
            file_system.makedirs(path.rpartition("/")[0], exist_ok=True)
            draft = f"{path}.{secrets.token_hex(4)}.part"
            file_system.pipe_file(draft, data)
            file_system.mv(draft, path)

    def has_archive(self, tenant: str, code: str) -> bool:
        with _explained(self.archive(tenant, code), "read"):
            file_system, path = fsspec.core.url_to_fs(self.archive(tenant, code))
            return bool(file_system.exists(path))

    def load_archive(self, tenant: str, code: str) -> bytes:
        with _explained(self.archive(tenant, code), "read"), fsspec.open(self.archive(tenant, code), "rb") as file:
            data: bytes = file.read()
        return data

    def archives(self) -> list[tuple[str, str]]:
        """What the store has of code, as tenants and names of files: also drafts that were never finished."""
        with _explained(self.storage, "read"):
            file_system, path = fsspec.core.url_to_fs(f"{self.storage}/code")
            file_system.invalidate_cache()
            found = [tuple(file.split("/")[-2:]) for file in file_system.find(path)]
        return [(tenant, file) for tenant, file in found]

    def remove_stray(self, tenant: str, file: str, before: float) -> None:
        """Unless it was written since then."""
        with _explained(self.storage, "removed"):
            file_system, path = fsspec.core.url_to_fs(f"{self.storage}/code/{tenant}/{file}")
            if file_system.exists(path) and file_system.modified(path).timestamp() < before:
                file_system.rm(path)

    def remove_scores(self, before: float) -> None:
        """What runs knew of scores, as far as it was written before then."""
        url = Scores.beside(self.checkpoints_of("any")).url
        with _explained(url, "removed"):
            file_system, path = fsspec.core.url_to_fs(url)
            file_system.invalidate_cache()
            for file in file_system.find(path):
                with suppress(FileNotFoundError):  # another replica was faster, or it was written just now
                    if file_system.modified(file).timestamp() < before:
                        file_system.rm(file)

    def remove_archive(self, tenant: str, code: str) -> None:
        with _explained(self.archive(tenant, code), "removed"):
            file_system, path = fsspec.core.url_to_fs(self.archive(tenant, code))
            if file_system.exists(path):
                file_system.rm(path)


def folder_bytes(folder: Path) -> int:
    """What is in it; links are not followed."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it may have gone meanwhile
                total += os.lstat(os.path.join(root, name)).st_size
    return total


@contextmanager
def _explained(url: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # stores raise errors of their own
        raise StorageError(f"{url} cannot be {what}: {error}") from error
