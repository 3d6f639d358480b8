from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithm.histories import ready, through_pickle
from tests.worlds import SPACE, World, assert_sound, shared_world, winner, world

import elastune as et
from elastune import messages as m
from elastune.algorithm import Actions, Ended, KFold, Reported, Run
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Curve, Workload
from elastune.errors import RunFailed, SpecError
from elastune.record.projection import RunView
from elastune.reporting import summary_dict
from elastune.reporting.plots import learning_curves
from elastune.reporting.tables import best_text, ranked
from elastune.space import Space
from elastune.spec import Mode, Retention


class Folds(Workload):
    """A curve for each fold; what trains on all data reports something else. A step takes a second."""

    def __init__(self, *curves: Sequence[float], all_data: int | None = None) -> None:
        self._curves, self._all_data = curves, all_data

    def curve(self, config: m.Config) -> Curve:
        assert config["folds"] == len(self._curves)
        if config["fold"] is None:
            reported, most = -99.0, self._all_data
            return lambda iteration: {"loss": reported} if most is None or iteration <= most else None
        curve = self._curves[config["fold"]]
        return lambda iteration: {"loss": curve[iteration - 1]} if iteration <= len(curve) else None

    def step_s(self, config: m.Config, iteration: int) -> float:
        return 1.0


def folded(algorithm: KFold, *curves: Sequence[float], all_data: int | None = None, **like: Any) -> World:
    return world(
        algorithm, workload=Folds(*curves, all_data=all_data), space=Space({"lr": 0.1}), **({"devices": 3} | like)
    )


def first(algorithm: KFold) -> list[Run]:
    (group,) = algorithm.more(1, 0.0)
    return list(group)


def fold(algorithm: KFold, run: Run, losses: Sequence[float], fails: bool = False) -> Actions:
    """A fold reports these and ends."""
    for iteration, loss in enumerate(losses, 1):
        assert algorithm.on(Reported(run.trial, iteration, loss), 0.0) == Actions()
    over = fails or len(losses) < (run.until or 0)
    return algorithm.on(Ended(run.trial, len(losses), None if fails else losses[-1], over), 0.0)


def test_one_configuration_is_trained_once_per_fold_and_once_more_on_all_data() -> None:
    session = folded(KFold(3, 4), [4, 3, 2, 1], [4, 3, 1, 9], [4, 1, 4, 9]).run()
    assert_sound(session)
    trials = session.view.trials
    assert [(t.config, t.iteration, t.status) for t in trials.values()] == [
        *(({"lr": 0.1, "fold": f, "folds": 3}, 4, "completed") for f in range(3)),
        ({"lr": 0.1, "fold": None, "folds": 3}, 2, "completed"),
    ]
    assert [command.iteration for command in session.commands if isinstance(command, m.StartTrial)] == [0] * 4


def test_the_best_is_the_one_on_all_data_and_worth_the_mean_of_the_folds() -> None:
    view = folded(KFold(3, 4), [4, 3, 2, 1], [4, 3, 1, 9], [4, 1, 4, 9]).run().view
    assert view.best is not None and view.best.id == "t-00003"
    assert view.best.best_value == pytest.approx(7 / 3) and view.best.best_iteration == 2
    assert view.best.value == -99, "what it has reported is still known"
    assert view.best.best_checkpoint is not None and view.best.best_checkpoint.iteration == 2
    assert [(point.trial, point.iteration) for point in view.best_so_far] == [("t-00003", 2)]
    assert ranked(view)[0] is view.best
    assert best_text(view) == "loss 2.3333 by t-00003 at iteration 2 (the mean of 3 folds; trained on all data)"
    assert summary_dict(view)["best"]["why"] == "the mean of 3 folds; trained on all data"


def test_where_more_is_better_the_highest_mean_counts() -> None:
    view = folded(KFold(2, 3), [0.1, 0.8, 0.2], [0.3, 0.4, 0.9], mode="max").run().view
    assert view.best is not None
    assert (view.best.id, view.best.best_iteration) == ("t-00002", 2)
    assert view.best.best_value == pytest.approx(0.6)


def test_of_equal_steps_the_earliest_is_taken() -> None:
    algorithm = ready(KFold(2, 5))
    assert isinstance(algorithm, KFold)
    one, other = first(algorithm)
    fold(algorithm, one, [9, 1, 3, 2, 2])
    ((last,),) = fold(algorithm, other, [9, 3, 1, 2, 2]).groups
    assert last.until == 2 and last.final and last.stage == 1


def test_only_every_so_manieth_step_counts_and_the_last() -> None:
    algorithm = ready(KFold(2, 5, every=2))
    assert isinstance(algorithm, KFold)
    one, other = first(algorithm)
    fold(algorithm, one, [0, 5, 0, 5, 4])
    ((last,),) = fold(algorithm, other, [0, 5, 0, 5, 4]).groups
    assert last.until == 5


