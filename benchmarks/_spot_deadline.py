"""What a job with a deadline costs on spot and on-demand machines, in real records of when spot machines could be had.

Every policy goes through the same markets: the traces of "Can't Be Late" (NSDI 2024), at several starts each, minute by
minute. The lower bound is the cheapest that can be done by somebody who knows the whole trace beforehand.

    python benchmarks/_spot_deadline.py [--quick]
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _data import data_folder
from numpy.typing import NDArray

from elastune.market.late import Choice, Held, LastMoment, LateJob, LatePolicy, Situation, UniformProgress
from elastune.market.never_late import NeverLate

MINUTE_S = 60.0
DEADLINES = (1.1, 1.25, 1.5, 2.0, 3.0)
CHANGEOVERS_S = (360.0, 720.0)
WORK_S = 8 * 3600.0
SPOT_USD, ON_DEMAND_USD = 0.3, 1.0
Trace = NDArray[np.bool_]


class SpotOnly(LatePolicy):
    """No on-demand machine ever: cheap, and late."""

    def choose(self, state: Situation) -> Choice:
        return self.prefer(state)

    def prefer(self, state: Situation) -> Choice:
        return "spot" if state.spot_available else "wait"


POLICIES: dict[str, Callable[[LateJob], LatePolicy]] = {
    "spot only": SpotOnly,
    "last moment": LastMoment,
    "uniform progress": UniformProgress,
    "never late": NeverLate,
}


@dataclass(frozen=True)
class Outcome:
    cost_usd: float
    missed: bool


def read_trace(path: Path, machines: int = 1) -> Trace:
    """Minute by minute, whether so many machines can be had, by all that was seen in it."""
    with gzip.open(path) as file:
        record = json.load(file)
    gap_s, enough = float(record["metadata"]["gap_seconds"]), np.array(record["data"]) >= machines
    minutes = np.arange(int(len(enough) * gap_s // MINUTE_S)) * MINUTE_S
    first = (minutes / gap_s).astype(int)
    last = np.minimum(np.ceil((minutes + MINUTE_S) / gap_s).astype(int) - 1, len(enough) - 1)
    missing = np.concatenate([[0], np.cumsum(~enough)])
    seen: Trace = missing[last + 1] == missing[first]
    return seen


def read_traces() -> dict[str, Trace]:
    folder = data_folder("spot_availability_nsdi24") / "spot_availability_nsdi24"
    files = sorted(folder.rglob("*.json.gz"))
    return {file.relative_to(folder).as_posix().removesuffix(".json.gz"): read_trace(file) for file in files}


def evaluate(trace: Trace, policy: LatePolicy, start_s: float) -> Outcome:
    """Let a policy do its job, beginning at this time of the trace. It is asked once a minute."""
    job, first = policy.job, int(start_s // MINUTE_S)
    usd_per_s = {"spot": job.spot_usd_per_hour / 3600, "on-demand": job.on_demand_usd_per_hour / 3600}
    held: Held = None
    at_s, left_s, starting_s, since_s, cost_usd = 0.0, job.work_s, 0.0, 0.0, 0.0
    while left_s > 0 and at_s < job.deadline_s:
        available = bool(trace[first + int(at_s // MINUTE_S)])
        if held == "spot" and not available:
            left_s += min(job.rework_s, since_s)
            held, starting_s = None, 0.0
        policy.observe(at_s, available)
        choice = policy.choose(Situation(at_s, left_s, job.deadline_s - at_s, held, available, starting_s))
        if choice == "wait":
            held, starting_s = None, 0.0
        elif choice != held:
            assert choice != "spot" or available
            held, starting_s, since_s = choice, job.changeover_s, 0.0
        passed_s = min(MINUTE_S, job.deadline_s - at_s)
        if held is not None:
            passed_s = min(passed_s, starting_s + left_s)
            idle_s = min(starting_s, passed_s)
            computed_s = passed_s - idle_s
            starting_s, left_s, since_s = starting_s - idle_s, left_s - computed_s, since_s + computed_s
            cost_usd += usd_per_s[held] * passed_s
        at_s += passed_s
    return Outcome(cost_usd, left_s > 1e-6)


def cheapest_usd(trace: Trace, job: LateJob, start_s: float) -> float:
    """With the whole trace known: a dynamic program over minutes. Times of the job must be whole minutes."""
    first, minutes = int(start_s // MINUTE_S), int(job.deadline_s // MINUTE_S)
    work, start = int(job.work_s // MINUTE_S), int(job.changeover_s // MINUTE_S)
    spot_usd, on_demand_usd = job.spot_usd_per_hour / 60, job.on_demand_usd_per_hour / 60
    available = trace[first : first + minutes]
    none = np.full((minutes + start + 1, work + 1), np.inf)
    none[:, 0] = 0.0
    spot, on_demand = none.copy(), none.copy()
    ahead = 0
    for minute in range(minutes - 1, -1, -1):
        ahead = ahead + 1 if available[minute] else 0
        on_demand[minute, 1:] = on_demand[minute + 1, :-1] + on_demand_usd
        spot[minute, 1:] = spot[minute + 1, :-1] + spot_usd if ahead else np.inf
        none[minute, 1:] = np.minimum(none[minute + 1], on_demand[minute + start] + start * on_demand_usd)[1:]
        if ahead >= max(start, 1):
            none[minute, 1:] = np.minimum(none[minute], spot[minute + start] + start * spot_usd)[1:]
        on_demand[minute] = np.minimum(on_demand[minute], none[minute])
        spot[minute] = np.minimum(spot[minute], none[minute])
    return float(none[0, work])


def measure(traces: dict[str, Trace], job: LateJob, starts: int) -> dict[str, list[list[Outcome]]]:
    """The outcomes of every policy, by trace and start; the lower bound is `known beforehand`."""
    found: dict[str, list[list[Outcome]]] = {name: [] for name in [*POLICIES, "known beforehand"]}
    for trace in traces.values():
        room_s = len(trace) * MINUTE_S - job.deadline_s - MINUTE_S
        begins = [(number + 0.5) / starts * room_s for number in range(starts)]
        for name, make in POLICIES.items():
            found[name].append([evaluate(trace, make(job), begin_s) for begin_s in begins])
        bounds = [cheapest_usd(trace, job, begin_s) for begin_s in begins]
        found["known beforehand"].append([Outcome(usd, False) for usd in bounds])
    return found


def mean_usd(outcomes: list[list[Outcome]]) -> float:
    return float(np.mean([outcome.cost_usd for trace in outcomes for outcome in trace]))


def report(job: LateJob, found: dict[str, list[list[Outcome]]], which: str, header: bool) -> dict[str, object]:
    """One line of the table, and the same for machines."""
    ours, runs = mean_usd(found["never late"]), sum(map(len, found["never late"]))
    missed = {name: sum(run.missed for trace in found[name] for run in trace) for name in POLICIES}
    in_time = [
        (own.cost_usd, spot.cost_usd)
        for mine, theirs in zip(found["never late"], found["spot only"], strict=True)
        for own, spot in zip(mine, theirs, strict=True)
        if not spot.missed
    ]
    over_spot = float(np.divide(*np.sum(in_time, axis=0))) if in_time else float("nan")
    over_on_demand = ours / ((job.work_s + job.changeover_s) / 3600 * job.on_demand_usd_per_hour)
    ratios = {name: ours / mean_usd(found[name]) for name in ("last moment", "uniform progress", "known beforehand")}
    line = {
        "deadline": job.deadline_s / job.work_s,
        "changeover_s": job.changeover_s,
        "trace_set": which,
        "runs": runs,
        "missed": missed["never late"] + missed["last moment"] + missed["uniform progress"],
        "spot_only_missed": missed["spot only"],
        "over_on_demand": round(over_on_demand, 4),
        "over_spot_only_in_time": round(over_spot, 4),
        **{f"over_{name.replace(' ', '_')}": round(ratio, 4) for name, ratio in ratios.items()},
    }
    if header:
        print("".join(f"  {key}" for key in line))
    print("".join(f"{value!s:>{len(key) + 2}}" for key, value in line.items()), flush=True)
    return line


def table(traces: dict[str, Trace], quick: bool) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for changeover_s in CHANGEOVERS_S[:1] if quick else CHANGEOVERS_S:
        for factor in DEADLINES:
            job = LateJob(WORK_S, factor * WORK_S, changeover_s, SPOT_USD, ON_DEMAND_USD, check_s=MINUTE_S)
            found = measure(traces, job, 2 if quick else 12)
            # The parameters of the policy were chosen on every second trace, beginning with the first.
            parts = {"all": slice(None), "chosen on": slice(0, None, 2), "held out": slice(1, None, 2)}
            for which, part in parts.items():
                lines.append(report(job, {name: runs[part] for name, runs in found.items()}, which, not lines))
    return lines


def main() -> None:
    quick = "--quick" in sys.argv
    lines = table(read_traces(), quick)
    print(json.dumps({"benchmark": "spot_deadline", "quick": quick, "lines": lines}))


if __name__ == "__main__":
    main()
