"""What the code of a user needs besides Elastune: installed once, and used by every job that needs the same.

Only the dependencies go into an environment; the code itself goes on `sys.path` (see `import_paths`). So an edit of
train.py installs nothing anew. An environment is a virtual environment that also sees all that the service has
(elastune, ray, torch): whatever is there already is not installed again, and Elastune and Ray cannot be replaced.
Code without dependencies runs in the service's own interpreter.

Dependencies are read from requirements.txt and from pyproject.toml. Where only the build of the package knows them
(setup.py, setup.cfg, or `dynamic`), pip asks it, in a process of its own on a copy of the code: a build runs code of
the user. That process gets few variables of the service's environment, and ends with it. It is not a sandbox, and what
a build reads besides its own files is not part of the hash: tenants that do not trust each other get a root each.

    environments/<hash>/lock            held while building: the same hash is built once, others wait
                        build.log       what pip said, written while it runs; of the last attempt
                        build-<id>/     an attempt; each has its own folder, so that none meets the rest of another
                        ready           written last: which attempt counts

On this computer that is all: Ray starts its workers with the interpreter of the driver, so trials see what the driver
sees. On a Ray cluster of other computers the environment is not there: give `runtime_env(code)` to `ray.init`, and
Ray installs the same on each machine before its first worker starts.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import elastune
from elastune.errors import ElastuneError, SpecError
from elastune.service.archive import LEFT_OUT, RUNS

BUILD_TIMEOUT_S = 1800.0
LOG_LIMIT_BYTES = 16 << 20
_FILE_LIMIT_BYTES = 1 << 20
_FIXED = ("elastune", "ray")
_PASSED_ON = re.compile(
    r"(?i)PATH|HOME|LANG|LC_\w+|TZ|PIP_\w+|\w+_PROXY|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
_BUILD_READS = ("setup.py", "*.cfg", "*.toml", "*.txt", "*.in")
_REQUIREMENTS = "requirements.txt"
_WORKING_DIR = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
# Runs a command, and ends it and all it started as soon as whoever holds the other end of its input is gone.
_GUARD = """
import os, resource, signal, subprocess, sys, threading
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def end_with_the_service():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end_with_the_service, daemon=True).start()
os._exit(min(child.wait() & 255, 255))
"""


@dataclass(frozen=True)
class Environment:
    """Where a job runs. Without a hash and a log it is the service's own interpreter."""

    hash: str
    python: Path
    log: Path | None


class BuildFailed(ElastuneError):
    """The dependencies of the code cannot be installed."""

    def __init__(self, reason: str, log: Path) -> None:
        self.log = log
        self.tail = log_tail(log)
        super().__init__(
            f"the dependencies of the code cannot be installed: {reason}. Correct them and send the code again; if "
            f"the network or an index failed, submit it once more. The end of the log:\n{self.tail}"
        )


def log_tail(log: Path, size: int = 4000) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - size))
        return file.read().decode("utf-8", "replace").strip()


def import_paths(code: Path) -> tuple[Path, ...]:
    """What goes on `sys.path` for this code: its folder, and `src` in it if the packages are there."""
    return (code, code / "src") if (code / "src").is_dir() else (code,)


@dataclass
class _Wanted:
    """What the files of the code say about its dependencies, without running any of it."""

    code: Path
    lines: list[str] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)  # hashes of the files that the result depends on
    asks_build: bool = False
    isolated: bool = False  # the build names what it needs itself, and pip fetches that

    def add_content(self, path: Path) -> None:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                name = file.relative_to(self.code).as_posix()
                self.contents[name] = hashlib.sha256(file.read_bytes()).hexdigest()

    def hash(self) -> str:
        service = [platform.python_version(), sysconfig.get_platform(), *_site_folders(), *_fixed_versions()]
        return hashlib.sha256(json.dumps([service, self.lines, self.contents], sort_keys=True).encode()).hexdigest()


def environment_hash(code: Path) -> str:
    """Known before anything is built, and so is its log: `root / hash / "build.log"`. Empty: none is needed."""
    wanted = _wanted(code)
    return wanted.hash() if wanted.lines or wanted.asks_build else ""


def environment_for(code: Path, root: Path, timeout_s: float = BUILD_TIMEOUT_S) -> Environment:
    """The environment for this code: found, or built now. A build that failed is tried again at the next call."""
    wanted = _wanted(code)
    if not wanted.lines and not wanted.asks_build:
        return Environment("", Path(sys.executable), None)
    folder = root.resolve() / wanted.hash()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(folder / "lock")  # when it was last asked for
        python = _ready(folder)
        if python is None:
            python = _build(wanted, folder, timeout_s)
    return Environment(folder.name, python, folder / "build.log")


def last_asked_for(folder: Path) -> float:
    """When somebody wanted this environment, as unix seconds."""
    return (folder / "lock").stat().st_mtime


