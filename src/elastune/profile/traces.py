"""Profiles from measurements that others have published.

The traces of Pollux (Qiao et al., OSDI 2021) give, for a job, seconds of a step by placement and by the batch size of
each replica. In placements.csv a placement has a digit per machine, the replicas there: 4 is one machine, 1111 are
four; scalability.csv goes on with numbers of machines and replicas. A machine has 4 devices.

A step at a constant global batch: each of n replicas has batch / n samples. Where that is more than was measured, it
goes through several equal passes and adds up the gradients; all but the last do without the synchronization, which is
told apart as sync_time.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elastune.errors import SpecError
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.spec import require_int, require_number

ON_MACHINE = 4
_PLACEMENTS, _SCALABILITY = "placements.csv", "scalability.csv"


@dataclass(frozen=True, slots=True)
class _Steps:
    """Of one placement: seconds by the batch size of each replica, which increases."""

    batches: list[float]
    step_s: list[float]
    sync_s: list[float]

    def seconds(self, batch: int) -> float | None:
        """With so many samples for each replica; None for fewer than were measured."""
        passes = math.ceil(batch / self.batches[-1])
        each = math.ceil(batch / passes)
        if each < self.batches[0]:
            return None
        step_s = float(np.interp(each, self.batches, self.step_s))
        sync_s = float(np.interp(each, self.batches, self.sync_s))
        return step_s + (passes - 1) * (step_s - sync_s)


def from_pollux(folder: str | Path, batch: int) -> JobProfile:
    """How a job of the traces scales at a constant global batch, on as few machines as hold it.

    Widths for which no such placement, or no batch of a replica that small, was measured are left out.
    """
    require_int("batch", batch, 1)
    placements = _placements(Path(folder))
    wider = _read(Path(folder) / _SCALABILITY, ("num_nodes", "num_replicas"))
    colocated = {_replicas(name): steps for name, steps in placements.items() if name == _packed(_replicas(name))}
    for (machines, replicas), steps in wider.items():
        if int(machines) == math.ceil(int(replicas) / ON_MACHINE):
            colocated.setdefault(int(replicas), steps)
    seconds = {width: colocated[width].seconds(math.ceil(batch / width)) for width in sorted(colocated)}
    if 1 not in seconds:
        raise SpecError(f"{folder}: {_PLACEMENTS} has no placement 1: a step on one device was not measured")
    alone_s = seconds[1]
    if alone_s is None:
        raise SpecError(f"batch={batch}: must be at least {colocated[1].batches[0]:g}, the least that was measured")
    speedups = {width: alone_s / step_s for width, step_s in seconds.items() if step_s is not None}
    return JobProfile(constant(alone_s), Scaling(speedups))


def placement_step_s(folder: str | Path, batch: int, placement: str) -> float:
    """Seconds of a step at a global batch in one placement: "4" together, "1111" on four machines."""
    require_int("batch", batch, 1)
    measured = _placements(Path(folder))
    # The order of machines in a ring does not matter; the traces have the smallest of each.
    name = min((placement[i:] + placement[:i] for i in range(len(placement))), default="")
    if name not in measured:
        raise SpecError(f"placement={placement!r}: was not measured; allowed: {', '.join(sorted(measured))}")
    seconds = measured[name].seconds(math.ceil(batch / _replicas(name)))
    if seconds is None:
        least = measured[name].batches[0] * _replicas(name)
        raise SpecError(f"batch={batch}: must be at least {least:g} in placement {placement!r}, the least measured")
    return seconds


def from_table(rows: Mapping[str | int, float]) -> Scaling:
    """From throughput by number of devices, in any unit: {"1": 350, "2": 660}."""
    if not isinstance(rows, Mapping):
        raise SpecError(f"rows={rows!r}: must map numbers of devices to throughput, such as {{1: 350, 2: 660}}")
    throughputs: dict[int, float] = {}
    for devices, throughput in rows.items():
        width = int(devices) if isinstance(devices, str) and devices.isdecimal() else devices
        require_int("number of devices", width, 1)
        require_number(f"throughput of {width}", throughput)
        throughputs[int(width)] = throughput
    if 1 not in throughputs:
        raise SpecError(f"rows={dict(rows)!r}: must say the throughput of 1 device")
    return Scaling({width: throughput / throughputs[1] for width, throughput in throughputs.items()})


def _packed(replicas: int) -> str:
    """The placement on as few machines as possible, as the traces spell it."""
    full, rest = divmod(replicas, ON_MACHINE)
    return (str(rest) if rest else "") + str(ON_MACHINE) * full


def _replicas(placement: str) -> int:
    return sum(map(int, placement))


def _placements(folder: Path) -> dict[str, _Steps]:
    return {name: steps for (name,), steps in _read(folder / _PLACEMENTS, ("placement",)).items()}


def _read(path: Path, key: tuple[str, ...]) -> dict[tuple[str, ...], _Steps]:
    columns = ("local_bsz", "step_time", "sync_time")
    found: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if not all(row[name].isdecimal() for name in key):
                    raise ValueError(f"{', '.join(row[name] for name in key)} should be digits")
                batch, step_s, sync_s = (float(row[name]) for name in columns)
                if not (0 < batch < math.inf and 0 < step_s < math.inf and 0 <= sync_s <= step_s):
                    raise ValueError(f"{', '.join(row[name] for name in columns)} cannot be")
                found.setdefault(tuple(row[name] for name in key), []).append((batch, step_s, sync_s))
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise SpecError(f"{path}: must be a table with {', '.join((*key, *columns))}: {error}") from None
    return {name: _Steps(*map(list, zip(*sorted(rows), strict=True))) for name, rows in found.items()}
