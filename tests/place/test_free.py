from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elastune.messages import Slot
from elastune.place import FreeSlots
from elastune.spec import Width, share_of

HALF, THIRD, QUARTER = (Fraction(1, k) for k in (2, 3, 4))


def one(free: FreeSlots) -> Slot:
    slots = free.take()
    assert slots is not None and len(slots) == 1
    return slots[0]


def test_a_trial_narrower_than_a_machine_gets_the_machine_it_fits_best() -> None:
    free = FreeSlots()
    for node, devices in (("n0", 4), ("n1", 3), ("n2", 2)):
        free.add_node(node, devices)
    assert free.take(3) == (Slot("n1", 0), Slot("n1", 1), Slot("n1", 2))
    assert free.take(2) == (Slot("n2", 0), Slot("n2", 1))
    assert free.take(2) == (Slot("n0", 0), Slot("n0", 1))
    assert free.take(3) is None, "two are free: it would not fit"
    assert len(free) == 2


def test_a_trial_wider_than_a_machine_gets_whole_machines_or_nothing() -> None:
    free = FreeSlots()
    for node in ("n0", "n1", "n2"):
        free.add_node(node, 2)
    one(free)
    assert free.take(6) is None and free.take(3) is None and len(free) == 5
    assert free.take(4) == (Slot("n1", 0), Slot("n1", 1), Slot("n0", 0), Slot("n0", 1))


def test_a_trial_that_grows_keeps_what_it_holds_where_it_can() -> None:
    free = FreeSlots()
    for node in ("n0", "n1"):
        free.add_node(node, 4)
    held = free.take(2)
    assert held is not None
    wider = free.resize(held, 4)
    assert wider == (*held, Slot("n1", 2), Slot("n1", 3)) and len(free) == 4
    assert free.resize(wider, 8) == (*wider, *(Slot("n0", device) for device in range(4)))
    assert len(free) == 0


def test_a_trial_that_cannot_grow_where_it_is_moves_or_stays() -> None:
    free = FreeSlots()
    free.add_node("n0", 4)
    free.add_node("n1", 2)
    first, _ = one(free), one(free)
    assert free.resize((first,), 3) == (Slot("n0", 0), Slot("n0", 1), Slot("n0", 2))
    assert free.resize((first,), 3) is None and len(free) == 1


def test_a_trial_that_shrinks_gives_up_its_last_slots() -> None:
    free = FreeSlots()
    for node in ("n0", "n1"):
        free.add_node(node, 2)
    held = free.take(4)
    assert held is not None
    assert free.resize(held, 2) == held[:2] and free.resize(held, 1) == held[:1]
    assert free.resize(held, 3) is None, "it would straddle"


def test_the_devices_of_the_newest_machine_go_first() -> None:
    free = FreeSlots()
    free.add_node("n0", 1)
    free.add_node("n1", 2)
    free.add_node("n0a", 1)
    assert [one(free) for _ in range(4)] == [Slot("n0a", 0), Slot("n1", 0), Slot("n1", 1), Slot("n0", 0)]


def test_of_machines_that_fit_equally_well_the_newest_is_used() -> None:
    free = machines(2, 4, 4, 4)
    assert free.take(3) == (Slot("n3", 0), Slot("n3", 1), Slot("n3", 2))
    assert free.take(4) == tuple(Slot("n2", device) for device in range(4))
    free = machines(1, 1)
    assert free.take(HALF) == (Slot("n1", 0, 0),)


def test_exactly_these_devices_can_be_had_if_nobody_is_on_any_of_them() -> None:
    free = machines(2, 2)
    taken = one(free)
    assert not free.claim([Slot("n0", 1), taken]) and not free.claim([Slot("n2", 0)]) and len(free) == 3
    assert free.claim([Slot("n0", 1), Slot("n1", 1)]) and len(free) == 1
    assert one(free) == Slot("n0", 0) and free.take() is None
    free.give(Slot("n1", 1))
    free.close_node("n1")
    assert not free.claim([Slot("n1", 1)])


def test_what_comes_back_goes_out_again_lowest_first() -> None:
    free = FreeSlots()
    free.add_node("n0", 3)
    taken = [one(free) for _ in range(3)]
    for slot in (taken[2], taken[0]):
        free.give(slot)
    assert one(free) == Slot("n0", 0)


def test_a_machine_that_was_taken_out_gets_nothing_back() -> None:
    free = FreeSlots()
    free.add_node("n0", 1)
    free.add_node("n1", 2)
    taken = one(free)
    free.remove_node("n1")
    free.give(taken)
    assert len(free) == 1 and one(free) == Slot("n0", 0)


def test_the_order_stays_when_a_machine_is_taken_out() -> None:
    free = FreeSlots()
    for node in ("n0", "n1", "n2"):
        free.add_node(node, 1)
    free.take()
    free.remove_node("n2")
    assert [one(free) for _ in range(2)] == [Slot("n1", 0), Slot("n0", 0)]


