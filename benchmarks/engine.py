"""How fast trials start, report and are resized on real workers, next to Ray Tune on the same two CPUs of one Ray.

`trials_per_second_vs_ray_tune`: trials that report once, on two slots. Ours are timed by the journal: from the command
that starts the first to the last report. Ray Tune's are timed by callbacks: from the start of the first trial to the
last result; what it prepares before that does not count.

`reports_per_second_vs_ray_tune`: trials that report 100 times and do nothing else, timed in the same way.

`resize_ms`, `resize_vs_ray_tune`, `resize_vs_restart`: a small network in torch goes from one worker to two and back
while it trains. Ours is timed from sending the command to the first report of the new width; Ray Tune with its
ResourceChangingScheduler from the last result before a change to the first one after it; a restart of plain actors from
before the checkpoint to the first step of the new ones. The time of one step is taken off each of them.

`warm_start_ms`: from sending the command that starts a trial in a warm process to its first report; for Ray Tune, from
when its actor is reset, which comes a message later. The whole way from the end of one trial to the first report of the
next, with the decision and the journal, is printed beside it.

Ours and the peers take turns, and medians are compared. Where Ray Tune has several settings that may be the fastest,
all are measured, and the fastest counts. Needs `pip install "elastune[bench]"`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import _ray_tune
import cloudpickle
import ray
from _figures import Figure, print_figures
from _measured import Resizes, Throughput, driver_cpu_s

import elastune as et
from elastune import messages as m
from elastune.cluster.ray import RayCluster
from elastune.provider import Here
from elastune.record.checkpoints import CheckpointStore
from elastune.record.journal import SqlJournal
from elastune.worker.setup import WorkerSetup

SLOTS = (m.Slot("n0", 0), m.Slot("n0", 1))
REPORTS = 100
STEPS = 20
"""Between two changes of width."""

# ------------------------------------------------------------------------------------------------------------- ours


def throughput(trials: int, reports: int, devices: int = 2) -> Throughput:
    def train(config: Mapping[str, Any]) -> None:
        for _ in range(reports):
            et.report({"loss": config["x"]})

    with TemporaryDirectory() as folder:
        tuner = et.Tuner(
            train,
            space={"x": et.uniform(0, 1)},
            metric="loss",
            algorithm=et.FIFO(n=trials, R=reports),
            machines=1,
            devices=devices,
            storage=folder,
        )
        begin_s, cpu_s = time.perf_counter(), driver_cpu_s()
        result = tuner.fit(progress=False)
        fit_s, cpu_s = time.perf_counter() - begin_s, driver_cpu_s() - cpu_s
        records = list(read(result.path))
    started_s = next(r.at_s for r in records for command in r.commands if isinstance(command, m.StartTrial))
    reported = [(r.at_s, event.iteration) for r in records for event in r.events if isinstance(event, m.TrialReported)]
    assert len(reported) == trials * reports, "every report must have arrived"
    first_s, ends_s = ([at_s for at_s, iteration in reported if iteration == which] for which in (1, reports))
    return Throughput(
        trials=sum(trial.status == "completed" for trial in result.view.trials.values()),
        reports=len(reported),
        span_s=reported[-1][0] - started_s,
        fit_s=fit_s,
        cpu_s=cpu_s,
        starts_ms=[1000 * (at_s - end_s) for end_s, at_s in zip(ends_s, first_s[1:], strict=False)],
    )


def read(run: Path) -> Iterator[m.Record]:
    journal = SqlJournal(run / "journal.db", run.name, must_exist=True)
    try:
        yield from map(m.decode_record, journal.read())
    finally:
        journal.close()


class Driver:
    """A cluster with one machine of two slots, driven by hand."""

    def __init__(self, trainable: Callable[[Mapping[str, Any]], None], folder: Path) -> None:
        store = CheckpointStore(str(folder / "saved"))
        setup = WorkerSetup(cloudpickle.dumps(trainable), tuple(sys.path), store, folder / "logs", 60.0, 0)
        self._cluster = RayCluster(setup, Here(2, 0.0))
        self._number = 0
        self._reports: list[tuple[float, m.TrialReported]] = []
        self._send(m.AddNode, "n0")
        while not any(isinstance(event, m.NodeReady) for event in self._cluster.poll(None).events):
            pass

    def start(self, trial: str, until: int | None) -> float:
        """On the first slot. Returns when the command was sent, as `resize` does."""
        return self._send(m.StartTrial, trial, 1, 0, {}, 0, None, until, True, SLOTS[:1])

    def resize(self, trial: str, width: int) -> float:
        return self._send(m.ResizeTrial, trial, 1, SLOTS[:width])

    def report(self) -> tuple[float, m.Metrics]:
        """The next one, and when it came."""
        while not self._reports:
            events, now_s = self._cluster.poll(None).events, time.perf_counter()
            for event in events:
                assert not isinstance(event, m.TrialFailed | m.TrialLost | m.NodeLost), event
                if isinstance(event, m.TrialReported):
                    self._reports.append((now_s, event))
        at_s, reported = self._reports.pop(0)
        return at_s, reported.metrics

    def close(self) -> None:
        self._cluster.close()

    def _send(self, command: Any, *fields: object) -> float:
        self._number += 1
        now_s = time.perf_counter()
        self._cluster.submit([command(self._number, *fields)])
        return now_s


@contextmanager
def drive(trainable: Callable[[Mapping[str, Any]], None]) -> Iterator[Driver]:
    with TemporaryDirectory() as folder:
        driver = Driver(trainable, Path(folder))
        try:
            yield driver
        finally:
            driver.close()


def train_elastic(config: Mapping[str, Any]) -> None:
    from _net import BATCH, BATCHES_PER_STEP, Training  # the driver does without torch
    from torch.nn.functional import cross_entropy

    training = Training()
    elastic = et.torch.Elastic(training.model, training.optimizer)
    data = elastic.batches(training.dataset, BATCH)
    while True:
        for batch in data:
            training.optimizer.zero_grad()
            loss = elastic.backward(lambda inputs, labels: cross_entropy(training.model(inputs), labels), batch)
            training.optimizer.step()
            if elastic.steps % BATCHES_PER_STEP == 0:
                et.report({"loss": loss, "width": et.get_context().world_size})


def train_nothing(config: Mapping[str, Any]) -> None:
    et.report({"loss": 1.0})


def import_torch(config: Mapping[str, Any]) -> None:
    import torch  # noqa: F401

    et.report({"loss": 1.0})


def resizes(changes: int, steps: int) -> Resizes:
    """One trial that changes between 1 and 2 workers after so many steps, once it has been on both slots."""
    measured, warm = Resizes(), 2
    with drive(train_elastic) as driver:
        driver.start("t", until=None)
        for stage in range(warm + changes + 1):
            width, seen = 1 + stage % 2, 0
            while seen < steps:
                at_s, metrics = driver.report()
                seen += metrics["width"] == width
                if stage > warm or (stage == warm and seen):
                    measured.steps.append((at_s, int(metrics["width"])))
            if stage < warm + changes:
                asked_s = driver.resize("t", 3 - width)
                if stage >= warm:
                    measured.asked_s.append(asked_s)
    return measured


def worker_start_ms(trials: int) -> float:
    """From sending the command to the report, without what the controller and the journal do in between."""
    with drive(train_nothing) as driver:
        started = [(driver.start(f"t{number}", until=1), driver.report()[0]) for number in range(trials)]
    return median(1000 * (reported_s - sent_s) for sent_s, reported_s in started)


def cold_start_ms() -> float:
    """From asking for the processes to the first report of a trial that imports torch."""
    begin_s = time.perf_counter()
    with drive(import_torch) as driver:
        driver.start("t", until=1)
        return 1000 * (driver.report()[0] - begin_s)


# ------------------------------------------------------------------------------------------------------ the figures

OURS, RAY_TUNE = "elastune", f"ray tune {ray.__version__}"


def throughputs(
    trials: int, peer_trials: int, reports: int, repetitions: int, settings: Mapping[str, Mapping[str, str]]
) -> dict[str, list[Throughput]]:
    runs: dict[str, list[Throughput]] = {name: [] for name in (OURS, *settings)}
    for _ in range(repetitions):
        runs[OURS].append(throughput(trials, reports))
        for name, environment in settings.items():
            runs[name].append(_ray_tune.throughput(peer_trials, reports, environment))
    print(f"{'':32} {'trials':>7} {'trials/s':>9} {'in all':>9} {'reports/s':>10} {'CPU us/report':>14}")
    for name, each in runs.items():
        print(
            f"{name:32} {each[0].trials:>7,} {median(run.trials_per_s for run in each):>9,.1f}"
            f" {median(run.trials / run.fit_s for run in each):>9,.1f}"
            f" {median(run.reports_per_s for run in each):>10,.0f}"
            f" {median(1e6 * run.cpu_s / run.reports for run in each):>14,.0f}"
        )
    return runs


def against_fastest(runs: Mapping[str, list[Throughput]], rate: Callable[[Throughput], float]) -> tuple[float, float]:
    """The median rate of ours, and that of the peer with the setting that gives it the highest."""
    rates = {name: median(map(rate, each)) for name, each in runs.items()}
    return rates.pop(OURS), max(rates.values())


def at_least(goal: float, name: str, ours: float, peer: float, ratio: float) -> Figure:
    return Figure(name, round(ours, 2), round(peer, 2), round(ratio, 1), f">= {goal:g}", ratio >= goal)


def trials_per_second(trials: int, peer_trials: int, repetitions: int) -> Figure:
    print(
        f"\nTrials that report once, on 2 slots, medians of {repetitions}; in all: with starting the workers and ending"
    )
    settings = {RAY_TUNE: {}, f"{RAY_TUNE}, few pending": _ray_tune.FEW_PENDING}
    runs = throughputs(trials, peer_trials, 1, repetitions, settings)
    ours, peer = against_fastest(runs, lambda run: run.trials_per_s)
    return at_least(10, "trials_per_second_vs_ray_tune", ours, peer, ours / peer)


def reports_per_second(trials: int, peer_trials: int, repetitions: int) -> Figure:
    print(f"\nTrials that report {REPORTS} times, on 2 slots, medians of {repetitions}")
    settings = {RAY_TUNE: {}, f"{RAY_TUNE}, buffered": _ray_tune.BUFFERED}
    runs = throughputs(trials, peer_trials, REPORTS, repetitions, settings)
    ours, peer = against_fastest(runs, lambda run: run.reports_per_s)
    return at_least(5, "reports_per_second_vs_ray_tune", ours, peer, ours / peer)


def resize(changes: int, repetitions: int) -> list[Figure]:
    kinds = {OURS: resizes, f"{RAY_TUNE}, ResourceChanging": _ray_tune.resizes, "restart": _ray_tune.restarts}
    runs: dict[str, list[Resizes]] = {name: [] for name in kinds}
    for _ in range(repetitions):
        for name, run in kinds.items():
            runs[name].append(run(changes, STEPS))
    print(f"\nA trial from 1 to 2 workers and back, {changes} changes, {repetitions} times")
    print(f"{'':32} {'median ms':>10} {'least':>9} {'most':>9} {'step of 1, ms':>14} {'of 2':>6}")
    medians = []
    for name, each in runs.items():
        took_ms = [ms for run in each for ms in run.took_ms()]
        steps_ms = [1000 * median(run.step_s(width) for run in each) for width in (1, 2)]
        medians.append(median(took_ms))
        print(
            f"{name:32} {medians[-1]:>10,.1f} {min(took_ms):>9,.1f} {max(took_ms):>9,.1f}"
            f" {steps_ms[0]:>14.1f} {steps_ms[1]:>6.1f}"
        )
    ours, changing, restart = medians
    return [
        Figure("resize_ms", round(ours, 1), None, None, "< 60", ours < 60),
        at_least(20, "resize_vs_ray_tune", ours, changing, changing / ours),
        at_least(20, "resize_vs_restart", ours, restart, restart / ours),
    ]


def warm_start(trials: int, repetitions: int) -> Figure:
    """Columns of ours and of the peer's: the whole way, the worker's part of it, and a cold process."""
    ours: list[tuple[float, float, float]] = []
    peers: list[tuple[float, float, float]] = []
    for _ in range(repetitions):
        whole_ms = median(throughput(trials, 1, devices=1).starts_ms)
        ours.append((whole_ms, worker_start_ms(trials), cold_start_ms()))
        # Who needs both CPUs is alone; the better one of the two settings counts.
        runs = [_ray_tune.throughput(trials, 1, setting, cpus=2) for setting in ({}, _ray_tune.FEW_PENDING)]
        whole_ms, worker_ms = (
            min(median(times) for times in each)
            for each in ([run.starts_ms for run in runs], [run.workers_ms for run in runs])
        )
        peers.append((whole_ms, worker_ms, _ray_tune.cold_start_ms()))
    print(f"\nThe start of a trial until its first report, one at a time, medians of {repetitions}")
    print(f"{'':32} {'warm, ms':>10} {'of the worker':>14} {'cold, with torch':>17}")
    medians = [[median(column) for column in zip(*rows, strict=True)] for rows in (ours, peers)]
    for name, (whole_ms, worker_ms, cold_ms) in zip((OURS, RAY_TUNE), medians, strict=True):
        print(f"{name:32} {whole_ms:>10,.2f} {worker_ms:>14,.2f} {cold_ms:>17,.0f}")
    (_, our_ms, _), (_, peer_ms, _) = medians
    return Figure(
        "warm_start_ms",
        round(our_ms, 2),
        round(peer_ms, 2),
        round(peer_ms / our_ms, 1),
        "< the peer's",
        our_ms < peer_ms,
    )


@contextmanager
def own_ray() -> Iterator[None]:
    """One for each section: where it has run other things before, Ray Tune waits for ever for the CPUs of a resize."""
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100_000_000,
    )
    try:
        yield
    finally:
        ray.shutdown()


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    if quick:
        print("--quick: fewer repetitions, fewer trials, and fewer of the peer's than of ours")
    logging.disable(logging.WARNING)
    figures: list[Figure] = []
    with own_ray():
        # Ray Tune is slower with more trials: these are as many in a quick run.
        figures.append(trials_per_second(1000, 1000, 2 if quick else 5))
    with own_ray():
        figures.append(reports_per_second(200, 20 if quick else 200, 3 if quick else 5))
    with own_ray():
        figures += resize(changes=4 if quick else 6, repetitions=1 if quick else 3)
    with own_ray():
        figures.append(warm_start(trials=30 if quick else 100, repetitions=1 if quick else 3))
    print_figures(figures)


if __name__ == "__main__":
    main()
