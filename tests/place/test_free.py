from __future__ import annotations

import pickle

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elastune.messages import Slot
from elastune.place import FreeSlots


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
    assert free.take(4) == (Slot("n1", 0), Slot("n1", 1), Slot("n2", 0), Slot("n2", 1))


def test_a_trial_that_grows_keeps_what_it_holds_where_it_can() -> None:
    free = FreeSlots()
    for node in ("n0", "n1"):
        free.add_node(node, 4)
    held = free.take(2)
    assert held is not None
    wider = free.resize(held, 4)
    assert wider == (*held, Slot("n0", 2), Slot("n0", 3)) and len(free) == 4
    assert free.resize(wider, 8) == (*wider, *(Slot("n1", device) for device in range(4)))
    assert len(free) == 0


def test_a_trial_that_cannot_grow_where_it_is_moves_or_stays() -> None:
    free = FreeSlots()
    free.add_node("n0", 2)
    free.add_node("n1", 4)
    first, _ = one(free), one(free)
    assert free.resize((first,), 3) == (Slot("n1", 0), Slot("n1", 1), Slot("n1", 2))
    assert free.resize((first,), 3) is None and len(free) == 1


def test_a_trial_that_shrinks_gives_up_its_last_slots() -> None:
    free = FreeSlots()
    for node in ("n0", "n1"):
        free.add_node(node, 2)
    held = free.take(4)
    assert held is not None
    assert free.resize(held, 2) == held[:2] and free.resize(held, 1) == held[:1]
    assert free.resize(held, 3) is None, "it would straddle"


def test_the_devices_of_the_machine_that_came_first_go_first() -> None:
    free = FreeSlots()
    free.add_node("n1", 2)
    free.add_node("n0", 1)
    assert [one(free) for _ in range(3)] == [Slot("n1", 0), Slot("n1", 1), Slot("n0", 0)]


def test_what_comes_back_goes_out_again_lowest_first() -> None:
    free = FreeSlots()
    free.add_node("n0", 3)
    taken = [one(free) for _ in range(3)]
    for slot in (taken[2], taken[0]):
        free.give(slot)
    assert one(free) == Slot("n0", 0)


def test_a_machine_that_was_taken_out_gets_nothing_back() -> None:
    free = FreeSlots()
    free.add_node("n0", 2)
    free.add_node("n1", 1)
    taken = one(free)
    free.remove_node("n0")
    free.give(taken)
    assert len(free) == 1 and one(free) == Slot("n1", 0)


def test_the_order_stays_when_a_machine_is_taken_out() -> None:
    free = FreeSlots()
    for node in ("n0", "n1"):
        free.add_node(node, 2)
    free.take()
    free.remove_node("n0")
    assert [one(free) for _ in range(2)] == [Slot("n1", 0), Slot("n1", 1)]


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
        expected = min(self.free, key=lambda slot: (self.order.index(slot.node), slot.device))
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
