"""How much sooner a target is reached when an executor shares and spreads devices: Fluid's experiments, simulated.

The default executor (a device for each trial, first come, first served) against Fluid as in its paper and against ours,
with the same algorithms, seeds and devices. The algorithms decide as they always do, in the real controller; only what
each trial gets differs.

What is simulated: 8 machines of one device (other numbers where the paper has them), held from the beginning; trials
that take 5% of a median epoch to start. Tasks and targets: `_fluid_tasks.py`. What it costs to share a device and to
spread over several is taken from measurements on real GPUs: `_fluid_overheads.py`, and the table below. All algorithms
have r = 1, eta = 3 and R = all epochs; PBT has a population of 8 and 8 generations.

What is not claimed: nothing is trained here, and the paper's own networks are not among the curves; its seconds cannot
be compared with these, its ratios can. The costs of sharing are those of other networks on a P100, where two trials on
a device do 14 to 23% more than one; the paper reports devices that are used to 60% at most, and does not say its costs.

`speedup_*`: seconds to the target under the default executor over those under ours, the geometric mean over all tasks
and seeds, pair by pair. A run that has not reached the target counts with the time at which it was given up.

Writes fluid.csv (a line for each run) and the pictures to benchmarks/out or the folder of --plots. Needs
lc_cifar10_cnn_klein, lc_lcbench_surrogate, gavel_throughputs and pollux_traces, and
`pip install "elastune[report,surrogate]"`.

    python benchmarks/fluid.py [--quick] [--seeds N] [--studies figure_7,...] [--jobs N] [--plots FOLDER]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, geometric_mean, median

from _figures import Figure, print_figures
from _fluid_overheads import print_overheads
from _fluid_plots import Bar, Course, Panel, bars, best_so_far
from _fluid_runs import ARGUMENTS, DEFAULT, EXECUTORS, GRID, HALVING, OURS, TUNERS, Case, Ran, Runs, write_rows
from _fluid_tables import of, print_head, print_line, ratios, spread, told
from _fluid_tasks import FULL_TRAININGS, TASKS, needed_data, task

from elastune.reporting.plots import save

OUT = Path(__file__).parent / "out"
HORIZON = 10
"""How long the runs of Figures 3, 9 and 10 are, in mean full trainings on one device."""
MORE_SEEDS = 4
"""For times to a target: with another executor an asynchronous algorithm comes upon other configurations, and its times
differ by far more than executors do."""
OTHERS = [name for name in EXECUTORS if name != DEFAULT]
GOALS = {"SyncBOHB": 2.0, "Hyperband": 1.3, "ASHA": 1.1, "BOHB": 1.1, "PBT": 1.0}
"""What the paper reports at least."""
JSON_NAMES = {"SyncBOHB": "sync_bohb", "Hyperband": "hyperband", "ASHA": "asha", "BOHB": "bohb", "PBT": "pbt"}


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is run, and where pictures go."""

    runs: Runs
    seeds: int
    quick: bool
    plots: Path

    def some(self, all_of_them: Sequence[float]) -> list[float]:
        """The first and the last if it is to be quick."""
        return [all_of_them[0], all_of_them[-1]] if self.quick else list(all_of_them)

    def whole(self, all_of_them: Sequence[int]) -> list[int]:
        return [int(each) for each in self.some(all_of_them)]


def compare(scope: Scope, name: str, title: str, cases: Sequence[Case], across: str, shown: str = "{}") -> list[Ran]:
    """Speed-ups over the default executor by task and by one field of the cases, printed and drawn."""
    rans = scope.runs([replace(case, executor=executor) for case in cases for executor in EXECUTORS])
    points = list(dict.fromkeys(getattr(case, across) for case in cases))
    panels: dict[str, dict[str, dict[str, Bar]]] = {}
    print_head(title, ["default, s", *(f"{other}, x" for other in OTHERS)])
    for known, point in product(dict.fromkeys(case.task for case in cases), points):
        here, label = of(rans, task=known, **{across: point}), shown.format(point)
        found = {other: spread(ratios(here, other)) for other in OTHERS}
        panels.setdefault(known, {})[label] = found
        default = spread([ran.outcome.seconds for ran in of(here, executor=DEFAULT)])
        print_line(f"{known}, {label}", [told(default), *(told(each, 2) for each in found.values())])
    save(scope.plots, {f"fluid_{name}": bars(panels, title, "speed-up over the default executor", 1.0)})
    return rans


