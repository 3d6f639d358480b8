"""How busy devices were, from journals whose answer is known and from runs of every kind."""

from __future__ import annotations

import io
import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console
from tests.control.test_recovery import faults
from tests.record.test_projection import record, start, started
from tests.worlds import Session, world

import elastune as et
from elastune.allocate import FirstComeFirstServed
from elastune.cluster.simulated import Fault
from elastune.messages import (
    NodeBilled,
    NodeLost,
    NodeReady,
    Record,
    ReleaseNode,
    Slot,
    TrialPaused,
    TrialResized,
    TrialReturned,
)
from elastune.record.projection import RunView
from elastune.reporting import summary, utilisation, utilisation_dict
from elastune.reporting.utilisation import Utilisation, overlaps, usual_window_s
from elastune.reporting.utilisation_plots import BUSY_COLOURS, IDLE_COLOUR, MOST_ROWS, busy_devices
from elastune.simulation import Simulation

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
A0, A1, B0 = Slot("a", 0), Slot("a", 1), Slot("b", 0)


def of(*records: Record) -> Utilisation:
    return utilisation(RunView.of(records))


def left(trial: str, attempt: int = 1) -> TrialPaused:
    return TrialPaused(trial, attempt, 1, None)


def on_devices(use: Utilisation) -> list[tuple[int, float, float, int]]:
    spans = use.on_devices
    found = zip(spans.place.tolist(), spans.from_s.tolist(), spans.to_s.tolist(), spans.at_once.tolist(), strict=True)
    return list(found)


LONG_AND_SHORT = [
    record(0.0, started(), NodeReady("a", 2, 0.0, 7.2), commands=(start("long", A0), start("short", A1))),
    record(1.0, left("short")),
    record(3.0, left("long"), commands=(ReleaseNode(1, "a"),)),
]


def test_trials_of_three_seconds_and_one_keep_two_devices_busy_for_two_thirds_of_their_time() -> None:
    use = of(*LONG_AND_SHORT)
    assert use.busy == 4 / 6 and use.booting == 0.0 and use.trials_per_busy_device == 1.0
    assert (use.busy_device_s, use.held_device_s) == (4.0, 6.0)
    assert [(device.machine, device.device, device.busy_s) for device in use.devices] == [("a", 0, 3.0), ("a", 1, 1.0)]


def test_windows_say_it_by_device_and_time_and_the_last_may_be_shorter() -> None:
    use = of(*LONG_AND_SHORT)
    assert_allclose(use.windows("1s").busy, [[1, 1, 1], [1, 0, 0]])
    two = use.windows(2.0)
    assert_allclose(two.edges_s, [0, 2, 3])
    assert_allclose(two.busy, [[1.0, 1.0], [0.5, 0.0]])
    assert_allclose(use.windows("2s", devices_per_row=2).busy, [[0.75, 0.5]])


def test_a_trial_that_is_there_still_counts_until_now() -> None:
    use = of(LONG_AND_SHORT[0], record(4.0))
    assert use.busy == 1.0 and use.busy_device_s == 8.0


def test_trials_that_share_a_device_keep_it_busy_once_and_are_counted() -> None:
    """Two for five seconds, then one of them for five more, then another one at once."""
    use = of(
        record(0.0, started(), NodeReady("a", 1, 0.0, 1.0), commands=(start("t", A0), start("u", Slot("a", 0, 1)))),
        record(5.0, left("t")),
        record(10.0, left("u"), commands=(start("v", A0),)),
        record(20.0, left("v")),
        record(40.0),
    )
    assert on_devices(use) == [(0, 0.0, 5.0, 2), (0, 5.0, 20.0, 1)]
    assert use.busy == 0.5 and use.trials_per_busy_device == 25 / 20
    assert_allclose(use.windows("10s").trial_s, [[15, 10, 0, 0]])


def test_a_trial_on_several_devices_keeps_all_of_them_busy_and_is_one() -> None:
    use = of(
        record(0.0, started(), NodeReady("a", 2, 0.0, 1.0), NodeReady("b", 1, 0.0, 1.0)),
        record(2.0, commands=(start("gang", A0, A1, B0),)),
        record(8.0, left("gang")),
    )
    assert on_devices(use) == [(0, 2.0, 8.0, 1), (1, 2.0, 8.0, 1), (2, 2.0, 8.0, 1)]
    assert use.busy == 6 / 8 and use.trials_per_busy_device == 1.0
    assert use.running.at_once.tolist() == [1]


