"""The whole way of a run, on a simulated cluster: asked for, run, crashed, restored, read again."""

from __future__ import annotations

import math
import os
import signal
import threading
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import elastune as et
from elastune.algorithm import Algorithm
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Curve, Synthetic
from elastune.driver import watch
from elastune.errors import RunFailed, SpecError, StorageError
from elastune.messages import Config, decode_record
from elastune.record.journal import SqlJournal
from elastune.reporting.tables import number
from elastune.results import Result
from elastune.simulation import Simulation
from elastune.tuner import Tuner, load

SPACE = {"lr": et.loguniform(1e-4, 1e-1), "layers": et.choice([2, 3, 4])}


def tuner(tmp_path: Path, algorithm: Algorithm | None = None, **arguments: Any) -> Tuner:
    given: dict[str, Any] = {
        "trainable": None,
        "space": SPACE,
        "metric": "loss",
        "algorithm": algorithm or et.SuccessiveHalving(9, 1, 9, 3),
        "devices": 3,
        "storage": tmp_path / "runs",
        "name": "digits",
        **arguments,
    }
    return Tuner(**given)


def outcome(result: Result) -> tuple[object, ...]:
    return result.status, result.best_value, result.best_trial.best_iteration, result.best_params


def bodies(path: Path) -> list[bytes]:
    journal = SqlJournal(path / "journal.db", path.name, must_exist=True)
    try:
        return list(journal.read())
    finally:
        journal.close()


# ---------------------------------------------------------------------------------------------------------- the result


def test_a_result_tells_the_best_the_cost_and_every_trial(tmp_path: Path) -> None:
    result = tuner(tmp_path, price="$3600").simulate(Simulation(boot_s=10.0))
    assert result.status == "succeeded"
    assert set(result.best_params) == {"lr", "layers"}
    trials = list(result.view.trials.values())
    assert result.best_value == min(report.metrics["loss"] for trial in trials for report in trial.reports)
    # Nine trials of one step, three of three and one of five on three devices, after a boot of ten seconds.
    assert result.view.at_s == pytest.approx(10 + 3 + 3 + 5)
    assert result.cost == pytest.approx(3 * (10 + 3 + 3 + 5))
    table = result.dataframe()
    assert len(table) == 9
    assert sorted(trial.status for trial in trials) == ["completed"] + ["stopped"] * 8
    assert result.best_trial.id in result.summary()
    best = f"loss {number(result.best_value)} by {result.best_trial.id} at iteration "
    assert repr(result).startswith(f"Result({str(result.path)!r}): succeeded; {best}")


def test_a_metric_to_maximise(tmp_path: Path) -> None:
    result = tuner(tmp_path, metric="accuracy", mode="max").simulate(Simulation())
    values = [r.metrics["accuracy"] for trial in result.view.trials.values() for r in trial.reports]
    assert result.best_value == max(float(value) for value in values)


def test_a_run_can_be_read_again_from_its_folder(tmp_path: Path) -> None:
    result = tuner(tmp_path).simulate(Simulation())
    again = load(result.path)
    assert outcome(again) == outcome(result)
    assert again.view == result.view


def test_a_run_that_is_watched_is_read_on_and_nothing_counts_twice(tmp_path: Path) -> None:
    run = tuner(tmp_path).simulate(Simulation()).path
    whole, growing = bodies(run), tmp_path / "growing" / run.name
    growing.mkdir(parents=True)
    with closing(SqlJournal(growing / "journal.db", run.name)) as journal:
        for seq, body in enumerate(whole):
            if seq == len(whole) // 2:
                looks = watch(growing)
                assert next(looks).status == "running"
            journal.append(seq, body)
    for _ in range(2):
        assert next(looks).view == load(run).view


def test_the_same_experiment_gives_the_same_journal_and_another_seed_another(tmp_path: Path) -> None:
    simulation = Simulation(stragglers=0.3, faults=[Fault(3.0, "lose", "n0", 1.0)])
    one, two = (tuner(tmp_path, seed=4).simulate(simulation).path for _ in range(2))
    assert [path.name for path in (one, two)] == ["digits", "digits-2"]
    assert bodies(one) == bodies(two)
    assert bodies(tuner(tmp_path, seed=5).simulate(simulation).path) != bodies(one)


