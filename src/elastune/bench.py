"""Compares algorithms on simulated clusters: the same experiment and the same seeds for all of them.

A run is the loop of `control/run.py` without its journal: nothing is written, and what was found is read from the
controller. Runs are spread over processes. All algorithms of a task and seed go to the same one: they begin with the
same configurations, and what the workload has looked up for one of them serves the others.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import cloudpickle

from elastune.algorithm.base import Algorithm
from elastune.allocate.planned import Planned
from elastune.control.controller import Controller
from elastune.errors import ElastuneError, Infeasible, RunFailed, SpecError, did_you_mean
from elastune.experiment import Experiment, plans_itself
from elastune.messages import RunEnded, RunStarted, Turn
from elastune.reporting.comparison import Row
from elastune.search import HPOAlgorithm, Searcher
from elastune.simulation import Simulation
from elastune.spec import require_int
from elastune.tuner import Tuner

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = ["Contest", "Entry", "Row", "compare"]

log = logging.getLogger("elastune")


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm that takes part. Without a searcher it gets that of the task, and without a number of machines
    too: one that rents as it likes may need to hold more at once than one that keeps all to the end.
    """

    algorithm: Algorithm
    searcher: str | Searcher | type[Searcher] | BaseSampler | HPOAlgorithm | type[HPOAlgorithm] | None = None
    machines: int | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """A task, and by their names those who take part. `fields` are arguments of `Tuner` that are the same for all of
    them: the space, the metric, the deadline, the machines, ...
    """

    task: str
    fields: Mapping[str, Any]
    simulation: Simulation
    entries: Mapping[str, Entry]

    def experiment(self, algorithm: str, seed: int) -> Experiment:
        entry = self.entries[algorithm]
        searcher = self.fields.get("searcher") if entry.searcher is None else entry.searcher
        fields = {**self.fields, "algorithm": entry.algorithm, "searcher": searcher, "seed": seed}
        if entry.machines is not None:
            fields["machines"] = entry.machines
        if (
            fields.get("planning") is not None
            and not plans_itself(entry.algorithm)
            and entry.algorithm.stages() is None
        ):
            profile, (cloud, *_) = fields.pop("planning").load()  # nothing to plan, but the machines are the same
            fields |= {"devices": cloud.devices, "price": cloud.price_usd_per_hour / cloud.devices}
            return replace(Tuner(None, **fields).experiment, profile=profile, cloud=cloud)
        return Tuner(None, **fields).experiment

    def only(self, names: Sequence[str]) -> Contest:
        """The same with some of the algorithms."""
        for name in names:
            if name not in self.entries:
                raise SpecError(
                    f"algorithms={name!r}: {self.task} has no such algorithm; {did_you_mean(name, self.entries)}"
                )
        return replace(self, entries={name: entry for name, entry in self.entries.items() if name in names})

    def check(self, seed: int) -> None:
        """Refuse what cannot be before anything runs."""
        if self.fields.get("deadline") is None:
            raise SpecError(f"{self.task}: deadline is missing: algorithms are compared by what they find until then")
        if not self.entries:
            raise SpecError(f"{self.task}: has no algorithms: there is nothing to compare")
        for algorithm in self.entries:
            try:
                experiment = self.experiment(algorithm, seed)
                self.simulation.check(experiment)
                if isinstance(experiment.allocator, Planned):
                    experiment.allocator.prepare()
            except ElastuneError as error:
                raise type(error)(f"{self.task}: {algorithm}: {error}") from None

    def fitting(self, seed: int) -> tuple[Contest, list[str]]:
        """The same without the algorithms for which a limit is too small, and why each is left out. If it is too small
        for all of them, that is an error.
        """
        reasons: dict[str, str] = {}
        for name in self.entries:
            try:
                with _without_warnings():  # they are given when the others are checked
                    self.only([name]).check(seed)
            except Infeasible as error:
                reasons[name] = str(error)
        if len(reasons) == len(self.entries):
            self.check(seed)
        return self.only([name for name in self.entries if name not in reasons]), list(reasons.values())


