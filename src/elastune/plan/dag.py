"""RubberBand's execution model (its Section 4.2): a plan as a graph of tasks that can be looked at and drawn.

In the paper's names: `to_dag` builds G from the specification E and the allocation plan a, stage by stage from the
frontier; `sample_duration` follows G in topological order; `simulate_duration` is the mean of n samples (Algorithm 1).
One node at a time, in plain Python: planners use `estimate`, which says the same of all samples at once.

Where a stage has fewer devices than trials, a queued trial hangs on the one that is done first if all take the same
time. Which one it is turns out when times are drawn: the device that is first free is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

import numpy as np

from elastune.plan.model import Job, Plan
from elastune.profile.latency import Latency


class Kind(StrEnum):
    SCALE = "SCALE"
    """One request for machines."""
    INIT_INSTANCE = "INIT_INSTANCE"
    """One of them boots, and its workers start."""
    TRAIN = "TRAIN"
    """One trial of a stage."""
    SYNC = "SYNC"
    """The barrier at the end of a stage."""


@dataclass(frozen=True, slots=True)
class Node:
    """A task that begins when all those it is `after` (places in the graph) are done.

    A SCALE ahead of its stage waits `delay_s` longer, but not for longer than the node `at_latest`.
    """

    kind: Kind
    stage: int
    after: tuple[int, ...]
    queued: bool = False
    delay_s: float = 0.0
    at_latest: int | None = None


@dataclass(frozen=True, slots=True)
class Dag:
    """`nodes` are in topological order; the last is the end of the job."""

    job: Job
    plan: Plan
    nodes: tuple[Node, ...]

    def count(self, kind: Kind) -> int:
        return sum(node.kind is kind for node in self.nodes)


def to_dag(job: Job, plan: Plan) -> Dag:
    """The graph from its beginning on. Machines that were asked for before it (`job.asked_s`) have no node: it is as if
    they were asked for anew, unlike in `estimate`.
    """
    nodes: list[Node] = []
    frontier: tuple[int, ...] = ()
    """What nothing hangs on yet."""
    began: tuple[int, ...] = ()
    """What the trials of the stage before waited for."""
    held = len(job.held_s)

    def add(*more: Node) -> tuple[int, ...]:
        nodes.extend(more)
        return tuple(range(len(nodes) - len(more), len(nodes)))

    for number, stage in enumerate(plan.stages):
        missing = stage.machines - held
        if missing > 0:
            scale = Node(Kind.SCALE, number, frontier)
            if number and stage.ask_s is not None:
                scale = Node(Kind.SCALE, number, began, delay_s=stage.ask_s, at_latest=frontier[0])
            machines = add(*[Node(Kind.INIT_INSTANCE, number, add(scale))] * missing)
            # At the barrier they follow it anyway; asked for ahead, they may be there before it.
            frontier = machines if scale.at_latest is None else frontier + machines
        side_by_side = min(stage.trials, stage.devices)
        trials = add(*[Node(Kind.TRAIN, number, frontier)] * side_by_side)
        for _ in range(stage.trials - side_by_side):
            trials += add(Node(Kind.TRAIN, number, (trials[-side_by_side],), queued=True))
        began, frontier = frontier, add(Node(Kind.SYNC, number, trials))
        held = stage.machines
    return Dag(job, plan, tuple(nodes))


def simulate_duration(dag: Dag, rng: np.random.Generator, samples: int) -> float:
    """The expected duration of a plan."""
    return sum(sample_duration(dag, rng) for _ in range(samples)) / samples


def sample_duration(dag: Dag, rng: np.random.Generator) -> float:
    done_s: list[float] = []
    after: tuple[int, ...] | None = None
    begin_s = 0.0
    free_s: list[float] = []
    """When the trials that hold the devices of this stage are done: a heap."""
    for node in dag.nodes:
        if node.queued:
            begin_s, after = heappop(free_s), None
        elif node.after is not after:  # nodes that stand side by side wait for the same ones
            begin_s, after = max((done_s[place] for place in node.after), default=0.0) + node.delay_s, node.after
            if node.at_latest is not None:
                begin_s = min(begin_s, done_s[node.at_latest])
        done_s.append(begin_s + sample_latency(dag, node, rng))
        if node.kind is Kind.TRAIN:
            heappush(free_s, done_s[-1])
        elif node.kind is Kind.SYNC:
            free_s.clear()
    return done_s[-1]


def sample_latency(dag: Dag, node: Node, rng: np.random.Generator) -> float:
    profile, cloud = dag.job.profile, dag.job.cloud
    if node.kind is Kind.SCALE:
        return _draw(cloud.request, rng)
    if node.kind is Kind.INIT_INSTANCE:
        return _draw(cloud.boot, rng) + _draw(profile.cold_start, rng)
    if node.kind is Kind.SYNC:
        return 0.0
    stage = dag.plan.stages[node.stage]
    work_s = float(profile.step.sample(rng, (stage.iterations,)).sum())
    return _draw(profile.start, rng) + work_s / profile.scaling(stage.width)


def _draw(latency: Latency, rng: np.random.Generator) -> float:
    return float(latency.sample(rng, (1,))[0])


_COLORS = {Kind.SCALE: "lightsalmon", Kind.INIT_INSTANCE: "khaki", Kind.TRAIN: "lightblue", Kind.SYNC: "lightgray"}


def dot(dag: Dag) -> str:
    """The graph as text for Graphviz: `dot -Tsvg`. A dashed edge is a time to wait before machines are asked for."""
    lines = ["digraph plan {", "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for place, (node, name) in enumerate(zip(dag.nodes, _names(dag), strict=True)):
        lines.append(f'  n{place} [label="{name}", fillcolor={_COLORS[node.kind]}];')
    for place, node in enumerate(dag.nodes):
        late = f' [style=dashed, label="{node.delay_s:.0f} s"]' if node.at_latest is not None else ""
        lines += [f"  n{before} -> n{place}{late};" for before in node.after]
    return "\n".join([*lines, "}", ""])


def _names(dag: Dag) -> list[str]:
    """What each node does, numbered where a stage has several."""
    seen: Counter[tuple[Kind, int]] = Counter()
    names = []
    for node in dag.nodes:
        seen[node.kind, node.stage] += 1
        stage, number = dag.plan.stages[node.stage], seen[node.kind, node.stage]
        detail = {
            Kind.SCALE: f"{stage.machines} machines",
            Kind.INIT_INSTANCE: f"{number}",
            Kind.TRAIN: f"{number}\\niterations {stage.iterations}, devices {stage.width}",
            Kind.SYNC: f"stage {node.stage}",
        }[node.kind]
        names.append(f"{node.kind} {detail}")
    return names
