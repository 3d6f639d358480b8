"""The race in SEER's first round: who gives its place to a new trial, and when."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import ClassVar

import pytest
from tests.control.scripts import Script, ready, reported
from tests.worlds import Scripted, Session, assert_sound, losses, timed_world

from elastune import messages as m
from elastune import uniform
from elastune.algorithm import SEER, Actions, Algorithm, Ended, Reported, Run
from elastune.algorithm.base import NOTHING, AlgorithmEvent, TrialSource
from elastune.algorithm.race import Race
from elastune.search import RandomSearcher, Result
from elastune.space import Space
from elastune.spec import Limits, Terms, TrialGroup

T_MIN_S = 10.0


def report(trial: str, iteration: int, loss: float, trained_s: float) -> Reported:
    return Reported(trial, iteration, loss, trained_s)


def race_of(trials: int, trained_s: float) -> Race:
    """So many have reported for the first time; the later, the worse."""
    race = Race(4, T_MIN_S)
    for number in range(trials):
        race.is_behind(report(f"t{number}", 1, number, trained_s))
    return race


def test_every_second_trial_is_given_up_after_half_of_t_min_and_the_others_after_twice_t_min() -> None:
    patient, eager = "t20", "t21"  # in the order in which they first report
    for trained_s, given_up in ((4.9, []), (5.0, [eager]), (19.9, [eager]), (20.0, [patient, eager])):
        race = race_of(20, 1.0)
        assert [each for each in (patient, eager) if race.is_behind(report(each, 1, 99.0, trained_s))] == given_up


def test_the_eager_must_be_among_the_best_quarter_and_the_patient_among_the_better_half() -> None:
    for loss, given_up in ((4.5, []), (7.5, ["eager"]), (12.5, ["patient", "eager"])):
        race = race_of(20, 1.0)
        assert [each for each in ("patient", "eager") if race.is_behind(report(each, 1, loss, 25.0))] == given_up


def test_the_eager_are_judged_after_1_4_and_16_iterations_only() -> None:
    judged = []
    for iteration in range(1, 18):
        race = Race(4, T_MIN_S)
        for number in range(9):
            race.is_behind(report(f"t{number}", iteration, number, 1.0))
        if race.is_behind(report("t9", iteration, 99.0, 15.0)):
            judged.append(iteration)
    assert judged == [1, 4, 16]


def test_of_a_few_none_is_behind() -> None:
    assert not race_of(2, 1.0).is_behind(report("t9", 1, 99.0, 99.0))
    assert race_of(3, 1.0).is_behind(report("t9", 1, 99.0, 99.0))


def test_a_turn_ends_with_the_step_that_comes_to_four_t_min() -> None:
    race = Race(4, T_MIN_S)
    enough = [race.is_enough(report("a", step, 0.0, 7.0 * step), 100.0) for step in range(1, 6)]
    assert enough == [False, False, False, False, True], "the sixth step ends after 42 s"


def test_a_turn_goes_on_where_a_new_trial_would_have_no_time_to_be_compared() -> None:
    assert Race(4, T_MIN_S).is_enough(report("a", 5, 0.0, 35.0), 27.0)
    assert not Race(4, T_MIN_S).is_enough(report("a", 5, 0.0, 35.0), 26.9)


# ------------------------------------------------------------------------------------------------------- in whole runs


def long_first_round(searcher: str | RandomSearcher = "random") -> Session:
    """Of 20 trials on as many devices for a quarter of an hour; t_min is a minute, a step some 12 s."""
    seer = SEER(eta=2, p_max=2, t_min="1m")
    made = timed_world(seer, deadline_s=3600.0, budget_device_s=20 * 1800.0, searcher=searcher, machines=20)
    return made.start().run()


def test_trials_that_had_their_turn_pause_for_others_and_the_best_of_all_go_on() -> None:
    session = long_first_round()
    assert_sound(session)
    runs: dict[str, list[tuple[float, float | None]]] = defaultdict(list)
    until: dict[str, float] = {}
    for record in session.records:
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                runs[command.trial].append((record.at_s, command.until_s))
        for decision in record.decisions:
            if isinstance(decision, m.StatusChanged) and decision.status == "paused":
                until.setdefault(decision.trial, record.at_s)
    first_end_s = min(end_s for ((_, end_s), *_) in runs.values() if end_s is not None)
    turned = [trial for trial, end_s in until.items() if end_s < first_end_s - 60]
    assert len(turned) >= 5
    for trial in turned:
        assert 4 * 60 <= until[trial] - runs[trial][0][0] <= 5 * 60
    again = [trial for trial in turned if len(runs[trial]) > 1]
    assert again, "some of those that paused are among the best, and go on"
    assert all(begin_s >= first_end_s - 60 for trial in again for begin_s, _ in runs[trial][1:])


class Remembering(RandomSearcher):
    """What it and its copies were told, in order."""

    results: ClassVar[list[Result]] = []

    def observe(self, result: Result) -> None:
        self.results.append(result)


def test_a_searcher_learns_of_those_that_train_before_they_end() -> None:
    Remembering.results.clear()
    long_first_round(Remembering())
    by_trial: dict[int, list[Result]] = defaultdict(list)
    for result in Remembering.results:
        by_trial[result.number].append(result)
    longest = max(by_trial.values(), key=len)
    assert [result.iteration for result in longest[:4]] == [1, 2, 4, 8]
    for results in by_trial.values():
        assert all(before.iteration < after.iteration or not after.trains for before, after in pairwise(results))
        assert not any(result.final for result in results[:-1])


class Listening(Algorithm):
    """One trial, by the clock."""

    heard: ClassVar[list[AlgorithmEvent]] = []

    def more(self, free: int, at_s: float) -> list[TrialGroup]:
        if at_s > 0 or (new := self.new_trial()) is None:
            return []
        return [(Run(*new, None, until_s=1000.0),)]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        self.heard.append(event)
        return NOTHING


def test_time_is_counted_from_when_a_trial_trains_and_not_while_it_is_lost() -> None:
    Listening.heard.clear()
    script = Script(Listening())
    (trial,) = script.controller.trials
    script.at(100.0, ready("n0"))
    script.at(107.0, reported(trial, 1, 0.5))
    script.at(115.0, reported(trial, 2, 0.4))
    script.at(120.0, m.TrialLost(trial, 1, "its machine is gone", fault=False))
    script.at(130.0, reported(trial, 1, 0.5, attempt=2))
    script.at(138.0, reported(trial, 2, 0.4, attempt=2))
    script.at(145.0, reported(trial, 3, 0.3, attempt=2))
    times = [event.trained_s for event in Listening.heard if isinstance(event, Reported)]
    assert times == [7.0, 15.0, 22.0]


def all_have_begun(session: Session) -> bool:
    return all(trial.attempts for trial in session.view.trials.values())


@pytest.mark.parametrize("reports", [78, 79, 80, 81])
def test_one_place_is_given_to_one_new_trial_though_its_trial_is_done_while_that_one_waits(reports: int) -> None:
    """A turn takes 80 s. Who is done in the step after it was told to pause has given its place already."""
    place = timed_world(
        SEER(eta=2, p_max=2, t_min=20.0),
        deadline_s=1200.0,
        budget_device_s=20 * 600.0,
        machines=20,
        workload=Scripted(losses(*range(reports, 0, -1))),
    )
    session = place.run()
    assert_sound(session)
    assert all_have_begun(session) and session.view.status == "succeeded"


def test_who_has_had_its_turn_gives_its_place_away_once_though_it_falls_behind_or_fails() -> None:
    seer = SEER(eta=2, p_max=2, t_min=20.0)
    seer.prepare(Terms(Limits(1200.0, None, 20 * 600.0), 20, 1, 0.0, ready_s=0.0))
    searcher = RandomSearcher()
    searcher.setup(Space({"x": uniform(0, 1)}), "min", 0)
    seer.setup(TrialSource("t", searcher, searcher.space))
    (group,) = seer.more(20, 0.0)
    places, first = len(group), group[0].trial
    for run in group[1:]:
        seer.on(Reported(run.trial, 20, 0.1, 20.0), 20.0)
    actions = seer.on(Reported(first, 19, 0.0, 79.0), 79.0)
    assert len(actions.groups) == 1 and actions.pauses == (first,)
    assert seer.on(Reported(first, 20, 9.9, 80.0), 80.0) == NOTHING, "behind, and on its way out"
    assert seer.on(Ended(first, 20, None, over=True), 81.0) == NOTHING, "failed"
    assert len(seer._pending) == places
