"""Forecast and bill: two planned runs on real Ray, whose machines are raylets of their own on this computer.

Each is profiled first, with `Tuner.profile`, and the forecast rests on what that measured alone. The plan is one whose
stages differ most: of all plans that no other beats, the one with the most changes of width and of machines; its time
is the deadline. It is carried out without planning anew, so that forecast and run are of the same plan.

`forecast_time_error`, `forecast_cost_error`: how far off the forecast was, the worse of the two runs.

    python benchmarks/forecast.py [--quick]
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from _figures import Figure, print_figures

import elastune as et
from elastune.allocate.planned import Planned
from elastune.forecast import forecast
from elastune.messages import PlannedStage
from elastune.plan.exact import frontier
from elastune.plan.goal import Goal
from elastune.plan.model import Job

GOAL = 0.05
STEP_S, SERIAL = 0.5, 0.1
"""Of the steps that sleep, and the part of them that more devices do not shorten; the forecast does not know them."""


def sleep(config: Mapping[str, Any]) -> None:
    done = et.get_checkpoint() or 0
    step_s = STEP_S * (SERIAL + (1 - SERIAL) / et.get_context().world_size)
    while True:
        time.sleep(step_s)
        done += 1
        et.report({"loss": (config["x"] - 0.3) ** 2 + 1 / done}, checkpoint=done)


def digits(config: Mapping[str, Any]) -> None:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(et.get_context().seed)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    elastic = et.torch.Elastic(model, optimizer := torch.optim.SGD(model.parameters(), lr=config["lr"]))
    batches = elastic.batches(data, batch_size=600)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y)

    while True:
        for batch in batches:
            optimizer.zero_grad()
            loss = elastic.backward(loss_of, batch)
            optimizer.step()
        et.report({"loss": float(loss)})


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    train: Any
    space: dict[str, Any]
    stages: list[tuple[int, int]]
    machines: int
    devices: int
    profile_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    changes: int
    forecast_s: float
    actual_s: float
    forecast_usd: float
    actual_usd: float


def carry_out(case: Case, folder: Path) -> Outcome:
    def tuner(**more: Any) -> et.Tuner:
        return et.Tuner(
            case.train,
            space=case.space,
            metric="loss",
            algorithm=et.Stages(case.stages),
            machines=case.machines,
            devices=case.devices,
            price="$1",
            provider="local",
            boot="15s",
            storage=folder,
            name=case.name,
            **more,
        )

    found = tuner().profile(case.profile_s, progress=False)
    print(f"\n{case.name}\n{found}")
    stages = et.Stages(case.stages).stages()
    job = Job(stages, found.profile, found.cloud, case.machines)
    chosen = max(frontier(job), key=lambda candidate: (changes(candidate.plan.stages), -candidate.cost_usd))
    # As an allocator of its own the plan has a deadline and the run has none: how late it is shall be seen.
    goal = Goal(deadline_s=chosen.time_s + 1e-6)
    planned = Planned(stages, found.profile, found.cloud, case.machines, goal, replan=False)
    print(forecast(planned))
    result = tuner(allocator=planned).fit(progress=False)
    _, plan = result.view.plans[0]
    return Outcome(changes(plan.brackets[0]), plan.finish_s, result.view.at_s, plan.cost_usd, result.cost)


def changes(stages: tuple[PlannedStage, ...]) -> int:
    """Of width or of the number of machines, from one stage to the next."""
    return sum((a.width != b.width) + (a.machines != b.machines) for a, b in pairwise(stages))


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    logging.disable(logging.WARNING)
    times = 1 if quick else 3
    small = [(4, 8 * times), (2, 16 * times), (1, 24 * times), (1, 24 * times)]
    large = [(16, 8 * times), (6, 16 * times), (2, 32 * times), (1, 64 * times)]
    cases = [
        Case("digits", digits, {"lr": et.loguniform(1e-3, 1e-1)}, small, 2, 1, 6.0 * times),
        Case("sleep", sleep, {"x": et.uniform(0, 1)}, large, 4, 2, 6.0 * times),
    ]
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            outcomes[case.name] = carry_out(case, Path(folder))
    print(
        f"\n{'':10} {'changes':>8} {'forecast, s':>12} {'actual':>8} {'off':>7}"
        f" {'forecast, $':>12} {'actual':>8} {'off':>7}"
    )
    for name, o in outcomes.items():
        times_text = f"{o.forecast_s:>12.1f} {o.actual_s:>8.1f} {o.actual_s / o.forecast_s - 1:>+7.1%}"
        costs_text = f"{o.forecast_usd:>12.4f} {o.actual_usd:>8.4f} {o.actual_usd / o.forecast_usd - 1:>+7.1%}"
        print(f"{name:10} {o.changes:>8} {times_text} {costs_text}")
    time_error = max(abs(o.actual_s / o.forecast_s - 1) for o in outcomes.values())
    cost_error = max(abs(o.actual_usd / o.forecast_usd - 1) for o in outcomes.values())
    print_figures(
        [
            Figure(name, round(error, 4), None, None, f"<= {GOAL:g}", error <= GOAL)
            for name, error in (("forecast_time_error", time_error), ("forecast_cost_error", cost_error))
        ]
    )


if __name__ == "__main__":
    main()
