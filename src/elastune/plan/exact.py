"""The least expected cost for every deadline at once.

Stages meet at barriers, so expected time and cost add up over stages and over the moves between numbers of machines: a
dynamic programme over (stage, machines held) finds every plan that no other one beats in both. A label is a way to
get there: its time, its cost so far, and the ages of its machines, because the minimum charge does not add up: a
machine that is given back young still costs the rest of it. The oldest are given back first, which is never dearer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as replace_in
from numpy.typing import NDArray

from elastune.cost import SECONDS_PER_HOUR
from elastune.messages import PlannedStage
from elastune.plan.estimate import ask_ahead_s, estimate
from elastune.plan.model import Candidate, Job, Plan, allocations, machines_for, width_of
from elastune.profile.latency import Floats

ALL_COUNTS = 24
"""With no more machines than that every number of them is tried; with more, the numbers that some allocation needs."""

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to run a stage. `done_s` is when its machines are expected to be done, the soonest first."""

    devices: int
    machines: int
    end_s: Floats
    done_s: Floats
    busy_usd: float

    @property
    def stage_s(self) -> float:
        return float(self.done_s[-1])

    def beats(self, other: _Option) -> bool:
        """As good in every respect, for any number of machines that holds both."""
        if self.machines > other.machines or self.busy_usd > other.busy_usd:
            return False
        idle = np.zeros(other.machines - self.machines)
        return bool((np.hstack([idle, self.done_s]) <= other.done_s).all())


@dataclass(frozen=True, slots=True)
class _Labels:
    """All ways to begin a stage with a number of machines, one in each row, the soonest first.

    `age_s` has what each machine has been paid for, the oldest first; None where none can be given back too young any
    more. `edge` and `row` say whence: over which of `edges`, from which row of its labels.
    """

    time_s: Floats
    cost_usd: Floats
    age_s: Floats | None
    edges: tuple[_Edge, ...]
    edge: Rows
    row: Rows


@dataclass(frozen=True, slots=True)
class _Edge:
    """From some labels through a stage and on to the next with `released` machines less or `added` more."""

    labels: _Labels
    held: int
    option: _Option
    ask_s: float | None
    time_s: Floats
    cost_usd: Floats
    released: int
    held_s: float
    added: int = 0
    added_s: float = 0.0

    def age_s(self, rows: Rows) -> Floats:
        """At most infinity: that of a machine which is old enough."""
        before = self.labels.age_s
        kept = np.full((len(rows), self.held), np.inf) if before is None else before[rows] + self.held_s
        return np.hstack([kept[:, self.released :], np.full((len(rows), self.added), self.added_s)])


