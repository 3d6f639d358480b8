"""Who finds the best model by a deadline and for a budget: SEER's Tables 2 to 4 and its Figure 4, simulated.

SEER against the algorithms of its paper (Random: one configuration on all devices; ASHA, HyperSched and BOHB on a
cluster of fixed size; elastic Hyperband and elastic grid search; SEER itself as it is in the paper), with its additions
one by one and with other searchers (its own is that of BOHB), on nine tasks, each with the same seeds. What counts is
the best value that was reported by the deadline. All pay the same: the budget buys a number of devices until the
deadline, and who is elastic may spend it otherwise.

What is simulated: machines of 4 devices that boot for half of t_min and cost $1 per device and hour, trials that take
0.05 t_min to start, speed-ups on several devices as published for ResNet18 and ResNet50 (HyperSched, V100) and VGG16
(TensorFlow, P100, real data). t_min is one median epoch on one device. The curves: recorded ones of 265 networks on
CIFAR-10 (klein), a surrogate of recorded ones (lcbench-*), and made-up power laws (synthetic-*). All have eta = 4,
r = 1 and R = all epochs of the task; SEER and the elastic ones have the task's t_min and p_max. Tasks and
the settings of the baselines were fixed before any result was seen; the additions to SEER were chosen on other tasks
of LCBench and on these (`_tasks.py`). HyperSched and BOHB are this package's own, which depart from the papers
in places that their files name.

What is not claimed: nothing is trained here, and the speed-ups are those of other networks than the curves. A trial
learns the same on any number of devices. The paper's own networks and data (VGG16 on SVHN, ResNet18 on CIFAR-10, BERT
on MNLI, ...) are not among these, so its accuracies cannot be compared with the values here; who is ahead of whom can.

`seer_best_mean_tasks`: on how many of the `tasks` no baseline's mean is better than SEER's (SEER as in the paper is a
baseline too). `seer_worst_gap_in_standard_errors`: on the task that is worst for SEER, how far it is behind the best
baseline (below 0: ahead), in standard errors, the larger of the two. "no result": runs without any report by the
deadline; they are not in the mean.

Figure 4: the same on lcbench-7593 for other deadlines with 16 devices (240 t_min stands for a very long one, where the
paper expects ASHA to win) and for other budgets by 30 t_min.

Writes accuracy.csv (a line for each run), accuracy_summary.csv and the pictures of Figure 4 to benchmarks/out. Needs
lc_cifar10_cnn_klein, lc_lcbench_surrogate and scaling_tables, and `pip install "elastune[report,surrogate]"`.

    python benchmarks/accuracy.py [--quick] [--seeds N] [--tasks klein,deadlines,...] [--jobs N]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from _sweep import sweep
from _tasks import (
    BUDGETS,
    DEADLINES,
    LINE_UP,
    QUICK,
    SWEPT,
    TASKS,
    Task,
    contest,
    curves,
    needed_data,
    t_min_s,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from elastune.bench import compare
from elastune.reporting.comparison import Standing, standings, write_csv
from elastune.reporting.plots import save

OUT = Path(__file__).parent / "out"
SWEEPS: dict[str, Mapping[float, Task]] = {"deadlines": DEADLINES, "budgets": BUDGETS}
MAIN = [each.label for each in LINE_UP if each.label == "SEER" or not each.ours]
"""Who is compared at other deadlines and budgets."""
Summary = dict[str, list[Standing]]
"""By the name of the task."""


def run_all(tasks: Sequence[Task], seeds: int, jobs: int | None) -> Summary:
    """All runs, written to files."""
    contests = [contest(task) if task in TASKS else contest(task).only(MAIN) for task in tasks]
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as line:
        progress = line.add_task("runs", total=sum(len(each.entries) for each in contests) * seeds)
        rows = compare(contests, range(seeds), jobs, lambda more: line.advance(progress, more))
    summary = {
        task.name: standings([row for row in rows if row.task == task.name], curves(task.curves).mode) for task in tasks
    }
    OUT.mkdir(exist_ok=True)
    write_csv(OUT / "accuracy.csv", rows)
    write_csv(OUT / "accuracy_summary.csv", [each for found in summary.values() for each in found])
    return summary


def print_table(task: Task, found: Sequence[Standing]) -> None:
    known, unit_s = curves(task.curves), t_min_s(task.curves)
    what = f"{known.metric}, {'less' if known.mode == 'min' else 'more'} is better"
    print(f"\n{task.name} ({what}): scaling of {task.scaling}, {task.devices} devices x {task.deadline:g} t_min")
    print(f"t_min = {unit_s:g} s, p_max = {task.p_max}, {found[0].runs} seeds")
    head = f"{'':16}{'mean':>10}{'std. error':>12}{'wins':>6}{'no result':>11}{'trials':>8}{'time':>8}{'cost':>8}"
    print(head)
    elastic = {each.label: each.elastic for each in LINE_UP}
    for before, each in zip([None, *found], found, strict=False):
        if before is not None and elastic[each.algorithm] and not elastic[before.algorithm]:
            print("- " * (len(head) // 2))
        mean = "-" if each.mean is None else f"{each.mean:.4f}"
        error = "-" if each.standard_error is None else f"{each.standard_error:.4f}"
        time = each.time_s / (task.deadline * unit_s)
        cost = each.cost_usd / (task.devices * task.deadline * unit_s / 3600.0)
        print(
            f"{each.algorithm:16}{mean:>10}{error:>12}{each.wins:>6}{each.without or '':>11}{each.trials:>8.0f}"
            f"{time:>8.0%}{cost:>8.0%}{'  best' * each.best}"
        )


def gap(found: Sequence[Standing], sign: float) -> float:
    """How far SEER is behind the best of the baselines, in standard errors: the larger of the two."""
    (seer,) = (each for each in found if each.algorithm == "SEER")
    baselines = {each.label for each in LINE_UP if not each.ours}
    others = [each for each in found if each.algorithm in baselines and each.mean is not None]
    best = min(others, key=lambda each: (each.without, sign * (each.mean or 0.0)))
    if seer.mean is None or best.mean is None:
        return math.inf
    error = max(seer.standard_error or 0.0, best.standard_error or 0.0)
    behind = sign * (seer.mean - best.mean)
    return behind / error if error else math.copysign(math.inf, behind) if behind else 0.0


def figures(summary: Summary, tasks: Sequence[Task]) -> dict[str, float | None]:
    """Of the tasks themselves, without other deadlines and budgets."""
    found = {task.name: summary[task.name] for task in tasks}
    seers = [each for standing in found.values() for each in standing if each.algorithm == "SEER"]
    if not seers:
        return {"tasks": len(tasks), "seer_best_mean_tasks": None, "seer_worst_gap_in_standard_errors": None}
    gaps = [gap(found[task.name], 1.0 if curves(task.curves).mode == "min" else -1.0) for task in tasks]
    return {
        "tasks": len(tasks),
        "seeds": seers[0].runs,
        "seer_best_mean_tasks": sum(value <= 0 for value in gaps),
        "seer_worst_gap_in_standard_errors": round(max(gaps), 2),
    }


def draw(name: str, summary: Summary) -> list[Path]:
    known, points = curves(SWEPT.curves), {at: summary[task.name] for at, task in SWEEPS[name].items()}
    if name == "deadlines":
        across, title = "deadline (t_min)", f"{SWEPT.name}: other deadlines, {SWEPT.devices} devices"
    else:
        across, title = "budget (devices until the deadline)", f"{SWEPT.name}: other budgets, {SWEPT.deadline:g} t_min"
    return save(OUT, {f"accuracy_{name}": sweep(points, across, known.metric, known.mode, title, MAIN[::-1])})


def main() -> None:
    names = [*(task.name for task in TASKS), *SWEEPS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"3 seeds of {', '.join(QUICK)}")
    parser.add_argument("--seeds", type=int, metavar="N", help="default: 20")
    parser.add_argument("--tasks", metavar="A,B", help=f"some of {', '.join(names)}; default: all")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes; default: one for each processor")
    given = parser.parse_args()
    wanted = given.tasks.split(",") if given.tasks else list(QUICK) if given.quick else names
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"--tasks: there is no {', '.join(unknown)}; allowed: {', '.join(names)}")
    needed_data()
    tasks = [task for task in TASKS if task.name in wanted]
    swept = [task for name in SWEEPS if name in wanted for task in SWEEPS[name].values()]
    every = list(dict.fromkeys([*tasks, *swept]))
    summary = run_all(every, given.seeds or (3 if given.quick else 20), given.jobs)
    for task in every:
        print_table(task, summary[task.name])
    for name in SWEEPS:
        if name in wanted:
            print("\n".join(f"picture: {path}" for path in draw(name, summary)))
    print(json.dumps(figures(summary, tasks)))


if __name__ == "__main__":
    main()
