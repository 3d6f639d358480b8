"""The seam between those who want machines and those who have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elastune.messages import Offer


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is there and paid for."""

    name: str
    devices: int
    ray_node: str | None
    """Ray's id of it (hex) once workers can be placed there; None while it boots."""
    billed_from_unix_s: float
    gone_at_unix_s: float | None = None
    """A revocation notice: it will be taken away then."""
    ready_from_unix_s: float = 0.0
    """Workers may start on it before, and trials not."""
    price_usd_per_hour: float | None = None
    """What it costs at the moment, where that is not the same for all."""
    refund_s: float = 0.0
    """If it is taken away before, it costs nothing."""
    served: bool = True
    """If not, there is no such machine to be had yet, and nothing is paid."""


class Provider(Protocol):
    """Four verbs, and two words at the end. None of them waits: a machine that is asked for turns up in `list`, ready
    some time later.
    """

    def request(self, name: str, offer: Offer | None = None) -> None:
        """Ask for a machine; nothing happens when one of that name is there. With an offer it is one of many kinds."""

    def list(self) -> list[Machine]:
        """What is there and paid for now, booting or ready; not what has died or was released."""

    def release(self, name: str) -> None:
        """Give it back; nothing happens when it is not there."""

    def price(self) -> float:
        """USD per machine and hour."""

    def why_gone(self, name: str) -> str:
        """What became of a machine that is not there any more, for people."""

    def was_taken(self, name: str) -> bool:
        """Whether it is gone because the cloud wanted it back."""

    def run_began(self, unix_s: float) -> None:
        """Told once, before anything is asked for: whatever plays a market must know."""

    def close(self) -> None:
        """The driver ends: what it has released is seen off."""