class _Search:
    def __init__(self, job: Job, early_release: bool, boot_ahead: bool, risk: float) -> None:
        self._job, self._early_release, self._boot_ahead, self._risk = job, early_release, boot_ahead, risk
        cloud = job.cloud
        per_instance = cloud.billing == "instance"
        self._rate = cloud.price_usd_per_hour / SECONDS_PER_HOUR if per_instance else 0.0
        """Of a machine that is held, in dollars per second."""
        self._options = [self._undominated_options(number) for number in range(len(job.stages))]
        needs = {option.machines for options in self._options for option in options}
        needs |= {len(job.held_s), len(job.held_s) + len(job.asked_s)} - {0}
        self._counts = list(range(1, max(needs) + 1)) if max(needs) <= ALL_COUNTS else sorted(needs)

    def _undominated_options(self, number: int) -> list[_Option]:
        job, stage = self._job, self._job.stages[number]
        found = []
        for devices in allocations(stage.trials, job.cloud.devices, job.machines):
            ends_s, machines = job.ends_s(number, devices), machines_for(stage.trials, devices, job.cloud.devices)
            busy_usd = 0.0 if self._rate else float(job.busy_usd(number, width_of(stage.trials, devices)).mean())
            found.append(_Option(devices, machines, ends_s[:, -1], ends_s.mean(axis=0), busy_usd))
        found.sort(key=lambda option: (option.machines, option.stage_s))
        kept: list[_Option] = []
        for option in found:
            if not any(other.beats(option) for other in kept):
                kept.append(option)
        return kept

    def run(self) -> list[Candidate]:
        nodes = self._beginnings()
        for number in range(len(self._job.stages)):
            nodes = self._through(number, nodes)
        end = nodes[0]
        return [
            Candidate(float(end.time_s[row]), float(end.cost_usd[row]), self._plan(end, row))
            for row in range(len(end.time_s))
        ]

    def _beginnings(self) -> dict[int, _Labels]:
        """From the machines that are there, if any: the oldest are given back, or others are awaited or asked for."""
        job, nodes, none = self._job, {}, np.zeros(1, np.intp)
        ages = np.array([job.held_s])
        for count in self._machines_before(0):
            added, released = count - len(job.held_s), len(job.held_s) - count
            if added > 0:
                begin_s, added_s = self._first_machines(added)
                time_s, held_s = self._weigh(begin_s), float(begin_s.mean())
                age_s = -np.sort(-np.hstack([ages + held_s, added_s]), axis=1)
                cost_usd = self._rate * (len(job.held_s) * held_s + added_s.sum()) + added * job.cloud.data_usd
            else:
                time_s, age_s = 0.0, ages[:, released:]
                cost_usd = self._rate * float(np.maximum(job.cloud.minimum_s - ages[:, :released], 0.0).sum())
            if job.asked_s:
                cost_usd += float(job.done_without_usd(min(max(added, 0), len(job.asked_s))).mean())
            nodes[count] = _Labels(np.array([time_s]), np.array([cost_usd]), age_s, (), none, none)
        return nodes

    def _first_machines(self, added: int) -> tuple[Floats, Floats]:
        """When the first stage can begin with so many more machines, and what each is then expected to be paid for."""
        job, awaited = self._job, min(added, len(self._job.asked_s))
        begin_s, paid_from_s = np.zeros(job.draws), np.zeros((job.draws, 0))
        if awaited:
            begin_s, paid_from_s = job.awaited(awaited)
        if added > awaited:
            begin_s = np.maximum(begin_s, job.request_s[0] + job.boot_s[0][:, added - awaited - 1])
        new = np.repeat(job.request_s[0][:, None], added - awaited, axis=1)
        return begin_s, (begin_s[:, None] - np.hstack([paid_from_s, new])).mean(axis=0)[None]

    def _machines_before(self, number: int) -> list[int]:
        """The numbers of machines to begin a stage with; after the last there are none."""
        if number == len(self._job.stages):
            return [0]
        least = min(option.machines for option in self._options[number])
        return [count for count in self._counts if count >= least]

    # ----------------------------------------------------------------------------------------------- through one stage

    def _through(self, number: int, nodes: dict[int, _Labels]) -> dict[int, _Labels]:
        """Train a stage from every label, and go on with every number of machines.

        Machines that a stage has no use for are held only for a later one, so whoever gives some back afterwards held
        just what the stage needs; and whoever keeps them all, or adds to them, uses them as fast as they go. Only those
        that were asked for before may be waited for without need: they are paid for anyway, and others can go instead.
        """
        reached: dict[int, list[_Edge]] = {count: [] for count in self._machines_before(number + 1)}
        for held, labels in nodes.items():
            options = [option for option in self._options[number] if option.machines <= held]
            filling = [option for option in options if option.machines == held or (number == 0 and self._job.asked_s)]
            if self._rate:  # else speed may cost more, and holding machines does not
                options = [min(options, key=lambda option: option.stage_s)]
            for count, edges in reached.items():
                if count < held:
                    edges += [self._fewer(labels, held, option, count) for option in filling]
                elif count == held:
                    edges += [self._fewer(labels, held, option, count) for option in options]
                else:
                    edges += [edge for option in options for edge in self._more(number, labels, held, option, count)]
        return {count: self._best(number + 1, count, edges) for count, edges in reached.items() if edges}

    def _fewer(self, labels: _Labels, held: int, option: _Option, count: int) -> _Edge:
        """The oldest machines go, when they are done or at the barrier; the others go on."""
        minimum_s, released, stage_s = self._job.cloud.minimum_s, held - count, option.stage_s
        gone_s = np.full(released, stage_s)
        if self._early_release:
            gone_s = np.hstack([np.zeros(held - option.machines), option.done_s])[:released]
        cost_usd = labels.cost_usd + (self._rate * (float(gone_s.sum()) + count * stage_s) + option.busy_usd)
        if labels.age_s is not None and released:
            too_young_s = np.maximum(minimum_s - gone_s - labels.age_s[:, :released], 0.0)
            cost_usd += self._rate * too_young_s.sum(axis=1)
        time_s = labels.time_s + self._weigh(option.end_s)
        return _Edge(labels, held, option, None, time_s, cost_usd, released, stage_s)

    def _more(self, number: int, labels: _Labels, held: int, option: _Option, count: int) -> list[_Edge]:
        """More machines are asked for, at the barrier or ahead of it."""
        job, added = self._job, count - held
        request_s, boot_s = job.request_s[number + 1], job.boot_s[number + 1][:, added - 1]
        ahead_s = ask_ahead_s(job, number, option.devices, added) if self._boot_ahead else None
        edges = []
        for ask_s in (ahead_s, None) if ahead_s is not None else (None,):
            asked_s = option.end_s if ask_s is None else np.minimum(ask_s, option.end_s)
            begin_s = np.maximum(option.end_s, asked_s + request_s + boot_s)
            held_s, added_s = float(begin_s.mean()), float((begin_s - asked_s - request_s).mean())
            cost_usd = self._rate * (held * held_s + added * added_s) + added * job.cloud.data_usd + option.busy_usd
            more = (labels.time_s + self._weigh(begin_s), labels.cost_usd + cost_usd)
            edges.append(_Edge(labels, held, option, ask_s, *more, 0, held_s, added, added_s))
        return edges

    def _weigh(self, seconds: Floats) -> float:
        """Expected time, plus what its variance weighs."""
        return float(seconds.mean() + self._risk * seconds.var()) if self._risk else float(seconds.mean())

    # ---------------------------------------------------------------------------------------------------- which to keep

    def _best(self, number: int, count: int, edges: list[_Edge]) -> _Labels:
        """A label goes if another is no later and costs no more even if all its young machines had to be given back as
        soon as may be; of labels with the same ages only those stay that none beats in time and cost.
        """
        sizes = [len(edge.time_s) for edge in edges]
        time_s = np.concatenate([edge.time_s for edge in edges])
        cost_usd = np.concatenate([edge.cost_usd for edge in edges])
        order = np.argsort(time_s, kind="stable")
        young_s = self._job.cloud.minimum_s - self._least_s(number, count)
        """Whoever is younger than that when the stage begins may cost the rest of the minimum."""
        owed_usd = [self._rate * _owed_s(edge, young_s) for edge in edges]
        if any(owed.any() for owed in owed_usd):
            at_worst_usd = np.minimum.accumulate((cost_usd + np.concatenate(owed_usd))[order])
            order = order[np.concatenate([[True], cost_usd[order][1:] < at_worst_usd[:-1]])]
        else:
            order = order[_falling(cost_usd[order])]
        edge = np.repeat(np.arange(len(edges)), sizes)[order]
        row = order - np.concatenate([[0], np.cumsum(sizes)])[edge]
        age_s = self._ages(edges, edge, row, count, young_s)
        labels = _Labels(time_s[order], cost_usd[order], age_s, tuple(edges), edge, row)
        return labels if age_s is None else _best_by_age(labels, age_s)

    def _least_s(self, number: int, count: int) -> float:
        """The least time that any of so many machines is held in a stage before it is given back."""
        if not count:
            return np.inf
        options = [option for option in self._options[number] if option.machines <= count]
        first_s = [float(option.done_s[0]) for option in options if option.machines == count and self._early_release]
        return min([*first_s, *(option.stage_s for option in options)])

    def _ages(self, edges: list[_Edge], edge: Rows, row: Rows, count: int, young_s: float) -> Floats | None:
        if young_s <= 0 or not self._rate:
            return None
        age_s = np.full((len(edge), count), np.inf)
        for number in np.unique(edge):
            chosen = np.flatnonzero(edge == number)
            if edges[number].added or edges[number].labels.age_s is not None:
                age_s[chosen] = edges[number].age_s(row[chosen])
        age_s[age_s >= young_s] = np.inf
        return None if np.isinf(age_s).all() else age_s

    # -------------------------------------------------------------------------------------------------- and back again

    def _plan(self, labels: _Labels, row: int) -> Plan:
        stages: list[PlannedStage] = []
        for stage in reversed(self._job.stages):
            edge, row = labels.edges[labels.edge[row]], int(labels.row[row])
            if stages and edge.ask_s is not None:
                stages[-1] = replace_in(stages[-1], ask_s=edge.ask_s)
            stages.append(PlannedStage(stage.trials, stage.iterations, edge.option.devices, edge.held))
            labels = edge.labels
        return Plan(tuple(reversed(stages)), self._early_release)


