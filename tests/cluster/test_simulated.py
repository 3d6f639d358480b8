from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.worlds import Scripted, losses

from elastune import messages as m
from elastune.cluster.simulated import Fault, Machines, SimulatedCluster, part_done
from elastune.cluster.workload import Synthetic
from elastune.errors import RunFailed, SpecError


def cluster(**arguments: Any) -> SimulatedCluster:
    return SimulatedCluster(**{"workload": Synthetic("loss", "min"), **arguments})


IDS = itertools.count(1)


def start(until: int | None, *slots: str, trial: str = "a", checkpoint: m.Checkpoint | None = None) -> m.StartTrial:
    places = tuple(m.Slot(node, device) for device, node in enumerate(slots or ("n0",)))
    iteration = checkpoint.iteration if checkpoint else 0
    return m.StartTrial(next(IDS), trial, 1, 0, {"x": 1.0}, iteration, checkpoint, until, False, places)


def with_node(**arguments: Any) -> SimulatedCluster:
    world = cluster(**arguments)
    world.submit([m.AddNode(next(IDS), "n0")])
    while not any(isinstance(event, m.NodeReady) for event in world.poll(None).events):
        pass
    return world


def kinds(turn: m.Turn) -> list[str]:
    return [type(event).__name__ for event in turn.events]


def test_a_machine_is_ready_after_it_was_granted_and_has_booted_and_is_billed_for_the_boot() -> None:
    world = cluster(machines=Machines(4, request_s=10.0, boot_s=30.0, price_usd_per_device_hour=0.5))
    world.submit([m.AddNode(next(IDS), "n0")])
    assert world.poll(None) == m.Turn(10.0, (m.NodeBilled("n0", 4, 10.0, 2.0),))
    assert world.poll(None) == m.Turn(40.0, (m.NodeReady("n0", 4, 10.0, 2.0),))


def test_a_machine_given_back_while_it_boots_never_comes() -> None:
    world = cluster(machines=Machines(boot_s=30.0))
    world.submit([m.AddNode(next(IDS), "n0")])
    world.submit([m.ReleaseNode(next(IDS), "n0")])
    assert world.poll(100.0) == m.Turn(100.0, ())


def test_a_poll_waits_no_longer_than_it_was_told_and_time_never_goes_back() -> None:
    world = with_node()
    world.submit([start(9)])
    assert world.poll(0.5) == m.Turn(0.5, ())
    assert world.poll(0.0) == m.Turn(0.5, ())
    assert world.poll(0.9).at_s == 0.9


def test_a_trial_reports_every_step_and_leaves_with_a_checkpoint_at_its_end() -> None:
    world = with_node()
    world.submit([start(2)])
    assert (kinds(first := world.poll(None)), first.at_s) == (["TrialReported"], 1.0)
    last = world.poll(None)
    assert (kinds(last), last.at_s) == (["TrialReported", "TrialPaused"], 2.0)
    event = last.events[1]
    assert isinstance(event, m.TrialPaused) and event.checkpoint is not None and event.checkpoint.iteration == 2
    assert world.inventory() == m.Inventory(frozenset({"n0"}), {})


def test_starting_costs_time_and_more_devices_save_it() -> None:
    slow = with_node(start_s=5.0)
    slow.submit([start(1)])
    assert slow.poll(None).at_s == 6.0
    fast = with_node(machines=Machines(devices=2), speedup=lambda width: 0.8 * width)
    fast.submit([start(1, "n0", "n0")])
    assert fast.poll(None).at_s == pytest.approx(1 / 1.6)


def test_checkpoints_are_made_along_the_way() -> None:
    world = with_node(checkpoint_every_s=2.0)
    world.submit([start(5)])
    saved = [kinds(world.poll(None))[-1] for _ in range(5)]
    assert saved == ["TrialReported", "TrialCheckpointed", "TrialReported", "TrialCheckpointed", "TrialPaused"]


def test_a_function_that_is_through_returns() -> None:
    world = with_node(workload=Scripted(losses(0.5)))
    world.submit([start(None)])
    assert kinds(world.poll(None)) == ["TrialReported"]
    assert kinds(world.poll(None)) == ["TrialReturned"]


def test_a_pause_takes_effect_at_the_next_report_and_a_stop_keeps_nothing() -> None:
    for command, keeps in ((m.PauseTrial, True), (m.StopTrial, False)):
        world = with_node()
        world.submit([start(9), command(next(IDS), "a", 1, 30.0)])
        turn = world.poll(None)
        paused = turn.events[-1]
        assert isinstance(paused, m.TrialPaused) and (paused.checkpoint is not None) == keeps
        assert world.poll(60.0) == m.Turn(60.0, ()), "nobody is killed who has left"


def test_who_does_not_leave_in_time_is_killed() -> None:
    world = with_node(start_s=100.0)
    world.submit([start(9), m.PauseTrial(next(IDS), "a", 1, 30.0)])
    turn = world.poll(None)
    assert turn == m.Turn(30.0, (m.TrialLost("a", 1, "killed: no report within 30 s of being told to leave"),))


def test_commands_for_an_older_attempt_are_not_carried_out() -> None:
    world = with_node()
    world.submit([start(9), m.StopTrial(next(IDS), "a", 7, 0.0)])
    assert kinds(world.poll(None)) == ["TrialReported"]


def test_a_lost_machine_takes_its_trials_with_it_silently() -> None:
    world = with_node(faults=[Fault(0.5, "lose", "n0")])
    world.submit([start(9)])
    assert world.poll(None) == m.Turn(0.5, (m.NodeLost("n0", "revoked"),))
    assert world.inventory() == m.Inventory(frozenset(), {})


