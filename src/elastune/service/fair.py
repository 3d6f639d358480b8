"""Who gets how many devices: a fair division among tenants and their jobs. Pure: the limiter reads and writes.

Every job that runs keeps what it began with. Then jobs that wait begin, the tenant first that has the least for its
share, and of it the most urgent job, until one that is due does not fit: nobody overtakes it, or it would wait for
ever. Where it is the tenant's own quota that has no room at the moment, only those of the tenant wait behind it. What
is left goes, machine by machine, to the tenant that has the least for its share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SLICE_S = 60.0
"""So long a tenant may have a device before it is another's turn, when there are more tenants than devices."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A job that runs or waits. It begins with `least` devices and can use `most`, by `quantum` more at a time."""

    job: str
    tenant: str
    number: int
    priority: int
    least: int
    most: int
    quantum: int
    running: bool


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a tenant may have in all; None: no limit."""

    share: float = 1.0
    devices: int | None = None
    running: int | None = None
    closed: str = ""
    """Why it may begin nothing."""
    used_s: float = 0.0
    """How long it had devices lately, added up."""
    warm: bool = False
    """Whether a driver of it waits for something to do."""
    devices_elsewhere: int = 0
    """What it has of other pools."""
    running_elsewhere: int = 0
    broke: bool = False
    """Whether what it runs must leave now."""


@dataclass(frozen=True, slots=True)
class Division:
    devices: Mapping[str, int]
    """By job, of all that run or begin now."""
    refused: Mapping[str, str]
    """Jobs that cannot begin by their tenant's own quota, and why."""


def divide(
    devices: int, demands: Sequence[Demand], allowances: Mapping[str, Allowance], most_jobs: float = math.inf
) -> Division:
    """So many jobs may run at a time, whoever's they are."""
    held: dict[str, int] = {}
    refused: dict[str, str] = {}
    of_tenant = Counter({tenant: allowance.devices_elsewhere for tenant, allowance in allowances.items()})
    running = Counter({tenant: allowance.running_elsewhere for tenant, allowance in allowances.items()})
    waiting: dict[str, list[Demand]] = {}
    for demand in sorted(demands, key=_turn):
        if demand.running:
            held[demand.job] = demand.least
            of_tenant[demand.tenant] += demand.least
            running[demand.tenant] += 1
        else:
            waiting.setdefault(demand.tenant, []).append(demand)
    free = devices - sum(held.values())

    def poorest(tenants: Sequence[str]) -> str:
        return min(
            tenants, key=lambda tenant: (of_tenant[tenant] / allowances[tenant].share, *_rank(tenant, allowances))
        )

    begun: list[Demand] = []
    while waiting and len(held) < most_jobs:
        tenant = poorest(list(waiting))
        demand = waiting[tenant].pop(0)
        if not waiting[tenant]:
            del waiting[tenant]
        allowance = allowances[tenant]
        if allowance.closed:
            refused[demand.job] = allowance.closed
        elif allowance.devices is not None and demand.least > allowance.devices:
            refused[demand.job] = f"it needs {demand.least} devices, and the tenant may have {allowance.devices}"
        elif demand.least > devices:
            refused[demand.job] = f"it needs {demand.least} devices, and there are {devices}"
        elif allowance.running is not None and running[tenant] + 1 > allowance.running:
            refused[demand.job] = f"the tenant's quota of {allowance.running} running jobs is used up"
        elif allowance.devices is not None and of_tenant[tenant] + demand.least > allowance.devices:
            waiting.pop(tenant, None)  # until some of it is given back; smaller ones behind it would keep it waiting
        elif demand.least > free:
            break
        else:
            held[demand.job] = demand.least
            of_tenant[tenant] += demand.least
            running[tenant] += 1
            free -= demand.least
            begun.append(demand)
    grown = [demand for demand in demands if demand.running] + begun
    _grow(free, grown, allowances, held, of_tenant, poorest)
    return Division(held, refused)


def _grow(
    free: int,
    demands: Sequence[Demand],
    allowances: Mapping[str, Allowance],
    held: dict[str, int],
    of_tenant: Counter[str],
    poorest: Callable[[Sequence[str]], str],
) -> None:
    """Hand out what is free, to the poorest tenant each time, and there to its most urgent and smallest job."""

    def can(demand: Demand) -> bool:
        limit = allowances[demand.tenant].devices
        return (
            demand.quantum <= free
            and held[demand.job] + demand.quantum <= demand.most
            and (limit is None or of_tenant[demand.tenant] + demand.quantum <= limit)
        )

    while able := [demand for demand in demands if can(demand)]:
        tenant = poorest(sorted({demand.tenant for demand in able}))
        its = (demand for demand in able if demand.tenant == tenant)
        demand = min(its, key=lambda demand: (-demand.priority, held[demand.job], demand.number))
        held[demand.job] += demand.quantum
        of_tenant[tenant] += demand.quantum
        free -= demand.quantum


def _rank(tenant: str, allowances: Mapping[str, Allowance]) -> tuple[int, bool, str]:
    """Among those that have the same: who had least lately. By slices: small jobs of a tenant go one after the other,
    and its driver need not be started again for each.
    """
    allowance = allowances[tenant]
    return int(allowance.used_s / allowance.share / SLICE_S), not allowance.warm, tenant


def _turn(demand: Demand) -> tuple[int, int]:
    return -demand.priority, demand.number
