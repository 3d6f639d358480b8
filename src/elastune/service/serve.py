"""`elastune serve`: the database, the supervisor and the HTTP server, wired together."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from elastune.errors import SpecError
from elastune.service.app import create_app
from elastune.service.client import remember
from elastune.service.database import ServiceDatabase
from elastune.service.places import Places
from elastune.service.service import Service
from elastune.service.supervisor import Pool, Supervisor
from elastune.service.tenants import Tenants

FIRST_TENANT = "default"
FIRST_TOKEN = "admin-token"


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    database: str | None
    storage: str | None
    pool: Pool
    host: str = "127.0.0.1"
    port: int = 8700

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def open_service(settings: Settings) -> Service:
    home = settings.home.absolute()
    storage = (settings.storage or str(home / "storage")).rstrip("/")
    if "://" not in storage:
        storage = str(Path(storage).absolute())  # drivers run in folders of their own
    else:
        _check_protocol(storage)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"--home {settings.home}: cannot be made a folder: {error.strerror}") from None
    database = ServiceDatabase(settings.database or str(home / "service.db"))
    database.create()
    places = Places(home, storage, None if database.sqlite else database.url)
    return Service(database, places, Supervisor(database, places, settings.pool))


def _check_protocol(storage: str) -> None:
    """Now, and not when the first job is stored."""
    import fsspec

    protocol = storage.partition("://")[0]
    try:
        fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise SpecError(f"--storage {protocol}://...: {error}; give a folder, or a URL such as s3://bucket/x") from None


def first_token(service: Service, url: str, anyway: bool = False) -> str | None:
    """A service without an administrator gets a tenant, with a token of one, which this user may use at once."""
    path = service.places.home / FIRST_TOKEN

    def keep(secret: str) -> None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")

    secret = Tenants(service.database).create_first(FIRST_TENANT, keep, anyway)
    if secret is not None:
        remember(url, secret)
    return secret


def run(service: Service, settings: Settings) -> NoReturn:
    """Until Ctrl-C or SIGTERM: then jobs are paused, and go on when the service is started again."""
    import uvicorn

    assert service.supervisor is not None
    config = uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    # The server raises a signal again when it has ended: without a handler that would be the end of the process.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    service.supervisor.start()
    code: object = 0
    try:
        try:
            uvicorn.Server(config).run()
        finally:
            print("pausing jobs: trials are saved at their next report, which may take half a minute", flush=True)
            service.supervisor.stop(drivers=True)
            service.database.close()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as ended:
        code = ended.code
    # Without waiting for threads that build: builds end with this process, and else could take half an hour.
    os._exit(code if isinstance(code, int) else 1)