def test_a_trial_that_is_resized_moves_to_its_new_devices() -> None:
    use = of(
        record(0.0, started(), NodeReady("a", 2, 0.0, 1.0), commands=(start("t", A0),)),
        record(4.0, TrialResized("t", 1, (A0, A1), 4, None)),
        record(6.0, TrialResized("t", 1, (A1,), 6, None)),
        record(8.0, left("t")),
    )
    assert on_devices(use) == [(0, 0.0, 6.0, 1), (1, 4.0, 8.0, 1)]
    assert (use.running.from_s.tolist(), use.running.to_s.tolist()) == ([0.0], [8.0])


def test_a_machine_that_boots_is_held_and_not_busy() -> None:
    use = of(
        record(0.0, started()),
        record(1.0, NodeBilled("a", 2, 1.0, 1.0), NodeBilled("b", 1, 1.0, 1.0)),
        record(5.0, NodeReady("a", 2, 1.0, 1.0), commands=(start("t", A0),)),
        record(11.0, left("t"), commands=(ReleaseNode(1, "a"),)),
    )
    assert [(d.held_s, d.booting_s, d.busy_s) for d in use.devices] == [(10, 4, 6), (10, 4, 0), (10, 10, 0)]
    assert use.booting == 18 / 30 and use.busy == 6 / 30
    windows = use.windows("3s")
    assert_allclose(windows.booting_s[0], [2, 2, 0, 0])
    assert_allclose(windows.busy[0], [0, 1 / 3, 1, 1])


def test_with_a_lost_machine_ends_all_that_was_on_it() -> None:
    use = of(
        record(0.0, started(), NodeReady("a", 1, 0.0, 1.0), NodeReady("b", 1, 0.0, 1.0)),
        record(0.0, commands=(start("gang", A0, B0),)),
        record(6.0, NodeLost("a", "revoked")),
        record(10.0),
    )
    assert on_devices(use) == [(0, 0.0, 6.0, 1), (1, 0.0, 6.0, 1)]
    assert [device.held_s for device in use.devices] == [6.0, 10.0]
    assert np.isnan(use.windows("5s").busy[0]).tolist() == [False, False]
    assert np.isnan(use.windows("2s").busy[0]).tolist() == [False, False, False, True, True]


def test_what_seemed_to_end_after_its_machine_ended_with_it() -> None:
    """It is heard of late that the machine was gone."""
    use = of(
        record(0.0, started(), NodeReady("a", 1, 0.0, 1.0), commands=(start("t", A0),)),
        record(8.0, TrialReturned("t", 1, 1, None)),
        record(10.0, NodeLost("a", "gone", billed_until_s=5.0)),
    )
    assert use.busy == 1.0 and use.busy_device_s == 5.0


def test_a_machine_that_came_again_under_its_name_has_a_row_for_each_time() -> None:
    use = of(
        record(0.0, started(), NodeReady("a", 1, 0.0, 1.0), commands=(start("t", A0),)),
        record(4.0, NodeLost("a", "gone")),
        record(6.0, NodeReady("a", 1, 6.0, 1.0), commands=(start("t", A0, attempt=2),)),
        record(8.0, left("t", attempt=2)),
        record(10.0),
    )
    assert on_devices(use) == [(0, 0.0, 4.0, 1), (1, 6.0, 8.0, 1)]
    assert [(device.held_s, device.busy_s) for device in use.devices] == [(4.0, 4.0), (4.0, 2.0)]


@pytest.mark.parametrize("adopted", [True, False])
def test_while_no_driver_was_there_machines_are_held_only_if_they_waited_and_never_busy(adopted: bool) -> None:
    """A trial of ten steps, killed at the fourth, back after a minute."""
    place = world(et.FIFO(1, R=10), checkpoint_every_s=1.0)
    crashed = place.start().turns(5)
    if adopted:
        crashed.cluster.now_s += 60.0
        crashed.cluster._heap.clear()  # the workers ended with their driver
        use = utilisation(place.adopt(crashed).run().view)
    else:
        use = utilisation(place.resume(crashed.journal, 60.0).run().view)
    assert 10.0 <= use.busy_device_s <= 11.0
    assert use.held_device_s == pytest.approx(use.busy_device_s + (60.0 if adopted else 0.0))
    gap = use.windows("10s").busy_s.sum(axis=0)[1:6]
    assert_array_equal(gap, np.zeros(5))


def test_nothing_is_known_before_there_are_machines() -> None:
    use = of(record(0.0, started()))
    assert use.busy is None and use.booting is None and use.trials_per_busy_device is None
    assert use.windows().busy.shape == (0, 1)
    json.dumps(utilisation_dict(RunView.of([record(0.0, started())])), allow_nan=False)


