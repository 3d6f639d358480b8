"""Ctrl-C and SIGTERM, while a run goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SAME_SIGNAL_S = 0.5


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C, or SIGTERM, asks for an orderly end, the second ends at once; the journal survives both.

    `timeout` and batch systems send a signal to the process and then to its group: what comes at once is the same one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    told_s: float | None = None

    def restore() -> None:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal told_s
        if told_s is None:
            told_s = time.monotonic()
            interrupt()
        elif time.monotonic() - told_s > SAME_SIGNAL_S:
            restore()
            signal.raise_signal(number)

    before = [signal.signal(each, handle) for each in signals]
    try:
        yield
    finally:
        restore()
