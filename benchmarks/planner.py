"""How fast the exact planner is, whether it is exact, and what a planner that is not costs.

`exact_frontier_seconds`: the plans for all deadlines of a job of 1,023 trainings in ten stages, SHA(512, 4, 4096, 2),
on up to 512 devices, with stragglers and 100 samples, from drawing them to the plans. Wall clock.

`exact_vs_node_simulation`: against trying every allocation with the simulation of RubberBand's Algorithm 1, which
follows a graph node by node (elastune.plan.dag), with as many samples, on a job that is small enough for that. The
simulation has it easier: it only says how long a plan takes, not what it costs, and it is spared the plans that hold
machines for later or ask for them ahead, which the exact planner weighs too. Trying them with the vectorized
`estimate` is shown beside it, to tell the algorithm from the arithmetic. What the node simulation of the large job
would take is extrapolated from a few plans, printed and not counted.

`exact_over_brute_force_cost`: random small jobs, each at random deadlines, against the cheapest of all plans that
there are, holding and asking ahead included. All are judged by `estimate`, which tests hold against a simulation
machine by machine.

`greedy_over_exact_cost`: RubberBand's greedy planner (its Algorithm 2) over the exact one under the same rules: neither
gives machines back early nor asks for them ahead. What these add is shown in the column beside it.

Times are of CPU and medians of several turns, unless it says otherwise.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod
from statistics import fmean, median

import numpy as np
from _brute import all_allocations, all_plans, random_job
from _figures import Figure, print_figures

from elastune.algorithm.halving import halving_stages
from elastune.plan.dag import simulate_duration, to_dag
from elastune.plan.estimate import estimate
from elastune.plan.exact import frontier
from elastune.plan.greedy import greedy
from elastune.plan.model import Job, Plan, cheapest
from elastune.plan.static import static_plans
from elastune.profile import Cloud, JobProfile, Scaling, constant, lognormal

RESNET101 = Scaling({1: 1, 2: 1.89, 4: 3.63, 8: 7.0, 16: 6.4})
"""What fits the paper's Table 2."""
P3 = Cloud("p3.8xlarge", 4, 12.24, request=constant(15.0), boot=lognormal(15.0, 5.0))
SAMPLES = 100
LARGE = Job(halving_stages(512, 4, 4096, 2), JobProfile(lognormal(12.0, 6.0), RESNET101), P3, 128, samples=SAMPLES)
SMALL = Job(halving_stages(8, 2, 30, 2), JobProfile(lognormal(12.0, 6.0), RESNET101), P3, 4, samples=SAMPLES)
MINUTE_S, YEAR_S = 60.0, 365 * 86400.0


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def fresh_frontier(job: Job) -> None:
    """With draws of its own."""
    frontier(replace(job))


def large_frontier(repetitions: int) -> Figure:
    times = [timed(lambda: fresh_frontier(LARGE)) for _ in range(repetitions)]
    wall_s, cpu_s = median(wall for wall, _ in times), median(cpu for _, cpu in times)
    print(
        f"\nFrontier of SHA(512, 4, 4096, 2), up to {LARGE.machines * P3.devices} devices, stragglers, {SAMPLES} "
        f"samples: {len(frontier(LARGE))} plans in {wall_s:.2f} s (CPU {cpu_s:.2f} s), median of {repetitions}"
    )
    return Figure("exact_frontier_seconds", round(wall_s, 2), None, None, "< 2", wall_s < 2)


def allocation_plans(job: Job) -> list[Plan]:
    return [Plan(stages, early_release=False) for stages in product(*all_allocations(job))]


def simulate_nodes(job: Job, plans: list[Plan]) -> None:
    rng = np.random.default_rng(0)
    for plan in plans:
        simulate_duration(to_dag(job, plan), rng, job.samples)


def estimate_all(job: Job, plans: list[Plan]) -> None:
    job = replace(job)
    for plan in plans:
        estimate(job, plan)


def against_node_simulation(repetitions: int) -> Figure:
    plans = allocation_plans(SMALL)
    exact: list[float] = []
    nodes: list[float] = []
    vectorized: list[float] = []
    for _ in range(repetitions):
        exact += [timed(lambda: fresh_frontier(SMALL))[1] for _ in range(10)]  # so short a time is better taken often
        nodes.append(timed(lambda: simulate_nodes(SMALL, plans))[1])
        vectorized.append(timed(lambda: estimate_all(SMALL, plans))[1])
    exact_s, nodes_s, vectorized_s = median(exact), median(nodes), median(vectorized)
    print(f"\nSHA(8, 2, 30, 2), up to {SMALL.machines * P3.devices} devices, {SAMPLES} samples, {len(plans):,} plans")
    print(f"{'':44} {'CPU s':>9} {'over exact':>11}")
    print(f"{'exact: plans for all deadlines':44} {exact_s:>9.4f} {1:>11.1f}")
    print(f"{'every plan, node by node (time only)':44} {nodes_s:>9.2f} {nodes_s / exact_s:>11,.0f}")
    print(f"{'every plan, vectorized estimate':44} {vectorized_s:>9.2f} {vectorized_s / exact_s:>11,.1f}")
    extrapolate_large()
    ratio = nodes_s / exact_s
    return Figure("exact_vs_node_simulation", round(exact_s, 4), round(nodes_s, 2), round(ratio), ">= 50", ratio >= 50)


