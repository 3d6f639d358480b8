"""The seam to whoever rents out machines: four verbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is there and paid for."""

    name: str
    devices: int
    ray_node: str | None
    """Ray's name of it, once workers can be placed there; None while it boots."""
    billed_from_unix_s: float
    gone_at_unix_s: float | None = None
    """After a revocation notice: when it will be taken away."""


class Provider(Protocol):
    head_cpus: int
    """How many CPUs of the driver's own computer are for workers."""

    def request(self, name: str) -> None:
        """Ask for a machine; it is in the list at once, and ready later. Nothing happens if it is there already."""

    def list(self) -> list[Machine]:
        """What is there and paid for now, also of a driver before this one. Asked a few times a second."""

    def release(self, name: str) -> None:
        """Give a machine back. Nothing happens if it is gone already."""

    def price(self) -> float:
        """US dollars per machine and hour."""

    def why_gone(self, name: str) -> str:
        """What became of a machine that is in the list no longer, for people."""
