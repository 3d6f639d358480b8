"""How busy the devices were: over the whole run, device by device, and from one window of time to the next.

A device is busy while at least one trial is on it, however much of it that trial uses: the trial's own work cannot be
told from a journal. While its machine boots it is paid for and cannot be busy, which is counted apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastune.cost import MachineUse
from elastune.errors import SpecError
from elastune.record.projection import Busy, RunView
from elastune.units import parse_duration

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

USUAL_WINDOWS = 120
"""An hour has windows of 30 s then."""
MOST_CELLS = 10_000_000
LENGTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches of time at places, and how many there were `at_once`, at least one: place by place, in order."""

    place: Ints
    from_s: Floats
    to_s: Floats
    at_once: Ints

    @property
    def length_s(self) -> Floats:
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device of a machine while that was held. It boots until `ready_s`."""

    machine: str
    device: int
    from_s: float
    ready_s: float
    to_s: float
    busy_s: float
    trial_s: float
    """As `busy_s`, but trials that share the device count one by one."""

    @property
    def held_s(self) -> float:
        return self.to_s - self.from_s

    @property
    def booting_s(self) -> float:
        return self.ready_s - self.from_s


@dataclass(frozen=True, slots=True)
class Windows:
    """Seconds by row, which is a device or several, and by window of time: window i lasts from `edges_s[i]` to
    `edges_s[i + 1]`.
    """

    edges_s: Floats
    held_s: Floats
    booting_s: Floats
    busy_s: Floats
    trial_s: Floats

    @property
    def busy(self) -> Floats:
        """The share of the time it was paid for in which a row was busy; NaN where it was not held."""
        return divided(self.busy_s, self.held_s)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Every device in the order the machines came; when trials were on it, by its place; and how many ran in all."""

    devices: tuple[DeviceUse, ...]
    on_devices: Spans
    running: Spans
    from_s: float
    to_s: float

    @property
    def held_device_s(self) -> float:
        return sum(device.held_s for device in self.devices)

    @property
    def booting_device_s(self) -> float:
        return sum(device.booting_s for device in self.devices)

    @property
    def busy_device_s(self) -> float:
        return sum(device.busy_s for device in self.devices)

    @property
    def busy(self) -> float | None:
        """The share of the time that devices were paid for in which they were busy; None before there was any."""
        return _share(self.busy_device_s, self.held_device_s)

    @property
    def booting(self) -> float | None:
        return _share(self.booting_device_s, self.held_device_s)

    @property
    def trials_per_busy_device(self) -> float | None:
        """1 where no device is shared; a trial on several devices is on each of them."""
        return _share(sum(device.trial_s for device in self.devices), self.busy_device_s)

    def windows(self, window: str | float | None = None, devices_per_row: int = 1) -> Windows:
        """By device, or several in a row; `window` is a time such as "30s", by default about a 120th of the run."""
        if devices_per_row < 1:
            raise SpecError(f"devices_per_row={devices_per_row!r}: must be 1 or more")
        length_s = usual_window_s(self.to_s - self.from_s) if window is None else parse_duration(window, "window")
        rows = -(-len(self.devices) // devices_per_row)
        count = max(1.0, np.ceil((self.to_s - self.from_s) / length_s))
        if rows * count > MOST_CELLS:
            raise SpecError(
                f"window={window!r}: {rows:,} rows of {count:,.0f} windows are too many; at most {MOST_CELLS:,} cells "
                "are counted: give a longer window"
            )
        edges_s = np.append(np.minimum(self.from_s + length_s * np.arange(int(count)), self.to_s), self.to_s)
        from_s, ready_s, to_s = _lives(self.devices)
        row, on = np.arange(len(self.devices)) // devices_per_row, self.on_devices
        on_row = on.place // devices_per_row
        return Windows(
            edges_s,
            held_s=_spread(row, from_s, to_s, 1.0, edges_s, rows),
            booting_s=_spread(row, from_s, ready_s, 1.0, edges_s, rows),
            busy_s=_spread(on_row, on.from_s, on.to_s, 1.0, edges_s, rows),
            trial_s=_spread(on_row, on.from_s, on.to_s, on.at_once, edges_s, rows),
        )


def utilisation(view: RunView) -> Utilisation:
    machines = view.machines
    devices = tuple(_unused(machines, view.ready_s))
    place, from_s, to_s, begins = _segments(view, _Places(machines))
    together = overlaps(from_s[begins], to_s[begins])
    _, ready_s, gone_s = _lives(devices)
    known = place >= 0
    place, from_s, to_s = place[known], from_s[known], to_s[known]
    # A loss that is heard of late ends what was on a machine before it seemed to end.
    on = overlaps(np.maximum(from_s, ready_s[place]), np.minimum(to_s, gone_s[place]), place)
    busy_s = np.bincount(on.place, on.length_s, len(devices)).tolist()
    trial_s = np.bincount(on.place, on.length_s * on.at_once, len(devices)).tolist()
    used = tuple(
        DeviceUse(use.machine, use.device, use.from_s, use.ready_s, use.to_s, busy, trials)
        for use, busy, trials in zip(devices, busy_s, trial_s, strict=True)
    )
    return Utilisation(used, on, together, min((0.0, *(use.from_s for use in machines))), view.at_s)


def utilisation_dict(view: RunView) -> dict[str, Any]:
    use = utilisation(view)
    windows = use.windows(devices_per_row=max(1, len(use.devices)))
    names = "held_s", "booting_s", "busy_s", "trial_s"
    return {
        "busy": use.busy,
        "booting": use.booting,
        "trials_per_busy_device": use.trials_per_busy_device,
        "held_device_s": use.held_device_s,
        "booting_device_s": use.booting_device_s,
        "busy_device_s": use.busy_device_s,
        "each": [asdict(device) for device in use.devices],
        "windows": {
            "edges_s": windows.edges_s.tolist(),
            **{name: getattr(windows, name).sum(axis=0).tolist() for name in names},
        },
    }


def overlaps(from_s: Floats, to_s: Floats, place: Ints | None = None) -> Spans:
    """How many there are at once at each place, while there are any; None: all are at the same."""
    place = np.zeros(len(from_s), dtype=int) if place is None else place
    real = to_s > from_s
    at_s, where = np.concatenate([from_s[real], to_s[real]]), np.tile(place[real], 2)
    change = np.repeat([1, -1], real.sum())
    order = np.lexsort((at_s, where))
    at_s, where, count = at_s[order], where[order], np.cumsum(change[order])
    steps = np.flatnonzero((count[:-1] > 0) & (at_s[1:] > at_s[:-1]))
    begin_s, end_s, where, count = at_s[steps], at_s[steps + 1], where[steps], count[steps]
    # One leaves as another comes: it goes on as it was.
    new = (end_s[:-1] != begin_s[1:]) | (where[:-1] != where[1:]) | (count[:-1] != count[1:])
    some = np.ones(min(1, len(steps)), dtype=bool)
    first, last = np.append(some, new), np.append(new, some)
    return Spans(where[first], begin_s[first], end_s[last], count[first])


def average(spans: Spans, edges_s: Floats) -> Floats:
    """How many there were in each window, on average, at all places together."""
    everywhere = np.zeros(len(spans.place), dtype=int)
    return divided(_spread(everywhere, spans.from_s, spans.to_s, spans.at_once, edges_s, 1)[0], np.diff(edges_s))


def divided(amounts: Floats, by: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    return np.divide(amounts, by, out=np.full_like(amounts, np.nan), where=by > 0)


def usual_window_s(length_s: float) -> float:
    """A round time that a run of such a length has about `USUAL_WINDOWS` of."""
    least_s = length_s / USUAL_WINDOWS
    if least_s > LENGTHS_S[-1]:
        return float(np.ceil(least_s / LENGTHS_S[-1]) * LENGTHS_S[-1])
    if least_s > 0.5:
        return float(next(length_s for length_s in LENGTHS_S if length_s >= least_s))
    decade = 10.0 ** np.floor(np.log10(least_s)) if least_s > 0 else 0.1
    return float(next(step * decade for step in (1, 2, 5, 10) if step * decade >= least_s))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _unused(machines: list[MachineUse], ready_s: list[float]) -> Iterator[DeviceUse]:
    for use, usable_s in zip(machines, ready_s, strict=True):
        to_s = max(use.from_s, use.to_s)
        life = use.from_s, min(max(use.from_s, usable_s), to_s), to_s
        yield from (DeviceUse(use.node, device, *life, 0.0, 0.0) for device in range(use.devices))


def _lives(devices: tuple[DeviceUse, ...]) -> tuple[Floats, Floats, Floats]:
    lives = np.array([(use.from_s, use.ready_s, use.to_s) for use in devices], dtype=float).reshape(-1, 3)
    return lives[:, 0], lives[:, 1], lives[:, 2]


class _Places:
    """Where a device is in the order of all devices. A machine that was lost may have come again under its name."""

    def __init__(self, machines: list[MachineUse]) -> None:
        self._by_node: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
        place = 0
        for use in machines:
            self._by_node[use.node].append((use.from_s, place, use.devices))
            place += use.devices

    def of(self, busy: Busy) -> int:
        """-1: it is of no machine that is known."""
        uses = self._by_node.get(busy.slot.node)
        if not uses:
            return -1
        _, first, devices = uses[max(0, bisect_right(uses, busy.from_s, key=lambda use: use[0]) - 1)]
        return first + busy.slot.device if busy.slot.device < devices else -1


def _segments(view: RunView, places: _Places) -> tuple[Ints, Floats, Floats, NDArray[np.bool_]]:
    """Place, from, to, and whether it is the first of the devices that a trial had at the same time."""
    rows: list[tuple[int, float, float, bool]] = []
    before: tuple[str, float, float] | None = None
    for busy in view.segments():
        run = busy.trial, busy.from_s, busy.to_s
        rows.append((places.of(busy), busy.from_s, busy.to_s, run != before))
        before = run
    table = np.array(rows, dtype=float).reshape(-1, 4)
    return table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3].astype(bool)


def _spread(row: Ints, from_s: Floats, to_s: Floats, weight: Ints | float, edges_s: Floats, rows: int) -> Floats:
    """Seconds by row and window; at a cost that does not grow with how many windows each part lasts."""
    lengths_s = np.append(np.diff(edges_s), 0.0)
    begun, whole = np.zeros((2, rows, len(lengths_s)))
    first = np.clip(np.searchsorted(edges_s, from_s, side="right") - 1, 0, len(lengths_s) - 2)
    last = np.clip(np.searchsorted(edges_s, to_s, side="right") - 1, 0, len(lengths_s) - 2)
    # What is left of its first window, every one after that, and of the last one only what is before its end.
    np.add.at(begun, (row, first), weight * (edges_s[first + 1] - from_s))
    np.add.at(begun, (row, last), weight * (to_s - edges_s[last + 1]))
    np.add.at(whole, (row, first + 1), weight)
    np.add.at(whole, (row, last + 1), -weight)
    amounts: Floats = np.maximum(0.0, begun + np.cumsum(whole, axis=1) * lengths_s)[:, :-1]
    return amounts