def remove_environment(folder: Path, unless_since: float) -> None:
    """Unless it was asked for since then. Its log stays, and its lock: whoever waits for that builds it anew."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if last_asked_for(folder) <= unless_since:
            (folder / "ready").unlink(missing_ok=True)
            for build in folder.glob("build-*"):
                shutil.rmtree(build, ignore_errors=True)


def runtime_env(code: Path) -> dict[str, Any]:
    """The same for a Ray cluster of other computers: the code travels with the job, Ray installs what it needs.

    The machines must have Elastune and the `virtualenv` package. A dependency at a path outside the code must be at
    that path on each of them.
    """
    wanted = _wanted(code)
    lines = list(wanted.lines)
    if wanted.asks_build:
        with tempfile.TemporaryDirectory() as place:
            lines += _Builder(wanted, Path(place), time.monotonic() + BUILD_TIMEOUT_S).own_dependencies()
    lines = [re.sub(r"(^|[\s=])\./", rf"\1{_WORKING_DIR}/", line) for line in lines]
    found: dict[str, Any] = {"working_dir": str(code), "excludes": [*LEFT_OUT, f"/{RUNS}"]}
    if (code / "src").is_dir():
        found["py_modules"] = [
            str(path) for path in sorted((code / "src").iterdir()) if (path / "__init__.py").exists()
        ]
    return found | ({"pip": lines} if lines else {})


def _wanted(code: Path) -> _Wanted:
    wanted = _Wanted(code.resolve())
    try:
        for line in _requirement_lines(wanted.code, wanted.code / _REQUIREMENTS, set()):
            _add_line(wanted, line)
    except (OSError, ValueError, RecursionError) as error:  # a name that is too long, or is no name; too many files
        raise SpecError(f"{_REQUIREMENTS} of the code: cannot be read: {error}") from None
    _add_own(wanted)
    if wanted.asks_build:
        for pattern in _BUILD_READS:
            for file in sorted(wanted.code.rglob(pattern)):
                wanted.add_content(file)
    return wanted


def _text(file: Path) -> str:
    if file.stat().st_size > _FILE_LIMIT_BYTES:
        raise SpecError(f"{file.name} of the code: is larger than {_FILE_LIMIT_BYTES} bytes")
    return file.read_text("utf-8")


def _add_own(wanted: _Wanted) -> None:
    """What the package itself says: in pyproject.toml if that has it all, else its build has to be asked."""
    file = wanted.code / "pyproject.toml"
    try:
        pyproject = tomllib.loads(_text(file)) if file.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise SpecError(f"pyproject.toml of the code: is not TOML: {error}") from None
    project = pyproject.get("project", {})
    if not isinstance(project, dict):
        raise SpecError("pyproject.toml of the code: project must be a table")
    dynamic, dependencies = project.get("dynamic", []), project.get("dependencies", [])
    if project and not (isinstance(dynamic, list) and "dependencies" in dynamic):
        if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
            raise SpecError(f"pyproject.toml of the code: dependencies={dependencies!r}: must be a list of strings")
        wanted.lines += dependencies
    elif project or "build-system" in pyproject or (wanted.code / "setup.py").is_file():
        wanted.asks_build, wanted.isolated = True, "build-system" in pyproject


def _requirement_lines(code: Path, file: Path, seen: set[Path]) -> Iterator[str]:
    """The lines of a requirements file and of those it names, each once; paths are relative to the code."""
    if file in seen or not (seen or file.is_file()):
        return
    seen.add(file)
    if not file.is_relative_to(code) or not file.is_file():
        raise SpecError(f"{_REQUIREMENTS} of the code: {os.path.relpath(file, code)!r}: must be a file of the code")
    text = _text(file).replace("\\\n", " ")
    for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()):
        option = re.fullmatch(r"(-r|--requirement|-c|--constraint)[\s=]*(.+)", line)
        if not line:
            continue
        if option is None or "://" in option[2]:
            yield line
        elif option[1] in ("-r", "--requirement"):
            yield from _requirement_lines(code, (file.parent / option[2]).resolve(), seen)
        else:
            yield f"-c ./{os.path.relpath(file.parent / option[2], code)}"


def _add_line(wanted: _Wanted, line: str) -> None:
    """A path in the code counts with its content. The code itself is on the path already: only its needs are added."""
    line = re.sub(r"^(-e|--editable)[\s=]+", "", line)
    option, path = re.fullmatch(r"(-\S+?[\s=]+)?(.*)", line).groups("")  # type: ignore[union-attr]
    path = re.split(r"[;\[]", path)[0].strip()
    if "://" in path or path.startswith(("/", "-")) or not (path.startswith(".") or "/" in path):
        wanted.lines.append(line)
        return
    target = (wanted.code / path).resolve()
    if not target.is_relative_to(wanted.code) or not target.exists():
        raise SpecError(f"{_REQUIREMENTS} of the code: {line!r}: must be a path in the folder of the code")
    if target == wanted.code and not option:
        if line != path:
            raise SpecError(f"{_REQUIREMENTS} of the code: {line!r}: write down the dependencies that this stands for")
        return
    wanted.add_content(wanted.code / os.path.normpath(path))
    wanted.lines.append(f"{option}./{line.removeprefix(option).removeprefix('./')}")


def _ready(folder: Path) -> Path | None:
    try:
        name = json.loads((folder / "ready").read_text())["build"]
    except (FileNotFoundError, ValueError):  # empty after a power cut
        return None
    python = folder / name / "venv" / "bin" / "python" if name else Path(sys.executable)
    return python if python.exists() else None


def _build(wanted: _Wanted, folder: Path, timeout_s: float) -> Path:
    """With the lock held. Whatever is left of earlier attempts goes first: none of it is in use."""
    (folder / "ready").unlink(missing_ok=True)
    for left in folder.glob("build-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = folder / f"build-{uuid.uuid4().hex[:8]}"
    work.mkdir()
    try:
        builder = _Builder(wanted, work, time.monotonic() + timeout_s, folder / "build.log")
        lines = wanted.lines + (builder.own_dependencies() if wanted.asks_build else [])
        if lines:
            builder.install(lines)
        shutil.rmtree(work / "scratch")
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    marker = folder / "ready.new"
    marker.write_text(json.dumps({"build": work.name if lines else ""}))
    marker.replace(folder / "ready")
    python = _ready(folder)
    assert python is not None, "it was made above"
    return python


class _Builder:
    """One attempt, in a folder of its own: a virtual environment, and a copy of the code that its build may spoil."""

    def __init__(self, wanted: _Wanted, work: Path, until: float, log: Path | None = None) -> None:
        self._wanted, self._work, self._until = wanted, work, until
        self._log = log or work / "build.log"
        self._log.write_bytes(b"")
        self._python = work / "venv" / "bin" / "python"
        self._scratch = work / "scratch"
        self._code = self._scratch / "code"
        self._scratch.mkdir()
        shutil.copytree(wanted.code, self._code, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        pip = ["--without-pip"] if _has("pip") else []
        self._run("make a virtual environment", [sys.executable, "-m", "venv", *pip, "venv"])
        packages = next((work / "venv" / "lib").glob("python*")) / "site-packages"
        sees = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in _site_folders())
        (packages / "_elastune_service.pth").write_text(sees)

    def own_dependencies(self) -> list[str]:
        """What the package of the code needs, as its build says."""
        report = self._scratch / "report.json"
        options = ["--dry-run", "--ignore-installed", "--no-deps", "--report", str(report)]
        if not self._wanted.isolated and _has("setuptools"):
            options.append("--no-build-isolation")  # a plain setup.py is content with what is here: nothing to fetch
        self._pip("read the dependencies of the code", [*options, str(self._code)])
        needs = json.loads(report.read_text())["install"][0]["metadata"].get("requires_dist", [])
        return [each for each in needs if not re.search(r"\bextra\s*==", each.partition(";")[2])]

    def install(self, lines: list[str]) -> None:
        fixed = self._scratch / "fixed.txt"
        fixed.write_text("".join(f"{each}\n" for each in _fixed_versions()))
        asked = self._code / ".elastune-requirements.txt"
        asked.write_text("".join(f"{line}\n" for line in lines))
        self._pip("install the dependencies", ["--constraint", str(fixed), "--requirement", str(asked)], self._code)

    def _pip(self, what: str, options: list[str], cwd: Path | None = None) -> None:
        self._run(what, [str(self._python), "-m", "pip", "install", "--no-input", *options], cwd)

    def _run(self, what: str, command: list[str], cwd: Path | None = None) -> None:
        (self._scratch / "tmp").mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)} | {
            "TMPDIR": str(self._scratch / "tmp"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_PROGRESS_BAR": "off",
            "PYTHONUNBUFFERED": "1",
        }
        with self._log.open("ab", buffering=0) as log:
            log.write(f"--- {what}\n".encode())
            guarded = [sys.executable, "-I", "-c", _GUARD, *command]
            code = self._watch(what, guarded, environment, cwd or self._work, log)
        if code:
            raise BuildFailed(f"to {what} ended with code {code}", self._log)

    def _watch(self, what: str, command: list[str], environment: dict[str, str], cwd: Path, log: BinaryIO) -> int:
        with subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                    if time.monotonic() > self._until:
                        raise BuildFailed(f"to {what} took too long", self._log)
                    if os.fstat(log.fileno()).st_size > LOG_LIMIT_BYTES:
                        raise BuildFailed(f"to {what} said more than {LOG_LIMIT_BYTES} bytes", self._log)
                    time.sleep(0.02)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # also what it has left running; its number is still its own
        return process.returncode


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _site_folders() -> list[str]:
    """Where the packages of the service are. A venv of a venv would see those of the system instead."""
    return [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]


def _fixed_versions() -> list[str]:
    found = {"elastune": elastune.__version__}
    for name in _FIXED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from its source
            continue
    return [f"{name}=={found[name]}" for name in _FIXED if name in found]
