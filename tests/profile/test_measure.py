"""What a journal tells about a job is what was so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastune as et
from elastune import messages as m
from elastune.allocate.stepwise import Stepwise
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic
from elastune.errors import SpecError
from elastune.experiment import Experiment
from elastune.profile.measure import Measured
from elastune.profiling import Profiled, profiling_experiment
from elastune.record.journal import SqlJournal
from elastune.simulation import Simulation
from elastune.spec import Width

SCALING: dict[float, float] = {1 / 3: 0.4, 0.5: 0.7, 1: 1.0, 2: 1.9, 4: 3.4}


def simulate(widths: tuple[Width, ...], seconds: float, step_s: float, **simulation: Any) -> Measured:
    """On two machines with two devices, width by width."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = et.Tuner(
            None,
            space={"x": et.uniform(0, 1)},
            metric="loss",
            algorithm=et.FIFO(1_000_000, R=1_000_000),
            allocator=Stepwise(2, 2, seconds, widths),
            machines=2,
            devices=2,
            storage=Path(folder),
            name="t",
        )
        workload = Synthetic("loss", "min", step_s=step_s)
        result = tuner.simulate(Simulation(workload=workload, scaling=SCALING, **simulation))
        journal = SqlJournal(result.path / "journal.db", "t", must_exist=True)
        try:
            return Measured.of(m.decode_record(body) for body in journal.read())
        finally:
            journal.close()


@settings(max_examples=20, deadline=None)
@given(
    step_s=st.sampled_from([0.3, 2.0, 30.0]),
    start_s=st.sampled_from([0.0, 0.5, 4.0]),
    request_s=st.sampled_from([0.0, 3.0]),
    boot_s=st.sampled_from([0.0, 7.5]),
)
def test_the_steps_the_scaling_the_beginning_and_the_machines_of_a_simulated_run_are_found(
    step_s: float, start_s: float, request_s: float, boot_s: float
) -> None:
    machines = {"request_s": request_s, "boot_s": boot_s}
    widths = (Fraction(1, 3), Fraction(1, 2), 1, 2, 4)
    measured = simulate(widths, 20 * step_s, step_s, start_s=start_s, **machines)
    profile, cloud = measured.profile(), measured.cloud("m", 2, 3.0)
    assert profile.step.kind == "constant" and profile.step.mean_s == pytest.approx(step_s, rel=1e-3)
    assert set(profile.scaling.speedups) == {1, 2, 4} and profile.packed == pytest.approx((0.7, 0.4), rel=1e-3)
    assert profile.with_parts.speedups == pytest.approx(SCALING, rel=1e-3)
    assert (cloud.request.mean_s, cloud.boot.mean_s) == pytest.approx((request_s, boot_s), rel=1e-3)
    assert (cloud.devices, cloud.price_usd_per_hour) == (2, 3.0)
    narrow = simulate((1,), 20 * step_s, step_s, start_s=start_s, **machines)  # to move is free in a simulation
    assert narrow.profile().start.mean_s == pytest.approx(start_s, rel=1e-3, abs=1e-3 * step_s)


def test_the_spread_of_steps_is_found() -> None:
    step = simulate((1, 2), 2000.0, 2.0, stragglers=0.3).profile().step
    assert step.varies
    assert (step.mean_s, step.std_s) == pytest.approx((2.0, 2.0 * 0.307), rel=0.06)


def test_workers_and_machines_that_are_lost_leave_no_trace_in_the_steps() -> None:
    faults = [Fault(3.3, "kill", "t-00000"), Fault(8.1, "lose", "n1"), Fault(12.9, "kill", "t-00002")]
    measured = simulate((1, 2), 20.0, 1.0, start_s=0.25, faults=faults)
    assert measured.steps[1] == pytest.approx([1.0] * len(measured.steps[1]))
    assert measured.steps[2] == pytest.approx([1 / 1.9] * len(measured.steps[2]))
    assert len(measured.firsts) > 8, "those that began again"
    begun = [seconds for width, _, seconds in measured.firsts if width == 1]
    assert begun == pytest.approx([1.25] * len(begun))