def extrapolate_large() -> None:
    choices = all_allocations(LARGE)
    rng = np.random.default_rng(0)
    some = [Plan(tuple(stage[rng.integers(len(stage))] for stage in choices)) for _ in range(3)]
    plan_s = timed(lambda: simulate_nodes(LARGE, some))[1] / len(some)
    count = prod(map(len, choices))
    print(
        f"SHA(512, 4, 4096, 2): {plan_s:.2f} s for one plan node by node; for all {count:.1e} allocations that would "
        f"be {count * plan_s / YEAR_S:.0e} years (not counted)"
    )


def against_brute_force(jobs: int, deadlines: int) -> Figure:
    rng = np.random.default_rng(0)
    ratios: list[float] = []
    costs_usd: list[tuple[float, float]] = []
    tried = 0
    for _ in range(jobs):
        job = random_job(rng)
        found = frontier(job)
        brute = [(each.mean_s, each.mean_usd) for each in (estimate(job, plan) for plan in all_plans(job))]
        tried += len(brute)
        soonest_s, latest_s = min(time_s for time_s, _ in brute), found[-1].time_s
        for deadline_s in rng.uniform(soonest_s, max(latest_s, soonest_s) * 1.01, deadlines).tolist():
            best_usd = min(cost_usd for time_s, cost_usd in brute if time_s <= deadline_s)
            ours = cheapest(found, deadline_s)
            assert ours is not None, "a deadline that some plan meets is met"
            ratios.append(ours.cost_usd / best_usd)
            costs_usd.append((ours.cost_usd, best_usd))
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    print(
        f"\nExact over the cheapest of all plans: {jobs} random jobs, {tried:,} plans, {len(ratios)} deadlines: "
        f"mean {fmean(ratios):.9f}, furthest from 1: {worst:.9f}"
    )
    ours_usd, brute_usd = (round(fmean(column), 4) for column in zip(*costs_usd, strict=True))
    return Figure("exact_over_brute_force_cost", ours_usd, brute_usd, round(worst, 9), "= 1", abs(worst - 1) < 1e-6)


def against_greedy(quick: bool) -> Figure:
    profile = JobProfile(lognormal(4.0, 2.0), RESNET101)
    jobs = {
        "SHA(32, 1, 50, 3), 109 s": Job(halving_stages(32, 1, 50, 3), JobProfile(constant(109.0), RESNET101), P3, 64),
        "SHA(64, 4, 508, 2), 4 s": Job(halving_stages(64, 4, 508, 2), profile, P3, 64),
        "SHA(81, 1, 81, 3), 4 s": Job(halving_stages(81, 1, 81, 3), profile, P3, 64),
        "SHA(512, 4, 4096, 2), 12 s": LARGE,
    }
    print(
        "\nRubberBand's greedy planner over the exact one, at 1.02 to 3 times the soonest that a static cluster is done"
    )
    print(f"{'':28} {'deadlines':>9} {'mean':>7} {'largest':>8} {'mean, with early release and asking ahead':>42}")
    ratios: list[float] = []
    costs_usd: list[tuple[float, float]] = []
    for name, job in jobs.items():
        alike, full = frontier(job, early_release=False, boot_ahead=False), frontier(job)
        soonest_s = min(each.time_s for each in static_plans(job))
        same: list[float] = []
        more: list[float] = []
        for times in np.geomspace(1.02, 3.0, 4 if quick else 8).tolist():
            found = greedy(job, times * soonest_s)
            best, best_of_all = cheapest(alike, times * soonest_s), cheapest(full, times * soonest_s)
            assert found is not None and best is not None and best_of_all is not None
            same.append(found.cost_usd / best.cost_usd)
            more.append(found.cost_usd / best_of_all.cost_usd)
            costs_usd.append((best.cost_usd, found.cost_usd))
        ratios += same
        print(f"{name:28} {len(same):>9} {fmean(same):>7.3f} {max(same):>8.3f} {fmean(more):>42.3f}")
    mean = fmean(ratios)
    print(f"{'all':28} {len(ratios):>9} {mean:>7.3f} {max(ratios):>8.3f}")
    ours_usd, greedy_usd = (round(fmean(column), 2) for column in zip(*costs_usd, strict=True))
    met = min(ratios) > 1 - 1e-9
    return Figure("greedy_over_exact_cost", ours_usd, greedy_usd, round(mean, 3), ">= 1", met)


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    if quick:
        print("--quick: fewer repetitions, jobs and deadlines")
    figures = [
        large_frontier(repetitions=3 if quick else 7),
        against_node_simulation(repetitions=1 if quick else 3),
        against_brute_force(jobs=25 if quick else 100, deadlines=4),
        against_greedy(quick),
    ]
    print_figures(figures)


if __name__ == "__main__":
    main()
