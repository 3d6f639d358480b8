from __future__ import annotations

import pytest
from tests.algorithm.histories import play, ready

from elastune.algorithm import FIFO
from elastune.errors import SpecError


def test_begins_no_more_than_devices_are_free_and_n_in_all() -> None:
    algorithm = ready(FIFO(5, R=3))
    assert [run.trial for group in algorithm.more(2, 0.0) for run in group] == ["t-00000", "t-00001"]
    assert [run.trial for group in algorithm.more(9, 0.0) for run in group] == ["t-00002", "t-00003", "t-00004"]
    assert [run for group in algorithm.more(9, 0.0) for run in group] == []


def test_every_run_goes_to_the_end() -> None:
    history = play(ready(FIFO(5, R=3)), seed=1)
    assert [(run.until, run.final) for run in history.runs] == [(3, True)] * 5


def test_its_schedule_is_known_only_with_R() -> None:
    (stage,) = FIFO(5, R=3).stages() or ()
    assert (stage.trials, stage.start, stage.until) == (5, 0, 3)
    assert FIFO(5).stages() is None


@pytest.mark.parametrize(("n", "R", "said"), [(0, 1, "n=0"), (1, 0, "R=0")])
def test_what_cannot_be_is_an_error_that_names_it(n: int, R: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        FIFO(n, R)
