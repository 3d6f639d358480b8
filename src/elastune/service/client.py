"""The service from Python, and where its address and token are kept.

client = Client()                       # as `elastune login` left it, or ELASTUNE_SERVICE and ELASTUNE_TOKEN
job = client.submit("exp.yaml")
client.wait(job["id"])
print(client.best(job["id"])["params"])
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastune.errors import ElastuneError, SpecError, StorageError
from elastune.service.archive import pack
from elastune.service.states import ENDED
from elastune.ultron_spec import is_ultron
from elastune.yaml_file import read_yaml

DEFAULT_URL = "http://127.0.0.1:8700"
ADDRESS, TOKEN = "ELASTUNE_SERVICE", "ELASTUNE_TOKEN"
RETRIES, RETRY_S = 5, 0.5
AWAY_S = 900.0
"""So long a service may be away while somebody waits for a job."""
AWAY = (None, 502, 503, 504)
"""No answer; what a proxy says of a service that is started again, and that of a database that is."""
KEY = "Idempotency-Key"
TWICE = ("GET", "PUT", "DELETE")
"""What may be done twice. So may whatever has a key: the service knows it again."""
MOST_LOG_BYTES = 1 << 22
MOST_TRIALS = 1000
"""In one answer."""
_NAME = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class ServiceError(ElastuneError):
    """The service cannot be reached, or has refused."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def login_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "elastune" / "service.json"


def remember(url: str, token: str) -> Path:
    """Keep address and token for this user, readable for nobody else. Tokens of other services are kept too."""
    path = login_file()
    tokens = {**_remembered().get("tokens", {}), url: token}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"url": url, "tokens": tokens}, file)
    draft.replace(path)
    return path


def knows_a_service() -> bool:
    return bool(os.environ.get(ADDRESS) or os.environ.get(TOKEN) or login_file().exists())