def test_the_name_of_a_run_changes_nothing_but_names(tmp_path: Path) -> None:
    one, two = (tuner(tmp_path, name=name).simulate(Simulation(stragglers=0.3)) for name in ("one", "a-second"))
    assert one.view.at_s == two.view.at_s
    assert outcome(one) == outcome(two)


def test_a_space_without_a_choice_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    same = tuner(tmp_path, space={"lr": 0.1, "net": {"layers": et.choice([2])}})
    same.simulate(Simulation())
    text = "the space has nothing to choose: all 9 trials will be the same"
    assert [record.message for record in caplog.records] == [text]
    caplog.clear()
    tuner(tmp_path, et.ASHA(None, 1, 9), deadline="1m", space={"lr": 0.1})
    assert [record.message for record in caplog.records] == [text.replace("9 ", "")]


@pytest.mark.parametrize(
    ("space", "algorithm"),
    [
        (SPACE, et.FIFO(4, R=1)),
        ({"lr": 0.1}, et.FIFO(1, R=1)),
        ({"lr": 0.1, "n": et.randint(0, 2)}, et.FIFO(4, R=1)),
        ({"lr": et.choice([{"a": et.uniform(0, 1)}])}, et.FIFO(4)),
    ],
)
def test_nothing_is_said_where_trials_differ_or_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, space: dict[str, Any], algorithm: Algorithm
) -> None:
    tuner(tmp_path, algorithm, space=space)
    assert caplog.records == []


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for place, storage in enumerate(("~/runs", Path("~/runs"))):
        asked = tuner(tmp_path, storage=storage, checkpoints="~/saved", name=f"run{place}")
        assert asked.experiment.checkpoints == str(tmp_path / "saved")
        assert asked.simulate(Simulation()).path == tmp_path / "runs" / f"run{place}"


def test_a_tuner_can_simulate_more_than_once(tmp_path: Path) -> None:
    same = tuner(tmp_path)
    assert outcome(same.simulate(Simulation())) == outcome(same.simulate(Simulation()))


def test_a_simulation_has_no_checkpoint_to_give(tmp_path: Path) -> None:
    assert tuner(tmp_path).simulate(Simulation()).best_checkpoint() is None


def test_scaling_and_stragglers_are_taken_from_the_simulation(tmp_path: Path) -> None:
    slow = tuner(tmp_path).simulate(Simulation(scaling={1: 0.5}))
    assert slow.view.at_s == pytest.approx(2 * (3 + 3 + 5))
    uneven = tuner(tmp_path).simulate(Simulation(stragglers=0.5))
    assert uneven.view.at_s != pytest.approx(3 + 3 + 5)


@pytest.mark.parametrize(
    ("width", "time_s", "said"),
    [
        (1, 4, 1),
        (2.0, 4, 2),
        ("4", 4, 4),
        (0.5, 4, "1/2"),
        ("1/3", 6, "1/3"),
        (1 / 3, 6, "1/3"),
        (Fraction(1, 4), 8, "1/4"),
    ],
)
def test_every_trial_gets_as_many_devices_as_were_asked_for(
    tmp_path: Path, width: Any, time_s: float, said: int | str
) -> None:
    """Eight trials of two steps on two machines of two devices."""
    asked = tuner(tmp_path, et.FIFO(8, R=2), machines=2, devices=2, devices_per_trial=width)
    result = asked.simulate(Simulation())
    assert result.view.at_s == pytest.approx(time_s)
    assert result.view.started.experiment["devices_per_trial"] == said
    assert result.view.utilisation() == pytest.approx({"1/3": 2 / 3, "1/4": 2 / 4}.get(str(said), 1.0))


def test_an_allocator_of_ones_own_says_what_each_trial_gets_and_can_be_resumed(tmp_path: Path) -> None:
    result = tuner(tmp_path, et.FIFO(2, R=6), allocator=Widest(1, 3)).simulate(Simulation())
    assert result.view.at_s == pytest.approx(2 * 6 / 3)
    assert result.view.started.experiment["allocator"] == {"Widest": {"machines": 1, "devices": 3}}
    assert outcome(Tuner.restore(result.path).fit(progress=False)) == outcome(result)


def test_a_width_from_an_allocator_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the allocator's width of digits-00000=0: must be a whole number"):
        tuner(tmp_path, allocator=Widest(1, 0)).simulate(Simulation())


