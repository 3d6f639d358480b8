"""Trials that run in several processes, and change their number while they run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.ray.drivers import Driver, slots

import elastune as et
from elastune import messages as m

pytestmark = pytest.mark.usefixtures("ray_here")
SLOTS = slots(0, 1, 2)


def iterations(driver: Driver) -> list[tuple[int, m.Scalar]]:
    return [(report.iteration, report.metrics["width"]) for report in driver.reports()]


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
    assert paused.checkpoint is not None and (paused.iteration, paused.checkpoint.iteration) == (5, 5)
    assert iterations(driver) == [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3)]
    driver.start(SLOTS[:1], until=6, attempt=2, saved=paused.checkpoint)  # the same workers go on with something else
    assert driver.until(m.TrialPaused).attempt == 2
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
    for iteration, there in ((1, SLOTS), (3, SLOTS[1:2])):
        driver.send(m.ResizeTrial, "t", 1, there)
        (tmp_path / f"go-{iteration}").touch()
        resized = driver.until(m.TrialResized)
        assert (resized.iteration, resized.slots) == (iteration, there)
        (tmp_path / f"go-{iteration + 1}").touch()
        while iterations(driver)[-1][0] <= iteration:
            driver.events += driver.cluster.poll(None).events
    for iteration in (5, 6):
        (tmp_path / f"go-{iteration}").touch()
    driver.until(m.TrialPaused)
    assert iterations(driver) == [(1, 1), (2, 3), (3, 3), (4, 1), (5, 1), (6, 1)]


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
    assert iterations(driver)[-5:] == [(1, 2), (2, 2), (3, 2), (4, 2), (5, 2)]


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


class Counter:
    """Training that stays through a resize: it counts, and notes how often it was called and re-formed."""

    def __init__(self, done: int) -> None:
        self.done, self.formed = done, 0
        et.worker.session.attach(self)

    def save(self) -> int:
        return self.done

    def reform(self) -> None:
        self.formed += 1


def staying(pace: Callable[[int], None]) -> Callable[[Mapping[str, Any]], None]:
    def train(config: Mapping[str, Any]) -> None:
        counter = Counter(et.get_checkpoint() or 0)
        while True:
            counter.done += 1
            pace(counter.done)
            context = et.get_context()
            print(f"done {counter.done} rank {context.rank} of {context.world_size} formed {counter.formed}")
            et.report({"loss": 1.0, "width": context.world_size, "formed": counter.formed, "done": counter.done})

    return train


def test_workers_that_stay_through_a_resize_are_not_called_again_and_nothing_is_written(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    def pace(done: int) -> None:
        while not (tmp_path / f"go-{done}").exists():
            pass

    driver = drive(staying(pace))
    driver.start(SLOTS[:1], until=8)
    moves = {1: SLOTS[:2], 3: SLOTS[:1], 5: SLOTS[1:3]}
    for iteration in range(1, 9):
        if iteration in moves:
            driver.send(m.ResizeTrial, "t", 1, moves[iteration])
        (tmp_path / f"go-{iteration}").touch()
        driver.until(m.TrialReported)
    widths = [(r.iteration, r.metrics["width"], r.metrics["formed"], r.metrics["done"]) for r in driver.reports()]
    # After the last move none of the workers has been there before: they are called, with the state passed on.
    assert widths == [
        (1, 1, 0, 1),
        (2, 2, 1, 2),
        (3, 2, 1, 3),
        (4, 1, 2, 4),
        (5, 1, 2, 5),
        *((i, 2, 0, i) for i in (6, 7, 8)),
    ]
    resized = [event for event in driver.events if isinstance(event, m.TrialResized)]
    assert [event.checkpoint for event in resized] == [None, None, None]
    paused = driver.events[-1]
    assert isinstance(paused, m.TrialPaused) and paused.checkpoint is not None
    assert [path.name for path in (tmp_path / "saved" / "t").glob("*.ckpt")] == [Path(paused.checkpoint.path).name]


def test_a_paused_gang_goes_on_in_place_where_it_was(drive: Callable[..., Driver]) -> None:
    driver = drive(staying(lambda done: None))
    driver.start(SLOTS[:2], until=2, final=False)
    paused = driver.until(m.TrialPaused)
    driver.start(SLOTS[:2], until=4, attempt=2, saved=paused.checkpoint, final=False)
    paused = driver.until(m.TrialPaused)
    assert [(r.metrics["formed"], r.metrics["done"]) for r in driver.reports()] == [(0, 1), (0, 2), (1, 3), (1, 4)]
    driver.start(SLOTS[2:], until=5, attempt=3, saved=paused.checkpoint, final=False)
    paused = driver.until(m.TrialPaused)
    driver.start(SLOTS[:2], until=6, attempt=4, saved=paused.checkpoint)  # what these have in memory is out of date
    driver.until(m.TrialPaused)
    assert [(r.metrics["formed"], r.metrics["done"]) for r in driver.reports()[-2:]] == [(0, 5), (0, 6)]