@settings(max_examples=60, deadline=None)
@given(
    curves=st.integers(1, 6).flatmap(
        lambda R: st.lists(st.lists(st.integers(-3, 3), min_size=R, max_size=R), min_size=2, max_size=5)
    ),
    every=st.integers(1, 6),
    order=st.randoms(use_true_random=False),
)
def test_the_step_with_the_least_mean_is_chosen_in_whatever_order_the_folds_end(
    curves: list[list[int]], every: int, order: Any
) -> None:
    R = len(curves[0])
    every = min(every, R)
    algorithm = ready(KFold(len(curves), R, every))
    assert isinstance(algorithm, KFold)
    runs = list(zip(first(algorithm), curves, strict=True))
    order.shuffle(runs)
    for run, curve in runs[:-1]:
        assert fold(algorithm, run, curve) == Actions()
        algorithm = through_pickle(algorithm)
        assert isinstance(algorithm, KFold)
    actions = fold(algorithm, *runs[-1])
    steps = {*range(every, R + 1, every), R}
    means = {step: statistics.fmean(curve[step - 1] for curve in curves) for step in sorted(steps)}
    best = min(means, key=lambda step: means[step])
    assert actions.verdict is not None and actions.groups[0][0].until == best
    assert actions.verdict.iteration == best and actions.verdict.loss == pytest.approx(means[best])


def test_a_fold_that_fails_is_left_out_of_all_means() -> None:
    algorithm = ready(KFold(3, 3))
    assert isinstance(algorithm, KFold)
    runs = first(algorithm)
    fold(algorithm, runs[0], [3, 2, 4])
    fold(algorithm, runs[1], [0, 99], fails=True)
    verdict = fold(algorithm, runs[2], [3, 2, 4]).verdict
    assert verdict is not None and (verdict.iteration, verdict.loss) == (2, 2.0)
    assert verdict.why == "the mean of 2 folds, 1 failed; trained on all data"


def test_with_fewer_than_two_folds_it_gives_up_at_once_and_asks_for_nothing_more() -> None:
    algorithm = ready(KFold(3, 3))
    assert isinstance(algorithm, KFold)
    runs = first(algorithm)
    assert fold(algorithm, runs[0], [3.0], fails=True) == Actions()
    assert fold(algorithm, runs[1], [3.0], fails=True).gives_up == "2 of 3 folds failed: a mean needs 2"
    assert fold(algorithm, runs[2], [3, 2, 1]) == Actions()


@pytest.mark.parametrize("curves", [([4, 3], [4, 3, 2, 1]), ([4, 3, 2, 1], [4, 3])])
def test_a_fold_that_returns_early_counts_until_there(curves: tuple[Sequence[float], ...]) -> None:
    view = folded(KFold(2, 4), *curves).run().view
    assert view.best is not None and (view.best.best_value, view.best.iteration) == (3.0, 2)


def test_folds_that_return_before_the_first_step_that_counts_are_a_failure() -> None:
    view = folded(KFold(2, 4, every=3), [4, 3], [4, 3]).run().view
    assert view.status == "failed" and "they returned before every=3" in view.reason


def test_a_run_whose_folds_fail_has_failed_and_says_so() -> None:
    place = folded(KFold(3, 3), [1, 2, 3], [1, float("nan"), 3], [1, float("nan"), 3])
    view = place.run().view
    assert view.status == "failed" and view.reason == "2 of 3 folds failed: a mean needs 2"
    assert len(view.trials) == 3


def test_if_the_last_training_fails_so_does_the_run() -> None:
    faults = [Fault(2.5 + 3 * n, "kill", "t-00002") for n in range(3)]
    view = folded(KFold(2, 2), [2, 1], [2, 1], faults=faults, max_retries=0).run().view
    assert view.status == "failed" and view.reason == "t-00002: the training on all data failed"


def test_if_the_last_training_ends_too_soon_the_run_has_failed() -> None:
    view = folded(KFold(2, 3), [3, 2, 1], [3, 2, 1], all_data=2).run().view
    assert view.status == "failed" and "returned after iteration 2, and should have come to 3" in view.reason


def test_the_checkpoint_of_the_last_training_is_kept_whatever_it_reports() -> None:
    rules = Retention(keep_best=1)
    session = folded(KFold(3, 4), [4, 3, 2, 1], [4, 3, 1, 9], [4, 1, 4, 9], mode="max", retention=rules).run()
    kept = {checkpoint.trial for trial in session.controller.trials.values() for checkpoint in trial.checkpoints}
    assert kept == {"t-00003"}


@pytest.mark.parametrize("mode", ["min", "max"])
def test_after_a_crash_at_any_turn_it_comes_to_the_same_end(mode: Mode) -> None:
    place = world(KFold(4, 6, every=2), mode=mode, devices=3, checkpoint_every_s=2.0)
    calm = place.run()
    for turns in range(len(calm.records) - 1):
        resumed = place.resume(place.start().turns(turns).journal).run()
        assert winner(resumed.view) == winner(calm.view)
        assert_sound(resumed)


