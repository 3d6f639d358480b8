"""Where measurements that others have published are read from."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(*needed: str) -> Path:
    """The folder in ELASTUNE_DATA, or ../shared/data; without it, or what is needed of it, the benchmark ends."""
    folder = Path(os.environ.get("ELASTUNE_DATA", "../shared/data"))
    missing = [name for name in needed if not (folder / name).exists()]
    if missing:
        sys.exit(
            f"{folder.resolve()} has no {', '.join(missing)}: this benchmark needs published measurements; "
            "set ELASTUNE_DATA to the folder that has them"
        )
    return folder
