"""A run once more gives the same numbers to the last digit, and where it does not, that is found."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.worlds import Scripted, World, losses, world

import elastune as et
from elastune.algorithm import Algorithm
from elastune.cli import main
from elastune.errors import SpecError
from elastune.messages import RunStarted
from elastune.record.projection import RunView
from elastune.reproducible import compare

SPACE = {"lr": et.loguniform(1e-3, 1e-1)}


def tuner(algorithm: Algorithm, storage: Path, trainable: object = None, **more: Any) -> et.Tuner:
    given: dict[str, Any] = {"space": SPACE, "metric": "loss", "name": "t", "reproducible": True} | more
    return et.Tuner(trainable, algorithm=algorithm, storage=storage, **given)


# ------------------------------------------------------------------------------------------------------- what it may be


@pytest.mark.parametrize("given", [{"deadline": "1h"}, {"budget": "$1", "price": "$1"}, {"allocator": et.Fluid()}])
def test_what_goes_by_the_clock_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"reproducible and {next(iter(given))}=.*: leave it out"):
        tuner(et.FIFO(n=4, R=2), tmp_path, **given)


@pytest.mark.parametrize(
    ("algorithm", "searcher"),
    [(et.ASHA(n=9, r=1, R=9), None), (et.SuccessiveHalving(n=9, r=1, R=9), "tpe"), (et.BOHB(R=9, n=9), None)],
)
def test_who_goes_by_the_order_of_trials_has_one_at_a_time(
    tmp_path: Path, algorithm: Algorithm, searcher: str | None
) -> None:
    assert tuner(algorithm, tmp_path, searcher=searcher).experiment.devices == 1
    assert tuner(algorithm, tmp_path, searcher=searcher, devices_per_trial=2).experiment.devices == 2
    assert tuner(algorithm, tmp_path, searcher=searcher, machines=2, devices=1, devices_per_trial=2) is not None
    for more in ({"devices": 2}, {"machines": 2}, {"devices_per_trial": "1/2"}):
        with pytest.raises(SpecError, match=f"reproducible: what {type(algorithm).__name__} trains .* one may train"):
            tuner(algorithm, tmp_path, searcher=searcher, **more)


@pytest.mark.parametrize(
    "algorithm", [et.Hyperband(R=9), et.PBT(n=4, R=8, perturbation_interval=2), et.KFold(k=3, R=4)]
)
def test_trials_that_meet_at_barriers_may_be_parallel(tmp_path: Path, algorithm: Algorithm) -> None:
    assert tuner(algorithm, tmp_path, devices=4).experiment.devices == 4


def test_a_part_of_a_device_is_refused_with_advice_that_helps(tmp_path: Path) -> None:
    algorithm = et.ASHA(n=4, r=1, R=4)
    with pytest.raises(SpecError, match="give machines=1 and devices=1 and leave out devices_per_trial=1/2, or take"):
        tuner(algorithm, tmp_path, devices_per_trial="1/2")
    assert tuner(algorithm, tmp_path, machines=1, devices=1).experiment.devices == 1


def test_it_must_be_true_or_false_and_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="reproducible='yes': must be true or false"):
        tuner(et.FIFO(n=4, R=2), tmp_path, reproducible="yes")
    both = [tuner(et.FIFO(n=4, R=2), tmp_path, name=name) for name in ("a", "b")]
    with pytest.raises(SpecError, match="tuner 'a' is reproducible"):
        et.Together(both)


# ------------------------------------------------------------------------------------------- what comes of barriers


@pytest.mark.parametrize(
    "algorithm",
    [
        et.FIFO(7, R=4),
        et.SuccessiveHalving(9, 1, 9, 3),
        et.Hyperband(9),
        et.PBT(6, 8, 2),
        et.KFold(5, 6, 2),
        et.SpotTune(7, 10, 0.6, 2),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_a_declared_schedule_trains_the_same_whatever_the_order_of_its_trials(algorithm: Algorithm) -> None:
    def place(devices: int, stragglers: float) -> World:
        return world(algorithm, devices=devices, stragglers=stragglers, checkpoint_every_s=1.0)

    calm = place(1, 0.0).run().view
    for devices, stragglers in ((3, 0.0), (3, 0.8), (16, 1.5)):
        told = compare(calm, place(devices, stragglers).run().view)
        assert told.difference is None and told.reports > 20


# ------------------------------------------------------------------------------------------------------- comparing


def view(*curves: list[float], versions: dict[str, str] | None = None) -> RunView:
    place = world(et.FIFO(len(curves), R=3), workload=Scripted(*(losses(*curve) for curve in curves)))
    records = place.run().records
    (started,) = records[0].events
    assert isinstance(started, RunStarted)
    started = msgspec.structs.replace(started, versions=versions or {}, experiment={"reproducible": True})
    return RunView.of([msgspec.structs.replace(records[0], events=(started,)), *records[1:]])


def test_the_first_number_that_differs_is_named_to_its_last_digit() -> None:
    before = view([3, 2, 0.1 + 0.2], [3, 2, 1], versions={"torch": "2.0"})
    told = compare(before, view([3, 2, 0.3], [3, 9, 1], versions={"torch": "2.1"}))
    assert told.difference == "trial t-00000, iteration 3: loss was 0.30000000000000004, and is 0.3"
    assert told.hints == ("torch was 2.0, and is 2.1",)
    assert compare(before, before) == (2, 6, None, ())


def test_trials_that_are_missing_new_or_shorter_are_found() -> None:
    one, two = view([3, 2, 1]), view([3, 2, 1], [3, 2, 1])
    assert compare(one, two).difference == "trial t-00001 is new"
    assert compare(two, one).difference == "trial t-00001 is missing"
    assert compare(one, view([3, 2])).difference == "trial t-00000: it reported 3 times, and now 2 times"


# ------------------------------------------------------------------------------------------------------- once more


def test_a_simulated_run_is_the_same_again(tmp_path: Path) -> None:
    first = tuner(et.ASHA(n=9, r=1, R=9), tmp_path, searcher="tpe").simulate(et.Simulation())
    assert first.view.started.experiment["reproducible"] is True
    again = et.Tuner.rerun(first.path, progress=False)
    assert again.same and again.result.path != first.path and again.result.path.parent == tmp_path
    told = CliRunner().invoke(main, ["rerun", str(first.path), "--json", "--storage", str(tmp_path / "other")])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["same"] is True and json.loads(told.stdout)["trials"] == 9
    assert (tmp_path / "other" / "t").is_dir()


def test_a_run_that_has_failed_is_compared_too(tmp_path: Path) -> None:
    failing = tuner(et.FIFO(n=2, R=3), tmp_path)
    with pytest.raises(et.RunFailed, match="all 2 trials failed"):
        failing.simulate(et.Simulation(workload=Scripted(losses(0.5, math.nan))))
    again = et.Tuner.rerun(failing.path, progress=False)
    assert again.same and again.result.status == "failed" and again.told.reports >= 2


def test_the_file_of_an_experiment_may_say_it(tmp_path: Path) -> None:
    from elastune.config_file import load_experiment

    file = tmp_path / "exp.yaml"
    file.write_text(
        "space: {lr: {uniform: [0, 1]}}\nmetric: loss\nalgorithm: {ASHA: {n: 4, r: 1, R: 4}}\nreproducible: true\n"
    )
    assert load_experiment(file, with_trainable=False)[0].experiment.reproducible


def test_a_run_that_is_not_over_is_not_compared(tmp_path: Path) -> None:
    first = tuner(et.FIFO(n=2, R=2), tmp_path).simulate(et.Simulation())
    again = et.load(first.path)
    again.view.status = "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elastune.rerun.load", lambda path, journal: again)
        with pytest.raises(SpecError, match="the run is interrupted: only one that is over can be compared"):
            et.Tuner.rerun(first.path)


def learns(config: Mapping[str, Any]) -> None:
    """Draws from every generator that is seeded, and trains where threads and order would show."""
    import random

    import numpy as np
    import torch

    assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == 1
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
    x, noise = torch.randn(512, 20), torch.tensor(np.random.normal(size=(512, 1)), dtype=torch.float32)
    y = x.sum(1, keepdim=True) + noise
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    if (saved := et.get_checkpoint()) is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    while True:
        for rows in torch.randperm(512).split(64):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        et.report({"loss": loss.item(), "drawn": random.random(), "hash": hash("a name")}, checkpoint=state)


def looks_at_the_clock(config: Mapping[str, Any]) -> None:
    while True:
        et.report({"loss": config["lr"], "seen": time.time()})


@pytest.mark.slow
def test_a_torch_training_on_ray_gives_the_same_numbers_again(tmp_path: Path) -> None:
    first = tuner(et.SuccessiveHalving(n=4, r=1, R=4, eta=2), tmp_path, learns, devices=2).fit(progress=False)
    again = et.Tuner.rerun(first.path, progress=False)
    assert again.same, again.difference
    assert again.told.reports == sum(len(trial.reports) for trial in first.view.trials.values()) >= 8
    assert len({report.metrics["hash"] for trial in first.view.trials.values() for report in trial.reports}) == 1
    drawn = [trial.reports[0].metrics["drawn"] for trial in first.view.trials.values()]
    assert len(set(drawn)) == 4, "each trial has a seed of its own"


@pytest.mark.slow
def test_a_function_that_looks_at_the_clock_is_caught(tmp_path: Path) -> None:
    first = tuner(et.FIFO(n=2, R=2), tmp_path, looks_at_the_clock, devices=1).fit(progress=False)
    told = CliRunner().invoke(main, ["rerun", str(first.path), "--quiet"])
    assert told.exit_code == 1
    assert told.stdout.startswith("not the same: trial t-00000, iteration 1: seen was ")
