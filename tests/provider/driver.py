"""A driver to be killed: it owns machines in a folder and says when they are there.

Run as `python -m tests.provider.driver FOLDER booting|ready BOOT_S LINGER_S NAME...`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.provider.world import ready

from elastune.cluster.ray.session import start_ray
from elastune.provider.local import Local


def main(folder: str, until: str, boot_s: str, linger_s: str, *names: str) -> None:
    if until == "ready":
        start_ray(0)
    provider = Local(Path(folder), 2, 0.1, boot_s=float(boot_s), linger_s=float(linger_s))
    for name in names:
        provider.request(name)
    if until == "ready":
        for name in names:
            ready(provider, name)
    print("there", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
