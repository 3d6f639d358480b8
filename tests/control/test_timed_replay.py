"""Runs that are planned by the clock, on machines that boot and are lost: whenever their driver ends, the journal has
all that the next one needs to give the same commands, and to keep the deadline and the budget.
"""

from __future__ import annotations

import pickle
from functools import cache

import pytest
from tests.control.test_recovery import ignore
from tests.worlds import Session, World, assert_sound, timed_world

from elastune import messages as m
from elastune.algorithm import SEER, Algorithm, ElasticHyperband, HyperSched
from elastune.cluster.simulated import Fault
from elastune.control.run import recover

DEADLINE_S, BUDGET_USD = 30.0, 4.0
FAULTS = (
    Fault(0.7, "lose", "n0"),  # while it boots
    Fault(7.3, "lose", "n1"),
    Fault(9.6, "kill", "t-00001"),
    Fault(11.0, "lose", "n2", 1.2),
    Fault(13.0, "damage", "t-00002"),
)
RUNS: dict[str, tuple[Algorithm, str]] = {
    "SEER": (SEER(eta=2, t_min=2.0), "random"),
    "SEER that learns": (SEER(eta=2, t_min=2.0), "tpe"),
    "SEER of the paper, ranked by what is expected": (
        SEER(eta=2, t_min=2.0, fill=False, race=False, rank="power"),
        "random",
    ),
    "ElasticHyperband": (ElasticHyperband(eta=2, t_min=3.0), "random"),
    "HyperSched": (HyperSched(1, 20, 2), "random"),
}


def place(name: str) -> World:
    algorithm, searcher = RUNS[name]
    return timed_world(
        algorithm,
        searcher=searcher,
        deadline_s=DEADLINE_S,
        budget_usd=BUDGET_USD,
        price=60.0,
        machines=6,
        devices=2,
        boot_s=1.5,
        start_s=0.1,
        stragglers=0.3,
        faults=FAULTS,
        checkpoint_every_s=2.0,
        seed=1,
    )


@cache
def undisturbed(name: str) -> tuple[Session, tuple[float | None, ...]]:
    """A run to its end, and when its controller wanted to be woken after each turn."""
    session = place(name).start()
    wakes = [session.controller.wake_s]
    while not session.controller.done:
        wakes.append(session.turns(1).controller.wake_s)
    return session, tuple(wakes)


@pytest.mark.parametrize("name", RUNS)
def test_replayed_until_any_turn_it_gives_the_same_commands_to_the_end(name: str) -> None:
    session, wakes = undisturbed(name)
    records = session.records
    replayed = place(name).experiment.controller()
    for turn, record in enumerate(records):
        controller = pickle.loads(pickle.dumps(replayed))
        for later in records[turn:]:
            step = controller.handle(m.Turn(later.at_s, later.events))
            assert (step.decisions, step.commands) == (later.decisions, later.commands)
        replayed.replay(record)
        assert replayed.wake_s == wakes[turn]


@pytest.mark.parametrize("name", [name for name in RUNS if name != "HyperSched"])  # which plans to the last cent
@pytest.mark.parametrize("later", [0.0, 3.0, "the machines are still there"])
def test_resumed_after_any_turn_it_keeps_its_limits_and_can_be_replayed(name: str, later: float | str) -> None:
    made = place(name)
    for turns in range(0, len(undisturbed(name)[0].records) - 1, 7):
        crashed = made.start().turns(turns)
        last_s = crashed.view.at_s
        resumed = made.adopt(crashed) if isinstance(later, str) else made.resume(crashed.journal, later)
        resumed.run()
        assert_sound(resumed)
        assert resumed.view.at_s <= max(DEADLINE_S, last_s + (later if isinstance(later, float) else 0.0))
        assert resumed.view.cost_usd() <= BUDGET_USD
        again, _ = recover(resumed.journal, made.experiment.controller(), None, ignore)
        assert again.over, "all commands came out the same, to the last"


@pytest.mark.parametrize("name", RUNS)
def test_these_runs_wait_for_machines_and_lose_some_while_they_boot_and_while_trials_are_on_them(name: str) -> None:
    """Or the tests above would tell little."""
    session, _ = undisturbed(name)
    lost = [event.node for record in session.records for event in record.events if isinstance(event, m.NodeLost)]
    ready = [event.node for record in session.records for event in record.events if isinstance(event, m.NodeReady)]
    assert lost[0] not in ready and set(lost[1:]) & set(ready) and len(ready) >= 5
    used = {slot.node for command in session.commands if isinstance(command, m.StartTrial) for slot in command.slots}
    assert used & set(lost[1:])
    assert session.view.status == "succeeded"
    assert_sound(session)