@pytest.mark.parametrize("searcher", ["random", "bohb", "tpe"])
def test_what_is_given_is_tried_first_and_learnt_from(tmp_path: Path, searcher: str) -> None:
    given = [{"lr": 0.02, "layers": 3}, {"lr": 0.05, "layers": 4}]

    def configs(name: str, **more: Any) -> list[Config]:
        made = tuner(tmp_path, et.FIFO(30, 9), searcher=searcher, name=name, **more)
        return [trial.config for trial in made.simulate(Simulation()).view.trials.values()]

    first, again, alone = configs("a", start_with=given), configs("b", start_with=given), configs("c")
    assert first[:2] == given and first == again and len(first) == 30
    assert (first[2:] == alone[2:]) == (searcher == "random"), "a searcher that learns goes on from there"


def test_a_run_with_given_configurations_is_restored(tmp_path: Path) -> None:
    given = [{"lr": np.float64(0.02), "layers": 3}] * 9
    made = tuner(tmp_path, start_with=[MappingProxyType(config) for config in given])
    whole = made.simulate(Simulation())
    assert [trial.config for trial in whole.view.trials.values()] == given
    controller = made.experiment.controller()
    with closing(SqlJournal(whole.path / "journal.db", whole.path.name)) as journal:
        for body in journal.read():
            controller.replay(decode_record(body))
    assert controller.done


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("best", "start_with='best': must be a list of configurations"),
        ({"lr": 0.01}, "must be a list of configurations"),
        ([{"lr": 0.01}], r"start_with\[0\]={'lr': 0.01}: is not in the space: .* each of lr, layers, and nothing else"),
        ([{"lr": 0.01, "layers": 3}, {"lr": 5, "layers": 3}], r"start_with\[1\]"),
        ([{"lr": 0.01, "layers": 3, "depth": 1}], r"start_with\[0\]"),
        ([3], r"start_with\[0\]=3: is not in the space"),
        (None, "start_with=None: must be a list"),
        ([{"lr": math.nan, "layers": 3}], r"start_with\[0\]"),
        ([{"lr": 0.01, "layers": np.int64(3)}], r"start_with\[0\]=.*int64.*: is not in the space"),
    ],
)
def test_what_cannot_be_tried_first_is_refused(tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tuner(tmp_path, start_with=given)
    assert not list(tmp_path.iterdir())


def test_a_searcher_of_a_library_and_a_grid(tmp_path: Path) -> None:
    assert tuner(tmp_path, searcher="tpe").simulate(Simulation()).status == "succeeded"
    grid = {"lr": et.grid_search([0.1, 0.01, 0.001]), "layers": et.grid_search([1, 2, 3])}
    result = tuner(tmp_path, space=grid).simulate(Simulation())
    configs = {tuple(trial.config.values()) for trial in result.view.trials.values()}
    assert configs == {(lr, layers) for lr in (0.1, 0.01, 0.001) for layers in (1, 2, 3)}


def test_without_a_searcher_the_algorithm_says_which_unless_there_is_a_grid(tmp_path: Path) -> None:
    def chosen(algorithm: Algorithm, **arguments: Any) -> str:
        return type(tuner(tmp_path, algorithm, **arguments).experiment.searcher).__name__

    assert chosen(et.ASHA(9, 1, 9)) == "RandomSearcher"
    assert chosen(et.BOHB(9, n=9)) == "BOHBSearcher"
    assert chosen(et.BOHB(9, n=9), searcher="random") == "RandomSearcher"
    assert chosen(et.BOHB(9), space={"x": et.grid_search([1, 2])}) == "GridSearcher"


def test_bohb_finds_more_with_its_model_than_at_random(tmp_path: Path) -> None:
    space = {"lr": et.loguniform(1e-4, 1e-1), "momentum": et.uniform(0, 1), "layers": et.choice([2, 3, 4])}

    def best(seed: int, searcher: str | None) -> float:
        made = tuner(tmp_path, et.BOHB(27), space=space, seed=seed, searcher=searcher, deadline="5m")
        return made.simulate(Simulation(Synthetic("loss", "min", noise=0.0))).best_value

    assert all(best(seed, None) < best(seed, "random") for seed in range(4))


# --------------------------------------------------------------------------------------------------- limits, failures


def test_a_deadline_and_a_budget_end_the_run(tmp_path: Path) -> None:
    late = tuner(tmp_path, et.ASHA(None, 1, 27), deadline="1m").simulate(Simulation())
    assert (late.status, late.view.reason) == ("deadline", "the deadline of 1m is reached")
    assert 60 <= late.view.at_s <= 61
    poor = tuner(tmp_path, et.ASHA(None, 1, 27), budget="$0.10", price="$3.60").simulate(Simulation())
    assert (poor.status, poor.view.reason) == ("budget", "the budget of $0.10 is used up")
    assert 0.10 <= poor.cost <= 0.10 + 3 * 0.001 + 1e-9


class NotANumber(Synthetic):
    def curve(self, config: Config) -> Curve:
        return lambda iteration: {"loss": math.nan}


def test_a_run_without_a_result_is_an_error_that_names_its_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="none has reported a finite value") as error:
        tuner(tmp_path, et.FIFO(20, 3)).simulate(Simulation(NotANumber("loss", "min")))
    assert str(tmp_path / "runs" / "digits") in str(error.value)
    assert load(tmp_path / "runs" / "digits").status == "failed"