# ------------------------------------------------------------------------------------------------------------- by hand


def reported(trial: str, *iterations: int, attempt: int = 1) -> list[m.AnyEvent]:
    return [m.TrialReported(trial, attempt, iteration, {"loss": 1.0}) for iteration in iterations]


def start(trial: str, width: int = 1, attempt: int = 1, share: float = 1.0, lane: int = 0) -> m.StartTrial:
    slots = tuple(m.Slot("n0", device, lane) for device in range(width))
    return m.StartTrial(0, trial, attempt, 0, {}, 0, None, None, False, slots, share)


def measured(*turns: tuple[float, Iterable[m.AnyEvent], list[m.AnyCommand]]) -> Measured:
    return Measured.of(m.Record(at_s, tuple(events), (), tuple(commands)) for at_s, events, commands in turns)


def test_reports_that_come_in_one_turn_share_the_time_since_the_one_before() -> None:
    found = measured(
        (0.0, [], [start("a"), start("b")]),
        (5.0, reported("a", 1, 2), []),
        (8.0, [*reported("a", 3), *reported("b", 1), *reported("a", 4, 5)], []),
        (10.0, reported("a", 6), []),
    )
    assert found.steps == {1: [1.0, 1.0, 1.0, 2.0]}
    assert (found.cold_firsts, found.firsts) == ([(1, 2, 5.0)], [(1, 1, 8.0)])
    assert found.profile().start.mean_s == pytest.approx(8.0 - 1.25, rel=1e-3)


def test_after_a_resize_steps_count_for_the_new_width_and_the_first_is_a_beginning() -> None:
    wider = (m.Slot("n0", 0), m.Slot("n0", 1))
    found = measured(
        (0.0, [], [start("a")]),
        (2.0, reported("a", 1), []),
        (4.0, reported("a", 2), []),
        (6.0, [*reported("a", 3), m.TrialResized("a", 1, wider, 3, None)], []),
        (8.5, reported("a", 4), []),
        (9.5, reported("a", 5), []),
    )
    assert found.steps == {1: [2.0, 2.0], 2: [1.0]}
    assert found.cold_firsts == [(1, 1, 2.0), (2, 1, 2.5)] and not found.firsts


def test_what_an_attempt_did_that_is_lost_or_over_counts_for_nothing() -> None:
    found = measured(
        (0.0, [], [start("a")]),
        (1.0, reported("a", 1), []),
        (2.0, reported("a", 2), []),
        (9.0, [m.TrialLost("a", 1, "gone")], [start("a", attempt=2)]),
        (9.5, reported("a", 3), []),
        (10.5, reported("a", 2, attempt=2), []),
        (11.5, reported("a", 3, attempt=2), []),
    )
    assert found.steps == {1: [1.0, 1.0]}
    assert (found.cold_firsts, found.firsts) == ([(1, 1, 1.0)], [(1, 1, 1.5)])


def test_leaving_belongs_to_the_next_beginning() -> None:
    found = measured(
        (0.0, [], [start("a")]),
        (1.5, reported("a", 1), []),
        (2.5, reported("a", 2), []),
        (2.8, [m.TrialPaused("a", 1, 2, None)], []),
    )
    assert found.leaves == pytest.approx([0.3])
    profile = found.profile()
    assert (profile.start.mean_s, profile.cold_start.mean_s) == pytest.approx((0.3, 0.5))


