"""The service under load, and what its parts gain: Ultron's promises, measured.

`storm`: 1,000 jobs of 50 tenants, submitted by 20 clients at once to a real service on this computer, while the service
and its drivers are killed 50 times with kill -9 (`make soak-service`). What is counted is read afterwards from the
database's history and the journals of the runs. All the while four readers ask for what the portal asks for, up to 50
times a second; answers in the first two seconds after a restart do not count. The others are the studies of
_service_kfold.py, _service_stream.py and _service_preemptible.py; the last needs gcp_preemption_lifetimes, streams need
mnist_idx.

    python benchmarks/service.py [--quick] [--studies storm,kfold,stream,preemptible]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _figures import Figure, print_figures

ROOT = Path(__file__).parents[1]


def storm(quick: bool) -> list[Figure]:
    size = {"jobs": 60, "tenants": 6, "kills": 5} if quick else {"jobs": 1000, "tenants": 50, "kills": 50}
    options = [f"--{name}={value}" for name, value in size.items()]
    # Its last line is JSON, whatever was found.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.service.storm", *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    print(ran.stdout, flush=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    once = min(found["ended_once"], found["ran_once"])
    violations, p99_ms = found["quota_violations"], round(found["read_p99_ms"], 1)
    return [
        Figure("jobs_run_exactly_once", once, None, None, f"all {size['jobs']}", once == size["jobs"]),
        Figure("quota_violations", violations, None, None, "0", violations == 0),
        Figure("read_p99_ms", p99_ms, None, None, "< 100", p99_ms < 100),
    ]


def kfold(quick: bool) -> list[Figure]:
    from _service_kfold import study

    found = study(quick)
    efficiency, whole, ideal = found["parallel_efficiency_11"], found["whole_speedup_11"], found["whole_ideal_11"]
    possible = f">= 0.9 of the {ideal:.2f} that are possible"
    return [
        Figure("parallel_efficiency_11", round(efficiency, 3), None, None, ">= 0.9", efficiency >= 0.9),
        Figure("kfold_whole_speedup_11", round(whole, 2), None, None, possible, whole >= 0.9 * ideal),
    ]


def stream(quick: bool) -> list[Figure]:
    from _service_stream import study

    return study(quick)


def preemptible(quick: bool) -> list[Figure]:
    """Cost and time over those on demand."""
    from _service_preemptible import preemptible

    found = preemptible()
    print(found)
    whole = found.same_winner and not (found.lost_iterations or found.counted_twice)
    cost, hours = round(found.cost_ratio, 3), round(found.time_ratio, 3)
    return [
        Figure("preemptible_cost_over_on_demand", cost, None, None, "< 0.5 (Ultron: 0.3)", whole and cost < 0.5),
        Figure("preemptible_time_over_on_demand", hours, None, None, "none: Ultron says slightly longer", True),
    ]


STUDIES: dict[str, Callable[[bool], list[Figure]]] = {
    "storm": storm,
    "kfold": kfold,
    "stream": stream,
    "preemptible": preemptible,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 jobs and 5 kills, fewer slots, fewer samples")
    parser.add_argument("--studies", default=",".join(STUDIES), help="some of " + ", ".join(STUDIES))
    given = parser.parse_args()
    chosen = given.studies.split(",")
    if unknown := [name for name in chosen if name not in STUDIES]:
        parser.error(f"--studies: there is no {', '.join(unknown)}; allowed: {', '.join(STUDIES)}")
    found: list[Figure] = []
    for name in chosen:
        print(f"== {name}", flush=True)
        found += STUDIES[name](given.quick)
    print_figures(found)


if __name__ == "__main__":
    main()
