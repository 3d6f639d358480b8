"""Several experiments share the devices that Fluid hands out: by priority, none starves, and what is free moves on."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.group_runs import FixedWidth, Group, Late, OneByOne, devices_over_time
from tests.worlds import Session, World, assert_sound, had_s, shared_world, world

from elastune import messages as m
from elastune.algorithm import ASHA, Algorithm
from elastune.allocate import Fluid
from elastune.allocate.base import View
from elastune.allocate.pace import Pace
from elastune.allocate.share import Claim, Share, divide
from elastune.simulation import Simulation

SCALING = {0.5: 0.51, 1: 1, 2: 1.9, 4: 3.6, 8: 6.5}
"""Packing does not pay, spreading does."""


def shared(*algorithms: Algorithm, devices: int = 8, most_packed: int | None = None, **priorities: float) -> World:
    places = [world(algorithm, name=name) for algorithm, name in zip(algorithms, "abc", strict=False)]
    return shared_world(
        *places,
        devices=devices,
        allocator=Fluid(most_packed),
        priorities=priorities,
        simulation=Simulation(scaling=SCALING),
    )


def test_neither_starves_and_each_has_its_half() -> None:
    session = shared(Group([30] * 20), Group([30] * 20)).run()
    assert_sound(session)
    middle = [counts for at_s, counts in devices_over_time(session) if 5 < at_s < 60]
    assert middle and all(abs(counts.get("a", 0) - counts.get("b", 0)) <= 2 for counts in middle)


def test_a_higher_priority_has_a_larger_part() -> None:
    session = shared(Group([30] * 40), Group([30] * 40), a=3.0, b=1.0).run()
    middle = [counts for at_s, counts in devices_over_time(session) if 35 < at_s < 120]
    assert all(counts.get("a", 0) >= 2 * counts.get("b", 1) for counts in middle)
    assert all(counts.get("b", 0) >= 1 for counts in middle), "nor does the other starve"


def test_what_one_experiment_frees_the_other_has_within_a_step() -> None:
    session = shared(Group([10] * 4), Group([60] * 4)).run()
    assert_sound(session)
    counts = list(devices_over_time(session))
    done_s = next(at_s for at_s, count in counts if at_s > 1 and not count.get("a"))
    later = [count.get("b", 0) for at_s, count in counts if done_s + 1.0 <= at_s < session.view.at_s - 15.0]
    assert later and min(later) == 8, "a step takes a second at most"


@pytest.mark.parametrize(
    ("first", "pauses"),
    [(Group([900, 900]), 0), (Group([200] * 8), 4), (FixedWidth([400] * 4), 2)],
    ids=["spread", "one-each", "of-a-fixed-width"],
)
def test_one_that_comes_when_all_is_taken_gets_its_part_within_a_step(first: Algorithm, pauses: int) -> None:
    """Trials become narrower where they can, and those that then have no place beside the others pause."""
    come_s, step_s = 40.0, 1.0
    session = shared(first, Late([100] * 4, come_s), most_packed=1).run()
    assert_sound(session)
    counts = list(devices_over_time(session))
    assert [count for at_s, count in counts if at_s < come_s][-1] == {"a": 8}
    assert [count for at_s, count in counts if at_s <= come_s + step_s][-1] == {"a": 4, "b": 4}
    told = [(record.at_s, command) for record in session.records for command in record.commands]
    paused = [c for at_s, c in told if come_s <= at_s <= come_s + step_s and isinstance(c, m.PauseTrial)]
    assert len(paused) == pauses


def test_where_packing_pays_one_that_comes_joins_those_that_have_all_devices() -> None:
    places = [world(Group([200] * 8), name="a"), world(Late([100] * 4, 40.0), name="b")]
    packed = {0.5: 0.9, 1: 1, 2: 1.01}
    session = shared_world(
        *places, devices=8, allocator=Fluid(2, scaling=packed), simulation=Simulation(scaling=packed)
    ).run()
    counts = [count for at_s, count in devices_over_time(session) if at_s <= 41.0]
    assert counts[-1] == {"a": 8, "b": 4}
    assert not any(isinstance(command, m.PauseTrial) for command in session.commands)


def packed_in_turns() -> Session:
    """Four trials on the one device do more than one; `a` has many, and `b` a single one."""
    places = [world(ASHA(None, 1, 9, 3), name="a"), world(Group([5000]), name="b")]
    packed = {0.25: 0.7, 0.5: 0.9, 1: 1}
    return shared_world(
        *places, devices=1, allocator=Fluid(scaling=packed), deadline_s=1500.0, simulation=Simulation(scaling=packed)
    ).run()


def test_nobody_begins_out_of_turn_on_what_others_leave_of_a_device() -> None:
    session = packed_in_turns()
    for record in session.records:
        started = {c.trial for c in record.commands if isinstance(c, m.StartTrial)}
        paused = {c.trial for c in record.commands if isinstance(c, m.PauseTrial)}
        assert not started & paused
    assert session.view.trials["b-00000"].attempts < 10


def test_who_is_alone_on_a_device_has_had_all_of_it() -> None:
    """Also where others could have joined."""
    session = packed_in_turns()
    a, b = (had_s(session.view, name) for name in "ab")
    assert a + b == pytest.approx(1500.0, rel=0.02) and a == pytest.approx(b, rel=0.25)


def test_who_hands_devices_back_packs_what_can_be_packed_before_a_trial_pauses() -> None:
    lefts = {"long": 10, "x": 1, "y": 1, "z": 1}
    view = View(0, dict.fromkeys(lefts, 1), (), left=lambda trial: lefts[trial])
    pace = Pace(2, 8, before={-2: 1.0})
    for trial in lefts:
        pace.meet(trial, {})
    share = Share("a", view, pace, [1, 2, 4, 8], False, running=list(lefts), n=2)
    widths = share.shrunk()
    assert set(widths.values()) == {Fraction(1, 2)} and not share.surplus(widths)
    share.n = 1
    assert share.surplus(share.shrunk()) == ["y", "z"], "who began last"


@pytest.mark.parametrize("algorithms", [(ASHA(20, 1, 9, 3), OneByOne([9] * 20)), (Group([5] * 9), ASHA(9, 1, 9, 3))])
def test_more_experiments_than_devices_end_too(algorithms: tuple[Algorithm, ...]) -> None:
    session = shared(*algorithms, devices=1).run()
    assert session.view.status == "succeeded"
    assert_sound(session)


def test_while_one_of_them_keeps_devices_for_a_try_the_others_go_on() -> None:
    session = shared(ASHA(60, 1, 27, 3), Group([20] * 40)).run()
    assert session.view.status == "succeeded"
    assert_sound(session)


@given(
    st.integers(0, 40),
    st.dictionaries(
        st.sampled_from("abcd"),
        st.builds(
            Claim,
            st.sampled_from([0.5, 1.0, 2.0, 7.0]),
            st.integers(1, 30),
            least=st.just(1),
            used_s=st.floats(-100.0, 100.0),
        ),
        min_size=2,
    ),
)
def test_devices_are_divided_by_priority_and_none_is_kept_from_who_can_use_it(n: int, claims: dict[str, Claim]) -> None:
    given = divide(n, claims)
    assert sum(given.values()) == min(n, sum(claim.most for claim in claims.values()))
    assert all(given[name] <= claim.most for name, claim in claims.items())
    for name, claim in claims.items():
        for other, theirs in claims.items():
            if given[name] < claim.most and given[other]:
                assert (given[other] - 1) / theirs.weight <= given[name] / claim.weight + 1e-9, "it would be its turn"
                if not given[name]:
                    assert claim.used_s / claim.weight >= theirs.used_s / theirs.weight, "who has had least comes first"


def test_who_needs_more_devices_than_are_left_gets_none_until_it_comes_first() -> None:
    claims = {"a": Claim(1.0, 8, used_s=5.0), "wide": Claim(1.0, 8, least=3, used_s=9.0)}
    assert divide(3, claims) == {"a": 3, "wide": 0}
    assert divide(3, claims | {"a": Claim(1.0, 8, used_s=10.0)}) == {"a": 0, "wide": 3}
    assert divide(4, claims) == {"a": 1, "wide": 3}