class NotANumberAtTheEnd(Synthetic):
    def curve(self, config: Config) -> Curve:
        return lambda iteration: {"loss": math.nan if iteration > 1 else 0.5}


def test_a_deadline_before_any_report_tells_what_failed_last(tmp_path: Path) -> None:
    slow, kill = Synthetic("loss", "min", step_s=600.0), Fault(at_s=10.0, kind="kill", target="digits-00000")
    with pytest.raises(RunFailed) as error:
        tuner(tmp_path, deadline="40s").simulate(Simulation(slow, faults=[kill]))
    run, said = tmp_path / "runs" / "digits", str(error.value)
    assert (
        "the deadline of 40s is reached before any trial has reported; the last that failed is digits-00000: " in said
    )
    assert said.endswith(f"; see: elastune status {run}, elastune logs {run} digits-00000")
    with pytest.raises(RunFailed, match=r"before any trial has reported$"):
        tuner(tmp_path, deadline="40s").simulate(Simulation(slow))


def test_a_run_whose_trials_have_all_failed_is_an_error_that_names_the_best_before(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=r"all 4 trials failed; the last: digits-0000.: loss=nan at iteration 2"
    ) as error:
        tuner(tmp_path, et.FIFO(n=4, R=6)).simulate(Simulation(NotANumberAtTheEnd("loss", "min")))
    assert "The best before: loss=0.5 by digits-00000 at iteration 1" in str(error.value)
    assert load(tmp_path / "runs" / "digits").best_value == 0.5


def test_a_metric_that_the_workload_does_not_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"reported no metric 'loss': it reported: accuracy"):
        tuner(tmp_path).simulate(Simulation(Synthetic("accuracy", "min")))


# ------------------------------------------------------------------------------------------------------ crash, restore


class Crashing(Synthetic):
    """Breaks once, after so many steps; the next driver finds it whole."""

    left = 0

    def step_s(self, config: Config, iteration: int) -> float:
        type(self).left -= 1
        if type(self).left == 0:
            raise RuntimeError("the power is gone")
        return 1.0


@pytest.mark.parametrize("steps", [1, 5, 10, 22])
def test_a_crashed_simulation_is_restored_and_has_the_same_winner(tmp_path: Path, steps: int) -> None:
    calm = tuner(tmp_path).simulate(Simulation(Synthetic("loss", "min")))
    Crashing.left = steps
    with pytest.raises(RuntimeError, match="the power is gone"):
        tuner(tmp_path, name="hit").simulate(Simulation(Crashing("loss", "min")))
    path = tmp_path / "runs" / "hit"
    assert load(path).status == "running"
    result = Tuner.restore(path).fit(progress=False)
    assert outcome(result) == outcome(calm)
    assert result.path == path and outcome(load(path)) == outcome(result)
    for trial in result.view.trials.values():
        assert [report.iteration for report in trial.reports] == list(range(1, len(trial.reports) + 1))