def _owed_s(edge: _Edge, young_s: float) -> Floats:
    """What may still have to be paid for machines that are too young, at most."""
    owed = np.full(len(edge.time_s), edge.added * max(0.0, young_s - edge.added_s))
    if edge.labels.age_s is not None and young_s > edge.held_s:
        kept = edge.labels.age_s[:, edge.released :]
        owed += np.maximum(young_s - edge.held_s - kept, 0.0).sum(axis=1)
    return owed


def _best_by_age(labels: _Labels, age_s: Floats) -> _Labels:
    _, group = np.unique(age_s.round(6), axis=0, return_inverse=True)
    by_group = np.argsort(group, kind="stable")
    borders = np.flatnonzero(np.diff(group[by_group])) + 1
    kept = np.sort(np.concatenate([rows[_falling(labels.cost_usd[rows])] for rows in np.split(by_group, borders)]))
    return replace(
        labels,
        time_s=labels.time_s[kept],
        cost_usd=labels.cost_usd[kept],
        age_s=age_s[kept],
        edge=labels.edge[kept],
        row=labels.row[kept],
    )


def _falling(cost_usd: Floats) -> NDArray[np.bool_]:
    """Where, in order of time, the cost is less than ever before."""
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(cost_usd)[:-1]])
    return cost_usd < least_before


def frontier(job: Job, *, early_release: bool = True, boot_ahead: bool = True, risk: float = 0.0) -> list[Candidate]:
    """Every plan that none beats in both, the soonest first. With `risk` the variance of the time weighs too, by so
    much per second: then `time_s` is the sum.
    """
    found = _Search(job, early_release, boot_ahead, risk).run()
    if not job.varies or not job.cloud.minimum_s:
        return found
    # The search takes the minimum charge on expected ages, which is less than is expected to be charged.
    priced = [replace(candidate, cost_usd=estimate(job, candidate.plan).mean_usd) for candidate in found]
    kept = _falling(np.array([candidate.cost_usd for candidate in priced]))
    return [candidate for candidate, is_kept in zip(priced, kept, strict=True) if is_kept]
