"""Drives an algorithm without controller and cluster: made-up histories, and what the algorithm answered."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from elastune.algorithm import Algorithm, Ended, Reported
from elastune.algorithm.base import TrialSource
from elastune.search import RandomSearcher
from elastune.space import Space, uniform
from elastune.spec import Run

Again = Callable[[Algorithm], Algorithm]


def keep(algorithm: Algorithm) -> Algorithm:
    return algorithm


def through_pickle(algorithm: Algorithm) -> Algorithm:
    copy: Algorithm = pickle.loads(pickle.dumps(algorithm))
    return copy


@dataclass
class History:
    """Everything an algorithm asked for, in order, and everything that happened. A run that was to pause before its
    end counts as asked for until where it did.
    """

    answers: list[object] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    at_s: float = 0.0


def ready(algorithm: Algorithm, searcher_seed: int = 0) -> Algorithm:
    searcher = RandomSearcher()
    searcher.setup(Space({"x": uniform(0, 1)}), "min", searcher_seed)
    algorithm.setup(TrialSource("t", searcher, searcher.space))
    return algorithm


def play(
    algorithm: Algorithm,
    *,
    seed: int,
    devices: int = 4,
    fail: float = 0.0,
    levels: int = 10**9,
    again: Again = keep,
) -> History:
    """A random but repeatable history until nobody asks for anything. Few `levels` of losses give many ties. More is
    not always asked for at once: several runs may have ended by then. Each report takes a second.

    After every call the algorithm is replaced by `again(algorithm)`.
    """
    rng = random.Random(seed)
    history = History()
    at: dict[str, int] = {}
    waiting: list[Run] = []
    running: list[Run] = []
    pausing: set[str] = set()

    def queue(groups: Iterable[tuple[Run, ...]]) -> None:
        for group in groups:
            history.runs.extend(group)
            waiting.extend(group)

    for _ in range(100_000):
        while len(running) + len(waiting) < devices and (not running or rng.random() < 0.7):
            groups = [group for group in algorithm.more(devices - len(running) - len(waiting), history.at_s) if group]
            algorithm = again(algorithm)
            history.answers.append(groups)
            if not groups:
                break
            queue(groups)
        while waiting and len(running) < devices:
            running.append(waiting.pop(0))
        if not running:
            return history
        history.at_s += 1.0
        run = running[rng.randrange(len(running))]
        iteration = at[run.trial] = at.get(run.trial, 0) + 1
        loss = rng.randrange(levels) / levels
        events: list[Reported | Ended] = [Reported(run.trial, iteration, loss)]
        if rng.random() < fail:  # it fails, or its function returns early
            events = [Ended(run.trial, iteration, rng.choice([None, loss]), over=True)]
        elif run.until is None and rng.random() < 0.3:  # its time is over, perhaps before it has reported
            events = [Ended(run.trial, 0, None)] if iteration == 1 else [*events, Ended(run.trial, iteration, loss)]
        elif iteration == run.until or run.trial in pausing:
            events.append(Ended(run.trial, iteration, loss))
        for event in events:
            if run not in running:  # stopped by the answer to the report
                break
            if isinstance(event, Ended):
                running.remove(run)
                if run.trial in pausing:
                    pausing.discard(run.trial)
                    final = run.final and iteration == run.until
                    place = history.runs.index(run)
                    history.runs[place] = msgspec.structs.replace(run, until=iteration, final=final)
                history.ends.append(event)
            actions = algorithm.on(event, history.at_s)
            algorithm = again(algorithm)
            history.answers.append(actions)
            queue(actions.groups)
            history.stopped.extend(actions.stops)
            pausing.update(actions.pauses)
            running = [run for run in running if run.trial not in actions.stops]
    raise AssertionError("the algorithm never comes to an end")
