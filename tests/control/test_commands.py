"""Small runs whose every command is known."""

from __future__ import annotations

from tests.control.scripts import Script, ended, paused, ready, reported, saved, starts, statuses

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, SuccessiveHalving
from elastune.space import Space, grid_search


def test_one_trial_on_one_machine() -> None:
    script = Script(FIFO(1, R=2))
    assert script.first.decisions == (m.Suggested("t-00000", script.config("t-00000")),)
    assert script.first.commands == (m.AddNode(1, "n0"),)
    first = script.at(5.0, ready("n0"))
    assert first.decisions == ()
    assert first.commands == (script.start(2, "t-00000", ("n0", 0), 2),)
    assert script.at(6.0, reported("t-00000", 1, 0.5)).commands == ()
    last = script.at(7.0, reported("t-00000", 2, 0.4), paused("t-00000", 2))
    assert last.decisions == (
        m.StatusChanged("t-00000", "completed"),
        m.RunEnded("succeeded", "every trial is done"),
    )
    assert last.commands == (m.ReleaseNode(3, "n0"),)
    assert script.controller.done


def test_two_devices_take_the_next_trial_as_soon_as_one_is_free() -> None:
    script = Script(FIFO(3, R=1), devices=2)
    first = script.at(0.0, ready("n0", 2))
    assert first.commands == (
        script.start(2, "t-00000", ("n0", 0), 1),
        script.start(3, "t-00001", ("n0", 1), 1),
    )
    second = script.at(1.0, reported("t-00001", 1, 0.5), paused("t-00001", 1))
    assert second.commands == (script.start(4, "t-00002", ("n0", 1), 1),)
    assert script.at(1.5, reported("t-00000", 1, 0.6), paused("t-00000", 1)).commands == ()
    last = script.at(2.0, reported("t-00002", 1, 0.7), paused("t-00002", 1))
    assert last.commands == (m.ReleaseNode(5, "n0"),)


def test_two_machines_are_filled_in_the_order_in_which_they_come() -> None:
    script = Script(FIFO(3, R=1), machines=2)
    assert script.first.commands == (m.AddNode(1, "n0"), m.AddNode(2, "n1"))
    assert script.at(1.0, ready("n1")).commands == (script.start(3, "t-00000", ("n1", 0), 1),)
    assert script.at(2.0, ready("n0")).commands == (script.start(4, "t-00001", ("n0", 0), 1),)


def test_successive_halving_with_four_trials() -> None:
    script = Script(SuccessiveHalving(4, 1, 3, eta=2), devices=2)
    first = script.at(0.0, ready("n0", 2))
    assert first.commands == (
        script.start(2, "t-00000", ("n0", 0), 1, final=False),
        script.start(3, "t-00001", ("n0", 1), 1, final=False),
    )
    second = script.at(
        1.0,
        *(reported("t-00000", 1, 0.4), paused("t-00000", 1)),
        *(reported("t-00001", 1, 0.2), paused("t-00001", 1)),
    )
    assert statuses(second) == [("t-00000", "paused"), ("t-00001", "paused")]
    assert second.commands == (
        script.start(4, "t-00002", ("n0", 0), 1, final=False),
        script.start(5, "t-00003", ("n0", 1), 1, final=False),
    )
    barrier = script.at(
        2.0,
        *(reported("t-00002", 1, 0.1), paused("t-00002", 1)),
        *(reported("t-00003", 1, 0.3), paused("t-00003", 1)),
    )
    assert statuses(barrier)[2:] == [("t-00003", "stopped"), ("t-00000", "stopped")], "the best two of four go on"
    assert barrier.commands == (
        m.DropCheckpoint(6, saved("t-00000", 1)),  # the checkpoints of the best three trials are kept
        script.start(7, "t-00002", ("n0", 0), 3, attempt=2, checkpoint=saved("t-00002", 1)),
        script.start(8, "t-00001", ("n0", 1), 3, attempt=2, checkpoint=saved("t-00001", 1)),
    )
    assert script.at(3.0, reported("t-00002", 2, 0.09, 2), reported("t-00001", 2, 0.08, 2)).commands == ()
    last = script.at(
        4.0,
        *(reported("t-00002", 3, 0.05, 2), paused("t-00002", 3, 2)),
        *(reported("t-00001", 3, 0.06, 2), paused("t-00001", 3, 2)),
    )
    assert statuses(last) == [("t-00002", "completed"), ("t-00001", "completed")]
    assert ended(last) == ("succeeded", "every trial is done")


def test_what_asha_left_paused_is_stopped_at_the_end() -> None:
    script = Script(ASHA(2, 1, 2, eta=2), devices=2)
    script.at(0.0, ready("n0", 2))
    step = script.at(
        1.0,
        *(reported("t-00000", 1, 0.4), paused("t-00000", 1)),
        *(reported("t-00001", 1, 0.2), paused("t-00001", 1)),
    )
    assert starts(step) == [("t-00001", 2, 1)]
    last = script.at(2.0, reported("t-00001", 2, 0.1, 2), paused("t-00001", 2, 2))
    assert statuses(last) == [("t-00001", "completed"), ("t-00000", "stopped")]


def test_a_metric_to_maximise_is_turned_for_the_algorithm() -> None:
    script = Script(SuccessiveHalving(2, 1, 2, eta=2), devices=2, mode="max")
    script.at(0.0, ready("n0", 2))
    step = script.at(
        1.0,
        *(reported("t-00000", 1, 0.4), paused("t-00000", 1)),
        *(reported("t-00001", 1, 0.2), paused("t-00001", 1)),
    )
    assert starts(step) == [("t-00000", 2, 1)]


def test_a_function_that_returns_early_has_completed() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.4))
    last = script.at(2.0, m.TrialReturned("t-00000", 1, 1, saved("t-00000", 1)))
    assert statuses(last) == [("t-00000", "completed")]
    assert ended(last) == ("succeeded", "every trial is done")


def test_a_function_that_returns_without_a_report_has_failed() -> None:
    script = Script(FIFO(1))
    script.at(0.0, ready("n0"))
    last = script.at(1.0, m.TrialReturned("t-00000", 1, 0, None))
    assert statuses(last) == [("t-00000", "failed")]
    why = "the only trial failed: t-00000: the trainable returned without calling elastune.report()"
    assert ended(last) == ("failed", why)


def test_a_searcher_that_runs_out_ends_the_run_early() -> None:
    script = Script(FIFO(9, R=1), searcher="grid", space=Space({"x": grid_search([1, 2])}), devices=4)
    assert starts(script.at(0.0, ready("n0", 4))) == [("t-00000", 1, 0), ("t-00001", 1, 0)]
    script.at(1.0, reported("t-00000", 1, 0.4), paused("t-00000", 1))
    last = script.at(1.0, reported("t-00001", 1, 0.4), paused("t-00001", 1))
    assert ended(last) == ("succeeded", "every trial is done")
