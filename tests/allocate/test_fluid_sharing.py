"""Several experiments share the devices that Fluid hands out: by priority, none starves, and what is free moves on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.group_runs import Group, OneByOne
from tests.worlds import Session, World, assert_sound, shared_world, world

from elastune import messages as m
from elastune.algorithm import ASHA, Algorithm, SuccessiveHalving
from elastune.allocate import Fluid
from elastune.allocate.share import Claim, divide
from elastune.messages import experiment_of
from elastune.simulation import Simulation

SCALING = {0.5: 0.51, 1: 1, 2: 1.9, 4: 3.6, 8: 6.5}
"""Packing does not pay, spreading does."""


def shared(*algorithms: Algorithm, devices: int = 8, **priorities: float) -> World:
    places = [world(algorithm, name=name) for algorithm, name in zip(algorithms, "abc", strict=False)]
    return shared_world(
        *places, devices=devices, allocator=Fluid(), priorities=priorities, simulation=Simulation(scaling=SCALING)
    )


def devices_over_time(session: Session) -> Iterator[tuple[float, dict[str, int]]]:
    """After every turn: how many devices the trials of each experiment are on."""
    on: dict[str, set[tuple[str, int]]] = {}
    for record in session.records:
        for event in record.events:
            if isinstance(event, m.TrialResized):
                on[event.trial] = {(slot.node, slot.device) for slot in event.slots}
            elif isinstance(event, m.TrialPaused | m.TrialReturned | m.TrialLost | m.TrialFailed):
                on.pop(event.trial, None)
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                on[command.trial] = {(slot.node, slot.device) for slot in command.slots}
        counts: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for trial, places in on.items():
            counts[experiment_of(trial)] |= places
        yield record.at_s, {name: len(places) for name, places in counts.items()}


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


def test_one_that_comes_when_all_is_taken_gets_its_part_within_a_step() -> None:
    """While the first stage of `a` waits at its barrier, `b` has spread over everything."""
    session = shared(SuccessiveHalving(12, 4, 40, 3), Group([200, 200])).run()
    counts = list(devices_over_time(session))
    assert session.view.status == "succeeded"
    last_of_a = max(trial.end_s or 0.0 for trial in session.view.only("a").trials.values())
    waits = [at_s for at_s, count in counts if not count.get("a") and 1 < at_s < last_of_a - 1]
    assert len(waits) < 10
    assert_sound(session)


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