def machines(*devices: int) -> FreeSlots:
    free = FreeSlots()
    for number, size in enumerate(devices):
        free.add_node(f"n{number}", size)
    return free


def part(free: FreeSlots, share: Fraction) -> Slot:
    slots = free.take(share)
    assert slots is not None and len(slots) == 1
    return slots[0]


def test_trials_with_a_part_of_a_device_share_it_on_lanes_of_their_own() -> None:
    free = machines(2)
    assert [part(free, HALF) for _ in range(3)] == [Slot("n0", 0, 0), Slot("n0", 0, 1), Slot("n0", 1, 0)]
    assert (len(free), free.capacity, free.room(HALF), free.room(QUARTER), free.room(1)) == (0, HALF, 1, 2, 0)
    assert part(free, HALF) == Slot("n0", 1, 1)
    assert free.take(HALF) is None and free.take(QUARTER) is None and free.capacity == 0


def test_a_part_goes_to_the_fullest_device_that_has_room_for_it() -> None:
    free = machines(1, 1, 1)
    first, _ = part(free, HALF), part(free, QUARTER)
    assert part(free, HALF) == Slot("n1", 0, 0), "a quarter of the first is left"
    free.give(first)
    assert part(free, QUARTER) == Slot("n1", 0, 1), "a half of it is left, and of the first three quarters"
    assert one(free) == Slot("n0", 0), "a whole device stayed free for a whole trial"


def test_a_device_is_free_for_a_whole_trial_only_when_nobody_is_on_it() -> None:
    free = machines(1)
    parts = [part(free, THIRD) for _ in range(3)]
    for slot in parts[:2]:
        free.give(slot)
        assert free.take() is None and len(free) == 0
    free.give(parts[2])
    assert len(free) == 1 and one(free) == Slot("n0", 0)


def test_the_lowest_lane_that_is_free_goes_out_first() -> None:
    free = machines(1)
    parts = [part(free, QUARTER) for _ in range(4)]
    for slot in (parts[2], parts[1]):
        free.give(slot)
    assert [part(free, QUARTER) for _ in range(2)] == parts[1:3]


def test_a_part_grows_where_it_is_as_far_as_there_is_room_and_moves_otherwise() -> None:
    free = machines(1, 1)
    slot, neighbour = part(free, QUARTER), part(free, HALF)
    assert free.resize((slot,), HALF) == (slot,) and free.capacity == 1
    assert free.resize((slot,), 1) == (Slot("n0", 0),), "it is not alone on its device"
    free.give(neighbour)
    free.give(Slot("n0", 0))
    assert free.resize((slot,), 1) == (slot,) and free.capacity == 1
    assert free.resize((slot,), 2) == (slot, Slot("n0", 0)) and free.capacity == 0


def test_what_a_trial_leaves_of_its_device_is_free_once_it_has_become_narrower() -> None:
    free = machines(2)
    held = free.take(2)
    assert held is not None
    assert free.resize(held, HALF) == held[:1] and free.capacity == 0
    free.give(held[1])
    free.keep(held[0], HALF)
    assert free.capacity == 1 + HALF and part(free, HALF) == Slot("n0", 0, 1)


def test_a_trial_that_was_to_get_its_whole_device_and_does_not_leaves_the_rest_to_others() -> None:
    free = machines(1, 1)
    slot = part(free, HALF)
    assert free.resize((slot,), 2) == (slot, Slot("n0", 0))
    free.remove_node("n0")
    free.keep(slot, HALF)
    assert free.capacity == HALF


def test_nothing_of_a_closed_machine_is_handed_out_until_it_is_opened_again() -> None:
    free = machines(1, 2)
    held = part(free, HALF)
    free.close_node("n1")
    assert (free.capacity, free.room(HALF), free.take(2), free.machines) == (1, 2, None, {"n0": 1})
    assert free.resize((held,), HALF) == (Slot("n0", 0, 0),)
    free.give(held)
    assert free.capacity == HALF and free.in_use("n1") == 0
    free.open_node("n1")
    assert free.capacity == 2 + HALF and free.take(2) == (Slot("n1", 0), Slot("n1", 1))


def test_a_gang_on_several_machines_leaves_only_the_one_that_is_closed() -> None:
    free = machines(2, 2, 2)
    held = free.take(4)
    assert held is not None
    free.close_node("n2")
    assert free.resize(held, 4) == (*held[2:], Slot("n0", 0), Slot("n0", 1))


