"""What planning anew at every barrier is worth where the profile was wrong: runs on the simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from tempfile import TemporaryDirectory

from _figures import Figure

import elastune as et
from elastune.algorithm.halving import halving_stages
from elastune.cluster.workload import Synthetic
from elastune.plan.exact import frontier
from elastune.plan.model import Job, cheapest
from elastune.profile import Cloud, JobProfile
from elastune.simulation import Simulation

MACHINES = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """SHA(*halving), what is believed of a step, the deadlines, and the factors by which a step truly is slower."""

    halving: tuple[int, int, int, int]
    profile: JobProfile
    minutes: tuple[float, ...]
    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    time_s: float
    cost_usd: float
    late: bool

    def __str__(self) -> str:
        return f"{f'${self.cost_usd:.2f}':>12}{f'{self.time_s / 60:.1f} min' + ('!' if self.late else ' '):>12}"


def gain_replan(settings: tuple[Setting, ...], cloud: Cloud) -> Figure:
    """On the cloud as it is, with its minimum charge. A run that is late ends at its deadline."""
    pairs: list[tuple[Run, Run]] = []
    possible: list[tuple[Run, Run]] = []
    for setting in settings:
        sha = ", ".join(map(str, setting.halving))
        print(
            f"\nReplanning at barriers, SHA({sha}) simulated; steps of {setting.profile.step.mean_s:g} s are expected"
        )
        columns = ("hindsight", "no replan", "", "replan", "", "no/replan")
        print(f"{'deadline, true step':34}" + "".join(f"{column:>12}" for column in columns))
        for minute, factor in product(setting.minutes, setting.factors):
            without, replanned = (_run(setting, cloud, 60 * minute, factor, replan) for replan in (False, True))
            best = _with_hindsight(setting, cloud, 60 * minute, factor)
            possible += [(without, replanned)] if best is not None else []
            ratio = "-"
            if not without.late and not replanned.late:
                pairs.append((without, replanned))
                ratio = f"{without.cost_usd / replanned.cost_usd:.3f}"
            label = f"{minute:g} min, x {factor:g}"
            print(f"{label:34}{'-' if best is None else f'${best:.2f}':>12}{without}{replanned}{ratio:>12}")
    late = [sum(run.late for run in runs) for runs in zip(*possible, strict=True)]
    ratios = [without.cost_usd / replanned.cost_usd for without, replanned in pairs]
    mean = fmean(ratios)
    print(
        f"! was stopped at its deadline; hindsight is the plan that knows the true step. Of the {len(possible)} "
        f"deadlines that it can meet {late[0]} were missed without replanning, {late[1]} with it.\n"
        f"gain_replan: without over with where both are in time ({len(ratios)}): mean {mean:.3f}, "
        f"least {min(ratios):.3f}, largest {max(ratios):.3f}"
    )
    without_usd, ours_usd = (round(fmean(run.cost_usd for run in runs), 2) for runs in zip(*pairs, strict=True))
    return Figure("gain_replan", ours_usd, without_usd, round(mean, 3), ">= 1.0", mean >= 1.0 and late[1] <= late[0])


def _run(setting: Setting, cloud: Cloud, deadline_s: float, factor: float, replan: bool) -> Run:
    with TemporaryDirectory() as folder:
        tuner = et.Tuner(
            None,
            space={"x": et.uniform(0, 1)},
            metric="loss",
            algorithm=et.SuccessiveHalving(*setting.halving),
            deadline=deadline_s,
            machines=MACHINES,
            planning=et.Planning(setting.profile, cloud, replan=replan),
            name="run",
            storage=folder,
        )
        result = tuner.simulate(Simulation(Synthetic("loss", "min", step_s=factor * setting.profile.step.mean_s)))
    return Run(result.view.at_s, result.cost, result.status != "succeeded")


def _with_hindsight(setting: Setting, cloud: Cloud, deadline_s: float, factor: float) -> float | None:
    profile = replace(setting.profile, step=setting.profile.step.times(factor))
    best = cheapest(frontier(Job(halving_stages(*setting.halving), profile, cloud, MACHINES)), deadline_s)
    return None if best is None else best.cost_usd
