"""How many trials are under way at once, where the algorithm or the allocator has something to say about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.control.scripts import Script, failed, paused, ready, reported, starts
from tests.worlds import Session, assert_sound, world

from elastune import messages as m
from elastune.algorithm import ASHA, BOHB, FIFO, Algorithm
from elastune.allocate import FirstComeFirstServed
from elastune.control import allocation
from elastune.errors import SpecError
from elastune.space import Space, grid_search

LIMITED: dict[str, Callable[[int], Algorithm]] = {
    "ASHA": lambda most: ASHA(20, 1, 9, max_concurrent=most),
    "BOHB": lambda most: BOHB(9, n=20, max_concurrent=most),
    "FIFO": lambda most: FIFO(20, 4, max_concurrent=most),
}
each_limited = pytest.mark.parametrize("name", LIMITED)


def most_running(session: Session) -> int:
    running: set[str] = set()
    most = 0
    for record in session.records:
        running -= {event.trial for event in record.events if isinstance(event, m.TrialPaused | m.TrialLost)}
        running |= {command.trial for command in record.commands if isinstance(command, m.StartTrial)}
        most = max(most, len(running))
    return most


@each_limited
def test_on_more_devices_than_that_no_more_run(name: str) -> None:
    session = world(LIMITED[name](3), devices=8, stragglers=0.5).run()
    assert most_running(session) == 3
    assert session.view.status == "succeeded" and len(session.view.trials) == 20
    assert_sound(session)


@each_limited
def test_on_fewer_devices_the_others_wait(name: str) -> None:
    session = world(LIMITED[name](5), devices=2).start()
    waited = set()
    while not session.controller.done:
        session.turns(1)
        runs = session.controller._runs
        assert runs.under_way(runs.parties[0]) <= 5
        waited.add((len(runs._schedule.widths), len(runs._schedule.waiting)))
    assert (2, 3) in waited and session.view.status == "succeeded"
    assert_sound(session)


def test_without_a_limit_nobody_waits_in_the_queue() -> None:
    session = world(FIFO(20, 4), devices=2).start().turns(3)
    assert not session.controller._runs._schedule.waiting


def test_it_ends_when_the_searcher_has_no_more() -> None:
    space = Space({"x": grid_search([1, 2, 3, 4])})
    session = world(ASHA(None, 1, 9, max_concurrent=3), searcher="grid", space=space, devices=8).run()
    assert session.view.status == "succeeded" and len(session.view.trials) == 4
    assert_sound(session)


def test_who_will_be_tried_again_is_under_way() -> None:
    script = Script(FIFO(3, R=2, max_concurrent=1), devices=2)
    assert starts(script.at(0.0, ready("n0", 2))) == [("t-00000", 1, 0)]
    script.at(1.0, reported("t-00000", 1, 0.5))
    assert starts(script.at(1.5, failed("t-00000"))) == [], "nothing runs, and yet nobody else begins"
    assert starts(script.at(2.5)) == [("t-00000", 2, 0)]
    assert starts(script.at(3.5, reported("t-00000", 2, 0.5, 2), paused("t-00000", 2, 2))) == [("t-00001", 1, 0)]


def test_who_is_promoted_by_a_bracket_waits_until_there_are_few_enough() -> None:
    """Of two brackets of BOHB, one promotes three trials at once while the other trains."""
    session = world(BOHB(9, n=14, max_concurrent=2), devices=8, stragglers=0.5).run()
    assert most_running(session) == 2
    assert sorted(trial.iteration for trial in session.view.trials.values()) == [*[1] * 6, *[3] * 4, 4, 4, 9, 9]


@pytest.mark.parametrize("make", [lambda: ASHA(9, 1, 9, max_concurrent=0), lambda: FIFO(9, 1, max_concurrent=0)])
def test_a_limit_that_cannot_be_is_refused(make: Callable[[], Algorithm]) -> None:
    with pytest.raises(SpecError, match="max_concurrent=0: must be a whole number of at least 1"):
        make()


# ------------------------------------------------------------------------------------------------------ whole groups


class Whole(FirstComeFirstServed):
    whole_groups = True


def waiting(session: Session) -> int:
    return len(session.controller._runs._schedule.waiting)


def test_an_allocator_that_wants_groups_whole_sees_all_trials_of_random_search() -> None:
    session = world(FIFO(50, 2), allocator=Whole(), devices=2).start().turns(1)
    assert waiting(session) == 48
    session.run()
    assert session.view.status == "succeeded" and len(session.view.trials) == 50


def test_of_very_many_it_sees_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "GROUP", 10)
    session = world(FIFO(25, 1), allocator=Whole(), devices=2).start().turns(1)
    waited = [waiting(session)]
    while not session.controller.done:
        waited.append(waiting(session.turns(1)))
    assert max(waited) == 8 and len(session.view.trials) == 25


@pytest.mark.parametrize("case", ["it learns", "nobody asked", "not one group"])
def test_otherwise_a_trial_begins_when_there_is_a_place_for_it(case: str) -> None:
    session = world(
        ASHA(50, 1, 9) if case == "not one group" else FIFO(50, 2),
        searcher="bohb" if case == "it learns" else "random",
        allocator=FirstComeFirstServed() if case == "nobody asked" else Whole(),
        devices=2,
    ).start()
    assert waiting(session.turns(3)) == 0


def test_a_limit_goes_before_the_wish_to_see_all() -> None:
    session = world(FIFO(50, 2, max_concurrent=5), allocator=Whole(), devices=2).start().turns(1)
    assert waiting(session) == 3
