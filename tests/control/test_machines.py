"""Machines come late, are taken away, or never come."""

from __future__ import annotations

from tests.control.scripts import Script, ended, notes, paused, ready, reported, saved, starts, statuses
from tests.worlds import assert_sound, winner, world

from elastune import messages as m
from elastune.algorithm import FIFO, SuccessiveHalving
from elastune.cluster.simulated import Fault


def test_after_a_notice_the_trials_move_to_another_machine_and_lose_nothing() -> None:
    script = Script(FIFO(1, R=9))
    script.at(0.0, ready("n0"))
    script.at(1.0, reported("t-00000", 1, 0.5))
    notice = script.at(2.0, m.NodeNotice("n0", 122.0))
    assert notice.commands == (m.PauseTrial(3, "t-00000", 1, 120.0), m.AddNode(4, "n1"))
    left = script.at(3.0, reported("t-00000", 2, 0.4), paused("t-00000", 2))
    assert left.commands == (m.ReleaseNode(5, "n0"),), "what is free of trials is not paid for any longer"
    step = script.at(30.0, ready("n1"))
    assert step.commands == (script.start(6, "t-00000", ("n1", 0), 9, attempt=2, checkpoint=saved("t-00000", 2)),)
    assert script.at(122.0, m.NodeLost("n0", "revoked")).commands == ()


def test_a_draining_machine_gets_no_new_trials() -> None:
    script = Script(FIFO(9, R=2), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, m.NodeNotice("n0", 20.0))
    step = script.at(2.0, reported("t-00000", 1, 0.5), paused("t-00000", 1))
    assert starts(step) == []


def test_a_notice_for_a_machine_that_is_still_booting_asks_for_another() -> None:
    script = Script(FIFO(1, R=2))
    step = script.at(1.0, m.NodeNotice("n0", 20.0))
    assert step.commands == (m.ReleaseNode(2, "n0"), m.AddNode(3, "n1"))
    assert script.at(2.0, ready("n0")).commands == (), "it was given back before it came"


def test_the_trials_of_a_lost_machine_wait_for_the_next() -> None:
    script = Script(FIFO(2, R=9), devices=2)
    script.at(0.0, ready("n0", 2))
    script.at(1.0, reported("t-00000", 1, 0.5), m.TrialCheckpointed("t-00000", 1, saved("t-00000", 1)))
    lost = script.at(2.0, m.NodeLost("n0", "revoked"))
    assert statuses(lost) == [("t-00000", "paused"), ("t-00001", "waiting")]
    assert notes(lost) == ["machine n0 is gone: revoked"]
    assert lost.commands == (m.AddNode(4, "n1"),)
    assert starts(script.at(9.0, ready("n1", 2))) == [("t-00000", 2, 1), ("t-00001", 2, 0)]


def test_a_machine_lost_again_and_again_is_no_fault_of_the_trial() -> None:
    script = Script(FIFO(1, R=9), max_retries=0)
    for number in range(6):
        step = script.at(number, ready(f"n{number}"))
        assert starts(step) == [("t-00000", number + 1, 0)]
        script.at(number + 0.5, m.NodeLost(f"n{number}", "revoked"))
    assert not script.controller.done


def test_machines_that_never_come_end_the_run_after_a_few() -> None:
    script = Script(FIFO(1, R=9))
    for number in range(3):
        assert ended(script.at(number, m.NodeLost(f"n{number}", "no capacity"))) is None
    found = ended(script.at(3.0, m.NodeLost("n3", "no capacity")))
    assert found is not None and found[0] == "failed" and found[1].endswith("no capacity")
    assert script.controller.done


def test_a_machine_that_comes_ends_the_row_of_those_that_never_came() -> None:
    script = Script(FIFO(9, R=9))
    for number in range(10):
        if number == 3 or number == 7:
            script.at(number, ready(f"n{number}"))
        assert ended(script.at(number + 0.5, m.NodeLost(f"n{number}", "no capacity"))) is None


def test_machines_that_did_come_do_not_count_as_those_that_never_come() -> None:
    script = Script(FIFO(9, R=9), machines=4)
    script.at(0.0, *(ready(f"n{k}") for k in range(4)))
    script.at(1.0, *(m.NodeLost(f"n{k}", "revoked") for k in range(4)))
    assert ended(script.at(2.0, m.NodeLost("n4", "no capacity"))) is None


def test_a_crash_while_many_machines_boot_is_no_reason_to_give_up() -> None:
    place = world(FIFO(8, R=2), machines=6, boot_s=30.0)
    session = place.start()
    resumed = place.resume(session.journal).run()
    assert resumed.view.status == "succeeded"
    assert_sound(resumed)


def test_a_machine_taken_away_with_notice_loses_no_training() -> None:
    place = world(SuccessiveHalving(8, 1, 9, 2), machines=2, devices=2, faults=[Fault(2.5, "lose", "n0", notice_s=2.0)])
    session = place.run()
    assert session.view.retrained == 0
    assert winner(session.view) == winner(world(SuccessiveHalving(8, 1, 9, 2), machines=2, devices=2).run().view)
    assert_sound(session)


def test_a_machine_taken_away_without_notice_changes_the_time_but_not_the_winner() -> None:
    calm = world(SuccessiveHalving(8, 1, 9, 2), machines=2, devices=2).run()
    hit = world(SuccessiveHalving(8, 1, 9, 2), machines=2, devices=2, faults=[Fault(5.5, "lose", "n1")]).run()
    assert hit.view.at_s > calm.view.at_s
    assert winner(hit.view) == winner(calm.view)
    assert_sound(hit)


def test_the_bill_runs_from_when_a_machine_boots_until_it_is_given_back() -> None:
    session = world(FIFO(1, R=10), request_s=100.0, boot_s=20.0, price=3600.0, devices=2).run()
    assert session.view.at_s == 130.0
    assert session.view.cost_usd() == 2 * 30.0


def test_a_machine_that_is_ready_and_taken_away_in_the_same_turn_gets_no_trial() -> None:
    script = Script(FIFO(1, R=2))
    step = script.at(1.0, m.NodeNotice("n0", 20.0), ready("n0"))
    assert step.commands == (m.ReleaseNode(2, "n0"), m.AddNode(3, "n1"))
