"""Tuning on machines that may be taken away: what SpotTune saves, and how good its parts are.

`tune`: SpotTune against one machine type for all trials, on real prices (_spot_tune.py says which, and what was fixed
when); after SpotTune's Figures 7, 8, 9, 10c and 12. `revocation`, `curves` and `deadline` are the studies of
_spot_revocation.py, _spot_curves.py and _spot_in_time.py.

"Paper" is SpotTune with RevPred, one random bid for each market and its equation 2, "ours" is with our model of
revocation, eight bids and what allocate/cheapest_step.py makes of the equation.
Both with EarlyCurve, and with a refund for machines that are taken away within an hour, if nothing else is said. A
single type of machine is never taken away. The cheapest has the lowest price when the run begins.

    python benchmarks/spot.py [--quick] [--studies tune,revocation,curves,deadline]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import _spot_curves
import _spot_in_time
import _spot_plots
import _spot_revocation
from _figures import Figure, print_figures
from _spot_tune import LAWS, ORACLE, POOL, WORKLOADS, Market, Outcome, Policy, drawn, run, stretch

OUT = Path(__file__).parent / "out"
OURS, PAPER = (
    Policy("SpotTune, ours, theta 0.7", "boosted", 0.7),
    Policy("SpotTune, paper, theta 0.7", "revpred", 0.7, 1),
)
CHEAPEST, FASTEST = Policy("cheapest spot machine"), Policy("fastest spot machine", machine="fastest")
COMPARED = (
    OURS,
    replace(OURS, label="SpotTune, ours, theta 1.0", theta=1.0),
    PAPER,
    replace(PAPER, label="SpotTune, paper, theta 1.0", theta=1.0),
    CHEAPEST,
    FASTEST,
    Policy("cheapest, on demand", on_demand=True),
)
MODELS = {"boosted": "ours", "revpred": "RevPred", "tributary": "Tributary"}
THETAS = tuple(round(0.1 * tenths, 1) for tenths in range(1, 11))
LINEAR = next(iter(LAWS))
MOMENTS, FEWER = 10, 5
"""Of a run; fewer for how theta and the models compare."""
Runs = Mapping[str, Sequence[Outcome]]
"""By workload."""


# ----------------------------------------------------------------------------------------------------------- the study


class Study:
    """Every run is made once."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._known: dict[tuple[Policy, str, str, int, bool], Outcome] = {}

    def runs(self, policy: Policy, moments: int, law: str = LINEAR, refund: bool = True) -> Runs:
        return {
            workload: [self._run(policy, workload, law, moment, refund) for moment in range(moments)]
            for workload in WORKLOADS
        }

    def _run(self, policy: Policy, workload: str, law: str, moment: int, refund: bool) -> Outcome:
        key = (replace(policy, label=""), workload, law, moment, refund)
        if key not in self._known:
            self._known[key] = run(self._market, policy, workload, law, moment, refund)
        return self._known[key]


def mean(runs: Runs, value: Callable[[Outcome], float]) -> float:
    return fmean(value(each) for outcomes in runs.values() for each in outcomes)


def saving(ours: Runs, theirs: Runs) -> float:
    """Of the cost of all runs of a workload; the mean over workloads."""
    return fmean(saved(ours[workload], theirs[workload]) for workload in ours)


