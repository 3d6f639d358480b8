"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """What was there before stays until all of it is written: a disk that is full costs nobody his prices or model."""
    if path.exists() and not path.is_file():  # a pipe, say
        path.write_bytes(content)
        return
    final = path.resolve()
    draft = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(final)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
