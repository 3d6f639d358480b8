"""How many machines some trials take."""

from __future__ import annotations

from collections.abc import Mapping

from elastune.spec import Width


def machines_needed(trials: Mapping[int, int] | Mapping[Width, int], devices: int) -> int:
    """How many machines so many trials of each width take, the widest first: a trial is on one machine or on whole
    ones.
    """
    machines = 0
    free: dict[Width, int] = {}  # machines by the devices that are left on them
    for width, count in sorted(trials.items(), reverse=True):
        if width >= devices:
            machines += count * int(width // devices)
            continue
        while count > 0:
            room = min((left for left, number in free.items() if left >= width and number), default=None)
            if room is None:
                number = -(-count // int(devices // width))  # of new ones, all but the last are filled
                machines += number
                full, rest = divmod(count, int(devices // width))
                _add(free, devices % width, full)
                if rest:
                    _add(free, devices - rest * width, 1)
                break
            fits = int(room // width)
            number = min(free[room], -(-count // fits))
            full = min(number, count // fits)
            free[room] -= number
            _add(free, room - fits * width, full)
            count -= full * fits
            if full < number:
                _add(free, room - count * width, 1)
                count = 0
    return machines


def _add(free: dict[Width, int], left: Width, number: int) -> None:
    if left and number:
        free[left] = free.get(left, 0) + number
