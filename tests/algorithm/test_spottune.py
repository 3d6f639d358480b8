"""SpotTune trains all for a part of their steps, and only those to the end that should be best there."""

from __future__ import annotations

import math

import pytest
from tests.worlds import world

from elastune import messages as m
from elastune.algorithm import SpotTune
from elastune.cluster.workload import Curve, Workload
from elastune.curve import Extrapolator, Prediction
from elastune.errors import SpecError
from elastune.messages import Config


class Crossing(Workload):
    """Who begins worst ends best: loss falls faster the larger lr is."""

    names = None

    def curve(self, config: Config) -> Curve:
        rank = config["lr"]
        return lambda iteration: {"loss": 1.0 + rank * 10 - 20 * rank * iteration / 10}

    def step_s(self, config: Config, iteration: int) -> float:
        return 1.0


class Line(Extrapolator):
    """Straight on."""

    def predict(self, iterations, losses, at):  # type: ignore[no-untyped-def]
        slope = (losses[-1] - losses[0]) / max(1, iterations[-1] - iterations[0])
        return Prediction(losses[-1] + slope * (at - iterations[-1]), 0.0)


def trained(algorithm: SpotTune, **more: object) -> dict[str, int]:
    view = world(algorithm, machines=4, workload=Crossing(), **more).run().view  # type: ignore[arg-type]
    return {trial: seen.iteration for trial, seen in view.trials.items()}


def test_those_that_are_foretold_best_are_trained_to_the_end() -> None:
    session = world(SpotTune(6, 10, 0.3, 2, rank=Line()), machines=4, workload=Crossing()).run()
    view = session.view
    ended = {trial for trial, seen in view.trials.items() if seen.iteration == 10}
    best = sorted(view.trials, key=lambda trial: -view.trials[trial].config["lr"])[:2]
    assert ended == set(best)
    assert all(seen.iteration in (3, 10) for seen in view.trials.values())
    assert {view.trials[trial].status for trial in best} == {"completed"}
    assert all(seen.status == "stopped" for trial, seen in view.trials.items() if trial not in best)


def test_with_theta_one_all_are_trained_to_the_end() -> None:
    assert set(trained(SpotTune(5, 10, 1.0)).values()) == {10}


@pytest.mark.parametrize(("theta", "R", "until"), [(0.7, 10, 7), (0.7, 40, 28), (0.1, 5, 1), (0.5, 5, 3), (1, 9, 9)])
def test_the_end_is_foretold_after_theta_of_the_steps(theta: float, R: int, until: int) -> None:
    assert SpotTune(3, R, theta, rank="last").first_until == until


def test_a_curve_that_has_come_to_rest_is_trained_on_no_longer_than_others_would_be() -> None:
    class Resting(Line):
        def has_plateaued(self, iterations, losses, until):  # type: ignore[no-untyped-def]
            return len(losses) >= 4

    found = trained(SpotTune(6, 20, 0.9, 1, rank=Resting()))
    assert sorted(found.values())[:5] == [5] * 5  # the pause takes effect with the next report
    assert max(found.values()) == 5 + 2  # of 20 iterations two come after the first 90%


def test_trials_that_fail_are_no_candidates() -> None:
    class Broken(Crossing):
        def curve(self, config: Config) -> Curve:
            if config["lr"] > 0.01:
                return lambda iteration: {"loss": math.nan}
            return super().curve(config)

    view = world(SpotTune(8, 10, 0.5, 2, rank="last"), machines=8, workload=Broken()).run().view
    good = [trial for trial in view.trials.values() if trial.config["lr"] <= 0.01]
    assert good and sum(trial.iteration == 10 for trial in good) == min(2, len(good))
    assert all(trial.status == "failed" for trial in view.trials.values() if trial not in good)


def test_stages_say_what_will_be_trained() -> None:
    assert [(stage.trials, stage.start, stage.until) for stage in SpotTune(16, 40).stages() or ()] == [
        (16, 0, 28),
        (3, 28, 40),
    ]
    assert len(SpotTune(16, 40, 1.0).stages() or ()) == 1


@pytest.mark.parametrize("theta", [0, -1, 1.5, True, "0.7", math.nan])
def test_a_theta_that_cannot_be_is_refused(theta: object) -> None:
    with pytest.raises(SpecError, match="theta"):
        SpotTune(4, 10, theta)  # type: ignore[arg-type]


def test_no_more_can_be_trained_to_the_end_than_there_are() -> None:
    assert SpotTune(4, 10, mcnt=4).mcnt == 4
    with pytest.raises(SpecError, match="mcnt=9: must be at most n=4"):
        SpotTune(4, 10, mcnt=9)


def test_an_interrupted_run_goes_on_to_the_same_end() -> None:
    place = world(SpotTune(6, 10, 0.5, 2), machines=3)
    whole = place.run().view
    session = place.start().turns(9)
    resumed = place.resume(session.journal).run().view
    assert {t: v.best_value for t, v in resumed.trials.items()} == {t: v.best_value for t, v in whole.trials.items()}
    assert isinstance(session.records[0].events[0], m.RunStarted)