def test_a_long_run_is_restored_from_its_snapshot(tmp_path: Path) -> None:
    algorithm = et.FIFO(40, 40)
    calm = tuner(tmp_path, algorithm, devices=1).simulate(Simulation(Synthetic("loss", "min")))
    Crashing.left = 1400
    with pytest.raises(RuntimeError, match="the power is gone"):
        tuner(tmp_path, algorithm, devices=1, name="hit").simulate(Simulation(Crashing("loss", "min")))
    result = Tuner.restore(tmp_path / "runs" / "hit").fit(progress=False)
    assert outcome(result) == outcome(calm)


class Interrupting(Synthetic):
    """The user presses Ctrl-C once, after so many steps."""

    left = 0

    def step_s(self, config: Config, iteration: int) -> float:
        type(self).left -= 1
        if type(self).left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return 1.0


def test_ctrl_c_pauses_the_run_and_restore_goes_on_without_losing_anything(tmp_path: Path) -> None:
    calm = tuner(tmp_path).simulate(Simulation(Synthetic("loss", "min")))
    Interrupting.left = 10
    stopped = tuner(tmp_path, name="hit").simulate(Simulation(Interrupting("loss", "min")))
    assert stopped.status == "interrupted"
    result = Tuner.restore(stopped.path).fit(progress=False)
    assert outcome(result) == outcome(calm)
    assert result.view.retrained == 0


def test_restoring_a_run_that_is_over_gives_its_result_and_trains_nothing(tmp_path: Path) -> None:
    result = tuner(tmp_path).simulate(Simulation())
    before = bodies(result.path)
    assert outcome(Tuner.restore(result.path).fit(progress=False)) == outcome(result)
    assert bodies(result.path) == before


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for read in (load, Tuner.restore):
        with pytest.raises(StorageError, match="there is no such run"):
            read(tmp_path / "nowhere")


# ------------------------------------------------------------------------------------------------- what cannot be asked


def test_a_grid_with_fewer_points_than_trials_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="trains 9 configurations, the grid has 2: ask for fewer, or add values"):
        tuner(tmp_path, space={"lr": et.grid_search([0.1, 0.2])})


@pytest.mark.parametrize("algorithm", [et.FIFO(3), et.ASHA(3, 1, 9), et.BOHB(9, n=3), et.SyncBOHB(9, n=3)])
def test_no_more_trials_can_be_asked_for_than_the_grid_has(tmp_path: Path, algorithm: et.Algorithm) -> None:
    with pytest.raises(SpecError, match="trains 3 configurations, the grid has 2: ask for fewer"):
        tuner(tmp_path, space={"lr": et.grid_search([0.1, 0.2])}, algorithm=algorithm)


NO_WIDTHS: list[Any] = [0, -1, 1.5, 0.3, 0.66, "half", "1/0", "2/3", "1/65", None, True, math.nan, math.inf, {}]


class Widest(et.Allocator):
    """The first trial gets a whole machine, the others wait."""

    def __init__(self, machines: int, devices: int) -> None:
        self.machines, self.devices = machines, devices

    def allocate(self, view: et.View, at_s: float) -> et.Target:
        first = [*view.widths, *view.waiting][: self.machines]
        return et.Target(self.machines, dict.fromkeys(first, self.devices))


class UnpicklableAllocator(Widest):
    def __init__(self) -> None:
        super().__init__(1, 1)
        self.lock = threading.Lock()


