"""An algorithm ends a run before it has come to where it was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.worlds import Session, assert_sound, world

from elastune import messages as m
from elastune.algorithm import Actions, Algorithm, Ended, Reported
from elastune.algorithm.base import NOTHING, AlgorithmEvent
from elastune.cluster.simulated import Fault
from elastune.spec import Run, TrialGroup


class Once(Algorithm):
    """One trial until iteration `R`; at iteration `cut` it is told to pause, and `again` says whether it goes on."""

    def __init__(self, cut: int, R: int = 10, again: bool = True) -> None:
        self.cut, self.R, self.again = cut, R, again
        self.ends: list[Ended] = []
        self._trial: tuple[str, m.Config] | None = None

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._trial is not None:
            return []
        self._trial = self.new_trial()
        return [self._run()]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Reported):
            return Actions(pauses=(event.trial,)) if event.iteration == self.cut and not self.ends else NOTHING
        assert isinstance(event, Ended)
        self.ends.append(event)
        return Actions((self._run(),)) if self.again and event.iteration < self.R else NOTHING

    def _run(self) -> TrialGroup:
        assert self._trial is not None
        return (Run(*self._trial, self.R, final=True),)


def ends(session: Session) -> list[int]:
    algorithm = session.controller._runs.parties[0].algorithm
    assert isinstance(algorithm, Once)
    return [end.iteration for end in algorithm.ends]


def test_it_ends_at_the_next_report_with_a_checkpoint_and_can_go_on_later() -> None:
    session = world(Once(cut=3)).run()
    assert_sound(session)
    assert ends(session) == [4, 10]
    first, second = (command for command in session.commands if isinstance(command, m.StartTrial))
    assert first.iteration == 0 and second.iteration == 4 and second.checkpoint is not None
    trial = session.view.trials["t-00000"]
    assert trial.status == "completed" and len(trial.reports) == 10


def test_who_never_goes_on_was_not_promoted() -> None:
    session = world(Once(cut=3, again=False)).run()
    assert ends(session) == [4]
    trial = session.view.trials["t-00000"]
    assert (trial.status, trial.reason) == ("stopped", "not promoted")


@pytest.mark.parametrize("cut", [9, 10])
def test_what_ends_with_the_next_report_anyway_ends_as_it_was_asked_for(cut: int) -> None:
    session = world(Once(cut)).run()
    assert ends(session) == [10]
    assert session.view.trials["t-00000"].status == "completed"
    assert not [command for command in session.commands if isinstance(command, m.PauseTrial)]


@pytest.mark.parametrize("lost", ["kill", "lose"])
def test_who_is_lost_on_the_way_trains_until_there_and_no_further(lost: str) -> None:
    target = "t-00000" if lost == "kill" else "n0"
    fault = Fault(3.5, "kill" if lost == "kill" else "lose", target)
    session = world(Once(cut=3), faults=[fault]).run()
    assert_sound(session)
    assert ends(session) == [4, 10]
