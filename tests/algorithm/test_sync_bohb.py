from __future__ import annotations

import pytest
from tests.algorithm.histories import play, ready
from tests.algorithm.test_bohb import FIRST, SECOND, THIRD, Few, end, more
from tests.worlds import world

from elastune import messages as m
from elastune.algorithm import SyncBOHB
from elastune.algorithm.base import TrialSource
from elastune.errors import SpecError
from elastune.space import Space, uniform


@pytest.mark.parametrize("devices", [1, 4, 20])
def test_its_brackets_are_those_of_hyperband_one_after_the_other(devices: int) -> None:
    history = play(ready(SyncBOHB(R=9, eta=3, n=34)), seed=1, devices=devices)
    assert [run.until for run in history.runs] == 2 * [*FIRST, *SECOND, *THIRD]
    assert [run.stage for run in history.runs if run.until == 9] == [2, 4, 5, 5, 5, 8, 10, 11, 11, 11]


def test_a_bracket_is_suggested_whole_when_the_one_before_is_completely_done() -> None:
    algorithm = ready(SyncBOHB(R=9, eta=3))
    first = more(algorithm, 1)
    assert len(first) == 9 and algorithm._source.count == 9
    assert more(algorithm, 20) == [], "devices are free, but the first trials have not ended"
    promoted = [run for loss, run in enumerate(first) for run in end(algorithm, run, float(loss))]
    assert [run.until for run in promoted] == [4, 4, 4]
    (last,) = (run for loss, run in enumerate(promoted) for run in end(algorithm, run, float(loss)))
    assert more(algorithm, 20) == [] and algorithm._source.count == 9
    assert end(algorithm, last, 0.0) == []
    assert [run.until for run in more(algorithm, 1)] == [3] * 5


def test_its_trials_are_groups_that_are_done_together() -> None:
    assert not SyncBOHB.one_by_one


def test_a_bracket_whose_trials_have_all_failed_is_done() -> None:
    algorithm = ready(SyncBOHB(R=9, eta=3))
    assert [end(algorithm, run, None) for run in more(algorithm, 1)] == [[]] * 9
    assert [run.until for run in more(algorithm, 1)] == [3] * 5


@pytest.mark.parametrize(
    ("configurations", "untils"), [(0, []), (4, [1, 1, 1, 1, 4, 4, 4, 9]), (9, FIRST), (11, [*FIRST, 3, 3, 9])]
)
def test_it_ends_with_the_searcher(configurations: int, untils: list[int]) -> None:
    algorithm, searcher = SyncBOHB(R=9, eta=3), Few(configurations)
    searcher.setup(Space({"x": uniform(0, 1)}), "min", 0)
    algorithm.setup(TrialSource("t", searcher, searcher.space))
    assert [run.until for run in play(algorithm, seed=3).runs] == untils


def test_in_a_run_no_bracket_begins_while_another_trains() -> None:
    session = world(SyncBOHB(R=9, eta=3, n=20), searcher="bohb", devices=4, stragglers=0.3).run()
    running: set[str] = set()
    bracket_of = {f"t-{number:05d}": (number >= 9) + (number >= 14) + (number >= 17) for number in range(20)}
    for record in session.records:
        running -= {event.trial for event in record.events if isinstance(event, m.TrialPaused)}
        running |= {command.trial for command in record.commands if isinstance(command, m.StartTrial)}
        assert len({bracket_of[trial] for trial in running}) <= 1
    assert session.view.status == "succeeded" and len(session.view.trials) == 20


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SpecError, match="n=0"):
        SyncBOHB(9, n=0)
