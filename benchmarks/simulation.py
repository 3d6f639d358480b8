"""How fast the simulator is: against Syne Tune's, by itself, and as a run grows.

`sim_vs_syne_tune`: ASHA (r=1, R=81, eta=3) with random configurations on 64 devices, on one table of 200 learning
curves, in trials per second. They run in turns, and medians are compared. Syne Tune gets what makes it fastest:
- its own ASHA, which stops trials at rungs (it no longer comes with the one that pauses them there, as ours does):
  about as many epochs are trained, and the goal must be met by the epochs per second too;
- a random searcher that keeps no model (by default one is made anew for every suggestion);
- no delays, no printing, no saved tuner and no table of results on disk: it keeps every result in memory, where ours
  keeps the journal of every turn, encoded as it would be written;
- one look at the trials per average epoch (more would be slower, fewer would decide too late).

`sim_10k_asha_seconds`: 10,000 trials of ASHA on synthetic curves with stragglers, 16 machines of 4 devices, with the
whole journal.

`sim_flatness`: the time per report of a long run over that of runs of 1,000 trials. A second process makes the short
runs in turns with the long one, so that both see the same machine, and neither's memory is in the other's way.

Needs `pip install "elastune[bench]"`. Ratios are of CPU time, so that neighbours on the machine do not count.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import count
from multiprocessing import get_context
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import syne_tune
from _figures import Figure, print_figures
from syne_tune.backend.simulator_backend.simulator_backend import SimulatorConfig
from syne_tune.backend.simulator_backend.simulator_callback import SimulatorCallback
from syne_tune.blackbox_repository import UserBlackboxBackend
from syne_tune.blackbox_repository.blackbox_tabular import BlackboxTabular
from syne_tune.config_space import randint as syne_randint
from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving
from syne_tune.optimizer.schedulers.searchers.last_value_multi_fidelity_searcher import LastValueMultiFidelitySearcher

import elastune as et
from elastune.cluster.workload import Table
from elastune.control.run import Loop, Observer
from elastune.messages import Record, RunStarted, TrialReported, decode_record
from elastune.record.journal import MemoryJournal
from elastune.simulation import Simulation

EPOCHS, ETA = 81, 3
MACHINES, DEVICES = 16, 4
WIDTHS, DEPTHS = 20, 10
"""The two hyperparameters of the table: 200 configurations."""
MEAN_EPOCH_S = 10.0
TURNS_BETWEEN_SHORT_RUNS = 10_000
SPACE = {"lr": et.loguniform(1e-4, 1e-1), "layers": et.choice([2, 3, 4]), "momentum": et.uniform(0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class Timing:
    trials: int
    reports: int
    wall_s: float
    cpu_s: float

    @property
    def cpu_s_per_report(self) -> float:
        return self.cpu_s / self.reports


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Wall-clock and CPU seconds. What was there before is not collected or looked through at the cost of this run."""
    gc.collect()
    gc.freeze()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    gc.unfreeze()
    return wall_s, cpu_s


# ------------------------------------------------------------------------------------------------------- the table


def learning_curves() -> tuple[Any, Any]:
    """Losses and seconds by configuration and epoch: power laws that end at random levels, and random speeds."""
    rng = np.random.default_rng(0)
    rows = WIDTHS * DEPTHS
    level = rng.random((rows, 1))
    noise = rng.normal(0.0, 0.01, (rows, EPOCHS))
    losses = level + (1.0 + level) * (1.0 + np.arange(1, EPOCHS + 1)) ** -0.7 + noise
    seconds = MEAN_EPOCH_S * rng.lognormal(-0.125, 0.5, (rows, 1)) * rng.lognormal(-0.02, 0.2, (rows, EPOCHS))
    return losses, seconds


def configurations() -> pd.DataFrame:
    return pd.DataFrame({"width": np.repeat(range(WIDTHS), DEPTHS), "depth": np.tile(range(DEPTHS), WIDTHS)})


# ----------------------------------------------------------------------------------------------------------- ours


def simulate(trials: int, space: dict[str, Any], simulation: Simulation, observers: Sequence[Observer] = ()) -> Timing:
    """One run of the loop as the Tuner makes it, with its journal in memory."""
    tuner = et.Tuner(
        None,
        space=space,
        metric="loss",
        algorithm=et.ASHA(n=trials, r=1, R=EPOCHS, eta=ETA),
        searcher="random",
        machines=MACHINES,
        devices=DEVICES,
        seed=0,
    )
    journal = MemoryJournal()

    def run() -> None:
        controller, cluster = tuner.experiment.controller(), simulation.cluster(tuner.experiment, 0.0)
        loop = Loop(controller, cluster, journal, observers=observers)
        loop.start(RunStarted("experiment", "loss", "min", 0, None, None, 0.0, 0.0, tuner.experiment.describe(), {}))
        loop.run()

    wall_s, cpu_s = timed(run)
    events = [event for body in journal.read() for event in decode_record(body).events]
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert len({report.trial for report in reports}) == trials, "every trial must have trained"
    return Timing(trials, len(reports), wall_s, cpu_s)


def simulate_table(trials: int) -> Timing:
    losses, seconds = learning_curves()
    configs = [{str(name): value for name, value in row.items()} for row in configurations().to_dict("records")]
    table = Table("loss", configs, losses.tolist(), seconds.tolist())
    return simulate(trials, {"width": et.randint(0, WIDTHS), "depth": et.randint(0, DEPTHS)}, Simulation(table))


def simulate_synthetic(trials: int, observers: Sequence[Observer] = ()) -> Timing:
    return simulate(trials, SPACE, Simulation(stragglers=0.2), observers)