def saved(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> float:
    return 1 - sum(each.cost_usd for each in ours) / sum(each.cost_usd for each in theirs)


def spread(ours: Runs, theirs: Runs) -> float:
    """The standard deviation over moments of what is saved."""
    by_moment = zip(zip(*ours.values(), strict=True), zip(*theirs.values(), strict=True), strict=True)
    return stdev(fmean(saved([a], [b]) for a, b in zip(mine, other, strict=True)) for mine, other in by_moment)


def tune(quick: bool) -> list[Figure]:
    begin_s = time.perf_counter()
    market = Market.load(list(MODELS))
    print(f"trained {', '.join(MODELS.values())} in {time.perf_counter() - begin_s:.0f} s", flush=True)
    moments, fewer = (2, 2) if quick else (MOMENTS, FEWER)
    study = Study(market)
    print_pool(market)
    compared = {policy.label: study.runs(policy, moments) for policy in COMPARED}
    print_compared(compared)
    print_savings(study, moments)
    thetas = {theta: study.runs(replace(OURS, theta=theta), fewer) for theta in THETAS}
    print_thetas(thetas)
    print_models(study, fewer)
    _spot_plots.save(OUT, compared, thetas)
    print(f"pictures in {OUT.relative_to(OUT.parents[1])}; {time.perf_counter() - begin_s:.0f} s in all", flush=True)
    ours, paper, cheapest = compared[OURS.label], compared[PAPER.label], compared[CHEAPEST.label]
    plain = study.runs(OURS, moments, refund=False)
    plain_paper = study.runs(PAPER, moments, refund=False)
    return figures(ours, paper, cheapest, compared[FASTEST.label], plain, plain_paper)


def figures(ours: Runs, paper: Runs, cheapest: Runs, fastest: Runs, plain: Runs, plain_paper: Runs) -> list[Figure]:
    def figure(name: str, mine: float, peer: float, goal: str, met: bool) -> Figure:
        return Figure(name, round(mine, 3), round(peer, 3), None, goal, met)

    kept = saving(ours, cheapest)
    top_3 = mean(ours, lambda each: each.top_3)
    fast = saving(ours, fastest)
    bare, bare_paper = saving(plain, cheapest), saving(plain_paper, cheapest)
    return [
        figure("saving_vs_cheapest", kept, saving(paper, cheapest), ">= 0.70 (paper: 0.756)", kept >= 0.70),
        figure("saving_vs_fastest", fast, saving(paper, fastest), "none: paper has 0.942", True),
        figure("saving_vs_cheapest_no_refund", bare, bare_paper, "none: for comparison", True),
        figure("top3_accuracy", top_3, mean(paper, lambda each: each.top_3), ">= 0.95", top_3 >= 0.95),
    ]


# -------------------------------------------------------------------------------------------------------------- tables


def print_pool(market: Market) -> None:
    print(
        f"\n{'market':24}{'processors':>11}{'on demand':>11}{'spot, mean of the first days':>30}{'changes a day':>15}"
    )
    for each in POOL:
        series = market.prices[each.market]
        begin, until = series.begin_unix_s, market.until_unix_s
        changes = sum(1 for _ in series.changes(begin, until)) / ((until - begin) / 86_400)
        spot = series.mean(begin, until)
        print(f"{each.market:24}{each.processors:>11}{each.on_demand_usd_per_hour:>11.3f}{spot:>30.4f}{changes:>15.0f}")
    for workload in WORKLOADS:
        hours = sorted(sum(row) / 3600 for seed in range(MOMENTS) for row in drawn(workload, seed).seconds)
        middle, longest = hours[len(hours) // 2], hours[-1]
        print(
            f"{workload}: a training takes {fmean(hours):.1f} h on the slowest machine (median {middle:.1f}, longest "
            f"{longest:.1f}); {stretch(workload):.1f} times as long as recorded"
        )


def print_compared(compared: Mapping[str, Runs]) -> None:
    columns = ("cost $", "hours", "PCR", "top-1", "top-3", "free", "revoked", "machines", "starting", "lost")
    first = next(iter(compared.values()))
    print(
        f"\nspeed: {LINEAR} in processors; {len(next(iter(first.values())))} moments. PCR: performance-cost rate over "
        "that of"
    )
    print("the first line. free: part of steps on refunded machines. starting, lost: part of the time on machines\n")
    for workload in ("all", *WORKLOADS):
        print(f"{workload:28}" + "".join(f"{column:>9}" for column in columns))
        for label, runs in compared.items():
            some, peers = (each if workload == "all" else {workload: each[workload]} for each in (runs, first))
            pairs = zip(_flat(some), _flat(peers), strict=True)
            rate = fmean(mine.rate / other.rate for mine, other in pairs)
            values = [mean(some, lambda each: each.cost_usd), mean(some, lambda each: each.hours), rate]
            values += [mean(some, lambda each, name=name: float(getattr(each, name))) for name in NAMES]  # type: ignore[misc]
            print(f"{label:28}" + "".join(f"{value:>9.3g}" for value in values))
        print(flush=True)


NAMES = ("top_1", "top_3", "free", "revoked", "machines", "starting", "lost")


def _flat(runs: Runs) -> list[Outcome]:
    return [each for outcomes in runs.values() for each in outcomes]


def print_savings(study: Study, moments: int) -> None:
    print("saved by SpotTune, theta 0.7 (± standard deviation over moments)")
    print(f"{'':44}{'of the cheapest':>18}{'of the fastest':>18}{'of on demand':>18}{'hours':>8}{'free':>8}")
    for law in LAWS:
        for policy, refund in ((OURS, True), (OURS, False), (PAPER, True), (PAPER, False)):
            if policy is PAPER and law != LINEAR:
                continue
            mine = study.runs(policy, moments, law, refund)
            cells = ""
            for other in (CHEAPEST, FASTEST, COMPARED[-1]):
                theirs = study.runs(other, moments, law)
                cells += f"{saving(mine, theirs):>10.1%} ± {spread(mine, theirs):<5.1%}"
            name = f"{law}, {'ours' if policy is OURS else 'paper'}, {'refund' if refund else 'no refund'}"
            hours, free = mean(mine, lambda each: each.hours), mean(mine, lambda each: each.free)
            print(f"{name:44}{cells}{hours:>8.1f}{free:>8.1%}", flush=True)


def print_thetas(thetas: Mapping[float, Runs]) -> None:
    print(
        f"\nours, by theta\n{'theta':>6}"
        + "".join(f"{name:>9}" for name in ("cost $", "hours", "top-1", "top-3", "free"))
    )
    for theta, runs in thetas.items():
        values = [
            mean(runs, value)
            for value in (
                lambda each: each.cost_usd,
                lambda each: each.hours,
                lambda each: each.top_1,
                lambda each: each.top_3,
                lambda each: each.free,
            )
        ]
        print(f"{theta:>6}" + "".join(f"{value:>9.3g}" for value in values))


def print_models(study: Study, moments: int) -> None:
    """SpotTune's machines with other models of revocation, and with an oracle in place of one."""
    print(f"\ntheta 0.7, by model{'':15}{'cost $':>9}{'hours':>9}{'free':>9}{'saved of the cheapest':>24}")
    cheapest = study.runs(CHEAPEST, moments)
    for bids in (1, 8):
        for model, name in {**MODELS, ORACLE: "an oracle of the hour"}.items():
            runs = study.runs(Policy("", model, 0.7, bids), moments)
            values = [mean(runs, lambda each: each.cost_usd), mean(runs, lambda each: each.hours)]
            values.append(mean(runs, lambda each: each.free))
            cells = "".join(f"{value:>9.3g}" for value in values)
            print(f"{name + ', bids a market: ' + str(bids):34}{cells}{saving(runs, cheapest):>24.1%}", flush=True)


# ------------------------------------------------------------------------------------------------------- other studies


def curves(quick: bool) -> list[Figure]:
    _spot_curves.study(quick)
    return []


def deadline(quick: bool) -> list[Figure]:
    return _spot_in_time.run(quick)


STUDIES: dict[str, Callable[[bool], list[Figure]]] = {
    "tune": tune,
    "revocation": _spot_revocation.run,
    "curves": curves,
    "deadline": deadline,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--studies", default=",".join(STUDIES), help="some of " + ", ".join(STUDIES))
    arguments = parser.parse_args()
    chosen = arguments.studies.split(",")
    if unknown := set(chosen) - STUDIES.keys():
        parser.error(f"--studies: there is no {', '.join(sorted(unknown))}; there are {', '.join(STUDIES)}")
    found: list[Figure] = []
    for name in chosen:
        print(f"== {name}", flush=True)
        found += STUDIES[name](arguments.quick)
    print_figures(found)


if __name__ == "__main__":
    main()
