"""Machine types that many people use, and what they cost: a start until you give your own.

Prices are dollars per hour of the whole machine with Linux, list prices of 2024-2025 in us-east-1 (AWS), us-central1
(GCP) and eastus (Azure); spot prices are of one day, where one was known. Prices change, spot prices every day: what
the `cloud:` section of your file says goes before what is said here. A GCP machine to which GPUs are attached is named
after both: n1-standard-8-t4 has one, n1-standard-32-t4x4 has four.

How long a request and a boot take are round numbers, the same for all types of a provider: measure yours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from elastune.errors import SpecError, did_you_mean
from elastune.messages import Market
from elastune.profile.cloud import Cloud
from elastune.profile.latency import Latency, constant

Provider = Literal["aws", "gcp", "azure"]
MARKETS: tuple[Market, ...] = ("on-demand", "spot")

REQUEST: dict[Provider, Latency] = {"aws": constant(10.0), "gcp": constant(10.0), "azure": constant(20.0)}
BOOT: dict[Provider, Latency] = {"aws": constant(60.0), "gcp": constant(60.0), "azure": constant(90.0)}


@dataclass(frozen=True, slots=True)
class MachineType:
    """`devices` counts its GPUs, or its vCPUs where it has none; `device` says what they are."""

    name: str
    provider: Provider
    devices: int
    device: str
    price_usd_per_hour: float
    spot_usd_per_hour: float | None = None

    @property
    def request(self) -> Latency:
        return REQUEST[self.provider]

    @property
    def boot(self) -> Latency:
        return BOOT[self.provider]


_TYPES = (
    MachineType("p3.2xlarge", "aws", 1, "V100", 3.06, 0.56),
    MachineType("p3.8xlarge", "aws", 4, "V100", 12.24, 1.61),
    MachineType("p3.16xlarge", "aws", 8, "V100", 24.48, 4.38),
    MachineType("p3dn.24xlarge", "aws", 8, "V100-32GB", 31.212, 4.71),
    MachineType("p4d.24xlarge", "aws", 8, "A100", 32.7726, 8.41),
    MachineType("p4de.24xlarge", "aws", 8, "A100-80GB", 40.96575, 11.01),
    MachineType("p5.48xlarge", "aws", 8, "H100", 98.32, 28.44),
    MachineType("g4dn.xlarge", "aws", 1, "T4", 0.526, 0.187),
    MachineType("g4dn.2xlarge", "aws", 1, "T4", 0.752, 0.287),
    MachineType("g4dn.12xlarge", "aws", 4, "T4", 3.912, 1.29),
    MachineType("g5.xlarge", "aws", 1, "A10G", 1.006, 0.42),
    MachineType("g5.2xlarge", "aws", 1, "A10G", 1.212, 0.463),
    MachineType("g5.12xlarge", "aws", 4, "A10G", 5.672, 2.51),
    MachineType("g5.48xlarge", "aws", 8, "A10G", 16.288, 4.69),
    MachineType("g6.xlarge", "aws", 1, "L4", 0.8048, 0.41),
    MachineType("g6.12xlarge", "aws", 4, "L4", 4.6016, 1.80),
    MachineType("g6.48xlarge", "aws", 8, "L4", 13.3504, 4.55),
    MachineType("c5.4xlarge", "aws", 16, "vCPU", 0.68, 0.207),
    MachineType("c5.18xlarge", "aws", 72, "vCPU", 3.06, 0.792),
    MachineType("m5.xlarge", "aws", 4, "vCPU", 0.192, 0.064),
    MachineType("m5.4xlarge", "aws", 16, "vCPU", 0.768, 0.32),
    MachineType("m5.24xlarge", "aws", 96, "vCPU", 4.608, 1.16),
    MachineType("c7i.4xlarge", "aws", 16, "vCPU", 0.714, 0.281),
    MachineType("c7i.8xlarge", "aws", 32, "vCPU", 1.428, 0.518),
    MachineType("c7i.24xlarge", "aws", 96, "vCPU", 4.284, 1.50),
    MachineType("a2-highgpu-1g", "gcp", 1, "A100", 3.673, 1.47),
    MachineType("a2-highgpu-4g", "gcp", 4, "A100", 14.694, 5.88),
    MachineType("a2-highgpu-8g", "gcp", 8, "A100", 29.388, 11.75),
    MachineType("a2-ultragpu-1g", "gcp", 1, "A100-80GB", 5.069),
    MachineType("a2-ultragpu-8g", "gcp", 8, "A100-80GB", 40.55),
    MachineType("a3-highgpu-8g", "gcp", 8, "H100", 88.49),
    MachineType("g2-standard-4", "gcp", 1, "L4", 0.707, 0.283),
    MachineType("g2-standard-48", "gcp", 4, "L4", 4.001, 1.60),
    MachineType("g2-standard-96", "gcp", 8, "L4", 8.003, 3.20),
    MachineType("n1-standard-8-t4", "gcp", 1, "T4", 0.73, 0.19),
    MachineType("n1-standard-32-t4x4", "gcp", 4, "T4", 2.92, 0.76),
    MachineType("n1-standard-8-v100", "gcp", 1, "V100", 2.86, 0.82),
    MachineType("n1-standard-32-v100x4", "gcp", 4, "V100", 11.44, 3.28),
    MachineType("n1-standard-64-v100x8", "gcp", 8, "V100", 22.88, 6.56),
    MachineType("c3-standard-8", "gcp", 8, "vCPU", 0.418),
    MachineType("c3-standard-88", "gcp", 88, "vCPU", 4.594),
    MachineType("e2-standard-8", "gcp", 8, "vCPU", 0.268, 0.08),
    MachineType("e2-standard-16", "gcp", 16, "vCPU", 0.536, 0.161),
    MachineType("Standard_NC4as_T4_v3", "azure", 1, "T4", 0.526, 0.063),
    MachineType("Standard_NC64as_T4_v3", "azure", 4, "T4", 4.352, 0.519),
    MachineType("Standard_NC6s_v3", "azure", 1, "V100", 3.06, 0.398),
    MachineType("Standard_NC24s_v3", "azure", 4, "V100", 12.24, 1.59),
    MachineType("Standard_NC24ads_A100_v4", "azure", 1, "A100-80GB", 3.673, 0.444),
    MachineType("Standard_NC96ads_A100_v4", "azure", 4, "A100-80GB", 14.692, 1.78),
    MachineType("Standard_NC40ads_H100_v5", "azure", 1, "H100", 6.98),
    MachineType("Standard_ND40rs_v2", "azure", 8, "V100-32GB", 22.032, 2.42),
    MachineType("Standard_ND96asr_v4", "azure", 8, "A100", 27.197, 2.99),
    MachineType("Standard_ND96amsr_A100_v4", "azure", 8, "A100-80GB", 32.77, 3.60),
    MachineType("Standard_ND96isr_H100_v5", "azure", 8, "H100", 98.32),
    MachineType("Standard_F8s_v2", "azure", 8, "vCPU", 0.338),
    MachineType("Standard_F72s_v2", "azure", 72, "vCPU", 3.045),
    MachineType("Standard_D8s_v5", "azure", 8, "vCPU", 0.384),
    MachineType("Standard_D64s_v5", "azure", 64, "vCPU", 3.072),
)
_BY_NAME = {each.name: each for each in _TYPES}
_FIELDS = tuple(each.name for each in fields(Cloud) if each.name != "instance")


def catalog() -> tuple[MachineType, ...]:
    """All of them, by provider."""
    return _TYPES


def cloud_for(name: str, market: Market = "on-demand", **overrides: Any) -> Cloud:
    """A machine type of the catalog. `overrides` are fields of `Cloud`, such as a boot that was measured."""
    if name not in _BY_NAME:
        raise SpecError(f"machine type {name!r}: {did_you_mean(str(name), _BY_NAME)}")
    if market not in MARKETS:
        raise SpecError(f"market={market!r}: {did_you_mean(str(market), MARKETS)}")
    for field in overrides:
        if field not in _FIELDS:
            raise SpecError(f"cloud_for: unknown field {field!r}; {did_you_mean(field, _FIELDS)}")
    kind = _BY_NAME[name]
    price = kind.price_usd_per_hour if market == "on-demand" else kind.spot_usd_per_hour
    if price is None and "price_usd_per_hour" not in overrides:
        raise SpecError(f"machine type {name!r}: no spot price is known: give a price")
    known = {"devices": kind.devices, "price_usd_per_hour": price, "request": kind.request, "boot": kind.boot}
    return Cloud(name, **{**known, **overrides})
