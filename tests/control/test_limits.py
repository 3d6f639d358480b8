"""Deadline, budget and interrupts: the run ends in order, and what was learnt is kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.scripts import Script, ended, paused, ready, reported, starts, statuses
from tests.worlds import assert_sound, winner, world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, SuccessiveHalving


def test_at_the_deadline_trials_are_paused_then_machines_are_given_back() -> None:
    script = Script(FIFO(1, R=100), deadline_s=10.0, grace_s=7.0)
    script.at(0.0, ready("n0"))
    assert script.controller.wake_s == 10.0
    script.at(9.0, reported("t-00000", 1, 0.5))
    assert script.at(10.0).commands == (m.PauseTrial(3, "t-00000", 1, 7.0),)
    assert script.controller.wake_s is None and not script.controller.done
    last = script.at(12.0, reported("t-00000", 2, 0.4), paused("t-00000", 2))
    assert statuses(last) == [("t-00000", "paused")]
    assert ended(last) == ("deadline", "the deadline of 10s is reached")
    assert last.commands == (m.ReleaseNode(4, "n0"),)
    assert script.controller.done


def test_a_run_that_is_done_at_its_deadline_has_succeeded() -> None:
    for algorithm in (FIFO(2, R=5), SuccessiveHalving(4, 1, 4, 2)):
        finish_s = world(algorithm, devices=2).run().view.at_s
        session = world(algorithm, devices=2, deadline_s=finish_s).run()
        assert (session.view.status, session.view.at_s) == ("succeeded", finish_s)
        assert_sound(session)


def test_a_trial_that_does_not_leave_in_time_is_killed_and_the_run_ends_all_the_same() -> None:
    session = world(FIFO(1, R=5), deadline_s=3.0, grace_s=2.0, start_s=100.0).run()
    assert session.view.status == "deadline"
    assert session.view.at_s == 5.0
    assert_sound(session)


def test_a_deadline_before_any_machine_is_there_ends_the_run() -> None:
    session = world(FIFO(1, R=5), deadline_s=3.0, boot_s=60.0).run()
    assert (session.view.status, session.view.at_s) == ("deadline", 3.0)
    assert session.view.cost_usd() == 0.0
    assert_sound(session)


def test_a_machine_that_is_given_back_while_it_boots_is_paid_for_and_counts_against_the_budget() -> None:
    early = world(FIFO(1, R=5), deadline_s=50.0, request_s=10.0, boot_s=60.0, price=36.0).run()
    assert early.view.cost_usd() == pytest.approx(40 * 36.0 / 3600)
    poor = world(FIFO(1, R=5), budget_usd=0.2, request_s=10.0, boot_s=60.0, price=36.0).run()
    assert poor.view.status == "budget" and poor.view.at_s == pytest.approx(30.0)
    assert_sound(early)
    assert_sound(poor)


def test_the_best_so_far_and_its_checkpoint_outlive_the_deadline() -> None:
    full = world(ASHA(None, 1, 27), devices=4, deadline_s=60.0).run()
    assert full.view.status == "deadline"
    best = full.view.best
    assert best is not None and best.best_value == min(
        value for trial in full.view.trials.values() if (value := trial.best_value) is not None
    )
    assert best.last_checkpoint is not None
    assert {trial.status for trial in full.view.trials.values()} <= {"paused", "waiting", "completed"}
    assert_sound(full)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    budget=st.floats(0.01, 2.0),
    machines=st.integers(1, 3),
    devices=st.integers(1, 3),
    boot_s=st.sampled_from([0.0, 20.0]),
    seed=st.integers(0, 99),
)
def test_no_more_is_spent_than_the_budget_and_one_step(
    budget: float, machines: int, devices: int, boot_s: float, seed: int
) -> None:
    price, step_s = 72.0, 1.0
    session = world(
        ASHA(None, 1, 81),
        machines=machines,
        devices=devices,
        boot_s=boot_s,
        budget_usd=budget,
        price=price,
        seed=seed,
    ).run()
    assert session.view.status == "budget"
    rate_usd_per_s = price / 3600 * machines * devices
    boot_usd = boot_s * rate_usd_per_s  # known only when it has been spent
    assert session.view.cost_usd() <= max(budget, boot_usd) + (step_s + 1e-6) * rate_usd_per_s
    assert session.view.cost_usd() >= min(budget, boot_usd) - 1e-9
    assert session.controller.fleet.spending.spent_usd(session.view.at_s) == pytest.approx(session.view.cost_usd())
    assert_sound(session)


def test_the_limit_that_comes_first_is_the_one_that_is_named() -> None:
    for budget_usd, status in ((50.0, "budget"), (500.0, "deadline")):
        session = world(ASHA(None, 1, 9), budget_usd=budget_usd, deadline_s=100.0, price=3600.0).run()
        assert session.view.status == status


# A machine of three devices is paid for all of them, whatever it costs.
@pytest.mark.parametrize("price", [0.0, 3600.0])
def test_a_budget_of_time_on_devices_ends_the_run_whatever_devices_cost(price: float) -> None:
    session = world(ASHA(None, 1, 81), devices=3, budget_device_s=60.0, price=price).run()
    assert (session.view.status, session.view.reason) == ("budget", "the budget of 1 device-minutes is used up")
    assert session.view.at_s == pytest.approx(20.0, abs=1.0)
    assert session.view.paid_device_s() == pytest.approx(3 * session.view.at_s)
    assert session.view.cost_usd() == pytest.approx(price / 3600 * session.view.paid_device_s())
    assert_sound(session)


def test_the_budget_that_is_used_up_first_is_the_one_that_is_named() -> None:
    script = Script(FIFO(2, R=1000), machines=2, budget_usd=20.0, budget_device_s=60.0, price=3600.0)
    script.at(0.0, ready("n0", 2, price=3600.0))
    assert script.controller.wake_s == pytest.approx(20.0), "dollars"
    script.at(5.0, ready("n1", 8, billed_from_s=5.0, price=0.0))
    assert script.controller.wake_s == pytest.approx(10.0), "sixty seconds of two and then ten devices"
    script.at(10.001)
    last = script.at(
        11.0, *(event for k in (0, 1) for event in (reported(f"t-0000{k}", 1, 0.5), paused(f"t-0000{k}", 1)))
    )
    assert ended(last) == ("budget", "the budget of 1 device-minutes is used up")


def test_a_budget_that_is_owed_to_the_last_cent_at_once_is_used_up_when_that_time_is_over() -> None:
    script = Script(FIFO(1, R=1000), budget_usd=60.0, price=3600.0)
    script.at(0.0, m.NodeReady("n0", 1, 0.0, 3600.0, minimum_s=60.0))
    assert script.controller.wake_s == pytest.approx(60.0)


def test_what_machines_that_are_gone_took_of_the_time_on_devices_counts() -> None:
    script = Script(FIFO(4, R=1000), machines=2, budget_device_s=20.0)
    script.at(0.0, *(ready(node) for node in ("n0", "n1")))
    assert script.controller.wake_s == pytest.approx(10.0)
    script.at(5.0, m.NodeLost("n1", "revoked"))
    assert script.controller.wake_s == pytest.approx(15.0)
    booting = m.NodeBilled("n2", 1, 5.0, 0.0, minimum_s=8.0, data_usd=100.0)
    script.at(6.0, booting)
    assert script.controller.wake_s == pytest.approx(7.0), "5 + 5 are gone, and 8 will be, however short it lives"


def test_a_budget_is_reached_later_when_a_machine_is_lost() -> None:
    script = Script(FIFO(4, R=1000), machines=2, budget_usd=20.0, price=3600.0)
    script.at(0.0, *(ready(node, price=3600.0) for node in ("n0", "n1")))
    assert script.controller.wake_s == pytest.approx(10.0)
    script.at(5.0, m.NodeLost("n1", "revoked"))
    assert script.controller.wake_s == pytest.approx(15.0)


def test_an_interrupt_pauses_and_a_resume_goes_on_to_the_same_result() -> None:
    place = world(SuccessiveHalving(8, 1, 9, 2), devices=2)
    undisturbed = place.run()
    session = place.start().turns(6)
    session.loop.interrupt()
    session.loop.run()
    assert session.view.status == "interrupted"
    assert not session.controller.fleet.nodes
    assert all(trial.status != "running" for trial in session.view.trials.values())
    resumed = place.resume(session.journal).run()
    assert resumed.view.status == "succeeded"
    assert winner(resumed.view) == winner(undisturbed.view)
    assert resumed.view.retrained == 0, "a pause loses nothing"
    assert_sound(resumed)


def test_a_second_interrupt_and_a_deadline_during_the_pause_change_nothing() -> None:
    script = Script(FIFO(1, R=9), deadline_s=10.0)
    script.at(0.0, ready("n0"))
    assert script.at(9.0, m.RunInterrupted()).commands == (m.PauseTrial(3, "t-00000", 1, 30.0),)
    assert script.at(9.5, m.RunInterrupted()).commands == ()
    last = script.at(11.0, reported("t-00000", 1, 0.4), paused("t-00000", 1))
    assert ended(last) == ("interrupted", "interrupted by the user")


def test_downtime_counts_against_the_deadline() -> None:
    script = Script(FIFO(2, R=9), deadline_s=10.0)
    script.at(0.0, ready("n0"))
    step = script.at(50.0, m.RunResumed(), m.NodeLost("n0", "its driver ended"))
    assert starts(step) == [] and ended(step) == ("deadline", "the deadline of 10s is reached")
