"""The graph of a plan says what the estimate says, node by node."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.brute import all_plans
from tests.plan.jobs import small_jobs

from elastune.messages import PlannedStage
from elastune.plan.dag import Dag, Kind, dot, sample_duration, simulate_duration, to_dag
from elastune.plan.estimate import estimate
from elastune.plan.model import Job, Plan
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import Latency, constant, lognormal
from elastune.profile.scaling import Scaling
from elastune.spec import Stage

STAGES = (Stage(4, 0, 1), Stage(2, 1, 3), Stage(1, 3, 7))
SCALING = Scaling({1: 1.0, 2: 1.9, 4: 3.6})


def job(step: Latency, boot: Latency, held_s: tuple[float, ...] = ()) -> Job:
    profile = JobProfile(step, SCALING, start=constant(1.0), cold_start=constant(2.0))
    cloud = Cloud("m", 2, 10.0, request=constant(5.0), boot=boot)
    return Job(STAGES, profile, cloud, machines=4, held_s=held_s, samples=4000)


def plan(devices: tuple[int, ...], machines: tuple[int, ...], asks_s: tuple[float | None, ...]) -> Plan:
    rows = zip(STAGES, devices, machines, asks_s, strict=True)
    return Plan(tuple(PlannedStage(stage.trials, stage.iterations, d, m, ask_s) for stage, d, m, ask_s in rows))


FIGURE_7 = plan((4, 4, 2), (2, 2, 1), (None, None, None))
"""In the manner of the paper's example: all trials side by side, then as many devices for half of them, then fewer."""
GROWING = plan((2, 4, 4), (1, 2, 2), (None, 30.0, None))
"""A queue at first, and a machine that is asked for ahead."""


def kinds(dag: Dag) -> list[tuple[int, str]]:
    return [(node.stage, str(node.kind)) for node in dag.nodes]


def test_the_nodes_of_a_plan_that_shrinks() -> None:
    dag = to_dag(job(constant(20.0), constant(9.0)), FIGURE_7)
    assert [dag.count(kind) for kind in Kind] == [1, 2, 7, 3]
    assert kinds(dag)[:4] == [(0, "SCALE"), (0, "INIT_INSTANCE"), (0, "INIT_INSTANCE"), (0, "TRAIN")]
    first_sync = kinds(dag).index((0, "SYNC"))
    assert dag.nodes[first_sync].after == (3, 4, 5, 6)
    assert [node.after for node in dag.nodes if node.kind is Kind.TRAIN and node.stage == 1] == [(first_sync,)] * 2


def test_a_queued_trial_hangs_on_the_one_before_it_on_its_device() -> None:
    dag = to_dag(job(constant(20.0), constant(9.0)), GROWING)
    assert [(node.after, node.queued) for node in dag.nodes if node.kind is Kind.TRAIN and node.stage == 0] == [
        ((1,), False),
        ((1,), False),
        ((2,), True),
        ((3,), True),
    ]


def test_machines_asked_for_ahead_hang_on_the_beginning_of_the_stage_before() -> None:
    dag = to_dag(job(constant(20.0), constant(9.0)), GROWING)
    scale = next(node for node in dag.nodes if node.kind is Kind.SCALE and node.stage == 1)
    assert (scale.after, scale.delay_s) == ((1,), 30.0)
    assert dag.nodes[scale.at_latest or 0].kind is Kind.SYNC
    trial = next(node for node in dag.nodes if node.kind is Kind.TRAIN and node.stage == 1)
    assert [dag.nodes[place].kind for place in trial.after] == [Kind.SYNC, Kind.INIT_INSTANCE]


def test_machines_that_are_there_already_are_not_asked_for() -> None:
    dag = to_dag(job(constant(20.0), constant(9.0), held_s=(60.0, 10.0)), FIGURE_7)
    assert [dag.count(kind) for kind in Kind] == [0, 0, 7, 3]


@settings(max_examples=60, deadline=None)
@given(job=small_jobs(stages=2, machines=4), boot_ahead=st.booleans(), data=st.data())
def test_the_estimate_where_nothing_varies(job: Job, boot_ahead: bool, data: st.DataObject) -> None:
    job = replace(job, asked_s=())  # the graph has no node for machines that were asked for before it begins
    plans = list(all_plans(job, early_release=True, boot_ahead=boot_ahead))
    for plan in data.draw(st.lists(st.sampled_from(plans), min_size=1, max_size=20)):
        duration_s = sample_duration(to_dag(job, plan), np.random.default_rng(0))
        assert duration_s == pytest.approx(estimate(job, plan).mean_s, rel=1e-12)


def assert_same_mean(job: Job, plan: Plan) -> None:
    """Each mean has a sampling error of its own; by chance they differ by more than four of both once in 16,000."""
    expected, samples = estimate(job, plan), 2000
    error_s = float(expected.time_s.std()) * (1 / len(expected.time_s) + 1 / samples) ** 0.5
    duration_s = simulate_duration(to_dag(job, plan), np.random.default_rng(1), samples)
    assert abs(duration_s - expected.mean_s) < 4 * error_s


LATE = plan((2, 4, 4), (1, 2, 2), (None, 90.0, None))
"""Machines are asked for later than the stage before mostly ends: then when it does."""


@pytest.mark.parametrize("planned", [FIGURE_7, GROWING, LATE], ids=["shrinking", "growing", "asking late"])
def test_the_mean_of_the_estimate_where_times_vary(planned: Plan) -> None:
    assert_same_mean(job(lognormal(20.0, 15.0), lognormal(9.0, 9.0)), planned)


def test_a_queued_trial_takes_the_device_that_is_first_free() -> None:
    many = replace(job(lognormal(20.0, 30.0), constant(0.0)), stages=(Stage(12, 0, 1),))
    assert_same_mean(many, Plan((PlannedStage(12, 1, 3, 2),)))


def test_the_same_seed_gives_the_same_duration() -> None:
    dag = to_dag(job(lognormal(20.0, 15.0), lognormal(9.0, 9.0)), GROWING)
    first, again, other = (sample_duration(dag, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_the_drawing_has_every_node_and_every_edge() -> None:
    dag = to_dag(job(constant(20.0), constant(9.0)), GROWING)
    text = dot(dag)
    assert text.startswith("digraph plan {\n") and text.endswith("}\n")
    assert len(re.findall(r"^  n\d+ \[label=", text, re.MULTILINE)) == len(dag.nodes)
    edges = {(int(a), int(b)) for a, b in re.findall(r"n(\d+) -> n(\d+)", text)}
    assert edges == {(before, place) for place, node in enumerate(dag.nodes) for before in node.after}
    assert 'label="SCALE 2 machines"' in text and 'label="TRAIN 4\\niterations 1, devices 1"' in text
    assert text.count('style=dashed, label="30 s"') == 1
