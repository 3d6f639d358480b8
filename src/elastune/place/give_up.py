"""Which machines to give up when there are to be fewer: those whose trials fit on the others with the fewest moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from math import ceil, comb

from elastune.messages import Slot
from elastune.place.repack import repack
from elastune.place.room import spot_of
from elastune.spec import Width

FEW = 100
"""So many choices are all looked at, where they may fit; otherwise the two that are most likely to be good."""


def to_give_up(
    number: int, wanted: Mapping[str, Width], placed: Mapping[str, tuple[Slot, ...]], machines: Mapping[str, int]
) -> tuple[str, ...]:
    """So many of the machines, which are in the order in which they came; of those that are equal, the oldest.

    Those with the fewest trials cost the fewest moves, if these fit on what is kept and nobody must make room for them.
    """
    spots = {trial: spot_of(slots) for trial, slots in placed.items() if trial in wanted}
    trials: dict[str, Fraction] = defaultdict(Fraction)  # a gang on several machines counts on each for a part
    for spot in spots.values():
        for node in spot:
            trials[node] += Fraction(1, len(spot))
    devices = Counter(node for node, _ in {(slot.node, slot.device) for t in spots for slot in placed[t]})

    def cost(choice: Iterable[str]) -> tuple[int, int]:
        """Trials that have no place, and those that must move."""
        gone = set(choice)
        new = repack(wanted, placed, {node: size for node, size in machines.items() if node not in gone}, ())
        moves = sum(bool(spot & gone) or spot != spot_of(new.get(trial, ())) for trial, spot in spots.items())
        return len(spots.keys() - new.keys()), moves

    fewest = sorted(machines, key=lambda node: (trials[node], devices[node]))
    first = tuple(fewest[:number])
    if cost(first) <= (0, ceil(sum(trials[node] for node in first))):
        return first
    kept = sum(machines[node] for node in fewest[number:])
    if comb(len(machines), number) <= FEW and sum(wanted[t] for t in spots if wanted[t] >= 1) <= kept:
        return min(combinations(fewest, number), key=cost)
    return min(first, tuple(sorted(fewest, key=lambda node: devices[node])[:number]), key=cost)