# ----------------------------------------------------------------------------------------------------- macrobenchmarks


def figure_7(scope: Scope, adverse: bool = False) -> list[Figure]:
    """Time to the target; and Figure 8, the utilisation of these runs."""
    study, what = ("adverse", " with adverse overheads") if adverse else ("figure_7", "")
    each = product(TASKS, TUNERS, EXECUTORS, range(scope.seeds * (1 if scope.quick or adverse else MORE_SEEDS)))
    rans = scope.runs(
        [
            Case(study, known, algorithm, executor, seed, to_target=True, adverse=adverse)
            for known, algorithm, executor, seed in each
        ]
    )
    print_head(f"Figure 7: seconds to the target{what} (x: default over it)", list(EXECUTORS), "not reached: in ()")
    panels: dict[str, dict[str, dict[str, Bar]]] = {}
    for known, algorithm in product(TASKS, TUNERS):
        here, cells = of(rans, task=known, algorithm=algorithm), []
        bar = panels.setdefault(known, {}).setdefault(algorithm, {})
        for executor in EXECUTORS:
            seconds = [ran.outcome.seconds for ran in of(here, executor=executor)]
            missed = sum(ran.outcome.target_s is None for ran in of(here, executor=executor))
            bar[executor] = spread(seconds)
            over = bar[DEFAULT][0] / bar[executor][0]
            cells.append(told(bar[executor]) + (f" ({missed})" if missed else "") + f" {over:.2f}x")
        print_line(f"{known}, {algorithm}", cells)
    save(scope.plots, {f"fluid_{study}": bars(panels, f"Time to target{what}", "seconds", None)})
    if not adverse:
        figure_8(scope, rans)
    found = [speedup(of(rans, algorithm=name), name) for name in TUNERS]
    print(f"\nSeconds under the default executor over those under each, geometric mean over tasks and seeds{what}")
    for other in OTHERS:
        means = {name: geometric_mean(ratios(of(rans, algorithm=name), other)) for name in TUNERS}
        print_line(other, [f"{name} {mean:.2f}x" for name, mean in means.items()])
    return [] if adverse else found


def speedup(rans: Sequence[Ran], algorithm: str) -> Figure:
    ratio, goal = geometric_mean(ratios(rans, OURS)), GOALS[algorithm]
    ours, default = (fmean(ran.outcome.seconds for ran in of(rans, executor=name)) for name in (OURS, DEFAULT))
    name = f"speedup_{JSON_NAMES[algorithm]}"
    return Figure(name, round(ours, 1), round(default, 1), round(ratio, 3), f">= {goal}", ratio >= goal)


def figure_8(scope: Scope, rans: Sequence[Ran]) -> None:
    title = "Figure 8: utilisation (devices with a trial), and work done per device-second"
    print_head(title, list(EXECUTORS))
    panels: dict[str, dict[str, dict[str, Bar]]] = {}
    for known, algorithm in product(TASKS, TUNERS):
        bar = panels.setdefault(known, {}).setdefault(algorithm, {})
        cells = []
        for executor in EXECUTORS:
            outcomes = [ran.outcome for ran in of(rans, task=known, algorithm=algorithm, executor=executor)]
            bar[executor] = spread([outcome.utilisation for outcome in outcomes])
            cells.append(f"{bar[executor][0]:.0%}, {fmean(outcome.useful for outcome in outcomes):.2f}")
        print_line(f"{known}, {algorithm}", cells)
    save(scope.plots, {"fluid_figure_8": bars(panels, "Devices with a trial", "of those held", None)})


def adverse(scope: Scope) -> list[Figure]:
    """Figure 7 where neither sharing nor spreading pays: an executor should do no harm."""
    return figure_7(scope, adverse=True)


def courses(title: str, named: Mapping[str, Sequence[Ran]]) -> None:
    """When the best value on cifar10 reaches the target, and what it comes to."""
    known = task("cifar10")
    print_head(title, ["reached", "seconds to it", "device-seconds to it", "best at the end"])
    for label, rans in named.items():
        reached = [next((step for step in ran.outcome.course if known.reached(step[2])), None) for ran in rans]
        at = [step for step in reached if step is not None]
        seconds, device_s = ([step[column] for step in at] for column in (0, 1))
        best = spread([ran.outcome.best for ran in rans if ran.outcome.best is not None])
        times = [told(spread(each)) if each else "-" for each in (seconds, device_s)]
        print_line(label, [f"{len(at)} of {len(rans)}", *times, told(best, 4)])


