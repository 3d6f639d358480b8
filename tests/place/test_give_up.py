"""The machines that are given up are those that cost the fewest moves."""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

from tests.place.test_repack import Case, Placement, at, case, moved

from elastune.messages import Slot
from elastune.place import repack, to_give_up
from elastune.spec import Width


def widths(placed: Placement) -> dict[str, Width]:
    return {trial: len(slots) for trial, slots in placed.items()}


def machines(*devices: int) -> dict[str, int]:
    return {f"n{number}": size for number, size in enumerate(devices)}


def test_of_machines_that_are_used_equally_the_oldest_goes() -> None:
    placed = {"a": at("n0", 0), "b": at("n1", 0), "c": at("n2", 0)}
    assert to_give_up(1, widths(placed), placed, machines(2, 2, 2)) == ("n0",)
    assert to_give_up(2, {}, {}, machines(2, 2, 2)) == ("n0", "n1")


def test_the_fewest_trials_go_before_the_fewest_devices() -> None:
    placed = {"a": at("n0", 0), "b": at("n0", 1), "c": at("n1", 0, 1), "d": at("n2", 0), "e": at("n2", 1)}
    assert to_give_up(1, widths(placed), placed, machines(4, 4, 4)) == ("n1",)


def test_a_machine_whose_trial_needs_much_room_made_stays() -> None:
    placed = {"a": at("n0", 0, 1, 2, 3), "b": at("n1", 0), "c": at("n1", 1), "d": at("n2", 0), "e": at("n2", 1)}
    assert to_give_up(1, widths(placed), placed, machines(4, 4, 4)) == ("n1",), (
        "two move; for the one of n0 three would"
    )


def test_a_gang_that_must_leave_one_of_its_machines_may_leave_all() -> None:
    gang = tuple(Slot(node, device) for node in ("n2", "n3") for device in (0, 1))
    placed = {"gang": gang, "a": at("n0", 0), "b": at("n1", 0), "c": at("n4", 0), "d": at("n5", 0)}
    sizes = machines(2, 2, 2, 2, 2, 2, 2, 2)
    assert to_give_up(4, widths(placed), placed, sizes) == ("n6", "n7", "n0", "n1")


def test_a_trial_with_a_part_of_a_device_counts_as_one_that_moves() -> None:
    half = Fraction(1, 2)
    placed = {"a": (Slot("n0", 0, 0),), "b": (Slot("n0", 0, 1),), "c": at("n1", 0, 1)}
    assert to_give_up(1, {"a": half, "b": half, "c": 2}, placed, machines(2, 2, 4)) == ("n2",)
    placed["d"] = at("n2", 0)
    assert to_give_up(1, {"a": half, "b": half, "c": 2, "d": 1}, placed, machines(2, 2, 4)) == ("n2",)


def test_who_will_not_go_on_does_not_count() -> None:
    placed = {"a": at("n0", 0), "b": at("n1", 0), "over": at("n1", 1)}
    placed |= {"c": at("n0", 1)}
    assert to_give_up(1, {"a": 1, "b": 1, "c": 1}, placed, machines(3, 3)) == ("n1",)


def cost(given: Case, choice: Iterable[str]) -> tuple[int, int]:
    kept = {node: devices for node, devices in given.machines.items() if node not in set(choice)}
    new = repack(given.wanted, given.placed, kept, ())
    parts = [t for t, width in given.wanted.items() if width < 1 and given.placed[t][0].node not in kept]
    lost = given.wanted.keys() - new.keys()
    return len(lost), len(lost) + len(parts) + len(moved(given.placed, new))


def test_where_all_can_stay_a_small_fleet_makes_the_choice_with_the_fewest_moves() -> None:
    rng = random.Random(0)
    compared = 0
    while compared < 500:
        given = case(rng)
        if len(given.machines) < 2:
            continue
        given.placed = {t: s for t, s in given.placed.items() if {slot.node for slot in s} <= given.machines.keys()}
        given.wanted = {t: w if (w := given.wanted[t]) < 1 else len(slots) for t, slots in given.placed.items()}
        number = rng.randint(1, len(given.machines) - 1)
        made = to_give_up(number, given.wanted, given.placed, given.machines)
        assert len(set(made)) == number
        best = min(cost(given, choice) for choice in combinations(given.machines, number))
        if best[0] == 0 and len(set(given.machines.values())) == 1:
            assert cost(given, made) == best
            compared += 1


def test_a_large_fleet_gives_up_its_emptiest_machines() -> None:
    rng = random.Random(0)
    fleet = {f"n{k}": 4 for k in range(400)}
    placed = {f"t{k}-{d}": at(f"n{k}", d) for k in range(400) for d in range(rng.choice([0, 1, 2, 4]))}
    made = to_give_up(150, widths(placed), placed, fleet)
    used = {node: sum(slots[0].node == node for slots in placed.values()) for node in fleet}
    assert max(used[node] for node in made) <= min(used[node] for node in fleet if node not in made)