def test_it_shares_a_run_with_others() -> None:
    one = world(KFold(3, 4), name="one", seed=1)
    other = world(et.FIFO(4, 5), name="other", seed=2)
    session = shared_world(one, other, devices=3).run()
    alone = world(KFold(3, 4), name="one", seed=1).run().view
    assert session.view.best is None
    assert winner(session.view.only("one")) == winner(alone)
    assert {point.trial.split("-")[0] for point in session.view.best_so_far} == {"one", "other"}
    assert session.view.only("one").best_so_far[-1].trial == "one-00003"


def test_a_run_that_is_cut_off_in_the_last_training_still_has_its_verdict() -> None:
    view = folded(KFold(2, 3), [3, 2, 1], [3, 2, 1], devices=2, deadline_s=3.5).run().view
    assert view.status == "deadline" and view.best is not None
    assert (view.best.id, view.best.best_value, view.best.iteration) == ("t-00002", 1.0, 1)
    cut_off = "the mean of 2 folds; trained on all data: so far 1 of 3 iterations"
    assert best_text(view) == f"loss 1 by t-00002 at iteration 3 ({cut_off})"
    assert summary_dict(view)["best"]["why"] == cut_off


def test_a_model_that_was_cut_off_is_no_result(tmp_path: Path) -> None:
    tuner = et.Tuner(
        None,
        space={"lr": 0.1},
        metric="loss",
        algorithm=et.KFold(k=2, R=5),
        devices=2,
        deadline=7,
        storage=tmp_path,
        name="k",
    )
    with pytest.raises(RunFailed, match=r"before the best was trained: loss .* so far \d of \d iterations"):
        tuner.simulate(et.Simulation())
    with pytest.raises(RunFailed, match=r"the best trial, k-00002, is not what it should be yet: the mean of 2 folds"):
        et.load(tmp_path / "k").best_checkpoint()


def test_the_best_can_be_drawn_before_it_has_reported() -> None:
    records = folded(KFold(2, 3), [3, 2, 1], [3, 2, 1], devices=2).run().records
    judged = next(n for n, record in enumerate(records) if any(isinstance(d, m.Judged) for d in record.decisions))
    view = RunView.of(records[: judged + 1])
    assert view.best is not None and not view.best.reports
    assert "t-00002 is the best of 3 trials" in learning_curves(view).axes[0].get_title("left")


def test_the_searcher_is_asked_once_and_learns_of_what_it_has_suggested_only() -> None:
    view = world(KFold(3, 4), searcher="tpe", devices=3).run().view
    own = [{name: t.config[name] for name in SPACE.definition} for t in view.trials.values()]
    assert len(own) == 4 and all(config == own[0] for config in own)


def test_runs_can_be_planned_and_simulated(tmp_path: Path) -> None:
    tuner = et.Tuner(
        None, space={"lr": 0.1}, metric="loss", algorithm=et.KFold(k=3, R=5), devices=3, storage=tmp_path, name="k"
    )
    result = tuner.simulate(et.Simulation())
    assert result.best_params == {"lr": 0.1, "fold": None, "folds": 3}
    means = [
        statistics.fmean(float(trial.reports[step].metrics["loss"]) for trial in list(result.view.trials.values())[:3])
        for step in range(5)
    ]
    assert result.best_value == pytest.approx(min(means))
    assert [(s.trials, s.start, s.until) for s in et.KFold(k=3, R=5).stages()] == [(3, 0, 5), (1, 0, 5)]


def test_a_run_that_failed_says_so_in_python(tmp_path: Path) -> None:
    tuner = et.Tuner(
        None, space={"lr": 0.1}, metric="loss", algorithm=et.KFold(k=2, R=5), devices=2, max_retries=0, storage=tmp_path
    )
    with pytest.raises(RunFailed, match="1 of 2 folds failed: a mean needs 2"):
        tuner.simulate(et.Simulation(faults=(Fault(1.5, "kill", "experiment-00001"),)))


def test_a_grid_gives_its_first_point_and_a_single_point_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    et.Tuner(None, space={"lr": 0.1}, metric="loss", algorithm=et.KFold(k=5, R=2))
    assert not caplog.records
    place = world(KFold(5, 2), searcher="grid", space=Space({"lr": {"grid_search": [0.3, 0.4]}}))
    assert {trial.config["lr"] for trial in place.run().view.trials.values()} == {0.3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 1}, "k=1: must be a whole number of at least 2"),
        ({"R": 0}, "R=0: must be"),
        ({"every": 0}, "every=0: must be"),
        ({"every": 11}, "every=11, R=10: .* must not be above R"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        KFold(**({"k": 3, "R": 10} | changes))


@pytest.mark.parametrize("name", ["fold", "folds"])
def test_a_space_that_has_a_fold_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"space: '{name}' is what KFold adds"):
        et.Tuner(None, space={name: et.uniform(0, 1)}, metric="loss", algorithm=et.KFold(k=3, R=10))
