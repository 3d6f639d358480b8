"""Machines that are shares of the Ray node this process is connected to: there at once, and free to give back."""

from __future__ import annotations

import time

from elastune.messages import Offer
from elastune.provider import nodes
from elastune.provider.base import Machine


class Here:
    """Nothing is started and nothing ends, so there is nothing to clean up after a crash either."""

    def __init__(self, devices: int, price_usd_per_device_hour: float) -> None:
        self._devices = devices
        self._price_usd_per_device_hour = price_usd_per_device_hour
        self._billed_from_unix_s: dict[str, float] = {}

    def request(self, name: str, offer: Offer | None = None) -> None:
        self._billed_from_unix_s.setdefault(name, time.time())

    def list(self) -> list[Machine]:
        node = nodes.here()
        gone_at_unix_s = nodes.notices().get(node) if node is not None else None
        return [
            Machine(name, self._devices, node, billed_from_unix_s, gone_at_unix_s)
            for name, billed_from_unix_s in self._billed_from_unix_s.items()
        ]

    def release(self, name: str) -> None:
        self._billed_from_unix_s.pop(name, None)

    def price(self) -> float:
        return self._devices * self._price_usd_per_device_hour

    def why_gone(self, name: str) -> str:
        return "it was released"

    def was_taken(self, name: str) -> bool:
        return False

    def run_began(self, unix_s: float) -> None:
        """It makes no difference."""

    def close(self) -> None:
        """There is nothing to see off."""
