"""A name for code, which changes when the code does: scores of other code are never taken for its own.

Where that cannot be told, the name is one that nothing else has: then a score is computed again, which is no harm.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle

CODE = "ELASTUNE_CODE_HASH"
"""The variable with a name for the code: whoever has it as a whole, as a service does, knows best."""
MOST_FILES = 20_000
"""Where there are more in the folders of the code, as in all that somebody has, they are not looked through."""


def code_hash(kind: type) -> str:
    """Of all source of the package that a class is in, or, where it is in none, of its folder and those below."""
    return source_hash(source_folders(kind)) or hashlib.sha256(cloudpickle.dumps(kind)).hexdigest()


def source_folders(kind: type) -> tuple[str, ...]:
    """None of a class that was typed in, or is not loaded here."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        return ()
    within = getattr(module, "__package__", None) or kind.__module__  # what is run with -m is called __main__
    package = sys.modules.get(within.partition(".")[0])
    return tuple(sorted(map(os.path.abspath, getattr(package, "__path__", [Path(file).resolve().parent]))))


def source_hash(folders: tuple[str, ...]) -> str | None:
    """Of all Python source in them and below."""
    if (given := os.environ.get(CODE)) or not folders:
        return given
    digest, seen = hashlib.sha256(), 0
    for folder in folders:
        for place, below, files in os.walk(folder):
            seen += len(below) + len(files)
            if seen > MOST_FILES:
                return secrets.token_hex()
            below[:] = sorted(name for name in below if not _is_apart(Path(place, name)))
            for path in (Path(place, name) for name in sorted(files) if name.endswith(".py")):
                with suppress(OSError):  # what cannot be read cannot be imported
                    data = path.read_bytes()
                    digest.update(os.fsencode(f"{path.relative_to(folder)} {len(data)}\n") + data)
    return digest.hexdigest()


def _is_apart(folder: Path) -> bool:
    """Whether what is in it is no part of the code around it: hidden, a virtual environment, or runs."""
    is_runs = folder.name == "runs" and not (folder / "__init__.py").exists()
    return folder.name.startswith(".") or is_runs or (folder / "pyvenv.cfg").exists()


def is_loaded(kind: type) -> bool:
    """Whether it is that of its module, and not one that came with a pickle."""
    found: object = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def state_hash(model: object) -> str:
    """Of what an object holds."""
    digest = hashlib.sha256()
    with suppress(Exception):  # what cannot be pickled is refused when it is to be sent
        _StatePickler(SimpleNamespace(write=digest.update), type(model)).dump(model)
    return digest.hexdigest()


class _StatePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves out the class of an object: one that is pickled itself has another pickle in every process."""

    def __init__(self, file: Any, kind: type) -> None:
        super().__init__(file)
        self._kind = kind

    def persistent_id(self, value: object) -> str | None:
        return "its class" if value is self._kind else None