class Unpicklable(et.FIFO):
    def __init__(self) -> None:
        super().__init__(1, 1)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("arguments", "said", "allowed"),
    [
        ({"name": "my run"}, "name='my run'", "letters, digits"),
        ({"name": "../up"}, "name='../up'", "letters, digits"),
        ({"name": "x" * 101}, "name='xxx", "at most 100"),
        ({"journal": "runs/journal.db"}, "journal='runs/journal.db'", "such as 'postgresql://"),
        ({"metric": ""}, "metric=''", "such as 'loss'"),
        ({"mode": "minimize"}, "mode='minimize'", "'min' \\(less is better\\) or 'max'"),
        ({"algorithm": "asha"}, "algorithm='asha'", "such as ASHA"),
        ({"algorithm": et.ASHA}, "algorithm=<class", "such as ASHA"),
        ({"retention": 3}, "retention=3", "Retention\\(keep_last"),
        ({"seed": -1}, "seed=-1", "at least 0"),
        ({"seed": 1.5}, "seed=1.5", "at least 0"),
        ({"machines": 0}, "machines=0", "at least 1"),
        ({"devices": 0}, "devices=0", "at least 1"),
        ({"max_retries": -1}, "max_retries=-1", "at least 0"),
        ({"deadline": "soon"}, "deadline='soon'", "20m"),
        ({"deadline": 0}, "deadline=0", "20m"),
        ({"deadline": 1e30}, "deadline=1e\\+30", "at most ten years \\(3650d\\); a bare number counts seconds"),
        ({"machines": np.int64(2)}, "machines=np.int64\\(2\\)", "must be an int of Python: give int\\(2\\)"),
        ({"grace": "-1s"}, "grace='-1s'", "positive duration"),
        ({"checkpoint_every": "often"}, "checkpoint_every='often'", "duration of at least 0"),
        ({"budget": "much", "price": 1}, "budget='much'", "\\$20"),
        ({"budget": "$5", "price": "cheap"}, "price='cheap'", "\\$20"),
        ({"price": 1e308}, "price=1e\\+308", "at most \\$1,000,000 an hour"),
        ({"budget": "$5"}, "budget='\\$5'", "give price="),
        ({"algorithm": et.ASHA(None, 1, 9)}, "ASHA\\(n=None\\)", "give n, a deadline or a budget"),
        ({"algorithm": et.BOHB(9)}, "BOHB\\(n=None\\)", "give n, a deadline or a budget"),
        ({"searcher": "bayes"}, "searcher='bayes'", "allowed: .*tpe"),
        ({"searcher": 7}, "searcher=7", "must be a name"),
        ({"searcher": "grid"}, "searcher='grid'", "grid_search"),
        ({"searcher": "tpe", "space": {"x": et.grid_search([1])}}, "searcher='tpe'", "use 'grid'"),
        ({"space": {"x": et.grid_search([1])}, "searcher": "random"}, "searcher='random'", "use 'grid'"),
        ({"algorithm": Unpicklable()}, "algorithm", "must be picklable"),
        ({"allocator": UnpicklableAllocator()}, "allocator", "must be picklable"),
        ({"allocator": "fair"}, "allocator='fair'", "extends elastune.Allocator, such as Fluid()"),
        ({"allocator": Widest}, "allocator=<class", "extends elastune.Allocator, such as Fluid()"),
        ({"allocator": Widest(1, 3), "devices_per_trial": 2}, "devices_per_trial=2 and", "give one of them"),
        *(
            ({"devices_per_trial": bad}, f"devices_per_trial={bad!r}", "whole number of devices .* or the part of one")
            for bad in NO_WIDTHS
        ),
        ({"devices_per_trial": 4}, "devices_per_trial=4: 1 machine x 3 devices have 3", "give fewer per trial"),
        ({"devices_per_trial": 8, "devices": 1, "machines": 7}, "7 machines x 1 device have 7", "or more machines"),
        ({"devices_per_trial": 4, "machines": 2}, "on one machine or on whole ones", "the 3 devices of one"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], said: str, allowed: str
) -> None:
    with pytest.raises(SpecError, match=said) as error:
        tuner(tmp_path, **arguments)
    assert error.match(allowed)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("keep", [{"keep_last": 0}, {"keep_best": -1}, {"keep_last": 1.5}])
def test_a_retention_that_cannot_be_is_refused(keep: dict[str, Any]) -> None:
    ((name, value),) = keep.items()
    with pytest.raises(SpecError, match=f"{name}={value}"):
        et.Retention(**keep)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scaling": {2: 1.9}}, "must say the speed-up of width 1"),
        ({"scaling": {1: 0}}, r"scaling\[1\]=0"),
        ({"boot_s": -1}, "boot_s=-1"),
        ({"lifetime_s": 0}, "lifetime_s=0"),
        ({"stragglers": -1}, "stragglers=-1"),
    ],
)
def test_a_simulation_that_cannot_be_is_refused(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tuner(tmp_path).simulate(Simulation(**arguments))


@pytest.mark.parametrize("given", ["10s", None, {}, Simulation])
def test_what_is_no_simulation_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(SpecError, match=r"simulation=.*: must be a Simulation, such as"):
        tuner(tmp_path).simulate(given)


def test_a_run_on_machines_needs_a_trainable(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="trainable=None"):
        tuner(tmp_path).fit()
