"""Who moves so that a trial gets a place for which enough devices are free, but not together."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from elastune.control.state import Trial
from elastune.messages import Slot
from elastune.place import FreeSlots, repack
from elastune.spec import Width


class Move(NamedTuple):
    before: tuple[Slot, ...]
    after: tuple[Slot, ...]


def displace(
    without: Mapping[str, Width],
    widths: Mapping[str, Width],
    trials: Mapping[str, Trial],
    free: FreeSlots,
    started: Collection[str],
) -> dict[str, Move]:
    """The moves of others after which there is a place for some of those that are `without`, if there are any such.
    `widths` has the trials that hold slots; who was told to move or to leave, or was `started` just now, stays.
    """
    attempts = list(_attempts(without, widths, trials, free))
    if not attempts:
        return {}
    holding = {trial_id: trials[trial_id] for trial_id in widths}
    placed = {trial_id: tuple(dict.fromkeys(trial.slots + trial.next_slots)) for trial_id, trial in holding.items()}
    busy = {trial_id for trial_id, trial in holding.items() if trial.leaving or trial.next_slots}.union(started)
    machines = free.machines
    for some in attempts:
        new = repack({**widths, **some}, placed, machines, busy.union(without.keys() - some.keys()))
        moves = {
            trial_id: Move(slots, new[trial_id])
            for trial_id, slots in placed.items()
            if trial_id not in some and new.get(trial_id, slots) != slots
        }
        if moves:
            return moves
    return {}


def _attempts(
    without: Mapping[str, Width], widths: Mapping[str, Width], trials: Mapping[str, Trial], slots: FreeSlots
) -> Iterator[dict[str, Width]]:
    """Whom to look for a place for: as many as enough devices are free for at once; if that leads nowhere, the first of
    every width alone. Only where somebody is narrower can anybody make room.
    """
    free, machines = len(slots), slots.machines
    narrowest = min((width for width in widths.values() if width >= 1), default=math.inf)
    together: dict[str, Width] = {}
    alone: dict[Width, str] = {}
    left: Width = free
    for trial_id, width in without.items():
        more = width - sum(slot.node in machines for slot in trials[trial_id].slots)
        if width <= narrowest or more > free:
            continue
        alone.setdefault(width, trial_id)
        if more <= left:
            left -= more
            together[trial_id] = width
    if len(together) > 1:
        yield together
    yield from ({trial_id: width} for width, trial_id in alone.items())