def test_of_trials_that_share_a_device_steps_count_at_whose_beginning_and_end_all_were_there() -> None:
    found = measured(
        (0.0, [], [start("a", share=0.5)]),
        (1.0, reported("a", 1), []),
        (2.0, reported("a", 2), [start("b", share=0.5, lane=1)]),  # alone until now
        (4.0, [*reported("a", 3), *reported("b", 1)], []),  # not quite alone
        (6.5, [*reported("a", 4), *reported("b", 2)], []),
        (7.5, reported("b", 3), []),
        (8.0, [m.TrialPaused("b", 1, 3, None)], []),
        (9.0, reported("a", 5), []),  # with b for a while
        (10.0, reported("a", 6), []),
    )
    assert found.packed == {2: [2.5, 2.5, 1.0]}
    assert not found.steps and not found.firsts and not found.cold_firsts and not found.leaves


def test_a_trial_that_gets_a_device_to_itself_is_measured_as_such_from_then_on() -> None:
    slot = (m.Slot("n0", 0),)
    found = measured(
        (0.0, [], [start("a", share=0.5), start("b", share=0.5, lane=1)]),
        (2.0, [*reported("a", 1), *reported("b", 1)], []),
        (4.0, [*reported("a", 2), *reported("b", 2)], [m.ResizeTrial(1, "a", 1, slot, 1.0)]),
        (6.0, [*reported("a", 3), m.TrialLost("b", 1, "gone"), m.TrialResized("a", 1, slot, 3, None)], []),
        (7.0, reported("a", 4), []),
        (8.0, reported("a", 5), []),
    )
    assert (found.packed, found.steps) == ({2: [2.0, 2.0, 2.0]}, {1: [1.0]})
    assert found.profile().packed == (0.5,)


def test_packed_trials_are_no_faster_than_alone_or_than_fewer_whatever_noise_says() -> None:
    found = Measured()
    found.steps[1] = [1.0, 1.0]
    found.packed |= {2: [0.9], 3: [2.0], 4: [1.9], 6: [3.0]}
    assert found.profile().packed == (1.0, 0.5, 0.5), "of six nothing is known without five"


def test_what_was_to_be_packed_and_was_not_measured_is_refused() -> None:
    found = Measured()
    found.steps[1], found.packed[2] = [1.0, 1.0], [1.5]
    assert Profiled.of(found, experiment(), packed=2).profile.packed == (0.6667,)
    with pytest.raises(SpecError, match="packed=3: no trial has reported twice while 3 were on its device"):
        Profiled.of(found, experiment(), packed=3)


@pytest.mark.parametrize(
    ("packed", "message"), [(0, "packed=0: must be a whole number of at least 1"), (65, "packed=65: at most 64 trials")]
)
def test_more_or_less_trials_on_a_device_than_there_can_be_are_refused(packed: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        profiling_experiment(experiment(), 1.0, None, packed)


def test_without_steps_of_a_trial_alone_there_is_no_profile() -> None:
    found = measured((0.0, [], [start("a")]), (1.0, reported("a", 1), []))
    with pytest.raises(SpecError, match="nothing was measured at width 1: no trial has reported twice there"):
        found.profile()


def experiment() -> Experiment:
    return et.Tuner(None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(1), devices=4).experiment


@pytest.mark.parametrize(
    ("asked", "measured"), [([2, 1], (1, 2)), ([1, 2, 2], (1, 2)), ([4, 1, 4, 3], (1, 3, 4)), (None, (1, 2, 4))]
)
def test_widths_are_measured_once_each_from_the_narrowest(asked: list[int] | None, measured: tuple[int, ...]) -> None:
    allocator = profiling_experiment(experiment(), 1.0, asked).allocator
    assert isinstance(allocator, Stepwise) and allocator.widths == measured


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([2, 4], r"widths=\[2, 4\]: width 1 must be among them"),
        ([1, 5], r"width 5: 1 machines x 4 devices offer \[1, 2, 4\] and less"),
        ([1, 0], r"width=0: must be a whole number of at least 1"),
        ([1, "2"], r"width='2': must be a whole number of at least 1"),
    ],
)
def test_widths_that_cannot_be_measured_are_refused(asked: list[int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        profiling_experiment(experiment(), 1.0, asked)