def drawn(rans: Mapping[str, Sequence[Ran]]) -> dict[str, list[Course]]:
    return {name: [ran.outcome.course for ran in found] for name, found in rans.items()}


def by_devices(scope: Scope, study: str, algorithm: str, title: str, concurrent: int | None) -> None:
    """`concurrent` trials at a time (None: as the executor sees fit), under the default one as many as devices."""
    panels: list[Panel] = []
    named: dict[str, Sequence[Ran]] = {}
    for devices in scope.whole((4, 8, 16)):
        rans = {
            name: scope.runs(on(scope, study, algorithm, name, devices, None if name == DEFAULT else concurrent))
            for name in EXECUTORS
        }
        panels.append(Panel(f"{devices} devices", drawn(rans)))
        named |= {f"{devices} devices, {name}": found for name, found in rans.items()}
    courses(title, named)
    save(scope.plots, {f"fluid_{study}": best_so_far(task("cifar10"), panels, title)})


def on(scope: Scope, study: str, algorithm: str, executor: str, devices: int, concurrent: int | None) -> list[Case]:
    case = Case(study, "cifar10", algorithm, executor, 0, devices, horizon=HORIZON * devices, concurrent=concurrent)
    return [replace(case, seed=seed) for seed in range(scope.seeds)]


def figure_3(scope: Scope) -> list[Figure]:
    title = "Figure 3: ASHA, as many trials as devices, default executor"
    rans = {
        f"{devices} devices": scope.runs(on(scope, "figure_3", "ASHA", DEFAULT, devices, None))
        for devices in scope.whole((4, 8, 16, 32))
    }
    courses(title, rans)
    panels = [Panel("by time", drawn(rans)), Panel("by time on devices", drawn(rans), column=1)]
    save(scope.plots, {"fluid_figure_3": best_so_far(task("cifar10"), panels, title)})
    return []


def figure_9(scope: Scope) -> list[Figure]:
    if "SyncBOHB" in TUNERS:
        by_devices(scope, "figure_9", "SyncBOHB", "Figure 9: SyncBOHB", None)
    return []


def figure_10(scope: Scope) -> list[Figure]:
    by_devices(scope, "figure_10", "ASHA", "Figure 10: ASHA, 8 trials at a time unless default", 8)
    return []


def table_2(scope: Scope) -> list[Figure]:
    print_head("Table 2: successive halving of 81 trials, default executor", ["utilisation", "run time, s"], "workers")
    for devices in scope.whole((2, 4, 8, 16, 32)):
        case = Case("table_2", "cifar10", HALVING, DEFAULT, 0, devices, trials=81)
        outcomes = [ran.outcome for ran in scope.runs([replace(case, seed=seed) for seed in range(scope.seeds)])]
        used = fmean(outcome.utilisation for outcome in outcomes)
        print_line(str(devices), [f"{used:.1%}", told(spread([outcome.seconds for outcome in outcomes]))])
    return []


# ----------------------------------------------------------------------------------------------------- microbenchmarks


def grids(scope: Scope, study: str) -> list[Case]:
    """27 trials of each task on 8 devices, for all seeds."""
    each = product(TASKS, range(scope.seeds))
    return [Case(study, known, GRID, DEFAULT, seed, trials=27) for known, seed in each]


def figure_11a(scope: Scope) -> list[Figure]:
    numbers = scope.whole((9, 27, 81))
    cases = [replace(case, trials=n, spread=False) for case in grids(scope, "figure_11a") for n in numbers]
    compare(scope, "figure_11a", "Figure 11a: grid search on 8 devices, sharing only", cases, "trials", "{} trials")
    return []


def figure_11b(scope: Scope) -> list[Figure]:
    numbers = scope.whole((2, 4, 6))
    cases = [replace(case, trials=n, pack=False) for case in grids(scope, "figure_11b") for n in numbers]
    compare(scope, "figure_11b", "Figure 11b: grid search on 8 devices, spreading only", cases, "trials", "{} trials")
    return []