@pytest.mark.parametrize(
    ("width", "busy", "trials"), [(1, 1.0, 1.0), (2, 1.0, 1.0), ("1/2", 1.0, 2.0), ("1/3", 2 / 3, 11 / 4)]
)
def test_the_result_of_a_run_says_how_busy_its_devices_were(
    tmp_path: Path, width: int | str, busy: float, trials: float
) -> None:
    """Eight trials of two steps on two machines of two devices."""
    tuner = et.Tuner(
        None,
        space={"lr": et.uniform(0, 1)},
        metric="loss",
        algorithm=et.FIFO(8, R=2),
        machines=2,
        devices=2,
        devices_per_trial=width,
        storage=tmp_path,
    )
    use = tuner.simulate(Simulation()).utilisation()
    assert use.busy == pytest.approx(busy) and use.trials_per_busy_device == pytest.approx(trials)


def assert_adds_up(view: RunView, window_s: float, per_row: int) -> None:
    use = utilisation(view)
    for device in use.devices:
        assert device.from_s <= device.ready_s <= device.to_s
        assert 0 <= device.busy_s <= device.held_s - device.booting_s + 1e-9
        assert device.trial_s >= device.busy_s - 1e-9
    windows = use.windows(window_s)
    assert_allclose(windows.held_s.sum(axis=1), [device.held_s for device in use.devices], atol=1e-9)
    assert_allclose(windows.booting_s.sum(axis=1), [device.booting_s for device in use.devices], atol=1e-9)
    assert_allclose(windows.busy_s.sum(axis=1), [device.busy_s for device in use.devices], atol=1e-9)
    assert_allclose(windows.trial_s.sum(axis=1), [device.trial_s for device in use.devices], atol=1e-9)
    assert (windows.busy_s + windows.booting_s <= windows.held_s + 1e-9).all()
    assert (windows.held_s <= np.diff(windows.edges_s) + 1e-9).all()
    rows = use.windows(window_s, per_row)
    assert rows.busy_s.sum() == pytest.approx(windows.busy_s.sum(), abs=1e-9)
    share = view.utilisation()
    assert use.busy is None if share is None else use.busy == pytest.approx(share)


@settings(max_examples=60, deadline=None)
@given(
    devices=st.integers(2, 3),
    width=st.sampled_from([1, 2, Fraction(1, 2), Fraction(1, 3)]),
    boot_s=st.sampled_from([0.0, 2.5]),
    hit=faults,
    turns=st.integers(0, 60),
    later_s=st.sampled_from([0.0, 7.0]),
    window_s=st.sampled_from([0.3, 1.0, 10.0, 1000.0]),
    per_row=st.integers(1, 4),
)
def test_busy_is_within_held_and_windows_add_up_to_the_whole_in_every_run(
    devices: int,
    width: int | Fraction,
    boot_s: float,
    hit: list[Fault],
    turns: int,
    later_s: float,
    window_s: float,
    per_row: int,
) -> None:
    """While it goes on, where machines and drivers are lost, and at its end."""
    place = world(
        et.ASHA(10, 1, 9, 3),
        allocator=FirstComeFirstServed(2, width if devices % width == 0 else 1),
        devices=devices,
        boot_s=boot_s,
        stragglers=0.2,
        faults=hit,
        max_retries=20,
    )
    session: Session = place.start().turns(turns)
    assert_adds_up(session.view, window_s, per_row)
    if not session.controller.done:
        assert_adds_up(place.resume(session.journal, later_s).run().view, window_s, per_row)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_overlaps_are_what_counting_at_every_moment_gives(parts: list[tuple[int, int, int]]) -> None:
    parts = [(place, min(a, b), max(a, b)) for place, a, b in parts]
    place, from_s, to_s = np.array(parts, dtype=float).reshape(-1, 3).T
    spans = overlaps(from_s, to_s, place.astype(int))
    rows = list(zip(spans.place, spans.from_s, spans.to_s, spans.at_once, strict=True))
    for where in range(3):
        for at_s in np.arange(20) + 0.5:
            expected = sum(p == where and a < at_s < b for p, a, b in parts)
            assert sum(n for p, a, b, n in rows if p == where and a < at_s < b) == expected
    assert rows == sorted(rows) and (spans.at_once > 0).all() and (spans.length_s > 0).all()
    for (p, _, end_s, n), (q, begin_s, _, k) in itertools.pairwise(rows):
        assert (p, end_s, n) != (q, begin_s, k), "two spans that are one"


@pytest.mark.parametrize(
    ("length_s", "window_s"),
    [(3600, 30), (970, 10), (60, 0.5), (1.2, 0.01), (0, 0.1), (86400, 900), (120 * 86500, 172800)],
)
def test_windows_have_round_lengths(length_s: float, window_s: float) -> None:
    assert usual_window_s(length_s) == pytest.approx(window_s)


