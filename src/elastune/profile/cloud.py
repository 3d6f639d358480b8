"""What a cloud charges for machines, and how long it takes to get one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elastune.errors import SpecError, did_you_mean
from elastune.profile.latency import AT_ONCE, Latency, require_latency
from elastune.spec import require_int, require_number

Per = Literal["instance", "function"]
BILLINGS: tuple[Per, ...] = ("instance", "function")


@dataclass(frozen=True, slots=True)
class Cloud:
    """One type of machine. Paid per instance, from when a request is served until the machine is given back, or per
    function: only for the seconds in which a device trains.

    Every new machine loads `data_gb` of training data; what a gigabyte costs must then be said, even if it is nothing.
    """

    instance: str
    devices: int
    price_usd_per_hour: float
    request: Latency = AT_ONCE
    boot: Latency = AT_ONCE
    billing: Per = "instance"
    minimum_s: float = 60.0
    data_gb: float = 0.0
    data_usd_per_gb: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.instance, str) or not self.instance:
            raise SpecError(f"instance={self.instance!r}: must be the name of a machine type")
        require_int("devices", self.devices, 1)
        for name in ("request", "boot"):
            require_latency(name, getattr(self, name))
        for name in ("price_usd_per_hour", "minimum_s", "data_gb"):
            require_number(name, getattr(self, name), zero=True)
        if self.data_usd_per_gb is not None:
            require_number("data_usd_per_gb", self.data_usd_per_gb, zero=True)
        elif self.data_gb:
            raise SpecError(
                f"data_gb={self.data_gb!r} without data_usd_per_gb: say what a gigabyte costs; 0 if it costs nothing"
            )
        if self.billing not in BILLINGS:
            raise SpecError(f"billing={self.billing!r}: {did_you_mean(str(self.billing), BILLINGS)}")

    @property
    def data_usd(self) -> float:
        """What it costs to bring the data to one machine."""
        return self.data_gb * (self.data_usd_per_gb or 0.0)
