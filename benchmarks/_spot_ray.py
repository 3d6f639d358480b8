"""Trials on a real local Ray whose spot machines are taken away again and again, with and without notice.

The same experiment is run again and again, on up to two machines of one slot: in a market that is quiet; in one in
which machines are taken away with notice, and refunded; and in the same one without notice. A market is played 120
times as fast, so that a minute is two hours of it. Training sleeps, and is chaotic: a wrong restore shows in every loss
after.

Read from the journals: every iteration of every trial must have been counted once, with the loss that it has without
any revocation, and the same trial must win. What was trained again is at most what was trained since the last
checkpoint, and only where there was no notice.

    python benchmarks/_spot_ray.py [--quick]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from _figures import Figure, print_figures

import elastune as et
from elastune import messages as m
from elastune.market.prices import Prices, PriceSeries
from elastune.provider import machine as keeper
from elastune.record.journal import SqlJournal
from elastune.results import Result

PACE = 120.0
BEGIN_UNIX_S = 1_460_000_000.0
LASTS_S = 300.0
MARKET, MACHINES = "a/z", 2
STEP_S, CHECKPOINT_EVERY_S = 0.2, 1.0
NOTICE_S = 3.0
SPIKES_EVERY_S, SPIKE_S, CHANGES_EVERY_S = (15.0, 21.0), 0.2, 8.0
"""In the time of the run. A spike is shorter than the time between two looks at the price, and takes all machines;
other changes take those for which little more than the price was offered."""


def train(config: Mapping[str, Any]) -> None:
    done, state = et.get_checkpoint() or (0, config["x"])
    while True:
        time.sleep(STEP_S)
        done, state = done + 1, 4 * state * (1 - state)  # chaotic: one wrong step would show
        et.report({"loss": state + 10 / done, "done": done}, checkpoint=lambda: (done, state))  # noqa: B023


def prices(seed: int | None) -> Prices:
    """Of a quiet market, or of one whose price changes all the time and is very high at times."""
    changes = {-24 * 3600.0 / PACE: 0.2, LASTS_S: 0.2}
    if seed is not None:
        rng = np.random.default_rng(seed)
        changes |= {float(at_s): 0.2 + 0.02 * rng.random() for at_s in np.arange(0.0, LASTS_S, CHANGES_EVERY_S)}
        spikes = np.cumsum(rng.uniform(*SPIKES_EVERY_S, int(LASTS_S / SPIKES_EVERY_S[1])))
        changes |= {float(at_s): 1.0 for at_s in spikes} | {float(at_s + SPIKE_S): 0.2 for at_s in spikes}
    at_s, usd = zip(*sorted(changes.items()), strict=True)
    return Prices({MARKET: PriceSeries(MARKET, BEGIN_UNIX_S + PACE * np.array(at_s), np.array(usd))})


def tune(folder: Path, name: str, seed: int | None, notice_s: float, refund: bool, quick: bool) -> Result:
    tuner = et.Tuner(
        train,
        space={"x": et.uniform(0.01, 0.99)},
        metric="loss",
        algorithm=et.SuccessiveHalving(n=4, r=60, R=120, eta=2) if quick else et.SuccessiveHalving(6, 80, 240, 3),
        name=name,
        storage=folder,
        machines=MACHINES,
        market=et.Spot(
            types={MARKET: {"price": 2.0}},
            prices=prices(seed),
            begin=datetime.fromtimestamp(BEGIN_UNIX_S, UTC),
            revocation=None,
            notice=notice_s * PACE,
            refund=refund,
            boot=0,
            pace=PACE,
        ),
        checkpoint_every=CHECKPOINT_EVERY_S,
        max_retries=0,  # being taken away is no failed try
        seed=3,
    )
    result = tuner.fit(progress=False)
    if result.status == "interrupted":  # by who runs this: it says nothing
        sys.exit(130)
    return result


@dataclass
class Course:
    """What the journal of a run tells."""

    counted: dict[str, list[tuple[int, m.Scalar]]] = field(default_factory=dict)
    """By trial: the iterations that the algorithm was told of, with their losses, in that order."""
    hit: set[str] = field(default_factory=set)
    """Machines on which a trial was when their notice came, or when they went."""
    noticed: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    """Machines that went for other reasons, and why."""
    retrained: int = 0
    at_risk: list[int] = field(default_factory=list)
    """How much a trial had trained since its last checkpoint when its machine was taken away."""
    _node: dict[str, str] = field(default_factory=dict)
    _reached: dict[str, int] = field(default_factory=dict)
    _saved: dict[str, int] = field(default_factory=dict)

    def feed(self, record: m.Record) -> None:
        hidden = {each.index: each.reason for each in record.decisions if isinstance(each, m.EventHidden)}
        for index, event in enumerate(record.events):
            self._happened(event, hidden.get(index))
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                begin = 0 if command.checkpoint is None else command.checkpoint.iteration
                self._node[command.trial] = command.slots[0].node
                self._reached[command.trial] = self._saved[command.trial] = begin

    def _happened(self, event: m.AnyEvent, hidden: str | None) -> None:
        match event:
            case m.TrialReported():
                self._reached[event.trial] = event.iteration
                self.retrained += hidden == "retrained"
                if hidden is None:
                    self.counted.setdefault(event.trial, []).append((event.iteration, event.metrics["loss"]))
            case m.TrialCheckpointed():
                self._saved[event.trial] = event.checkpoint.iteration
            case m.TrialPaused() | m.TrialReturned():
                self._node.pop(event.trial, None)
            case m.NodeNotice():
                self.noticed.add(event.node)
                self.hit |= {event.node} & set(self._node.values())
            case m.NodeLost():
                if event.revoked:
                    self.revoked.add(event.node)
                    self.hit |= {event.node} & set(self._node.values())
                else:
                    self.lost.append(f"{event.node}: {event.reason}")
                fallen = [trial for trial, node in self._node.items() if node == event.node]
                self.at_risk += [self._reached[trial] - self._saved[trial] for trial in fallen]
                for trial in fallen:
                    del self._node[trial]


def course_of(run: Path) -> Course:
    journal, course = SqlJournal(run / "journal.db", run.name, must_exist=True), Course()
    try:
        for body in journal.read():
            course.feed(m.decode_record(body))
    finally:
        journal.close()
    return course


def wrong_refunds(result: Result) -> list[str]:
    """Machines that cost something although they were taken away in time, or nothing although they were not."""
    return [
        f"{use.node}: ${use.cost_usd:.6f} for {use.to_s - use.from_s:.2f} s, refunded before {use.refund_s:.2f} s"
        for use in result.view.machines
        if (use.cost_usd == 0.0) != (use.revoked and use.to_s - use.from_s < use.refund_s)
    ]


def left_behind(run: Path) -> list[str]:
    orders = [keeper.read(path, keeper.Order) for path in (run / "machines").glob("*/order.json")]
    pids = keeper.processes({order.mark for order in orders if order is not None})
    return [f"{pid} {keeper.program(pid)}" for pid in sorted(pids)]


@dataclass(frozen=True)
class Compared:
    """A run against the undisturbed one. Revocations are those of machines on which a trial was."""

    revocations: int
    lost_iterations: int
    counted_twice: int
    other_losses: int
    same_winner: bool
    retrained: int
    at_risk: int
    overhead: float


def number_of(trial: str) -> str:
    return m.trial_number(trial)


def compare(result: Result, course: Course, calm: Result, undisturbed: Course) -> Compared:
    lost = twice = other = 0
    theirs = {number_of(trial): reports for trial, reports in undisturbed.counted.items()}
    ours = {number_of(trial): reports for trial, reports in course.counted.items()}
    for trial in theirs.keys() | ours.keys():
        wanted, found = theirs.get(trial, []), ours.get(trial, [])
        times = Counter(iteration for iteration, _ in found)
        lost += len({iteration for iteration, _ in wanted} - times.keys())
        twice += sum(count - 1 for count in times.values())
        other += found != wanted
    best = (number_of(result.best_trial.id), result.best_value, result.status)
    return Compared(
        len(course.hit),
        lost,
        twice,
        other,
        best == (number_of(calm.best_trial.id), calm.best_value, calm.status),
        course.retrained,
        sum(course.at_risk),
        result.view.at_s / calm.view.at_s,
    )


def study(folder: Path, quick: bool, enough: int) -> dict[str, list[Compared]]:
    """With ever new prices until there were enough revocations."""
    calm = tune(folder, "calm", None, NOTICE_S, False, quick)
    undisturbed = course_of(folder / "calm")
    iterations = sum(map(len, undisturbed.counted.values()))
    print(f"undisturbed: {calm.status}, {iterations} iterations in {calm.view.at_s:.1f} s")
    found: dict[str, list[Compared]] = {"noticed": [], "unannounced": []}
    for seed in count(1):
        for name, notice_s, refund in (("noticed", NOTICE_S, True), ("unannounced", 0.0, False)):
            run = f"{name}-{seed}"
            result = tune(folder, run, seed, notice_s, refund, quick)
            course = course_of(folder / run)
            found[name].append(compare(result, course, calm, undisturbed))
            show(run, result, course, found[name][-1])
            if problems := [*wrong_refunds(result), *course.lost, *left_behind(folder / run)]:
                sys.exit("\n".join(problems))
        if sum(run.revocations for runs in found.values() for run in runs) >= enough:
            break
    return found


def show(run: str, result: Result, course: Course, compared: Compared) -> None:
    uses = result.view.machines
    refunded = sum(use.cost_usd == 0 for use in uses)
    print(f"{run}: {compared}")
    print(f"  {len(uses)} machines: {len(course.noticed)} told, {len(course.revoked)} taken, {refunded} refunded")
    print(f"  at most {max(course.at_risk, default=0)} iterations at risk, ${result.view.cost_usd():.4f}", flush=True)


def figures(found: Mapping[str, list[Compared]], enough: int) -> list[Figure]:
    runs = [run for each in found.values() for run in each]
    revocations = sum(run.revocations for run in runs)
    lost, twice = sum(run.lost_iterations for run in runs), sum(run.counted_twice for run in runs)
    same = all(run.same_winner and not run.other_losses for run in runs)
    told = sum(run.retrained for run in found["noticed"])
    again, at_risk, untold = (
        sum(getattr(run, name) for run in found["unannounced"]) for name in ("retrained", "at_risk", "revocations")
    )
    return [
        Figure("revocations", revocations, None, None, f">= {enough}", revocations >= enough),
        Figure("lost_iterations", lost, None, None, "0", lost == 0),
        Figure("counted_twice", twice, None, None, "0", twice == 0),
        Figure("same_winner", float(same), None, None, "1", same),
        Figure("retrained_with_notice", told, None, None, "0", told == 0),
        Figure(
            "retrained_per_unannounced_revocation",
            again / max(1, untold),
            at_risk / max(1, untold),
            None,
            "no more than since the last checkpoint",
            again <= at_risk,
        ),
        *(
            Figure(f"overhead_{name}", mean, 1.0, mean, "printed", True)
            for name, each in found.items()
            for mean in [fmean(run.overhead for run in each)]
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter trials, and fewer revocations")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as place:
        enough = 6 if quick else 30
        result = figures(study(Path(place), quick, enough), enough)
    print_figures(result)
    sys.exit(0 if all(figure.met for figure in result) else 1)


if __name__ == "__main__":
    main()