def figure_12(scope: Scope) -> list[Figure]:
    sigmas = scope.some((0.0, 0.25, 0.5, 1.0))
    cases = [replace(case, trials=9, sigma=sigma) for case in grids(scope, "figure_12") for sigma in sigmas]
    compare(scope, "figure_12", "Figure 12: 9 trials, log-normal run times", cases, "sigma", "sigma {:g}")
    return []


def figure_13a(scope: Scope) -> list[Figure]:
    each = product(grids(scope, "figure_13a"), scope.some((1.0, 1.5, 2.0, 10.0)))
    cases = [replace(case, packing_times=times, spread=False) for case, times in each]
    title = "Figure 13a: 27 trials on 8 devices, times the overhead of sharing"
    compare(scope, "figure_13a", title, cases, "packing_times", "{:g} x")
    return []


def figure_13b(scope: Scope) -> list[Figure]:
    each = product(grids(scope, "figure_13b"), scope.whole((4, 8, 16)))
    cases = [replace(case, devices=n, trials=3, pack=False) for case, n in each]
    compare(scope, "figure_13b", "Figure 13b: 3 trials, spreading only", cases, "devices", "{} devices")
    return []


def real_ray(scope: Scope) -> list[Figure]:
    """On this computer: a group of unequal trials on two slots, with the default executor and with ours in turns."""
    from _fluid_ray import EPOCHS, UNITS, measured, speedups  # torch and Ray, which simulations do without

    print_head("Real local Ray, 2 slots: digits networks", ["alpha", "beta"], "units")
    for units in (UNITS[0], UNITS[-1]):
        print_line(str(units), [f"{value:.2f}" for value in measured(units)])
    both = speedups(1 if scope.quick else 5)
    title = f"A group of {len(UNITS)} trials: units {UNITS}, epochs {EPOCHS}"
    print_head(title, ["default, s", "ours, s", "ratio"], "repetition")
    for number, (default_s, ours_s) in enumerate(both):
        print_line(str(number), [f"{default_s:.1f}", f"{ours_s:.1f}", f"{default_s / ours_s:.2f}x"])
    default, ours = (round(median(column), 1) for column in zip(*both, strict=True))
    ratio = median(default_s / ours_s for default_s, ours_s in both)
    return [Figure("speedup_real_ray", ours, default, round(ratio, 3), ">= 1.2", ratio >= 1.2)]


STUDIES: dict[str, Callable[[Scope], list[Figure]]] = {
    study.__name__: study
    for study in (
        figure_7, adverse, table_2, figure_3, figure_9, figure_10, figure_11a, figure_11b, figure_12, figure_13a,
        figure_13b, real_ray,
    )
}  # fmt: skip


def print_tasks() -> None:
    print(f"Targets: what random search with {FULL_TRAININGS} full trainings reaches in the median")
    print_line("", ["stands for", "target", "median epoch, s", "mean training, s"])
    for known in map(task, TASKS):
        goal = f"{'<=' if known.mode == 'min' else '>='} {known.target:.4f}"
        print_line(
            f"{known.name}, {known.metric}",
            [known.stands_for, goal, f"{known.epoch_s:.3g}", f"{known.full_training_s:,.0f}"],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds, and fewer points")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="default: 10, and four times as many for times to a target"
    )
    parser.add_argument("--studies", metavar="A,B", help=f"some of {', '.join(STUDIES)}; default: all")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes; default: one for each processor")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", default=OUT, help="default: benchmarks/out")
    given = parser.parse_args()
    wanted = given.studies.split(",") if given.studies else list(STUDIES)
    if unknown := [name for name in wanted if name not in STUDIES]:
        parser.error(f"--studies: there is no {', '.join(unknown)}; allowed: {', '.join(STUDIES)}")
    needed_data()
    print_tasks()
    print_overheads()
    if missing := [name for name in ARGUMENTS if name not in TUNERS]:
        print(f"\nNot in this version: {', '.join(missing)}")
    figures: list[Figure] = []
    with Runs(given.jobs) as runs:
        scope = Scope(runs, given.seeds or (2 if given.quick else 10), given.quick, given.plots)
        for name in wanted:
            began_s = time.perf_counter()
            figures += STUDIES[name](scope)
            print(f"({name}: {time.perf_counter() - began_s:.0f} s)")
    given.plots.mkdir(parents=True, exist_ok=True)
    if runs.rans:
        write_rows(given.plots / "fluid.csv", runs.rans)
    print_figures(figures)


if __name__ == "__main__":
    main()
