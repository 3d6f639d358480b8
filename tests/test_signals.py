"""Ctrl-C and SIGTERM, while a run goes on."""

from __future__ import annotations

import signal

import pytest

from elastune import signals
from elastune.signals import interruptible


def test_a_signal_that_comes_twice_at_once_asks_for_an_orderly_end_once() -> None:
    asked: list[None] = []
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(lambda: asked.append(None)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert len(asked) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "SAME_SIGNAL_S", 0.0)
    asked: list[None] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    try:
        with interruptible(lambda: asked.append(None)):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(asked) == 1
