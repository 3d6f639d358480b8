"""How long a K-fold job takes on 1 to 11 slots of a local Ray, next to the least that is possible: Ultron's figure 11.

The folds can be parallel, the training on all data afterwards is one trial and cannot: both are timed. With p slots 11
folds take at least ceil(11 / p) rounds, so T1 / p is out of reach for most p, and the rounds are the fair bound; at 11
they are the same. Steps sleep, so that 11 slots on a computer with fewer cores are as good as 11 machines. Times are
those of the journal: from the first start of a fold to the end of the last, and from there to the end of the run.

    python benchmarks/_service_kfold.py [--quick]      the last line is JSON
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import elastune as et

FOLDS, STEPS, STEP_S = 11, 20, 0.1
BEST = STEPS // 2
"""The step that the folds find best: so long is the last training."""


class Timed(NamedTuple):
    """Seconds of a job: those in which folds train, and all from the first start to the end of the last training."""

    folds_s: float
    whole_s: float


def wall_clock(parallelisms: Iterable[int], step_s: float = STEP_S) -> dict[int, float]:
    """Seconds of the folds of a job, by the number of slots."""
    return {slots: timed.folds_s for slots, timed in jobs(parallelisms, step_s).items()}


def jobs(parallelisms: Iterable[int], step_s: float = STEP_S) -> dict[int, Timed]:
    def sleeping(config: Mapping[str, Any]) -> None:
        step = 0
        while True:
            time.sleep(step_s)
            step += 1
            et.report({"loss": abs(step - BEST)})

    return {slots: _job(sleeping, slots, FOLDS, STEPS) for slots in parallelisms}


def training(slots: int, epochs: int) -> Timed:
    """The same of a real training: a network on scikit-learn's digits, 4 folds."""
    return _job(digits, slots, 4, epochs)


def digits(config: Mapping[str, Any]) -> None:
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    held = torch.arange(len(x)) % config["folds"] == (-1 if config["fold"] is None else config["fold"])
    judged = held if held.any() else ~held
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    while True:
        for rows in torch.split(torch.randperm(int((~held).sum())), 32):
            optimizer.zero_grad()
            F.cross_entropy(model(x[~held][rows]), y[~held][rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            loss = F.cross_entropy(model(x[judged]), y[judged]).item()
        et.report({"loss": loss}, checkpoint=model.state_dict)


def _job(train: Any, slots: int, folds: int, steps: int) -> Timed:
    with tempfile.TemporaryDirectory() as storage:
        result = et.Tuner(
            train,
            space={"lr": 0.05},
            metric="loss",
            algorithm=et.KFold(k=folds, R=steps),
            devices=slots,
            storage=Path(storage),
            name="folds",
        ).fit(progress=False)
    *ours, last = result.view.trials.values()
    assert last.config["fold"] is None and len(ours) == folds
    began = [_at(trial.start_s) for trial in ours]
    return Timed(max(_at(trial.end_s) for trial in ours) - min(began), _at(last.end_s) - min(began))


def _at(at_s: float | None) -> float:
    assert at_s is not None
    return at_s


def rounds(slots: int) -> int:
    return math.ceil(FOLDS / slots)


def figures(times: Mapping[int, Timed], one: float) -> list[dict[str, float]]:
    """`one` is what the folds take on one slot, one after another."""
    return [
        {
            "slots": slots,
            "folds_s": timed.folds_s,
            "whole_s": timed.whole_s,
            "of_linear": one / (slots * timed.folds_s),
            "of_rounds": one * rounds(slots) / FOLDS / timed.folds_s,
        }
        for slots, timed in times.items()
    ]


def whole_ideal(one: Timed) -> float:
    """How much faster 11 slots can make the whole job: the folds 11 times, the last training not at all."""
    return one.whole_s / (one.folds_s / FOLDS + one.whole_s - one.folds_s)


def study(quick: bool) -> dict[str, Any]:
    _job(lambda config: et.report({"loss": 0.0}), 1, 2, 1)  # Ray has started
    times = jobs((1, 2, 4, FOLDS) if quick else range(1, FOLDS + 1))
    rows = figures(times, times[1].folds_s)
    print(f"{FOLDS} folds of {STEPS} steps that sleep {STEP_S:g} s, then one trial of {BEST}")
    print("slots   folds   whole   of T1/p   of ceil(11/p) rounds")
    for row in rows:
        print("{slots:5.0f} {folds_s:6.2f}s {whole_s:6.2f}s {of_linear:8.0%} {of_rounds:12.0%}".format(**row))
    real = {slots: training(slots, 20 if quick else 80) for slots in (1, 2)}
    speedup = real[1].folds_s / real[2].folds_s
    print(f"digits, 4 folds: {real[1].folds_s:.2f} s on one slot, {real[2].folds_s:.2f} s on two: {speedup:.2f}x")
    whole, ideal = times[1].whole_s / times[FOLDS].whole_s, whole_ideal(times[1])
    print(f"the whole job on {FOLDS} slots: {whole:.2f}x as fast as on one, of {ideal:.2f}x that are possible")
    return {
        "parallel_efficiency_11": rows[-1]["of_linear"],
        "whole_speedup_11": whole,
        "whole_ideal_11": ideal,
        "least_of_rounds": min(row["of_rounds"] for row in rows),
        "digits_speedup_2": speedup,
        "times": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1, 2, 4 and 11 slots, and a shorter training")
    print(json.dumps({"kfold": study(parser.parse_args().quick)}))


if __name__ == "__main__":
    main()