def test_a_notice_comes_first_where_there_is_one() -> None:
    world = with_node(faults=[Fault(0.5, "lose", "n0", notice_s=10.0)])
    assert world.poll(None) == m.Turn(0.5, (m.NodeNotice("n0", 10.5),))
    assert world.poll(None) == m.Turn(10.5, (m.NodeLost("n0", "revoked"),))


def left_at(world: SimulatedCluster, at_s: float) -> m.Checkpoint:
    """What the trial has saved when it is told to leave at this time, and does so at once."""
    while world.poll(at_s).at_s < at_s:
        pass
    world.submit([m.PauseTrial(next(IDS), "a", 1, 120.0)])
    (paused,) = world.poll(None).events
    assert isinstance(paused, m.TrialPaused) and paused.checkpoint is not None and world.now_s == at_s
    return paused.checkpoint


def test_a_trial_that_can_leaves_in_the_middle_of_a_step_and_goes_on_from_there() -> None:
    world = with_node(midway=True, start_s=5.0)
    world.submit([start(2)])
    first = left_at(world, 6.25)
    assert first.iteration == 1, "one step is done, and a quarter of the next"
    world.submit([start(2, checkpoint=first)])
    again = left_at(world, 8.0)
    assert part_done(again) == 0.25, "while it starts nothing is added"
    world.submit([start(2, checkpoint=again)])
    more = left_at(world, 13.25)
    assert part_done(more) == 0.5
    world.submit([start(2, checkpoint=more)])
    end = world.poll(None)
    assert (kinds(end), end.at_s) == (["TrialReported", "TrialPaused"], 13.25 + 5.0 + 0.5)
    assert isinstance(end.events[1], m.TrialPaused) and end.events[1].checkpoint is not None
    assert part_done(end.events[1].checkpoint) == 0.0


def test_a_name_says_nothing_of_a_step_that_is_partly_done() -> None:
    world = with_node()
    world.submit([start(1, trial="not-midway-00000")])
    (_, paused) = world.poll(None).events
    assert isinstance(paused, m.TrialPaused) and part_done(paused.checkpoint) == 0.0
    world.submit([start(2, trial="not-midway-00000", checkpoint=paused.checkpoint)])
    assert kinds(world.poll(None)) == ["TrialReported", "TrialPaused"]


def test_a_trial_on_two_devices_and_one_that_is_not_in_a_hurry_leave_at_a_report() -> None:
    for slots, within_s in ((("n0", "n0"), 120.0), (("n0",), None)):
        world = with_node(midway=True, machines=Machines(devices=2), speedup=lambda width: 1.0)
        world.submit([start(9, *slots)])
        world.poll(0.5)
        world.submit([m.PauseTrial(next(IDS), "a", 1, within_s)])
        turn = world.poll(None)
        assert (kinds(turn), turn.at_s) == (["TrialReported", "TrialPaused"], 1.0)


def test_a_trial_that_is_told_to_stop_has_nothing_to_save_midway() -> None:
    world = with_node(midway=True)
    world.submit([start(9)])
    world.poll(0.5)
    world.submit([m.StopTrial(next(IDS), "a", 1, 120.0)])
    paused = world.poll(None).events[-1]
    assert isinstance(paused, m.TrialPaused) and (world.now_s, paused.checkpoint) == (1.0, None)


def test_lifetimes_come_from_the_seed_and_the_machine() -> None:
    def death(seed: int, node: str) -> float:
        world = cluster(machines=Machines(lifetime_s=100.0), seed=seed)
        world.submit([m.AddNode(next(IDS), node)])
        world.poll(None)
        turn = world.poll(None)
        assert kinds(turn) == ["NodeLost"]
        return turn.at_s

    assert death(0, "n0") == death(0, "n0")
    assert len({death(0, "n0"), death(0, "n1"), death(1, "n0")}) == 3
    mean = sum(death(seed, "n0") for seed in range(2000)) / 2000
    assert mean == pytest.approx(100.0, rel=0.1)


def test_a_damaged_checkpoint_is_found_when_a_trial_should_start_from_it() -> None:
    world = with_node(faults=[Fault(1.5, "damage", "a")])
    world.submit([start(1)])
    paused = world.poll(None).events[-1]
    assert isinstance(paused, m.TrialPaused) and paused.checkpoint is not None
    world.poll(2.0)
    world.submit([start(9, checkpoint=paused.checkpoint)])
    turn = world.poll(None)
    assert kinds(turn) == ["CheckpointDamaged"] and world.inventory().trials == {}


def test_values_that_are_not_finite_survive_the_journal() -> None:
    world = with_node(workload=Scripted(losses(float("nan"), float("inf"))))
    world.submit([start(2)])
    events = (*world.poll(None).events, *world.poll(None).events)
    record = m.Record(0.0, events, (), ())
    again = m.decode_record(m.encode_record(record))
    assert [e.metrics for e in again.events if isinstance(e, m.TrialReported)] == [
        {"loss": "NaN"},
        {"loss": "Infinity"},
    ]


def test_a_simulation_in_which_nothing_can_happen_any_more_says_so() -> None:
    with pytest.raises(RunFailed, match="stands still"):
        cluster().poll(None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"devices": 0}, "devices=0"),
        ({"boot_s": -1.0}, "boot_s=-1.0"),
        ({"request_s": float("nan")}, "request_s=nan"),
        ({"lifetime_s": 0.0}, "lifetime_s=0.0"),
        ({"notice_s": "1m"}, "notice_s='1m'"),
    ],
)
def test_machines_that_cannot_be_are_an_error_that_names_what_is_wrong(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as error:
        Machines(**arguments)
    assert str(error.value).startswith(said) and "must be" in str(error.value)