def test_a_window_that_makes_no_sense_is_refused() -> None:
    use = of(*LONG_AND_SHORT)
    with pytest.raises(et.SpecError, match="window='soon': must be a positive duration"):
        use.windows("soon")
    with pytest.raises(et.SpecError, match=r"window=1e-09.*too many.*give a longer window"):
        use.windows(1e-9)
    with pytest.raises(et.SpecError, match="devices_per_row=0: must be 1 or more"):
        use.windows(devices_per_row=0)


def test_the_summary_says_how_busy_devices_were_and_how_long_they_booted() -> None:
    def said(view: RunView) -> str:
        out = io.StringIO()
        Console(file=out, width=120).print(summary(view))
        return out.getvalue()

    assert "devices  busy 67% of the time they were paid for, on 1 machine\n" in said(RunView.of(LONG_AND_SHORT))
    booted = world(et.FIFO(2, R=6), devices=2, machines=1, boot_s=4.0).run().view
    assert "devices  busy 60% of the time they were paid for, booting 40%, on 1 machine\n" in said(booted)


def test_every_field_for_programs_is_documented_and_says_the_same() -> None:
    view = RunView.of(LONG_AND_SHORT)
    found = json.loads(json.dumps(utilisation_dict(view), allow_nan=False))
    assert found["busy"] == 4 / 6 and found["each"][1]["busy_s"] == 1.0
    assert sum(found["windows"]["busy_s"]) == pytest.approx(4.0)
    assert len(found["windows"]["edges_s"]) == 1 + len(found["windows"]["held_s"])
    page = PAGE.read_text("utf-8")
    assert not {name for name in {*found, *found["each"][0], *found["windows"]} if f"`{name}`" not in page}


# ------------------------------------------------------------------------------------------------------------ pictures


def cells(view: RunView) -> np.ndarray:
    """The colours of the heat map."""
    (mesh,) = [mesh for mesh in busy_devices(view).axes[0].collections if mesh.get_array() is not None]
    colours: np.ndarray = np.asarray(mesh.get_array())
    return colours


def colour(name: str) -> list[float]:
    return [int(name[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def test_the_picture_shows_busy_and_idle_windows_of_every_device() -> None:
    drawn = cells(RunView.of(LONG_AND_SHORT))
    assert len(drawn) == 2
    assert_allclose(drawn[0, :, :3], [colour(BUSY_COLOURS[0])] * drawn.shape[1], atol=0.01)
    assert_allclose(drawn[1, -1, :3], colour(IDLE_COLOUR), atol=0.01)
    title = busy_devices(RunView.of(LONG_AND_SHORT)).axes[0].get_title(loc="left")
    assert title == "2 devices: busy 67% of the time they were paid for"


def test_the_more_trials_share_a_device_the_darker_it_is_drawn() -> None:
    def shades(trials: int) -> float:
        slots = [Slot("a", 0, lane) for lane in range(trials)]
        commands = tuple(start(f"t{slot.lane}", slot) for slot in slots)
        busy = RunView.of([record(0.0, started(), NodeReady("a", 1, 0.0, 1.0), commands=commands), record(9.0)])
        return float(cells(busy)[0, 0, :3] @ [0.299, 0.587, 0.114])

    one, two, three = shades(1), shades(2), shades(3)
    assert one - two > 0.1 and two - three > 0.05


@pytest.mark.parametrize(("machines", "devices", "rows"), [(8, 8, 64), (50, 8, 50), (9, 8, 36), (700, 1, 64)])
def test_many_devices_share_rows_that_are_whole_machines_or_equal_parts(machines: int, devices: int, rows: int) -> None:
    ready = [NodeReady(f"n{number}", devices, 0.0, 1.0) for number in range(machines)]
    view = RunView.of([record(0.0, started(), *ready), record(60.0)])
    assert len(cells(view)) == rows <= MOST_ROWS
    assert utilisation(view).busy == 0.0


def test_the_lines_are_how_many_devices_are_held_and_busy_and_how_many_trials_run() -> None:
    view = RunView.of(
        [
            record(0.0, started(), NodeReady("a", 2, 0.0, 1.0), commands=(start("t", A0), start("u", Slot("a", 0, 1)))),
            record(5.0, left("t"), NodeReady("b", 1, 5.0, 1.0)),
            record(10.0, left("u")),
            record(20.0),
        ]
    )
    patches = [patch for patch in busy_devices(view).axes[1].patches if not patch.get_fill()]
    lines = [(patch.get_data().values.tolist(), patch.get_data().edges.tolist()) for patch in patches]  # type: ignore[attr-defined]
    held, busy, trials = lines
    assert held == ([2.0, 3.0], [0.0, 5.0, 20.0])
    assert busy == ([1.0, 0.0], [0.0, 10.0, 20.0])
    assert trials == ([2.0, 1.0, 0.0], [0.0, 5.0, 10.0, 20.0])
