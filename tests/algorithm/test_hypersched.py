"""HyperSched: ASHA on a fixed cluster, which begins no new trials as the deadline comes near and gives the devices to
the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import Scripted, Session, World, assert_sound, losses, winner, world

import elastune as et
from elastune import messages as m
from elastune.algorithm import ASHA, HyperSched
from elastune.algorithm.hypersched import Rung
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic, Workload
from elastune.config_file import load_experiment
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.spec import Limits, Terms

SPACE = {"lr": et.loguniform(1e-4, 1e-1)}
SUBLINEAR = {1: 1, 2: 1.85, 4: 3.4, 8: 5.4}


def hypersched(
    r: int = 1,
    R: int = 64,
    eta: int = 4,
    *,
    machines: int = 2,
    devices: int = 4,
    deadline_s: float = 60.0,
    spare: float = 0.0,
    boot_s: float = 0.0,
    seed: int = 0,
    workload: Workload | None = None,
    **more: Any,
) -> World:
    """On as many machines, for which the budget is just enough, or more by the part of a machine that is `spare`. A
    device costs a dollar a second.
    """
    budget_usd = (machines + spare) * devices * deadline_s * (1 + 1e-12)
    algorithm = HyperSched(r, R, eta)
    allocator = algorithm.prepare(Terms(Limits(deadline_s, budget_usd), 100, devices, 3600.0, ready_s=boot_s))
    return world(
        algorithm,
        allocator=allocator,
        devices=devices,
        seed=seed,
        deadline_s=deadline_s,
        budget_usd=budget_usd,
        price=3600.0,
        boot_s=boot_s,
        workload=workload or Synthetic("loss", "min", seed=seed, noise=0.0),
        **more,
    )


def begins_s(session: Session) -> list[float]:
    """When each trial was first started."""
    seen: dict[str, float] = {}
    for record in session.records:
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                seen.setdefault(command.trial, record.at_s)
    return list(seen.values())


def widths_of(session: Session, trial: str) -> list[int]:
    """Every width that it had, in order."""
    gangs: dict[float, int] = {}
    for busy in session.view.segments():
        if busy.trial == trial:
            gangs[busy.from_s] = gangs.get(busy.from_s, 0) + 1
    return [gangs[from_s] for from_s in sorted(gangs)]


def held(session: Session) -> list[tuple[float, int]]:
    """When so many machines were asked for, or given back."""
    changes = []
    for record in session.records:
        for kind, sign in ((m.AddNode, 1), (m.ReleaseNode, -1)):
            if count := sum(isinstance(command, kind) for command in record.commands):
                changes.append((record.at_s, sign * count))
    return changes


def test_all_machines_that_the_budget_buys_are_held_to_the_end() -> None:
    session = hypersched(machines=3, spare=0.9, boot_s=4.0).run()
    assert_sound(session)
    (asked_s, asked), (given_s, given_back) = held(session)
    assert (asked_s, asked, given_back) == (0.0, 3, -3)
    assert 59.0 <= given_s <= 60.0 and session.view.status == "succeeded"


def test_no_trial_begins_when_it_could_not_train_as_long_as_the_longest() -> None:
    session = hypersched(R=1000).run()
    begins = begins_s(session)
    assert len(begins) > 20, "many begin before"
    assert 20.0 < max(begins) <= 35.0
    asha = world(ASHA(None, 1, 1000, 4), machines=2, devices=4, deadline_s=60.0).run()
    assert max(begins_s(asha)) > 55.0


def test_where_time_is_plenty_trials_begin_as_long_as_they_can_come_to_the_last_rung() -> None:
    session = hypersched(R=64, deadline_s=400.0).run()
    assert 382.0 <= max(begins_s(session)) <= 383.5


def test_at_the_end_the_best_trial_has_many_devices_and_all_are_busy() -> None:
    session = hypersched(R=1000).run()
    assert_sound(session)
    best = session.view.best
    assert best is not None
    widths = widths_of(session, best.id)
    assert widths[0] == 1 and widths[-1] >= 4
    last_s = [busy for busy in session.view.segments() if busy.from_s < 55.0 < busy.to_s]
    assert len(last_s) == 8


def test_the_winner_has_trained_further_than_with_asha() -> None:
    ours, asha = hypersched(R=1000).run(), world(ASHA(None, 1, 1000, 4), machines=2, devices=4, deadline_s=60.0).run()
    assert ours.view.best is not None and asha.view.best is not None
    assert ours.view.best.iteration > 1.5 * asha.view.best.iteration


def test_when_the_best_are_done_the_next_best_use_the_time_that_is_paid_for() -> None:
    session = hypersched(R=4, deadline_s=30.0, machines=1, workload=Scripted(*map(curve, range(100)))).run()
    assert session.view.status == "succeeded" and session.view.at_s > 28.0
    done = sorted(trial.id for trial in session.view.trials.values() if trial.status == "completed")
    assert len(done) > 3


def curve(level: float) -> Sequence[m.Metrics]:
    return losses(*(level + 1 / iteration for iteration in range(1, 200)))


def test_the_best_of_a_few_goes_on_at_once_and_a_better_one_that_comes_later_takes_its_place() -> None:
    """The third trial, which begins when the second is out, pushes the first from the rung that it has passed."""
    workload = Scripted(curve(0.5), curve(0.9), curve(0.1), *[curve(2.0)] * 50)
    session = hypersched(2, 100, 4, machines=1, devices=2, deadline_s=40.0, workload=workload).run()
    assert_sound(session)
    paused = [
        (record.at_s, event.trial, event.iteration)
        for record in session.records
        for event in record.events
        if isinstance(event, m.TrialPaused)
    ]
    assert paused[:4] == [
        (2.0, "t-00000", 2),  # alone at its rung: it goes on
        (2.0, "t-00001", 2),
        (4.0, "t-00002", 2),
        (5.0, "t-00000", 5),
    ]
    assert winner(session.view)[0] == "t-00002"


def test_who_was_pushed_out_is_promoted_when_it_is_good_again() -> None:
    """With the fifth at the rung two may go on."""
    workload = Scripted(curve(0.5), curve(0.9), curve(0.1), *[curve(2.0)] * 50)
    session = hypersched(2, 100, 4, machines=1, devices=2, deadline_s=40.0, workload=workload).run()
    starts = [command for command in session.commands if isinstance(command, m.StartTrial)]
    again = [start.iteration for start in starts if start.trial == "t-00000"]
    assert again[:3] == [0, 2, 5]
    assert session.view.trials["t-00000"].iteration > 5


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.integers(2, 5))
def test_a_rung_lets_the_best_part_go_on_rounded_up_and_names_who_has_lost_its_place(
    given_losses: list[int], eta: int
) -> None:
    rung, entries, good = Rung(1, eta), [], set[tuple[float, str]]()
    for number, loss in enumerate(given_losses):
        entry = (float(loss), f"{number:03d}")
        entries.append(entry)
        out = rung.add(entry)
        now_good = set(sorted(entries)[: math.ceil(len(entries) / eta)])
        assert {each for each in entries if rung.is_good(each)} == now_good
        assert {trial for _, trial in good - now_good} == ({out} if out is not None else set())
        good = now_good


@settings(max_examples=60)
@given(
    machines=st.integers(1, 4),
    devices=st.sampled_from([1, 2, 3, 4]),
    deadline_s=st.sampled_from([12.0, 35.0, 90.0]),
    r=st.integers(1, 3),
    eta=st.integers(2, 4),
    R=st.sampled_from([3, 9, 40, 1000]),
    boot_s=st.sampled_from([0.0, 3.3]),
    start_s=st.sampled_from([0.0, 0.4]),
    stragglers=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 1000),
    faults=st.lists(
        st.builds(
            lambda at_s, kind, number: Fault(at_s, kind, f"n{number}" if kind == "lose" else f"t-{number:05d}"),
            st.floats(0, 30),
            st.sampled_from(["lose", "kill"]),
            st.integers(0, 5),
        ),
        max_size=3,
    ),
)
def test_it_ends_in_time_and_within_the_budget_whatever_happens(
    machines: int, devices: int, deadline_s: float, seed: int, faults: list[Fault], **more: Any
) -> None:
    place = hypersched(machines=machines, devices=devices, deadline_s=deadline_s, seed=seed, faults=faults, **more)
    session = place.run()
    assert_sound(session)
    view = session.view
    assert view.at_s <= deadline_s + 1e-6
    limit = place.experiment.settings.limits.budget_usd
    assert limit is not None and view.cost_usd() <= limit
    for start in (command for command in session.commands if isinstance(command, m.StartTrial | m.ResizeTrial)):
        assert len(start.slots) <= devices or len(start.slots) % devices == 0
    if not faults:
        assert view.status == "succeeded" and sum(isinstance(c, m.AddNode) for c in session.commands) == machines


@settings(max_examples=20)
@given(st.integers(1, 120), st.integers(0, 100))
def test_a_driver_that_takes_over_decides_the_same(turns: int, seed: int) -> None:
    place = hypersched(seed=seed, deadline_s=30.0, stragglers=0.2)
    crashed = place.start().turns(turns)
    before = list(crashed.journal.read())
    resumed = place.resume(crashed.journal).run()
    assert list(resumed.journal.read())[: len(before)] == before, "the journal could be replayed"
    assert resumed.view.status == "succeeded" and resumed.view.at_s <= 30.0


def test_it_runs_from_a_profile_and_a_cloud(tmp_path: Path) -> None:
    cloud = Cloud("m", 4, 40.0, request=constant(1.0), boot=constant(5.0), minimum_s=60.0)
    tuner = et.Tuner(
        None,
        space=SPACE,
        metric="loss",
        algorithm=et.HyperSched(r=1, R=1000),
        planning=et.Planning(JobProfile(constant(2.0), Scaling(SUBLINEAR), start=constant(0.2)), cloud),
        machines=9,
        deadline="5m",
        budget="$15",
        storage=tmp_path,
    )
    result = tuner.simulate(et.Simulation())
    assert result.status == "succeeded" and 290.0 < result.view.at_s <= 300.0
    assert 12.9 < result.cost <= 4 * 40.0 / 12, "four machines for the whole time, but for the request"


def test_it_is_written_in_yaml_as_in_python(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(
        "space: {lr: {loguniform: [1.0e-4, 0.1]}}\nmetric: loss\nalgorithm: {HyperSched: {r: 1, R: 50}}\n"
        "deadline: 40s\nbudget: 160 device-seconds\ncluster: {machines: 4, devices: 2}\n"
    )
    tuner, simulation = load_experiment(path, with_trainable=False, storage=tmp_path)
    result = tuner.simulate(simulation)
    assert result.status == "succeeded"
    assert len(result.view.ready_s) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"r": 0}, "r=0: must be a whole number of at least 1"),
        ({"R": 0.5}, "R=0.5: must be a whole number"),
        ({"eta": 1}, "eta=1: must be a whole number of at least 2"),
        ({"r": 9, "R": 3}, "r=9, R=3"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(et.SpecError) as error:
        et.HyperSched(**{"r": 1, "R": 50, **arguments})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budget": "$1", "price": "$1"}, "HyperSched needs a deadline and a budget: deadline is missing"),
        ({"deadline": "1h"}, "HyperSched needs a deadline and a budget: budget is missing"),
        ({"deadline": "1h", "budget": "$1"}, "HyperSched needs a price for its budget"),
        ({"deadline": "1h", "budget": "$9", "price": "$1", "devices_per_trial": 2}, "leave out devices_per_trial=2"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(et.SpecError) as error:
        asked_for(tmp_path, **fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"deadline": "1h", "budget": "$3", "price": "$1"},
            "the budget of $3.00 is too small for one machine until the deadline: it takes $4.00 for 4 devices and 1h",
        ),
        ({"deadline": "1h", "budget": "100 device-minutes"}, "it takes 240 device-minutes"),
        (
            {"deadline": "5s", "budget": "$9", "price": "$1", "provider": "local", "boot": "10s"},
            "the deadline of 5s is too early: machines need ",
        ),
    ],
)
def test_what_cannot_be_bought_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(et.Infeasible) as error:
        asked_for(tmp_path, **fields)
    assert message in str(error.value)


def asked_for(storage: Path, **fields: Any) -> et.Tuner:
    algorithm = et.HyperSched(1, 50)
    return et.Tuner(
        None, space=SPACE, metric="loss", algorithm=algorithm, machines=4, devices=4, storage=storage, **fields
    )
