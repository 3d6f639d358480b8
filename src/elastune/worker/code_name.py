"""A name for code, which changes when the code does: scores of other code are never taken for its own.

Where that cannot be told, the name is one that nothing else has: then a score is computed again, which is no harm.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle

CODE = "ELASTUNE_CODE_HASH"
"""The variable with a name for the code: whoever has it as a whole, as a service does, knows best."""
MOST_FILES = 20_000
"""Where there are more in the folders of the code, as in all that somebody has, they are not looked through."""
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+\w+|import[ \t]+\w[\w., \t]*)", re.MULTILINE)
_NAME = re.compile(rb"(?:^\s*from|^\s*import|,)\s*(\w+)")
_INSTALLED = {"site-packages", "dist-packages"}


def code_hash(kind: type) -> str:
    """Of all source of the package that a class is in, or, where it is in none, of its folder and those below; and of
    what that imports.
    """
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
    """Of all Python source in them and below, and of what that imports from elsewhere, unless it is installed."""
    if (given := os.environ.get(CODE)) or not folders:
        return given
    digest, seen, done, places = hashlib.sha256(), 0, set[Path](), [*map(Path, folders)]
    while places:
        names: set[str] = set()
        for place in places:
            for path in _files(place):
                seen += 1
                if seen > MOST_FILES:
                    return secrets.token_hex()
                with suppress(OSError):  # what cannot be read cannot be imported
                    if path.suffix == ".py":
                        data = path.read_bytes()
                        digest.update(os.fsencode(f"{path.relative_to(place)} {len(data)}\n") + data)
                        names |= _imported(data)
        done |= {*places}
        found = (place for name in sorted(names) for place in _own_places(name))
        places = [place for place in dict.fromkeys(found) if done.isdisjoint([place, *place.parents])]
    return digest.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """All below a folder, and the folders themselves: they count too. A file is that file."""
    if place.is_file():
        yield place
    for within, below, files in os.walk(place):
        below[:] = sorted(name for name in below if not _is_apart(Path(within, name)))
        yield from (Path(within, name) for name in (*below, *sorted(files)))


def _imported(source: bytes) -> set[str]:
    """The packages and modules that are imported, wherever in the source; a line of a text may look the same."""
    return {name.decode() for line in _IMPORT.findall(source) for name in _NAME.findall(line)}


def _own_places(name: str) -> list[Path]:
    """The folders of a package, or the file of a module. None of what came with Python or was installed."""
    try:
        spec = None if name in (*sys.stdlib_module_names, "elastune") else importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # it is no name, or was made by hand
        spec = None
    if spec is None:
        return []
    places = spec.submodule_search_locations or [spec.origin or ""]
    own = [Path(place).absolute() for place in places if Path(place).exists() and place]
    return [place for place in own if _INSTALLED.isdisjoint(place.parts) and not _is_apart(place)]


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


def attributes_hash(kind: type) -> str:
    """Of the values that a class has: they may have been set when its source was loaded already. None has no name."""
    values = {
        f"{each.__qualname__}.{name}": value
        for each in kind.__mro__
        for name, value in vars(each).items()
        if not (name.startswith("__") or name == "_abc_impl" or inspect.isclass(value) or hasattr(value, "__get__"))
    }
    try:
        return hashlib.sha256(cloudpickle.dumps(values)).hexdigest() if values else ""
    except Exception:  # whatever a pickle may raise
        return secrets.token_hex()


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
