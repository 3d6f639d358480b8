"""A job on preemptible machines that live as long as those of Google did in 2019, next to the same job on demand.

Machines are raylets of this computer, up to two at a time; each lives as long as one of the recorded lifetimes says,
1,200 times as fast: 20 hours are a minute. They cost 30% of what they cost on demand, as with Ultron, and are billed by
the same rules. There is no notice: Google's 30 s would be 25 ms here. A raylet takes two seconds to start, which are 40
minutes of the play: in truth starting costs less, so time and cost are told too high here.

    python benchmarks/_service_preemptible.py
"""

from __future__ import annotations

import csv
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from _data import data_folder
from _spot_ray import BEGIN_UNIX_S, compare, course_of, train

import elastune as et
from elastune.market.prices import Prices, PriceSeries
from elastune.results import Result

PACE = 1200.0
ON_DEMAND_USD, PREEMPTIBLE_USD = 1.0, 0.3
ZONES, TYPE = ("a", "b"), "n1-highcpu-16"
GONE_USD, GONE_S = 10.0, 0.2 * PACE
"""At the end of a life its zone costs more than anybody offers, for so long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    preempted: int
    lost_iterations: int
    counted_twice: int
    same_winner: bool
    cost_ratio: float
    """Over that on demand."""
    time_ratio: float


def lifetimes_s(seed: int) -> list[float]:
    file = data_folder("gcp_preemption_lifetimes") / "gcp_preemption_lifetimes" / "lifetimes.csv"
    with file.open() as rows:
        known = [float(row["lifetime_s"]) for row in csv.DictReader(rows) if row["machine_type"] == TYPE]
    return [float(each) for each in np.random.default_rng(seed).permutation(known)]


def prices(seed: int | None) -> Prices:
    """In every zone one life after another; without a seed nothing is ever taken away, and all costs as on demand."""
    found = {}
    for number, zone in enumerate(ZONES):
        usual = ON_DEMAND_USD if seed is None else PREEMPTIBLE_USD
        changes = {-24 * 3600.0: usual, 10_000 * 3600.0: usual}
        if seed is not None:
            for end_s in np.cumsum(lifetimes_s(seed + number)):
                changes |= {float(end_s): GONE_USD, float(end_s) + GONE_S: PREEMPTIBLE_USD}
        at_s, usd = zip(*sorted(changes.items()), strict=True)
        market = f"{TYPE}/{zone}"
        found[market] = PriceSeries(market, BEGIN_UNIX_S + np.array(at_s), np.array(usd))
    return Prices(found)


def tune(folder: Path, name: str, seed: int | None) -> Result:
    tuner = et.Tuner(
        train,
        space={"x": et.uniform(0.01, 0.99)},
        metric="loss",
        algorithm=et.SuccessiveHalving(6, 80, 240, 3),
        name=name,
        storage=folder,
        machines=len(ZONES),
        market=et.Spot(
            types={f"{TYPE}/{zone}": {"price": ON_DEMAND_USD} for zone in ZONES},
            prices=prices(seed),
            begin=datetime.fromtimestamp(BEGIN_UNIX_S, UTC),
            revocation=None,
            on_demand=False,
            notice=0,
            boot=0,
            pace=PACE,
        ),
        checkpoint_every=1.0,
        max_retries=0,  # being taken away is no failed try
        seed=3,
    )
    return tuner.fit(progress=False)


def preemptible(seed: int = 0) -> Outcome:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        calm, hit = tune(folder, "on-demand", None), tune(folder, "preemptible", seed)
        undisturbed, course = course_of(folder / "on-demand"), course_of(folder / "preemptible")
        found = compare(hit, course, calm, undisturbed)
    return Outcome(
        found.revocations,
        found.lost_iterations,
        found.counted_twice,
        found.same_winner,
        hit.cost / calm.cost,
        hit.view.at_s / calm.view.at_s,
    )


if __name__ == "__main__":
    print(preemptible())
