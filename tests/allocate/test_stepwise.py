"""A training job is measured width by width, and nothing stands idle meanwhile."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import Scripted, Session, assert_sound, losses, world

from elastune import messages as m
from elastune.algorithm import FIFO
from elastune.allocate.base import MachineView, Steps, View
from elastune.allocate.stepwise import LEAST_STEPS, Stepwise, widths_on
from elastune.cluster.workload import Synthetic, Workload
from elastune.errors import SpecError
from elastune.profile.measure import Measured
from elastune.spec import Limits, Width

ENDLESS = FIFO(1_000_000, R=1_000_000)


def measure(
    machines: int, devices: int, seconds: float, widths: tuple[Width, ...], workload: Workload | None = None
) -> Session:
    allocator = Stepwise(machines, devices, seconds, widths)
    return world(ENDLESS, allocator=allocator, machines=machines, devices=devices, workload=workload, boot_s=2.0).run()


def times_by_width(session: Session) -> dict[int, float]:
    """From when a trial began with a width until the last one left it."""
    spans: dict[int, tuple[float, float]] = {}
    gangs: dict[tuple[str, float, float], int] = {}
    for busy in session.view.segments():
        gang = (busy.trial, busy.from_s, busy.to_s)
        gangs[gang] = gangs.get(gang, 0) + 1
    for (_, from_s, to_s), width in gangs.items():
        begin_s, end_s = spans.get(width, (from_s, to_s))
        spans[width] = min(begin_s, from_s), max(end_s, to_s)
    return {width: end_s - begin_s for width, (begin_s, end_s) in spans.items()}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([0.5, 5.0, 20.0]), st.sampled_from([0.3, 1.0, 7.0]))
def test_every_width_gets_its_time_all_devices_are_busy_and_the_run_ends_by_itself(
    machines: int, devices: int, seconds: float, step_s: float
) -> None:
    widths = widths_on(machines, devices)
    session = measure(machines, devices, seconds, widths, Synthetic("loss", "min", step_s=step_s))
    assert_sound(session)
    view = session.view
    assert (view.status, view.reason) == ("succeeded", "every width was measured")
    times_s = times_by_width(session)
    assert set(times_s) == set(widths)
    assert min(times_s.values()) >= seconds - 2 * step_s, "but for the steps in which trials make place and move"
    for width, spent_s in times_s.items():
        longest_s = max(seconds, (LEAST_STEPS + 1) * step_s / width) + seconds / 4 + 6 * step_s
        assert spent_s <= longest_s, f"width {width}"
    began_s = max(view.ready_s)
    idle = sum(machines * devices % width * times_s[width] for width in widths)
    held_device_s = machines * devices * (view.at_s - began_s)
    assert view.busy_device_s() >= 0.85 * (held_device_s - idle) - machines * devices * 4 * step_s


def test_nothing_begins_before_all_machines_are_there() -> None:
    session = measure(3, 2, 5.0, (1, 2))
    starts_s = [record.at_s for record in session.records for c in record.commands if isinstance(c, m.StartTrial)]
    assert min(starts_s) == 2.0


def test_slow_steps_are_waited_for() -> None:
    session = measure(1, 2, 1.0, (1, 2), Synthetic("loss", "min", step_s=40.0))
    reports = [len(trial.reports) for trial in session.view.trials.values()]
    assert sum(reports) >= 2 * (LEAST_STEPS + 1) + LEAST_STEPS + 1


def test_trials_that_share_devices_fill_them_and_those_that_return_are_replaced() -> None:
    session = measure(1, 2, 30.0, (Fraction(1, 3), Fraction(1, 2), 1), Scripted(losses(3, 2, 1)))
    assert_sound(session)
    packed = Measured.of(session.records).packed
    assert set(packed) == {2, 3}
    assert min(len(steps) for steps in packed.values()) > 20, "of 60: beginnings, ends and the last look do not count"
    assert session.view.reason == "every width was measured"


def test_time_for_trials_that_share_a_device_begins_when_all_of_them_are_there() -> None:
    stepwise = Stepwise(1, 1, 10.0, (Fraction(1, 2), 1))
    two = View(0, {"a": Fraction(1, 2), "b": Fraction(1, 2)}, (), machines=lambda pool: [MachineView(0.0, ())])
    assert stepwise.allocate(two, 0.0).widths == {"a": Fraction(1, 2), "b": Fraction(1, 2)}
    for at_s in range(1, 60):
        stepwise.stepped(Steps("a", Fraction(1, 2), 1, 1.0, at_s == 1, sharing=1))
    assert set(stepwise.allocate(two, 60.0).widths.values()) == {Fraction(1, 2)}
    for _ in range(20):
        stepwise.stepped(Steps("a", Fraction(1, 2), 1, 1.0, False, sharing=2))
    assert not stepwise.allocate(two, 66.0).widths, "they begin again half-way"
    stepwise.allocate(replace(two, widths={}), 66.5)
    assert set(stepwise.allocate(two, 71.0).widths.values()) == {1}


def test_trials_that_return_are_replaced() -> None:
    session = measure(1, 2, 20.0, (1, 2), Scripted(losses(3, 2, 1)))
    view = session.view
    assert view.reason == "every width was measured"
    assert sum(trial.status == "completed" for trial in view.trials.values()) > 10
    assert view.busy_device_s() >= 0.9 * 2 * (view.at_s - view.ready_s[0])
    assert min(times_by_width(session).values()) >= 20.0 - 2.0


@pytest.mark.parametrize(
    ("machines", "devices", "widths"),
    [(1, 1, (1,)), (1, 6, (1, 2, 4)), (4, 2, (1, 2, 4, 8)), (3, 3, (1, 2)), (4, 4, (1, 2, 4, 8, 16)), (2, 3, (1, 2))],
)
def test_widths_double_as_far_as_there_is_a_place(machines: int, devices: int, widths: tuple[int, ...]) -> None:
    assert widths_on(machines, devices) == widths


@pytest.mark.parametrize(
    ("seconds", "widths", "message"),
    [
        (0.0, (1,), "seconds=0.0: must be a number greater than 0"),
        (float("nan"), (1,), "seconds=nan"),
        (1.0, (1, 0), "width=0: must be a whole number of devices (1, 2, 4, ...) or the part of one"),
    ],
)
def test_what_cannot_be_measured_is_refused(seconds: float, widths: tuple[int, ...], message: str) -> None:
    with pytest.raises(SpecError) as error:
        Stepwise(1, 2, seconds, widths)
    assert message in str(error.value)


def test_a_limit_still_ends_it() -> None:
    allocator = Stepwise(1, 2, 100.0, (1, 2))
    place = world(ENDLESS, allocator=allocator, devices=2, deadline_s=30.0)
    assert place.experiment.settings.limits == Limits(30.0)
    assert place.run().view.status == "deadline"