def compare(
    contests: Sequence[Contest],
    seeds: Sequence[int],
    jobs: int | None = None,
    done: Callable[[int], None] = lambda runs: None,
) -> list[Row]:
    """A row for every task, seed and algorithm, in this order. `jobs`: how many processes, by default as many as there
    are processors. `done` is told how many more runs are over.
    """
    for contest in contests:
        contest.check(next(iter(seeds), 0))
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    require_int("jobs", jobs, 1)
    shares = [(number, seed) for number in range(len(contests)) for seed in seeds]
    rows: list[Row] = []
    for found in _spread(contests, shares, min(jobs, len(shares))):
        rows += found
        done(len(found))
    return rows


Share = tuple[int, int]
"""What a process does without a break: the number of a contest, and a seed."""


def _spread(contests: Sequence[Contest], shares: Sequence[Share], jobs: int) -> Iterator[list[Row]]:
    if jobs <= 1:
        for number, seed in shares:
            yield _run_all(contests[number], seed)
        return
    # New processes, not forks: libraries in this one may have threads.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (cloudpickle.dumps(tuple(contests)),)) as pool:
        try:
            yield from pool.map(_run_share, shares)
        except BrokenProcessPool:
            raise RunFailed(
                "a process of the comparison died: give fewer jobs if there is too little memory, and in a script call "
                'compare() below `if __name__ == "__main__":`'
            ) from None


_contests: tuple[Contest, ...] = ()
"""In a process of the pool: sent once, so that what is dear to build (tables, models) is built once."""


def _begin(contests: bytes) -> None:
    global _contests
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears it too, and sends no more shares
    _contests = cloudpickle.loads(contests)


def _run_share(share: Share) -> list[Row]:
    return _run_all(_contests[share[0]], share[1])


def _run_all(contest: Contest, seed: int) -> list[Row]:
    return [run(contest, algorithm, seed) for algorithm in contest.entries]


def run(contest: Contest, algorithm: str, seed: int) -> Row:
    """One run. What goes wrong in it is said with the names of the algorithm and the seed."""
    try:
        with _without_warnings():  # they were given when the contest was checked
            experiment = contest.experiment(algorithm, seed)
        controller, at_s, ended = _play(experiment, contest.simulation)
        begun = [trial for trial in controller.trials.values() if trial.attempt]
        too_slow = bool(begun) and all(trial.loss is None and trial.status != "failed" for trial in begun)
        if ended.status == "failed" and not too_slow:
            raise RunFailed(ended.reason)
    except Exception as error:
        known = isinstance(error, ElastuneError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        kind = type(error) if isinstance(error, ElastuneError) else RunFailed
        raise kind(f"{contest.task}: {algorithm} with seed {seed}: {text}") from error
    settings = experiment.settings
    losses = [trial.best_loss for trial in begun if trial.best_loss is not None]
    assert settings.limits.deadline_s is not None
    return Row(
        task=contest.task,
        algorithm=algorithm,
        seed=seed,
        value=None if not losses else min(losses) if settings.mode == "min" else -min(losses),
        time_s=at_s,
        deadline_s=settings.limits.deadline_s,
        cost_usd=controller.fleet.spending.spent_usd(at_s),
        budget_usd=settings.limits.budget_usd,
        device_s=controller.fleet.spending.spent_device_s(at_s),
        budget_device_s=settings.limits.budget_device_s,
        trials=len(begun),
        iterations=sum(trial.iteration for trial in begun),
    )


def _play(experiment: Experiment, simulation: Simulation) -> tuple[Controller, float, RunEnded]:
    """A whole run: the controller afterwards, when it was over, and how."""
    controller, cluster = experiment.controller(), simulation.cluster(experiment, 0.0)
    settings, limits = experiment.settings, experiment.settings.limits
    price = settings.price_usd_per_device_hour
    whose = (settings.name, settings.metric, settings.mode, experiment.seed)
    turn = Turn(0.0, (RunStarted(*whose, limits.deadline_s, limits.budget_usd, price, 0.0, {}, {}),))
    while not controller.done:
        step = controller.handle(turn)
        cluster.submit(step.commands)
        if not controller.done:
            turn = cluster.poll(controller.wake_s)
    (ended,) = (decision for decision in step.decisions if isinstance(decision, RunEnded))
    return controller, turn.at_s, ended


@contextmanager
def _without_warnings() -> Iterator[None]:
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
