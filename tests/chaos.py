"""Random faults for real machines: workers and raylets killed, machines taken away with and without notice.

Also a program (`make soak`): it goes on for a given time, one run after the other.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import elastune as et
from elastune.provider import machine as keeper
from elastune.results import Result

KINDS = {"kill worker": 14, "hang worker": 1, "kill raylet": 2, "notice": 2, "take away": 1, "kill keeper": 1}


class Faults(threading.Thread):
    """Does harm to the machines in a folder every so often, until there was enough of it."""

    def __init__(self, folder: Path, calm: Path, count: int, every_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._calm, self._count, self._every_s, self._rng = (
            folder,
            calm,
            count,
            every_s,
            random.Random(seed),
        )
        self._enough = threading.Event()
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        pause_s = self._every_s
        while self.done.total() < self._count and not self._enough.wait(pause_s):
            kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
            pause_s = 0.05
            with suppress(OSError):  # it has just ended by itself
                if self._harm(kind):
                    self.done[kind] += 1
                    pause_s = self._rng.uniform(0.5, 1.5) * self._every_s
        self._calm.touch()

    def stop(self) -> None:
        self._enough.set()
        self.join()

    def _harm(self, kind: str) -> bool:
        """Only to machines that have been ready: those that boot are not worth it."""
        folder = self._rng.choice(sorted(self._folder.glob("n*")) or [self._folder])
        order = keeper.read(folder / "order.json", keeper.Order)
        told = keeper.read(folder / "keeper.json", keeper.Keeper)
        if order is None or told is None or (folder / "gone.json").exists() or (folder / "notice.json").exists():
            return False
        programs = {pid: keeper.program(pid) or "" for pid in keeper.processes({order.mark})}
        workers = [pid for pid, program in programs.items() if program.startswith("ray::_Worker")]
        if not any(_busy(self._calm, pid).exists() for pid in workers):
            return False
        match kind:
            case "notice" | "take away":
                notice_s = self._rng.uniform(1.0, 3.0) if kind == "notice" else 0.0
                keeper.write(folder / "notice.json", keeper.Notice(time.time() + notice_s))
            case "kill raylet":
                os.kill(next(pid for pid, program in programs.items() if program == "raylet"), signal.SIGKILL)
            case "kill keeper":
                os.kill(told.pid, signal.SIGKILL)
            case "hang worker":
                os.kill(self._rng.choice(sorted(workers)), signal.SIGSTOP)
            case "kill worker":
                os.kill(self._rng.choice(sorted(workers)), signal.SIGKILL)
        return True


def _busy(calm: Path, pid: int) -> Path:
    """There once the process has trained something, and its machine has been ready."""
    return calm.with_name(f"{calm.name}-{pid}")


def trainable(calm: Path, step_s: float) -> Any:
    """Deterministic; slow until the faults are over, so that they hit it."""

    def train(config: Mapping[str, Any]) -> None:
        _busy(calm, os.getpid()).touch()
        done, state = et.get_checkpoint() or (0, config["x"])
        while True:
            time.sleep(0.01 if calm.exists() else step_s)
            done, state = done + 1, 4 * state * (1 - state)  # chaotic: one wrong step would show
            et.report({"loss": state + 10 / done, "done": done}, checkpoint=(done, state))

    return train


def tune(folder: Path, name: str, faults: Faults | None, step_s: float) -> Result:
    tuner = et.Tuner(
        trainable(folder / f"{name}.calm", step_s),
        space={"x": et.uniform(0.01, 0.99)},
        metric="loss",
        algorithm=et.SuccessiveHalving(n=60, r=6, R=162, eta=3),
        name=name,
        storage=folder,
        machines=3,
        devices=2,
        provider="local" if faults is not None else "here",
        checkpoint_every="0s",
        max_retries=1000,
        workers=et.Workers(report_within="4s"),
    )
    assert tuner.path == folder / name
    if faults is None:
        return tuner.fit(progress=False)
    faults.start()
    try:
        return tuner.fit(progress=False)
    finally:
        faults.stop()


def left_behind(folder: Path) -> list[str]:
    """Processes of machines in a folder that should be gone."""
    orders = [keeper.read(path, keeper.Order) for path in folder.glob("*/order.json")]
    pids = keeper.processes({order.mark for order in orders if order is not None})
    return [f"{pid} {keeper.program(pid)}" for pid in sorted(pids)]


def outcome(result: Result) -> tuple[Any, ...]:
    """All that must not depend on faults: the winner, and each iteration of each trial, once, with its loss."""
    trials = sorted(
        (_number(trial.id), tuple((r.iteration, r.metrics["done"], r.metrics["loss"]) for r in trial.reports))
        for trial in result.view.trials.values()
    )
    return result.status, _number(result.best_trial.id), result.best_value, trials


def _number(trial: str) -> str:
    """Without the name of the run."""
    return trial.rpartition("-")[2]


def disturb(folder: Path, name: str, undisturbed: tuple[Any, ...], count: int, seed: int) -> tuple[Result, Faults]:
    """A run with so many faults that must end as the undisturbed one did."""
    faults = Faults(folder / name / "machines", folder / f"{name}.calm", count, 0.6, seed)
    result = tune(folder, name, faults, 0.3)
    assert outcome(result) == undisturbed
    # Saved at every report: a fault costs each trial on the machine at most the iteration that it was in.
    assert result.view.retrained <= 2 * faults.done.total()
    assert left_behind(folder / name / "machines") == []
    return result, faults


def soak(minutes: float, seed: int = 0) -> None:
    """Run after run with ever new faults, until the time is over."""
    end_s = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        undisturbed = outcome(tune(folder, "calm", None, 0.01))
        while time.monotonic() < end_s:
            result, faults = disturb(folder, f"run-{seed}", undisturbed, 100, seed)
            print(f"run {seed}: {dict(faults.done)}, {result.view.retrained} iterations retrained", flush=True)
            seed += 1


if __name__ == "__main__":
    soak(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
