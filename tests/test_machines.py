"""A real run on machines that come when they are needed and go when they are not."""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import left_behind

import elastune as et
from elastune import messages as m
from elastune.record.journal import SqlJournal

pytestmark = pytest.mark.slow

MACHINES, DEVICES = 8, 4
TRIALS = MACHINES * DEVICES
LONG = 8


def machines_for(trials: int) -> int:
    return min(MACHINES, math.ceil(trials / DEVICES))


class AsManyAsNeeded(et.Allocator):
    """One device for everybody, on as few machines as have room for all that run or wait."""

    def allocate(self, view: et.View, at_s: float) -> et.Target:
        widths = dict(view.widths) | dict.fromkeys(view.waiting, 1)
        return et.Target(machines_for(len(widths)), widths)


class Lengths(et.Searcher):
    """As many configurations as there are trials, each with the number of its steps: some long ones among short."""

    def setup(self, space: et.Space, mode: Any, seed: int) -> None:
        super().setup(space, mode, seed)
        rng = random.Random(seed)
        steps = [200 + 20 * number for number in range(LONG)] + [rng.randint(5, 60) for _ in range(TRIALS - LONG)]
        rng.shuffle(steps)
        self.steps = steps

    def suggest(self) -> m.Config | None:
        return {"steps": self.steps.pop()} if self.steps else None


def trainable(folder: Path) -> Callable[[Mapping[str, Any]], None]:
    """Waits until all trials run, ends by itself, and says at every step where it is."""

    def train(config: Mapping[str, Any]) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        done = et.get_checkpoint() or 0
        (folder / et.get_context().trial_id).touch()
        while len(list(folder.iterdir())) < TRIALS:
            time.sleep(0.1)
        while done < config["steps"]:
            time.sleep(0.05)
            done += 1
            et.report({"loss": 1 / done, "done": done, "node": node, "pid": os.getpid()}, checkpoint=done)

    return train


def records(run: Path) -> Iterator[m.Record]:
    journal = SqlJournal(run / "journal.db", run.name, must_exist=True)
    try:
        yield from map(m.decode_record, journal.read())
    finally:
        journal.close()


@pytest.mark.timeout(600)
def test_machines_come_and_go_with_the_trials_and_only_what_must_move_does(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    tuner = et.Tuner(
        trainable(tmp_path / "here"),
        space={"steps": et.randint(1, 1000)},
        metric="loss",
        algorithm=et.SuccessiveHalving(n=TRIALS, r=1000, R=1000),
        searcher=Lengths(),
        allocator=AsManyAsNeeded(),
        name="run",
        storage=tmp_path,
        machines=MACHINES,
        devices=DEVICES,
        provider="local",
    )
    result = tuner.fit(progress=False)
    assert result.status == "succeeded"
    for trial in result.view.trials.values():
        assert trial.status == "completed" and trial.attempts == 1
        assert [report.iteration for report in trial.reports] == list(range(1, trial.config["steps"] + 1))
        assert [report.metrics["done"] for report in trial.reports] == list(range(1, trial.config["steps"] + 1))
    journal = list(records(tmp_path / "run"))
    assert_placement_is_respected(journal)
    assert_only_what_must_moves(journal)
    assert left_behind(tmp_path / "run" / "machines") == []


def assert_placement_is_respected(journal: list[m.Record]) -> None:
    """A trial reports from the machine that the journal has it on, and a process is on one device only."""
    place: dict[str, m.Slot] = {}
    ray_nodes: dict[str, set[object]] = defaultdict(set)
    processes: dict[m.Slot, set[object]] = defaultdict(set)
    most = Counter[str]()
    for record in journal:
        for event in record.events:
            match event:
                case m.TrialReported():
                    ray_nodes[place[event.trial].node].add(event.metrics["node"])
                    processes[place[event.trial]].add(event.metrics["pid"])
                case m.TrialResized():
                    (place[event.trial],) = event.slots
                case m.TrialReturned():
                    del place[event.trial]
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                (place[command.trial],) = command.slots
        most |= Counter(slot.node for slot in place.values())
        assert len(set(place.values())) == len(place), "no two on the same device"
    assert set(most.values()) == {DEVICES} and len(most) == MACHINES, "all machines were full once"
    assert all(len(nodes) == 1 for nodes in ray_nodes.values())
    assert len(set.union(*ray_nodes.values())) == len(ray_nodes) == MACHINES
    assert all(len(pids) == 1 for pids in processes.values())
    assert len(set.union(*processes.values())) == len(processes) == MACHINES * DEVICES


def assert_only_what_must_moves(journal: list[m.Record]) -> None:
    """Whoever moves leaves a machine that there is no need for, and that is given back then."""
    place: dict[str, m.Slot] = {}
    held: set[str] = set()
    left: dict[str, int] = {}
    released: dict[str, int] = {}
    moves = 0
    for number, record in enumerate(journal):
        for event in record.events:
            if isinstance(event, m.TrialReturned):
                del place[event.trial]
        for command in record.commands:
            match command:
                case m.AddNode():
                    assert command.node not in released
                    held.add(command.node)
                case m.ReleaseNode():
                    released[command.node] = number
                case m.StartTrial():
                    (place[command.trial],) = command.slots
                case m.ResizeTrial():
                    (there,) = command.slots
                    assert there.node not in left, "to a machine that is given up itself"
                    left[place[command.trial].node] = number
                    place[command.trial] = there
                    moves += 1
        kept = held - left.keys() - released.keys()
        assert not place or len(kept) >= machines_for(len(place)), "more was given up than could be"
    assert held == released.keys() == {f"n{number}" for number in range(MACHINES)}
    assert moves, "the long trials were together from the beginning: nothing was tested"
    assert all(number < released[node] for node, number in left.items()), "left, but not given back afterwards"
