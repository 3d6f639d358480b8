"""Whether extrapolating learning curves ranks trials better than their last losses do.

Sets of 20 configurations, of which each has trained for a length of its own, drawn from m to 3m epochs, are ranked by
where each will be at the last epoch, and by where each is. Curves: error of convolutional networks on CIFAR-10 (40
epochs, measured), accuracy and cross entropy of networks on six tasks of LCBench (52 epochs, of its surrogate). The
extrapolation was tuned on every other one of the former, and on other tasks of the latter: none of those is used here.

`power_vs_last_rank_correlation`: Spearman's, with the order at the last epoch, mean over data and m. The peer is the
last loss. The table shows where the gain is: in LCBench, whose curves have no noise; in the measured ones the two are
about equal, and of those that are done the last loss is the result itself.

`power_vs_last_error`: mean absolute error from the first m epochs, in parts of how far the curves of the data spread at
the last one, from the best to the median. What the last loss gets wrong is much the same for all, so this says little
about ranks.

The regret is printed and not counted: how much worse the configuration that is ranked first is, at the last epoch, than
the best of its set, in the same unit. The power law's is higher in the measured curves, and mostly lower in LCBench.

`power_fit_ms`: CPU time of one prediction from 30 epochs, median.

    python benchmarks/curves.py [--quick]
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from _data import data_folder
from _figures import Figure, print_figures
from numpy.typing import NDArray

from elastune.cluster.workload_lcbench import EPOCHS, SPACE, LCBench
from elastune.curve import Extrapolator, LastValue
from elastune.curve.power import PowerLaw

CIFAR, LCBENCH = "lc_cifar10_cnn_klein/curves.jsonl.gz", "lc_lcbench_surrogate"
TASKS = ("189873", "168908", "7593", "189866", "189908", "189354")
METRICS = {"val_accuracy": -0.01, "val_cross_entropy": 1.0}
"""With what turns each into a loss."""
CONFIGURATIONS = 150
TRAINED = (3, 5, 10, 20)
SIZE = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    rank: float
    regret: float
    error: float


def cifar(file: Path) -> Floats:
    with gzip.open(file, "rt") as lines:
        curves = [json.loads(line)["learning_curve"] for line in lines]
    return np.array(curves[1::2])  # the extrapolation was tuned on the others


def lcbench(folder: Path, tasks: int) -> Iterator[tuple[str, list[Floats]]]:
    """By metric, the curves of every task."""
    for metric, factor in METRICS.items():
        rng = random.Random(0)
        configs = [SPACE.sample(rng) for _ in range(CONFIGURATIONS)]
        of_tasks = []
        for task in TASKS[:tasks]:
            workload = LCBench(folder, task, metric)
            curves = [workload.curve(config) for config in configs]
            values = [[(curve(k) or {})[metric] for k in range(1, EPOCHS + 1)] for curve in curves]
            of_tasks.append(factor * np.array(values, dtype=float))
        yield f"LCBench, {metric}", of_tasks


def predictions(extrapolator: Extrapolator, curves: Floats) -> Floats:
    """Of the last epoch, by curve and by the number of epochs it is predicted from; none from none."""
    end = curves.shape[1]
    epochs = range(1, end + 1)
    return np.array(
        [
            [np.nan, *(extrapolator.predict(epochs[:m], losses[:m], end).loss for m in epochs)]
            for losses in curves.tolist()
        ]
    )


def ranks(values: Floats) -> Floats:
    order: Floats = values.argsort(axis=1, kind="stable").argsort(axis=1) - (values.shape[1] - 1) / 2
    return order


def score(predicted: Floats, curves: Floats, trained: int, sets: int) -> Score:
    """Every extrapolator gets the same sets."""
    rng, final = np.random.default_rng(trained), curves[:, -1]
    chosen = np.array([rng.choice(len(curves), SIZE, replace=False) for _ in range(sets)])
    epochs = np.minimum(rng.integers(trained, 3 * trained + 1, chosen.shape), curves.shape[1])
    guess, truth = predicted[chosen, epochs], final[chosen]
    correlation = (ranks(guess) * ranks(truth)).sum(axis=1) / (ranks(truth) ** 2).sum(axis=1)
    regret = np.take_along_axis(truth, guess.argmin(axis=1)[:, None], axis=1)[:, 0] - truth.min(axis=1)
    unit = float(np.median(final) - final.min())
    error = np.abs(predicted[:, trained] - final)
    return Score(float(correlation.mean()), float(regret.mean()) / unit, float(error.mean()) / unit)


def compare(name: str, of_tasks: list[Floats], sets: int) -> Iterator[tuple[Score, Score]]:
    """Ours and the peer's for every m, means over tasks."""
    both = [[predictions(model, curves) for curves in of_tasks] for model in (PowerLaw(), LastValue())]
    for trained in TRAINED:
        ours, last = (
            mean([score(p, curves, trained, sets) for p, curves in zip(predicted, of_tasks, strict=True)])
            for predicted in both
        )
        print(
            f"{name:28} {trained:>3} to {3 * trained:<3} {ours.rank:>7.3f} {last.rank:>6.3f}"
            f" {ours.regret:>9.3f} {last.regret:>6.3f} {ours.error:>9.3f} {last.error:>6.3f}"
        )
        yield ours, last


def mean(scores: list[Score]) -> Score:
    return Score(*(fmean(column) for column in zip(*((s.rank, s.regret, s.error) for s in scores), strict=True)))


def fit_ms(losses: list[float]) -> float:
    model, times = PowerLaw(), []
    for _ in range(20):
        begin_s = time.process_time()
        for _ in range(100):
            model.predict(range(1, len(losses) + 1), losses, 40)
        times.append(10 * (time.process_time() - begin_s))
    return median(times)


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    if quick:
        print("--quick: fewer sets, and two of the six tasks of LCBench")
    folder, sets = data_folder(CIFAR, LCBENCH), 200 if quick else 2000
    measured = cifar(folder / CIFAR)
    print(f"{SIZE} configurations, ranked; of each pair the first is the power law's, the second the last loss's")
    print(f"{'':28} {'epochs':>9} {'rank correlation':>14} {'regret':>16} {'error':>16}")
    scores = list(compare("CIFAR-10, error", [measured], sets))
    for name, of_tasks in lcbench(folder / LCBENCH, 2 if quick else len(TASKS)):
        scores += compare(name, of_tasks, sets)
    ours, last = (mean(list(column)) for column in zip(*scores, strict=True))
    took_ms = fit_ms(measured[0, :30].tolist())
    rank = (round(ours.rank, 4), round(last.rank, 4), round(ours.rank / last.rank, 3))
    error = (round(ours.error, 4), round(last.error, 4), round(ours.error / last.error, 3))
    print_figures(
        [
            Figure("power_vs_last_rank_correlation", *rank, "> the peer's", ours.rank > last.rank),
            Figure("power_vs_last_error", *error, "< the peer's", ours.error < last.error),
            Figure("power_fit_ms", round(took_ms, 3), None, None, "< 0.3", took_ms < 0.3),
        ]
    )


if __name__ == "__main__":
    main()