def named(what: str, given: str) -> str:
    """A name that goes into an address, where '/', '?', '#' and '..' would lead to something else."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise SpecError(f"{what}={given!r}: must be a name of letters, digits, '_', '.' and '-'")
    return given


def _as_path(what: str, given: str | Path) -> Path:
    if not isinstance(given, str | Path):
        raise SpecError(f"{what}={given!r}: must be a path")
    return Path(given)


def _address(given: str) -> str:
    """Of a service; http where nothing is said."""
    import httpx

    url = (given if "://" in given else f"http://{given}").rstrip("/")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SpecError(f"service={given!r}: {error}; give an address such as {DEFAULT_URL}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise SpecError(f"service={given!r}: must be an address such as {DEFAULT_URL}, with http or https")
    return url


def _check_sendable(name: str, text: str) -> None:
    """No header holds more than this."""
    if not (text.isascii() and text.isprintable() and text == text.strip()):
        shown = f"{text!a:.40}" if name == KEY else "..."  # a secret is not printed
        raise SpecError(f"{name}={shown}: must be printable ASCII, with no space before or after it")


def _key(given: str | None) -> dict[str, str]:
    """Makes the same submission twice one job. One that is empty is no key: the service refuses it."""
    _check_sendable(KEY, given or "")
    return {KEY: secrets.token_hex(16) if given is None else given}


def _remembered() -> dict[str, Any]:
    """The service that was logged in to last, and the tokens of all."""
    try:
        found = json.loads(login_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Client:
    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        import httpx

        known = _remembered()
        default = os.environ.get(ADDRESS) or known.get("url") or DEFAULT_URL
        self.url = _address(default if url is None else url)
        token = (token or os.environ.get(TOKEN) or known.get("tokens", {}).get(self.url) or "").strip()
        if not token:
            raise SpecError(f"there is no token for {self.url}: log in with `elastune login URL`, or set {TOKEN}")
        _check_sendable("token", token)
        self._http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=60.0)

    def submit(
        self,
        experiment: str | Path | Mapping[str, Any],
        code: str | Path | None = None,
        priority: int = 0,
        seeds: int | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Submit an experiment: a file, whose folder is the code if no other is given, or its fields. If the answer
        gets lost it is asked for again; it is one job all the same.
        """
        if isinstance(experiment, Mapping):
            spec = dict(experiment)
        else:
            path = _as_path("experiment", experiment)
            spec = read_yaml(path, "space, metric and algorithm")
            spec = spec if is_ultron(spec) else {"name": path.stem, **spec}
            code = path.parent if code is None else code
        headers = _key(key)
        try:
            json.dumps(spec, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SpecError(f"the experiment has a value that cannot be sent: {error}") from None
        body: dict[str, Any] = {"spec": spec, "priority": priority, "seeds": seeds}
        if code is not None:
            body["code"] = self._request("PUT", "/code", content=pack(_as_path("code", code)))["code"]
        return self._request("POST", "/jobs", json=body, headers=headers)

    def jobs(self, states: tuple[str, ...] = (), limit: int = 50) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._request("GET", "/jobs", params={"state": list(states), "limit": limit})[
            "jobs"
        ]
        return found

    def job(self, job: str) -> dict[str, Any]:
        return self._request("GET", f"/jobs/{named('job', job)}")

    def cancel(self, job: str) -> dict[str, Any]:
        # Of a job that is cancelled already nothing more becomes.
        return self._request("POST", f"/jobs/{named('job', job)}/cancel", headers=_key(None))

    def rerun(self, job: str, key: str | None = None) -> dict[str, Any]:
        """The same job again: code, configuration and seed."""
        return self._request("POST", f"/jobs/{named('job', job)}/rerun", headers=_key(key))

    def delete(self, job: str) -> None:
        """What is stored of a job that has ended."""
        self._request("DELETE", f"/jobs/{named('job', job)}")

    def experiment(self, experiment: str) -> dict[str, Any]:
        """The same job with other seeds, by its id or that of one of the jobs: the best of each, mean and deviation."""
        try:
            return self._request("GET", f"/experiments/{named('experiment', experiment)}")
        except ServiceError as error:
            if error.status != 404:
                raise
        try:
            of = self.job(experiment)["experiment"]
        except ServiceError as error:
            if error.status != 404:
                raise
            of = None
        if of is None:
            raise ServiceError(f"there is no experiment {experiment!r}, and no job of one", 404)
        return self._request("GET", f"/experiments/{of}")

    def progress(self, job: str) -> dict[str, Any]:
        """How a job stands."""
        return self._request("GET", f"/jobs/{named('job', job)}/progress")

    def trials(self, job: str, limit: int | None = None, status: str | None = None) -> list[dict[str, Any]]:
        """The trials of a job, or those with one status, the best first; all of them if no limit is given."""
        found: list[dict[str, Any]] = []
        while limit is None or len(found) < limit:
            number = MOST_TRIALS if limit is None else min(MOST_TRIALS, limit - len(found))
            part = {"offset": len(found), "limit": number} | ({} if status is None else {"status": status})
            page = self._request("GET", f"/jobs/{named('job', job)}/trials", params=part)
            found += page["trials"]
            if len(found) >= page["total"] or not page["trials"]:
                break
        return found

    def trial(self, job: str, trial: str) -> dict[str, Any]:
        return self._request("GET", f"/jobs/{named('job', job)}/trials/{named('trial', trial)}")

    def best(self, job: str) -> dict[str, Any]:
        return self._request("GET", f"/jobs/{named('job', job)}/best")

    def log(self, job: str, trial: str | None = None, rank: int = 0) -> dict[str, Any]:
        """The end of a log (`text`), and whether its beginning is left out (`cut`)."""
        of = {"most": MOST_LOG_BYTES} if trial is None else {"trial": trial, "rank": rank, "most": MOST_LOG_BYTES}
        return self._request("GET", f"/jobs/{named('job', job)}/logs", params=of)

    def logs(self, job: str, trial: str | None = None) -> str:
        return str(self.log(job, trial)["text"])

    def download(self, job: str, path: str | Path | None = None) -> Path:
        """The checkpoint of the best trial, into a file: all of it or nothing. Without a path it is named after the
        trial and its iteration.
        """
        import httpx

        address, target = f"/api/v1/jobs/{named('job', job)}/download", None if path is None else Path(path)
        draft = (target or Path(job)).parent / f"{job}.{secrets.token_hex(4)}.part"
        try:
            with self._http.stream("GET", address) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refused(response)
                name = response.headers["Content-Disposition"].partition('filename="')[2].rstrip('"')
                target = target or Path(Path(name).name)
                with draft.open("wb") as file:
                    for piece in response.iter_bytes():
                        file.write(piece)
            draft.replace(target)
        except httpx.HTTPError as error:
            raise ServiceError(f"the download from {self.url} was cut off: {error}") from None
        except OSError as error:
            raise StorageError(f"{target}: cannot be written: {error.strerror}") from None
        finally:
            with suppress(OSError):
                draft.unlink()
        return target

    def wait(self, job: str, every_s: float = 0.5, timeout_s: float | None = None) -> dict[str, Any]:
        """Until it has ended."""
        for found in self.watch(job, every_s, timeout_s):
            last = found
        return last

    def watch(self, job: str, every_s: float = 0.5, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """How the job stands, again and again until it has ended. A service that is started again is waited for."""
        begun_s = answered_s = time.monotonic()
        until_s = math.inf if timeout_s is None else begun_s + timeout_s
        while True:
            try:
                found = self.job(job)
            except ServiceError as error:
                if error.status not in AWAY or time.monotonic() > min(until_s, answered_s + AWAY_S):
                    raise
                continue
            answered_s = time.monotonic()
            yield found
            if found["state"] in ENDED:
                return
            if time.monotonic() > until_s:
                raise ServiceError(
                    f"job {job} is {found['state']} after {timeout_s:g} s: {found['reason'] or 'no reason'}"
                )
            time.sleep(every_s)

    def request(self, method: str, path: str, **more: Any) -> Any:
        """For what administrators do."""
        return self._request(method, path, **more)

    def _request(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """What is the same when it is done twice is sent again until there is an answer; anything else only where it
        cannot have arrived.
        """
        import httpx

        twice = method in TWICE or KEY in more.get("headers", {})
        arrived = False
        for attempt in range(RETRIES):
            last = attempt == RETRIES - 1
            try:
                response = self._http.request(method, f"/api/v1{path}", **more)
                if last or not twice or response.status_code not in AWAY:
                    break
                arrived = True
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if last or not (twice or unsent):
                    done = "" if unsent or method == "GET" else "; look whether it was done all the same"
                    raise ServiceError(f"the service at {self.url} cannot be reached: {error}{done}") from None
                arrived = arrived or not unsent
            time.sleep(RETRY_S * 2**attempt)
        if method == "DELETE" and arrived and response.status_code == 404:
            return {}  # the first time it was there
        if response.status_code >= 400:
            raise _refused(response)
        found: dict[str, Any] = response.json() if response.content else {}
        return found


def _refused(response: Any) -> ServiceError:
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = f"the service has answered {response.status_code}: is it one of Elastune at {response.url}?"
    if response.status_code == 401:
        error = f"the service does not accept this token: log in with `elastune login URL`, or set {TOKEN}"
    return ServiceError(error, response.status_code)