# ------------------------------------------------------------------------------------------------------ Syne Tune


class Silent:
    """Stands in for its printer of progress."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def simulate_with_syne_tune(trials: int) -> Timing:
    losses, seconds = learning_curves()
    space = {"width": syne_randint(0, WIDTHS - 1), "depth": syne_randint(0, DEPTHS - 1)}
    backend = UserBlackboxBackend(
        blackbox=BlackboxTabular(
            hyperparameters=configurations(),
            configuration_space=space,
            fidelity_space={"epoch": syne_randint(1, EPOCHS)},
            objectives_evaluations=np.stack([losses, seconds.cumsum(axis=1)], axis=-1)[:, None],
            objectives_names=["loss", "elapsed_s"],
        ),
        elapsed_time_attr="elapsed_s",
        seed=0,
        simulator_config=SimulatorConfig(0.0, 0.0, 0.0, 0.0, 0.0),
        tuner_sleep_time=MEAN_EPOCH_S,
    )
    scheduler = AsynchronousSuccessiveHalving(
        space,
        metric="loss",
        time_attr="epoch",
        max_t=EPOCHS,
        grace_period=1,
        reduction_factor=ETA,
        searcher=LastValueMultiFidelitySearcher(
            space, random_seed=0, searcher="random_search", num_init_random_draws=sys.maxsize
        ),
        random_seed=0,
    )
    np.random.seed(0)  # it picks its only bracket with numpy's global generator
    callback = SimulatorCallback()
    callback.store_results = lambda: None
    tuner = syne_tune.Tuner(
        backend,
        scheduler,
        syne_tune.StoppingCriterion(max_num_trials_started=trials - 1),  # it ends when there are more than that
        n_workers=MACHINES * DEVICES,
        sleep_time=0,
        results_update_interval=sys.maxsize,
        print_update_interval=sys.maxsize,
        tuner_name="simulation",
        wait_trial_completion_when_stopping=True,
        callbacks=[callback],
        save_tuner=False,
        output_logger=Silent(),
    )
    with redirect_stdout(StringIO()):
        wall_s, cpu_s = timed(tuner.run)
    return Timing(len(backend.trial_ids), len(callback.results), wall_s, cpu_s)


# ---------------------------------------------------------------------------------------------------- the figures


def against_syne_tune(trials: int, repetitions: int) -> Figure:
    logging.disable(logging.WARNING)
    ours: list[Timing] = []
    peers: list[Timing] = []
    with TemporaryDirectory() as folder:
        os.environ["SYNETUNE_FOLDER"] = folder
        for _ in range(repetitions):
            ours += [simulate_table(trials) for _ in range(3)]  # a run so short is better timed more than once
            peers.append(simulate_with_syne_tune(trials))
    print(f"\nASHA on a table of curves, {MACHINES * DEVICES} devices, medians of {repetitions}")
    print(f"{'':16} {'trials':>8} {'epochs':>8} {'CPU s':>8} {'trials/s':>9} {'epochs/s':>9}")
    our_trials, our_epochs = print_rates("elastune", ours)
    peer_trials, peer_epochs = print_rates(f"syne-tune {syne_tune.__version__}", peers)
    ratio = our_trials / peer_trials
    met = min(ratio, our_epochs / peer_epochs) >= 10
    return Figure("sim_vs_syne_tune", round(our_trials), round(peer_trials), round(ratio, 1), ">= 10", met)


def print_rates(name: str, timings: list[Timing]) -> tuple[float, float]:
    """Prints the medians; returns trials and epochs per second."""
    trials, epochs = median(t.trials for t in timings), median(t.reports for t in timings)
    cpu_s = median(t.cpu_s for t in timings)
    print(f"{name:16} {trials:>8,} {epochs:>8,} {cpu_s:>8.2f} {trials / cpu_s:>9,.0f} {epochs / cpu_s:>9,.0f}")
    return trials / cpu_s, epochs / cpu_s


def ten_thousand_trials(repetitions: int) -> Figure:
    wall_s = median(simulate_synthetic(10_000).wall_s for _ in range(repetitions))
    print(f"\nASHA, 10,000 trials with stragglers: {wall_s:.2f} s (wall clock, median of {repetitions})")
    return Figure("sim_10k_asha_seconds", round(wall_s, 2), None, None, "< 5", wall_s < 5)


def flatness(many: int) -> Figure:
    short: list[Timing] = []
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        turns = count(1)

        def now_and_then(record: Record) -> None:
            if next(turns) % TURNS_BETWEEN_SHORT_RUNS == 0:  # waiting for them costs no CPU time here
                short.append(pool.submit(simulate_synthetic, 1000).result())

        many_s = simulate_synthetic(many, [now_and_then]).cpu_s_per_report
    # The mean, not the median: slow moments of the machine are in the long run too.
    few_s = fmean(timing.cpu_s_per_report for timing in short)
    ratio = many_s / few_s
    print(
        f"\nCPU time per report: {few_s * 1e6:.1f} us with 1,000 trials (mean of {len(short)}), "
        f"{many_s * 1e6:.1f} us with {many:,}: {ratio:.2f} times as much"
    )
    return Figure("sim_flatness", round(ratio, 2), None, None, "<= 1.3", ratio <= 1.3)


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    if quick:
        print("--quick: fewer repetitions, and flatness at 30,000 trials instead of 100,000")
    figures = [
        against_syne_tune(trials=1000, repetitions=3 if quick else 5),
        ten_thousand_trials(repetitions=3 if quick else 5),
        flatness(many=30_000 if quick else 100_000),
    ]
    print_figures(figures)


if __name__ == "__main__":
    main()
