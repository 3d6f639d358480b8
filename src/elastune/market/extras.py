"""What is installed only where it is wanted."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from elastune.errors import SpecError


def needed(module: str, what: str, extra: str) -> ModuleType:
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError:
        package = {"sklearn": "scikit-learn"}.get(module.partition(".")[0], module)
        raise SpecError(f'{what} needs {package}, which is not installed: pip install "elastune[{extra}]"') from None
