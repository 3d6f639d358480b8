"""Fluid on real machines: trials share a device or have two, a machine is taken away, and another comes for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import left_behind

import elastune as et
from elastune import messages as m
from elastune.provider import machine as keeper
from elastune.record.journal import SqlJournal

pytestmark = pytest.mark.slow

TRIALS, LAST_STEPS = 5, 60
SCALING = {0.5: 0.9, 1: 1, 2: 1.8}


def trainable(seen: Path) -> Callable[[Mapping[str, Any]], None]:
    """Leaves a file for every machine that it has trained on. All but the last go on until there were three."""

    def train(config: Mapping[str, Any]) -> None:
        import ray

        done = et.get_checkpoint() or 0
        least = LAST_STEPS if config["number"] == TRIALS else 3
        while done < least or len(list(seen.iterdir())) < 3:
            time.sleep(0.1)
            done += 1
            et.report({"loss": 1 / done, "done": done}, checkpoint=done)
            (seen / ray.get_runtime_context().get_node_id()).touch()

    return train


def take_away(machine: Path, seen: Path) -> None:
    """Once there is something on both of the first two."""
    limit_s = time.monotonic() + 120
    while len(list(seen.iterdir())) < 2 and time.monotonic() < limit_s:
        time.sleep(0.05)
    keeper.write(machine / "notice.json", keeper.Notice(time.time() + 1.0))


@pytest.mark.timeout(240)
def test_packed_and_spread_trials_go_on_where_a_machine_goes_and_another_comes(tmp_path: Path) -> None:
    (seen := tmp_path / "seen").mkdir()
    tuner = et.Tuner(
        trainable(seen),
        space={"number": et.grid_search(list(range(1, TRIALS + 1)))},
        metric="loss",
        algorithm=et.FIFO(TRIALS, R=1000),
        allocator=et.Fluid(most_packed=2, scaling=SCALING),
        name="run",
        storage=tmp_path,
        machines=2,
        devices=1,
        provider="local",
        checkpoint_every="0s",
    )
    harm = threading.Thread(target=take_away, args=(tmp_path / "run" / "machines" / "n0", seen), daemon=True)
    harm.start()
    result = tuner.fit(progress=False)
    harm.join()
    assert result.status == "succeeded" and len(result.view.trials) == TRIALS
    for trial in result.view.trials.values():
        steps = list(range(1, len(trial.reports) + 1))
        assert trial.status == "completed" and steps
        assert [report.iteration for report in trial.reports] == steps, "each counts once"
        assert [report.metrics["done"] for report in trial.reports] == steps, "nothing was lost"
    assert len(result.view.ready_s) == 3, "two, and one for that which was taken away"
    placed = placements(tmp_path / "run")
    assert any(share == 0.5 for _, share in placed) and any(len(slots) == 2 for slots, _ in placed)
    assert any(slot.node == "n2" for slots, _ in placed for slot in slots), "the new one is used"
    assert left_behind(tmp_path / "run" / "machines") == []


def placements(run: Path) -> list[tuple[tuple[m.Slot, ...], float]]:
    """Where trials were put, in order: which slots, and which part of each."""
    journal = SqlJournal(run / "journal.db", run.name, must_exist=True)
    try:
        commands = [command for body in journal.read() for command in m.decode_record(body).commands]
    finally:
        journal.close()
    return [(c.slots, c.share) for c in commands if isinstance(c, m.StartTrial | m.ResizeTrial)]
