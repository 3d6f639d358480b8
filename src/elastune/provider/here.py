"""Machines that are shares of the computer this process runs on: there at once, gone with it."""

from __future__ import annotations

import time

import ray

from elastune.provider.base import Machine


class Here:
    def __init__(self, machines: int, devices: int, price_usd_per_device_hour: float = 0.0) -> None:
        self.head_cpus = machines * devices
        self._devices = devices
        self._price_usd_per_hour = devices * price_usd_per_device_hour
        self._machines: dict[str, Machine] = {}

    def request(self, name: str) -> None:
        node = ray.get_runtime_context().get_node_id()
        self._machines.setdefault(name, Machine(name, self._devices, node, time.time()))

    def list(self) -> list[Machine]:
        return [*self._machines.values()]

    def release(self, name: str) -> None:
        self._machines.pop(name, None)

    def price(self) -> float:
        return self._price_usd_per_hour

    def why_gone(self, name: str) -> str:
        return "it was given back"
