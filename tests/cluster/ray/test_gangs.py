"""Trials that run in several processes, and change their number while they run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import elastune as et
from elastune import messages as m
from elastune.cluster.ray import RayCluster
from elastune.provider import Here
from elastune.record.checkpoints import CheckpointStore
from elastune.worker.setup import WorkerSetup

pytestmark = pytest.mark.usefixtures("ray_here")
SLOTS = tuple(m.Slot("n0", device) for device in range(3))


class Driver:
    """A cluster with one machine, driven by hand."""

    def __init__(self, trainable: Callable[[Mapping[str, Any]], None], folder: Path) -> None:
        setup = WorkerSetup(
            cloudpickle.dumps(trainable), (), CheckpointStore(str(folder / "saved")), folder / "logs", 60.0, 0
        )
        self.cluster = RayCluster(setup, Here(1, 3))
        self.events: list[m.AnyEvent] = []
        self._number = 0
        self.send(m.AddNode, "n0")
        self.until(m.NodeReady)

    def send(self, command: Any, *fields: object) -> None:
        self._number += 1
        self.cluster.submit([command(self._number, *fields)])

    def start(self, slots: tuple[m.Slot, ...], until: int, attempt: int = 1, saved: m.Checkpoint | None = None) -> None:
        done = saved.iteration if saved else 0
        self.send(m.StartTrial, "t", attempt, 0, {}, done, saved, until, True, slots)

    def until(self, kind: type) -> Any:
        """Wait for an event of a kind; all events are kept."""
        while True:
            self.events += self.cluster.poll(None).events
            if found := [event for event in self.events if isinstance(event, kind)]:
                return found[-1]

    def iterations(self) -> list[tuple[int, Any]]:
        return [(e.iteration, e.metrics["width"]) for e in self.events if isinstance(e, m.TrialReported)]


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def make(trainable: Callable[[Mapping[str, Any]], None]) -> Driver:
        drivers.append(Driver(trainable, tmp_path))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.cluster.close()


def counting(before: Callable[[int], None] = lambda done: None) -> Callable[[Mapping[str, Any]], None]:
    def train(config: Mapping[str, Any]) -> None:
        done = et.get_checkpoint() or 0
        while True:
            done += 1
            before(done)
            et.report({"loss": 1.0, "width": et.get_context().world_size}, checkpoint=done)

    return train


def once_out_of_step(rank: int, folder: Path, action: Callable[[], None]) -> Callable[[int], None]:
    """In its first second iteration one of two ranks does something while the other waits for it, as it would in an
    exchange of gradients.
    """

    def before(done: int) -> None:
        import time

        mine, other = (folder / f"waits-{each}" for each in (et.get_context().rank, 1 - et.get_context().rank))
        if done == 2 and not mine.exists():
            mine.touch()
            while not other.exists():
                time.sleep(0.001)
            if et.get_context().rank == rank:
                action()
            time.sleep(600)

    return before


def test_the_members_of_a_gang_leave_at_the_same_report_and_only_rank_0_counts(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    def note(done: int) -> None:
        context = et.get_context()
        (tmp_path / f"{context.rank}-of-{context.world_size}-{done}").touch()
        print(f"rank {context.rank} meets at {context.master}")

    driver = drive(counting(note))
    driver.start(SLOTS, until=5)
    paused = driver.until(m.TrialPaused)
    assert paused.iteration == 5 and paused.checkpoint.iteration == 5
    assert driver.iterations() == [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3)]
    driver.start(SLOTS[:1], until=6, attempt=2, saved=paused.checkpoint)  # the same workers go on with something else
    assert driver.until(m.TrialPaused).attempt in (1, 2)
    ranks = {path.name.split("-")[0] for path in tmp_path.glob("*-of-3-5")}
    assert ranks == {"0", "1", "2"} and not list(tmp_path.glob("*-of-3-6"))
    met = {
        line.split("meets at ")[1]
        for log in (tmp_path / "logs").glob("t*.log")
        for line in log.read_text().splitlines()
    }
    assert len(met - {"None"}) == 1


def test_a_running_trial_grows_and_shrinks_at_a_report_without_losing_any(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    def pace(done: int) -> None:
        while not (tmp_path / f"go-{done}").exists():
            pass

    driver = drive(counting(pace))
    driver.start(SLOTS[:1], until=6)
    for iteration, slots in ((1, SLOTS), (3, SLOTS[1:2])):
        driver.send(m.ResizeTrial, "t", 1, slots)
        (tmp_path / f"go-{iteration}").touch()
        resized = driver.until(m.TrialResized)
        assert (resized.iteration, resized.slots) == (iteration, slots)
        driver.events = [event for event in driver.events if not isinstance(event, m.TrialResized)]
        (tmp_path / f"go-{iteration + 1}").touch()
        while driver.iterations()[-1][0] <= iteration:
            driver.events += driver.cluster.poll(None).events
    for iteration in (5, 6):
        (tmp_path / f"go-{iteration}").touch()
    driver.until(m.TrialPaused)
    assert driver.iterations() == [(1, 1), (2, 3), (3, 3), (4, 1), (5, 1), (6, 1)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_that_is_killed_takes_the_trial_with_it_once_and_its_slots_work_again(
    rank: int, drive: Callable[..., Driver], tmp_path: Path
) -> None:
    die = once_out_of_step(rank, tmp_path, lambda: os.kill(os.getpid(), signal.SIGKILL))
    driver = drive(counting(die))
    driver.start(SLOTS[:2], until=5)
    driver.until(m.TrialLost)
    driver.start(SLOTS[:2], until=5, attempt=2)
    assert driver.until(m.TrialPaused).attempt == 2
    assert sum(isinstance(event, m.TrialLost) for event in driver.events) == 1
    assert driver.iterations()[-5:] == [(1, 2), (2, 2), (3, 2), (4, 2), (5, 2)]


def test_a_member_that_raises_fails_the_trial_once(drive: Callable[..., Driver], tmp_path: Path) -> None:
    def enough() -> None:
        raise ValueError("rank 1 has had enough")

    fail = once_out_of_step(1, tmp_path, enough)
    driver = drive(counting(fail))
    driver.start(SLOTS[:2], until=4)
    assert driver.until(m.TrialFailed).error == "ValueError: rank 1 has had enough"
    driver.start(SLOTS[:2], until=4, attempt=2)
    driver.until(m.TrialPaused)
    assert sum(isinstance(event, m.TrialFailed | m.TrialLost) for event in driver.events) == 1


def test_torch_processes_of_a_gang_meet_at_the_master_address(drive: Callable[..., Driver]) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import torch
        import torch.distributed as dist

        context = et.get_context()
        host, port = context.master or ("", 0)
        dist.init_process_group(
            "gloo", init_method=f"tcp://{host}:{port}", rank=context.rank, world_size=context.world_size
        )
        total = torch.tensor([float(context.rank + 1)])
        dist.all_reduce(total)
        dist.destroy_process_group()
        et.report({"loss": total.item(), "width": context.world_size})

    driver = drive(train)
    driver.start(SLOTS[:2], until=1)
    driver.until(m.TrialPaused)
    reported = next(event for event in driver.events if isinstance(event, m.TrialReported))
    assert reported.metrics["loss"] == 3.0
