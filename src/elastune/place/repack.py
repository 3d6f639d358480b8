"""A place for trials that have none although enough devices are free: others make room for them.

This is the placement controller of RubberBand (Misra et al., EuroSys 2021, section 4.4, Algorithm 3).

    paper                here
    alloc                `wanted`: the width of every trial
    lastPlan             `placed`: the slots of those that have some
    nodes                `machines`: their devices, in the order in which they came
    reserved             `reserved`: told to move or to leave, and not known to have done so
    trialsToMove         `to_move`
    tryMakeSpace         `Room.make_space`, for a trial on one machine, and `Room.make_whole`, for one on several

The paper leaves open what happens when a trial that was displaced finds no place any more. Here the plan is compared
with packing everything from scratch, and with displacing nobody where neither has a place for all; the best is taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from elastune.messages import Slot
from elastune.place.room import Device, Room, Spot, free_devices, spot_of
from elastune.spec import Width


def repack(
    wanted: Mapping[str, Width],
    placed: Mapping[str, tuple[Slot, ...]],
    machines: Mapping[str, int],
    reserved: Collection[str],
) -> dict[str, tuple[Slot, ...]]:
    """Slots for all trials; one that there is no place for is absent. Who is narrower than a machine is on one, who is
    wider has whole machines.

    Who keeps its width and need not make room keeps its slots, and nobody loses its place for another: if it cannot be
    moved, the other waits. Who moves gets devices that are free already where it can. Reserved trials and those with a
    part of a device stay where they are. Slots of trials that are neither wanted nor reserved are free.

    Takes O((trials + machines) log machines) for each width that occurs.
    """
    fixed = {t: slots for t, slots in placed.items() if t in reserved or (t in wanted and wanted[t] < 1)}
    alloc = {t: width for t, width in wanted.items() if t not in reserved and isinstance(width, int)}
    blocked = set(_devices(fixed))
    on = Counter(_devices(placed))
    held = {t: placed[t] for t in alloc if t in placed and all(on[device] == 1 for device in _devices({t: placed[t]}))}
    last = {t: spot_of(slots) for t, slots in held.items()}
    kept = {t: spot for t, spot in last.items() if len(held[t]) == alloc[t] and _is_allowed(spot, alloc[t], machines)}
    plans = [
        _placement(alloc, kept, last, Room(machines, blocked), displace=True),
        _from_scratch(alloc, last, machines, free_devices(machines, blocked)),
    ]
    if all(len(plan) < len(alloc) for plan in plans):
        plans.append(_placement(alloc, kept, last, Room(machines, blocked), displace=False))
    spots = min(plans, key=lambda plan: (len(kept.keys() - plan.keys()), -len(plan), _moves(last, plan)))
    return fixed | _slots(spots, alloc, held, machines, blocked, on)


def _is_allowed(spot: Spot, width: int, machines: Mapping[str, int]) -> bool:
    return spot <= machines.keys() and (len(spot) == 1 or sum(machines[node] for node in spot) == width)


def _moves(last: Mapping[str, Spot], plan: Mapping[str, Spot]) -> int:
    return sum(spot != plan.get(trial) for trial, spot in last.items())


def _placement(
    alloc: Mapping[str, int], kept: Mapping[str, Spot], last: Mapping[str, Spot], room: Room, *, displace: bool
) -> dict[str, Spot]:
    """Algorithm 3. Whoever is displaced is narrower than the one it makes room for, so it comes after it."""
    placement = dict(kept)
    for trial in kept:
        room.put(trial, alloc[trial], kept[trial], give_way=displace)
    number = {trial: index for index, trial in enumerate(alloc)}
    to_move = [(-alloc[trial], number[trial], trial) for trial in alloc if trial not in kept]
    heapify(to_move)
    hopeless = 0
    while to_move:
        _, _, trial = heappop(to_move)
        width, home = alloc[trial], last.get(trial, frozenset())
        displaced: list[str] = []
        spot = room.best_fit(width, home)
        if spot is None and width != hopeless:
            found = room.make_space(width, home) or room.make_whole(width, home)
            if found is None:
                hopeless = width
            else:
                spot, displaced = found
        if spot is None:
            continue
        for other in displaced:
            room.remove(other)
            del placement[other]
            heappush(to_move, (-alloc[other], number[other], other))
        room.put(trial, width, spot, give_way=False)
        placement[trial] = spot
    return placement


def _from_scratch(
    alloc: Mapping[str, int], last: Mapping[str, Spot], machines: Mapping[str, int], free: dict[str, int]
) -> dict[str, Spot]:
    """First fit, the widest first, as if nobody were placed. Of the trials of one width, those that are at one of the
    places that were found for it stay.
    """
    by_width: dict[int, list[str]] = defaultdict(list)
    for trial, width in alloc.items():
        by_width[width].append(trial)
    plan: dict[str, Spot] = {}
    for width, trials in sorted(by_width.items(), reverse=True):
        found = Counter(_first_fit(width, len(trials), machines, free))
        others = []
        for trial in trials:
            if found[last.get(trial, frozenset())] > 0:
                plan[trial] = last[trial]
                found[last[trial]] -= 1
            else:
                others.append(trial)
        plan.update(zip(others, found.elements(), strict=False))
    return plan


def _first_fit(width: int, number: int, machines: Mapping[str, int], free: dict[str, int]) -> list[Spot]:
    """Places for as many trials of one width as there are; they are taken from what is free."""
    found: list[Spot] = []
    for node in free:
        while free[node] >= width and len(found) < number:
            free[node] -= width
            found.append(frozenset((node,)))
    whole = deque(node for node in free if free[node] == machines[node] > 0)
    while len(found) < number:
        chosen: list[str] = []
        too_large: list[str] = []
        missing = width
        while missing and whole:
            node = whole.popleft()
            if machines[node] <= missing:
                chosen.append(node)
                missing -= machines[node]
            else:
                too_large.append(node)
        if missing:
            break
        whole.extendleft(reversed(too_large))
        free.update(dict.fromkeys(chosen, 0))
        found.append(frozenset(chosen))
    return found


def _slots(
    spots: Mapping[str, Spot],
    alloc: Mapping[str, int],
    held: Mapping[str, tuple[Slot, ...]],
    machines: Mapping[str, int],
    blocked: set[Device],
    on: Counter[Device],
) -> dict[str, tuple[Slot, ...]]:
    """The devices: who stays on a machine keeps its own. Of what is left, those that only move choose first, so that
    they get what is free now and need not wait for each other.
    """
    result: dict[str, list[Slot]] = {}
    missing: list[tuple[str, str, int]] = []
    for trial, spot in spots.items():
        share = {node: alloc[trial] if len(spot) == 1 else machines[node] for node in spot}
        result[trial] = []
        for slot in held.get(trial, ()):
            if share.get(slot.node, 0) > 0:
                result[trial].append(slot)
                share[slot.node] -= 1
        missing += [(trial, node, number) for node, number in sorted(share.items()) if number]
    if missing:
        left = _left(machines, blocked | set(_devices(result)), on)
        for trial, node, number in sorted(missing, key=lambda part: len(held.get(part[0], ())) != alloc[part[0]]):
            result[trial] += sorted(Slot(node, left[node].popleft()) for _ in range(number))
    return {trial: tuple(slots) for trial, slots in result.items()}


def _left(machines: Mapping[str, int], taken: Collection[Device], on: Counter[Device]) -> dict[str, deque[int]]:
    """By machine, the devices that are not taken: first those that nobody is on now either."""
    return {
        node: deque(device for _, device in sorted((on[node, d], d) for d in range(devices) if (node, d) not in taken))
        for node, devices in machines.items()
    }


def _devices(placed: Mapping[str, Iterable[Slot]]) -> Iterator[Device]:
    return ((slot.node, slot.device) for slots in placed.values() for slot in slots)
