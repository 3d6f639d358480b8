"""Trials that have no place although enough devices are free get one; as few others as possible move for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from elastune.messages import Slot
from elastune.place import repack
from elastune.spec import Width

Placement = dict[str, tuple[Slot, ...]]


def at(node: str, *devices: int) -> tuple[Slot, ...]:
    return tuple(Slot(node, device) for device in devices)


def test_a_trial_that_waits_beside_two_half_empty_machines_gets_one_of_them_after_one_move() -> None:
    placed = {"a": at("n0", 0), "b": at("n1", 1)}
    new = repack({"a": 1, "b": 1, "wide": 2}, placed, {"n0": 2, "n1": 2}, ())
    assert new == {"a": at("n0", 0), "b": at("n0", 1), "wide": at("n1", 0, 1)}


def test_nothing_moves_when_everybody_has_a_place() -> None:
    placed = {"a": at("n0", 1), "b": at("n1", 1), "c": at("n2", 0, 1)}
    assert repack({"a": 1, "b": 1, "c": 2}, placed, {"n0": 2, "n1": 2, "n2": 2}, ()) == placed
    new = repack({"a": 1, "b": 1, "c": 2, "d": 1}, placed, {"n0": 2, "n1": 2, "n2": 2}, ())
    assert new == placed | {"d": at("n1", 0)}, "of two machines that fit equally well, the newest"


def test_who_was_told_to_move_or_leave_is_not_displaced() -> None:
    placed = {"a": at("n0", 0), "b": at("n1", 0), "c": at("n2", 0)}
    machines = {"n0": 2, "n1": 2, "n2": 2}
    new = repack({"a": 1, "b": 1, "c": 1, "wide": 2}, placed, machines, ("c", "b"))
    assert new["b"] == placed["b"] and new["c"] == placed["c"] and new["wide"] == at("n0", 0, 1)
    assert "wide" not in repack({"a": 1, "b": 1, "c": 1, "wide": 2}, placed, machines, ("a", "b", "c"))


def test_the_slots_of_a_trial_that_is_not_wanted_are_free_unless_it_still_leaves() -> None:
    placed = {"a": at("n0", 0, 1)}
    assert repack({"b": 2}, placed, {"n0": 2}, ()) == {"b": at("n0", 0, 1)}
    assert repack({"b": 2}, placed, {"n0": 2}, ("a",)) == placed


def test_a_displaced_trial_displaces_narrower_ones_in_its_turn() -> None:
    placed = {
        **{f"x{k}": at("n0", k) for k in range(3)},
        "two": at("n1", 0, 1),
        "last": at("n1", 2),
        **{f"y{k}": at("n2", k) for k in range(3)},
        **{f"z{k}": at("n3", k) for k in range(3)},
    }
    machines = dict.fromkeys(("n0", "n1", "n2", "n3"), 4)
    new = repack({trial: len(slots) for trial, slots in placed.items()} | {"wide": 4}, placed, machines, ())
    assert_sound(new, machines)
    assert len(new) == len(placed) + 1 and len(moved(placed, new)) == 3, "the one of three, or two, one and another one"


def test_a_trial_wider_than_a_machine_gets_the_machines_that_the_fewest_must_leave() -> None:
    placed = {
        "a": at("n0", 0),
        "b": at("n1", 0),
        "c": at("n1", 1),
        "d": at("n2", 0),
        "e": at("n3", 0, 1),
    }
    machines = dict.fromkeys(("n0", "n1", "n2", "n3", "n4"), 4)
    new = repack({trial: len(slots) for trial, slots in placed.items()} | {"wide": 8}, placed, machines, ())
    assert {slot.node for slot in new["wide"]} == {"n4", "n2"} and len(new["wide"]) == 8
    assert moved(placed, new) == {"d"}


def test_a_gang_on_several_machines_makes_room_as_a_whole() -> None:
    placed = {"gang": (*at("n0", 0, 1), *at("n1", 0, 1)), "a": at("n2", 0), "b": at("n2", 1)}
    machines = dict.fromkeys(("n0", "n1", "n2", "n3", "n4", "n5", "n6"), 2)
    new = repack({"gang": 4, "a": 1, "b": 1, "wide": 8}, placed, machines, ())
    assert new["gang"] == placed["gang"] and new["a"] == placed["a"] and len(new["wide"]) == 8
    placed["c"], placed["d"] = at("n3", 0), at("n4", 0)
    new = repack(dict.fromkeys("abcd", 1) | {"gang": 4, "wide": 8}, placed, machines, ("a", "c", "d"))
    assert "wide" not in new and new["gang"] == placed["gang"], "there are not enough machines that could be emptied"


def test_a_trial_that_grows_stays_on_its_machine_and_its_neighbour_goes() -> None:
    placed = {"a": at("n0", 1), "b": at("n0", 0), "c": at("n1", 0)}
    new = repack({"a": 2, "b": 1, "c": 1}, placed, {"n0": 2, "n1": 2}, ())
    assert len(new["a"]) == 2 and len(moved(placed, new)) == 1


def test_devices_that_trials_share_are_left_alone() -> None:
    half = Fraction(1, 2)
    placed = {"a": (Slot("n0", 0, 0),), "b": (Slot("n0", 0, 1),), "c": at("n1", 1)}
    new = repack({"a": half, "b": half, "c": 1, "d": 2}, placed, {"n0": 2, "n1": 2}, ())
    assert new == {"a": placed["a"], "b": placed["b"], "c": at("n0", 1), "d": at("n1", 0, 1)}
    assert repack({"a": 1, "b": half}, placed, {"n0": 2, "n1": 2}, ())["a"] != at("n0", 0), "it was shared"


def test_who_is_on_a_machine_that_goes_moves_and_others_make_room_for_it() -> None:
    placed = {"a": at("n0", 0, 1), "b": at("n1", 0), "c": at("n2", 0)}
    new = repack({"a": 2, "b": 1, "c": 1}, placed, {"n1": 2, "n2": 2}, ())
    assert sorted(map(len, new.values())) == [1, 1, 2] and len(moved(placed, new)) == 2
    assert_sound(new, {"n1": 2, "n2": 2})


def test_a_trial_that_straddles_two_machines_is_brought_together() -> None:
    placed = {"a": (Slot("n0", 0), Slot("n1", 0)), "b": at("n1", 1)}
    new = repack({"a": 2, "b": 1}, placed, {"n0": 2, "n1": 2}, ())
    assert new == {"a": at("n0", 0, 1), "b": at("n1", 1)}


def test_where_displacing_leads_nowhere_all_is_packed_from_scratch() -> None:
    """Three and three are to go with two, two and two: no trial can make room for another of its own width."""
    placed = {"a": at("n0", 0, 1), "b": at("n1", 0, 1, 2), "c": at("n2", 0, 1, 2), "d": at("n0", 2, 3)}
    machines = dict.fromkeys(("n0", "n1", "n2"), 6)
    wanted = {"a": 2, "b": 3, "c": 3, "d": 2, "e": 6, "f": 2}
    new = repack(wanted, placed, machines, ())
    assert new.keys() == wanted.keys()
    assert_sound(new, machines)


# ---------------------------------------------------------------------------------------------- what holds in any case


@dataclass
class Case:
    machines: dict[str, int]
    wanted: dict[str, Width]
    placed: Placement
    reserved: set[str] = field(default_factory=set)


Solved = list[tuple[Case, Placement]]


def cases(number: int) -> Iterator[Case]:
    rng = random.Random(0)
    return (case(rng) for _ in range(number))


def case(rng: random.Random) -> Case:
    """Trials that came and went on a few machines, mostly of one size, and what is wanted of them next."""
    size = rng.choice([1, 2, 4, 4, 8])
    sizes = [size if rng.random() < 0.8 else rng.choice([1, 2, 4, 8]) for _ in range(rng.randint(1, 7))]
    if rng.random() < 0.7:
        sizes = [size] * len(sizes)
    machines = {f"n{number}": devices for number, devices in enumerate(sizes)}
    widths = rng.choice([[1, 2], [1, 2, 4], [1, 2, 3], [1, 1, 1, 2], [1, 2, 4, 8, 16], [2, 3, 5]])
    placed: Placement = {}
    wanted: dict[str, Width] = {}
    free = {node: list(range(devices)) for node, devices in machines.items()}
    for number in range(rng.randint(0, 20)):
        trial, width = f"t{number}", rng.choice(widths)
        nodes = sorted(free, key=lambda node: rng.random())
        if (found := first_fit(width, nodes, machines, {node: len(free[node]) for node in nodes})) is None:
            continue
        placed[trial] = tuple(
            Slot(node, free[node].pop(rng.randrange(len(free[node]))))
            for node, part in found.items()
            for _ in range(part)
        )
        wanted[trial] = width
        if width == 1 and rng.random() < 0.1:
            wanted[trial] = Fraction(1, 2)
    for trial in [trial for trial in placed if rng.random() < rng.choice([0.1, 0.5])]:
        del placed[trial], wanted[trial]
    reserved = {trial for trial in placed if rng.random() < 0.1}
    for trial in [trial for trial in placed if wanted[trial] >= 1 and rng.random() < 0.1]:
        wanted[trial] = rng.choice(widths)
    for number in range(rng.randint(0, 4)):
        wanted[f"new{number}"] = rng.choice(widths)
    if len(machines) > 1 and rng.random() < 0.2:
        del machines[rng.choice(sorted(machines))]
    return Case(machines, wanted, placed, reserved)


def first_fit(
    width: int, nodes: list[str], machines: Mapping[str, int], free: Mapping[str, int]
) -> Counter[str] | None:
    """The first machine that has room, or the first empty ones that make up the width."""
    for node in nodes:
        if free[node] >= width:
            return Counter({node: width})
    found: Counter[str] = Counter()
    for node in nodes:
        if free[node] == machines[node] <= width - found.total():
            found[node] = machines[node]
    return found if found.total() == width else None


def from_scratch(given: Case) -> dict[str, Counter[str]] | None:
    """First fit decreasing around what cannot be moved, on the newest machine first; None if somebody has no place."""
    nodes = list(reversed(given.machines))
    free = {node: given.machines[node] for node in nodes}
    for node, _ in {(slot.node, slot.device) for trial in fixed(given) for slot in given.placed[trial]}:
        if node in free:
            free[node] -= 1
    plan: dict[str, Counter[str]] = {}
    for trial in sorted(movable(given), key=lambda trial: -given.wanted[trial]):
        width = given.wanted[trial]
        assert isinstance(width, int)
        found = first_fit(width, nodes, given.machines, free)
        if found is None:
            return None
        for node, part in found.items():
            free[node] -= part
        plan[trial] = found
    return plan


def fixed(given: Case) -> list[str]:
    return [t for t in given.placed if t in given.reserved or given.wanted[t] < 1]


def movable(given: Case) -> list[str]:
    return [t for t in given.wanted if t not in given.reserved and given.wanted[t] >= 1]


def is_at_home(given: Case, trial: str) -> bool:
    """It has what is wanted for it, on machines that are there."""
    slots = given.placed.get(trial, ())
    return len(slots) == given.wanted[trial] and all(slot.node in given.machines for slot in slots)


def moved(before: Mapping[str, tuple[Slot, ...]], after: Mapping[str, tuple[Slot, ...]]) -> set[str]:
    return {t for t in before if t in after and {s.node for s in before[t]} != {s.node for s in after[t]}}


def assert_sound(new: Mapping[str, tuple[Slot, ...]], machines: Mapping[str, int]) -> None:
    """Every device is there and goes to one trial; a gang is on one machine or on whole ones."""
    devices = [(slot.node, slot.device) for slots in new.values() for slot in slots]
    assert len(devices) == len(set(devices)) and all(0 <= device < machines[node] for node, device in devices)
    for slots in new.values():
        on = Counter(slot.node for slot in slots)
        assert len(on) == 1 or all(part == machines[node] for node, part in on.items())


@pytest.fixture(scope="module")
def solved() -> Solved:
    return [(given, repack(given.wanted, given.placed, given.machines, given.reserved)) for given in cases(10_000)]


def test_no_device_is_given_twice_and_no_gang_is_split(solved: Solved) -> None:
    for given, new in solved:
        assert new.keys() <= given.wanted.keys() | given.reserved
        for trial in movable(given):
            assert trial not in new or len(new[trial]) == given.wanted[trial]
        there = {t: slots for t, slots in new.items() if t not in fixed(given)}
        assert_sound(there, given.machines)
        blocked = {slot for t in fixed(given) for slot in given.placed[t]}
        assert blocked.isdisjoint(slot for slots in there.values() for slot in slots)


def test_who_cannot_be_moved_is_where_it_was(solved: Solved) -> None:
    for given, new in solved:
        assert {t: new[t] for t in fixed(given)} == {t: given.placed[t] for t in fixed(given)}


def test_who_keeps_its_width_and_its_machines_keeps_its_slots(solved: Solved) -> None:
    kept = 0
    for given, new in solved:
        for trial, slots in given.placed.items():
            stays = trial in new and {slot.node for slot in slots} == {slot.node for slot in new[trial]}
            if stays and len(slots) == len(new[trial]):
                assert new[trial] == slots
                kept += 1
    assert kept > 10_000


def test_nobody_loses_its_place_for_another(solved: Solved) -> None:
    for given, new in solved:
        assert {t for t in movable(given) if is_at_home(given, t)} <= new.keys()


def test_nobody_moves_unless_somebody_needs_a_place(solved: Solved) -> None:
    for given, new in solved:
        if all(is_at_home(given, trial) for trial in movable(given)):
            assert new == given.placed


def test_it_places_all_that_packing_from_scratch_places_with_no_more_moves(
    solved: Solved,
) -> None:
    complete, fewer = 0, 0
    for given, new in solved:
        if (scratch := from_scratch(given)) is None:
            continue
        assert new.keys() >= set(movable(given))
        moves = sum(t in given.placed and {s.node for s in given.placed[t]} != set(scratch[t]) for t in scratch)
        assert len(moved(given.placed, new)) <= moves
        complete += 1
        fewer += len(moved(given.placed, new)) < moves
    assert complete > 5_000 and fewer > complete / 2, "the comparison means something"
