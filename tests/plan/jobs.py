"""Random jobs to plan."""

from __future__ import annotations

from hypothesis import strategies as st

from elastune.plan.model import Job
from elastune.profile.cloud import BILLINGS, Cloud, Per
from elastune.profile.job import JobProfile
from elastune.profile.latency import Latency, constant, lognormal
from elastune.profile.scaling import Scaling
from elastune.spec import Stage

SPEEDUPS = st.tuples(st.floats(1.0, 2.0), st.floats(0.8, 2.0), st.floats(0.8, 2.0)).map(
    lambda grow: Scaling({1: 1.0, 2: grow[0], 4: grow[0] * grow[1], 8: grow[0] * grow[1] * grow[2]})
)


def latencies(means_s: list[float], varies: bool) -> st.SearchStrategy[Latency]:
    """With a spread of half the mean if they vary."""
    return st.sampled_from(means_s).map(
        lambda mean_s: lognormal(mean_s, mean_s / 2) if varies and mean_s else constant(mean_s)
    )


def profiles(varies: bool = False) -> st.SearchStrategy[JobProfile]:
    starts, cold_starts = latencies([0.0, 2.0], False), latencies([0.0, 4.0], varies)
    return st.builds(JobProfile, latencies([1.0, 7.0, 20.0, 100.0], varies), SPEEDUPS, starts, cold_starts)


def clouds(
    varies: bool = False,
    billings: tuple[Per, ...] = BILLINGS,
    minimums_s: tuple[float, ...] = (0.0, 60.0, 300.0),
) -> st.SearchStrategy[Cloud]:
    return st.builds(
        Cloud,
        st.just("m"),
        devices=st.integers(1, 4),
        price_usd_per_hour=st.sampled_from([1.0, 12.0]),
        request=latencies([0.0, 3.0, 30.0], varies),
        boot=latencies([0.0, 1.0, 20.0], varies),
        billing=st.sampled_from(billings),
        minimum_s=st.sampled_from(minimums_s),
        data_gb=st.just(1.0),
        data_usd_per_gb=st.sampled_from([0.0, 0.01, 1.0]),
    )


@st.composite
def schedules(draw: st.DrawFn, stages: int = 4, trials: int = 12, fewest: int = 1) -> list[tuple[int, int]]:
    """Trials and iterations of each stage."""
    counts = sorted(draw(st.lists(st.integers(1, trials), min_size=fewest, max_size=stages)), reverse=True)
    return [(count, draw(st.integers(1, 8))) for count in counts]


def stages_of(schedule: list[tuple[int, int]]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    for count, iterations in schedule:
        start = stages[-1].until if stages else 0
        stages.append(Stage(count, start, start + iterations))
    return tuple(stages)


@st.composite
def jobs(
    draw: st.DrawFn,
    varies: bool = False,
    stages: int = 4,
    trials: int = 12,
    machines: int = 8,
    samples: int = 20,
    billings: tuple[Per, ...] = BILLINGS,
    minimums_s: tuple[float, ...] = (0.0, 60.0, 300.0),
) -> Job:
    return Job(
        stages_of(draw(schedules(stages, trials))),
        draw(profiles(varies)),
        draw(clouds(varies, billings, minimums_s)),
        draw(st.integers(1, machines)),
        samples=samples,
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def small_jobs(draw: st.DrawFn, stages: int, machines: int, varies: bool = False) -> Job:
    """So many stages, of a job for which every plan can be tried; some machines are there or on their way. Where times
    vary there is no minimum charge, because that of an expected age is not the expected one.
    """
    ages_s = draw(st.lists(st.sampled_from([5.0, 30.0, 40.0, 90.0, 400.0]), max_size=0 if varies else machines))
    asked_s = draw(st.lists(st.sampled_from([0.0, 2.0, 25.0]), max_size=machines - len(ages_s)))
    return Job(
        stages_of(draw(schedules(stages, trials=6, fewest=stages))),
        draw(profiles(varies)),
        draw(clouds(varies, minimums_s=(0.0,) if varies else (0.0, 60.0, 300.0))),
        machines,
        tuple(sorted(ages_s, reverse=True)),
        tuple(sorted(asked_s, reverse=True)),
        samples=8,
        seed=1,
    )