class AgainstASet(RuleBasedStateMachine):
    """The same operations on a plain set of slots and the order in which the machines came."""

    def __init__(self) -> None:
        super().__init__()
        self.real = FreeSlots()
        self.order: list[str] = []
        self.free: set[Slot] = set()
        self.taken: list[Slot] = []
        self.count = 0

    @rule(devices=st.integers(1, 4))
    def add_node(self, devices: int) -> None:
        node = f"n{self.count}"
        self.count += 1
        self.real.add_node(node, devices)
        self.order.append(node)
        self.free |= {Slot(node, device) for device in range(devices)}

    @precondition(lambda self: self.count > 0)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        node = f"n{data.draw(st.integers(0, self.count - 1))}"
        self.real.remove_node(node)
        self.order = [other for other in self.order if other != node]
        self.free = {slot for slot in self.free if slot.node != node}

    @precondition(lambda self: self.free)
    @rule()
    def take(self) -> None:
        expected = min(self.free, key=lambda slot: (-self.order.index(slot.node), slot.device))
        assert one(self.real) == expected
        self.free.remove(expected)
        self.taken.append(expected)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        slot = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.real.give(slot)
        if slot.node in self.order:
            self.free.add(slot)

    @rule()
    def pickle(self) -> None:
        self.real = pickle.loads(pickle.dumps(self.real))

    @invariant()
    def as_many_are_free(self) -> None:
        assert len(self.real) == len(self.free)


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)


@dataclass
class Holder:
    """A trial as the controller sees it: where it is, and what it has there."""

    slots: tuple[Slot, ...]
    width: Width


class Packed(RuleBasedStateMachine):
    """Trials of all widths on machines of two devices, against books that are kept from the answers alone."""

    WIDTHS = st.sampled_from([QUARTER, THIRD, HALF, 1, 2, 4])

    def __init__(self) -> None:
        super().__init__()
        self.free = FreeSlots()
        self.closed: dict[str, bool] = {}
        self.count = 0
        self.trials: list[Holder] = []

    def holder(self, data: st.DataObject) -> Holder:
        return self.trials[data.draw(st.integers(0, len(self.trials) - 1))]

    @rule()
    def add_node(self) -> None:
        self.free.add_node(f"n{self.count}", 2)
        self.closed[f"n{self.count}"] = False
        self.count += 1

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def close_or_open(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.closed)))
        self.closed[node] = not self.closed[node]
        (self.free.close_node if self.closed[node] else self.free.open_node)(node)

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.closed)))
        del self.closed[node]
        self.free.remove_node(node)
        fallen = [trial for trial in self.trials if any(slot.node == node for slot in trial.slots)]
        for trial in fallen:
            self.trials.remove(trial)
            for slot in trial.slots:
                self.free.give(slot)

    @rule(width=WIDTHS)
    def take(self, width: Width) -> None:
        there_is_room = self.free.room(width) > 0
        slots = self.free.take(width)
        assert (slots is not None) == there_is_room
        if slots is not None:
            assert not any(self.closed[slot.node] for slot in slots)
            self.trials.append(Holder(slots, width))

    @precondition(lambda self: self.trials)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        trial = self.holder(data)
        self.trials.remove(trial)
        for slot in trial.slots:
            self.free.give(slot)

    @precondition(lambda self: self.trials)
    @rule(data=st.data(), width=WIDTHS, done=st.booleans())
    def resize(self, data: st.DataObject, width: Width, done: bool) -> None:
        """To the end, or called off when the place is taken already."""
        trial = self.holder(data)
        slots = self.free.resize(trial.slots, width)
        if slots is None:
            return
        assert not any(self.closed[slot.node] for slot in slots)
        stays, before = (Holder(slots, width), trial) if done else (trial, Holder(slots, width))
        for slot in stays.slots:
            self.free.keep(slot, share_of(stays.width))
        for slot in before.slots:
            if slot not in stays.slots:
                self.free.give(slot)
        trial.slots, trial.width = stays.slots, stays.width

    @rule()
    def pickle(self) -> None:
        self.free = pickle.loads(pickle.dumps(self.free))

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        slots = [slot for trial in self.trials for slot in trial.slots]
        assert len(slots) == len(set(slots))
        held: Counter[tuple[str, int]] = Counter()
        for trial in self.trials:
            for slot in trial.slots:
                held[slot.node, slot.device] += share_of(trial.width)  # type: ignore[assignment]
        assert all(part <= 1 for part in held.values())
        usable = [node for node, closed in self.closed.items() if not closed]
        taken = sum(part for (node, _), part in held.items() if node in usable)
        assert self.free.capacity == 2 * len(usable) - taken

    @invariant()
    def a_gang_is_on_one_machine_or_on_whole_ones(self) -> None:
        for trial in self.trials:
            assert len(trial.slots) == max(trial.width, 1)
            on = Counter(slot.node for slot in trial.slots)
            assert len(on) == 1 or all(number == 2 for number in on.values())

    @invariant()
    def there_is_room_for_as_many_as_it_says(self) -> None:
        for width in (HALF, THIRD, 1, 2, 4):
            copy = pickle.loads(pickle.dumps(self.free))
            expected = copy.room(width)
            taken = 0
            while copy.take(width) is not None:
                taken += 1
            assert taken == expected


TestPacked = Packed.TestCase
TestPacked.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)


def test_a_wide_trial_that_shrinks_off_a_machine_that_goes_keeps_what_it_has_on_the_others() -> None:
    free = FreeSlots()
    for node in ("n0", "n1", "n2"):
        free.add_node(node, 2)
    held = free.take(6)
    assert held is not None
    free.close_node("n0")
    assert free.resize(held, 4) == held[:4]
