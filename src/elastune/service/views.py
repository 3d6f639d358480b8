"""What is told of a run, made from its view. Long series are thinned: a picture has no more points than that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from elastune import algorithm as algorithms
from elastune.errors import ElastuneError
from elastune.messages import Checkpoint, Note, TrialStatus
from elastune.record.projection import RunView, TrialView
from elastune.reporting.tables import ranked
from elastune.service import read_schema as r
from elastune.service.jobs import Listed
from elastune.service.plan_view import plan_of
from elastune.service.schema import Best

T = TypeVar("T")

POINTS, SPEND_POINTS, REPORTS, NOTES = 200, 60, 500, 20
OVER = ("completed", "stopped", "failed")


def thin(points: Sequence[T], most: int, value: Callable[[T], float]) -> list[T]:
    """At most so many, at least four: the first and the last, and of every stretch between the lowest and highest."""
    if len(points) <= most:
        return list(points)
    inner, stretches = len(points) - 2, (most - 2) // 2
    kept = {0, len(points) - 1}
    for index in range(stretches):
        stretch = range(1 + index * inner // stretches, 1 + (index + 1) * inner // stretches)
        kept.add(min(stretch, key=lambda i: value(points[i])))
        kept.add(max(stretch, key=lambda i: value(points[i])))
    return [points[i] for i in sorted(kept)]


def brief(view: RunView) -> r.Brief:
    best = view.best
    return r.Brief(
        metric=view.started.metric,
        mode=view.started.mode,
        best_value=None if best is None else best.best_value,
        trials=len(view.trials),
        cost_usd=view.cost_usd(),
        seconds=view.at_s,
        fraction=_fraction(view, *expected(view)),
    )


def brief_of_summary(job: Listed) -> r.Brief:
    """Of a job that has ended, as it was written down then."""
    known = {name: job.summary[name] for name in r.Brief.model_fields if job.summary.get(name) is not None}
    return r.Brief(**known, fraction=1.0 if job.summary.get("status") == "succeeded" else None)


def progress(job: Listed, view: RunView | None) -> r.Progress:
    told = r.Progress(
        job=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        cancelling=job.cancelled and not job.ended,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )
    return told if view is None else told.model_copy(update=_of_run(view))


def _of_run(view: RunView) -> dict[str, Any]:
    started, (trials, iterations) = view.started, expected(view)
    return {
        "status": view.status,
        "metric": started.metric,
        "mode": started.mode,
        "trials": view.counts(),
        "trials_expected": trials,
        "iterations": sum(trial.iteration for trial in view.trials.values()),
        "iterations_expected": iterations,
        "fraction": _fraction(view, trials, iterations),
        "best": best(view),
        "checkpoint_iteration": None if (kept := best_checkpoint(view)) is None else kept.iteration,
        "error": _last_error(view),
        "began_at": started.started_unix_s,
        "seconds": view.at_s,
        "deadline_s": started.deadline_s,
        "cost_usd": view.cost_usd(),
        "priced": any(use.price_usd_per_hour > 0 for use in view.machines),
        "budget_usd": started.budget_usd,
        "device_s": view.paid_device_s(),
        "budget_device_s": started.budget_device_s,
        "plan": plan_of(view),
        "machines": machines_over_time(view),
        "spend": spend_over_time(view),
        "bests": thin([(point.at_s, point.value) for point in view.improvements], POINTS, _second),
        "notes": [_note(note) for note in view.notes[-NOTES:]],
    }


def best(view: RunView) -> Best | None:
    found = view.best
    if found is None or found.best_value is None:
        return None
    return Best(
        trial=found.id,
        metric=view.started.metric,
        value=found.best_value,
        iteration=found.best_iteration,
        params=found.best_config or found.config,
        why=found.verdict or None,
    )


def best_checkpoint(view: RunView) -> Checkpoint | None:
    return None if view.best is None else view.best.best_checkpoint or view.best.last_checkpoint


def _last_error(view: RunView) -> str | None:
    failed = [each for each in view.trials.values() if each.status == "failed"]
    last = max(failed, key=lambda each: each.end_s or 0.0, default=None)
    return None if last is None else last.reason


def expected(view: RunView) -> tuple[int | None, int | None]:
    """How many trials and iterations there will be in all, where the algorithm says so beforehand."""
    described = view.started.experiment.get("algorithm")
    if not isinstance(described, dict) or len(described) != 1:
        return None, None
    ((name, arguments),) = described.items()
    kind = getattr(algorithms, name, None) if name in algorithms.__all__ else None
    try:
        stages = kind(**arguments).stages() if kind is not None else None
    except (TypeError, ElastuneError):  # not all that it was made with is written down
        stages = None
    if stages:
        return sum(stage.trials for stage in stages if stage.start == 0), sum(s.trials * s.iterations for s in stages)
    number = arguments.get("n") if isinstance(arguments, dict) else None
    return (number if isinstance(number, int) and number > 0 else None), None


def _fraction(view: RunView, trials: int | None, iterations: int | None) -> float | None:
    if view.status == "succeeded":
        return 1.0
    if iterations:
        return min(1.0, sum(trial.iteration for trial in view.trials.values()) / iterations)
    if trials:
        return min(1.0, sum(trial.status in OVER for trial in view.trials.values()) / trials)
    return min(1.0, view.at_s / view.started.deadline_s) if view.started.deadline_s else None


def machines_over_time(view: RunView) -> list[r.Point]:
    uses = [use for use in view.machines if use.to_s > use.from_s]
    changes = sorted([(use.from_s, 1) for use in uses] + [(use.to_s, -1) for use in uses if use.to_s < view.at_s])
    steps, count = [(0.0, 0.0)], 0
    for at_s, change in changes:
        count += change
        if at_s <= steps[-1][0]:
            steps[-1] = (steps[-1][0], float(count))
        else:
            steps.append((at_s, float(count)))
    return [*thin(steps, POINTS, _second), (view.at_s, float(count))]


def spend_over_time(view: RunView) -> list[r.Point]:
    if not view.at_s:
        return []
    return [(at_s, view.cost_usd(at_s)) for at_s in (view.at_s * i / SPEND_POINTS for i in range(SPEND_POINTS + 1))]


def trial(found: TrialView, view: RunView, number: int) -> r.TrialModel:
    return r.TrialModel(**_trial(found, view, number))


def trials(
    view: RunView, by: str, descending: bool, status: TrialStatus | None, offset: int, limit: int
) -> r.TrialPage:
    """By value the best come first, and those without one last, whichever way it is sorted."""
    numbers = {name: number for number, name in enumerate(view.trials)}
    found = list(view.trials.values())
    if by == "value":
        found = ranked(view)
        if descending:
            valued = sum(each.best_value is not None for each in found)
            found = found[:valued][::-1] + found[valued:]
    elif descending:
        found.reverse()
    if status is not None:
        found = [each for each in found if each.status == status]
    page = [trial(each, view, numbers[each.id]) for each in found[offset : offset + limit]]
    return r.TrialPage(trials=page, total=len(found))


def trial_detail(view: RunView, name: str) -> r.TrialDetail | None:
    """Without its log."""
    found = view.trials.get(name)
    if found is None:
        return None

    def value(report: Any) -> float:
        return view.metric_of(report.metrics) or 0.0

    reports = [
        r.ReportModel(at_s=report.at_s, iteration=report.iteration, metrics=report.metrics)
        for report in thin(found.reports, REPORTS, value)
    ]
    number = list(view.trials).index(name)
    traceback = found.failures[-1].traceback if found.failures else None
    more: dict[str, Any] = {"reports": reports, "reports_in_all": len(found.reports), "traceback": traceback}
    more |= {"log": "", "log_cut": False}
    return r.TrialDetail(**_trial(found, view, number), **more)


def curves(view: RunView, number: int, points: int) -> r.Curves:
    """Of the best trials, and as many of those that run."""
    order = [each for each in ranked(view) if each.best_value is not None]
    running = [each for each in order[number:] if each.status == "running"][:number]
    chosen = order[:number] + running
    return r.Curves(
        metric=view.started.metric,
        mode=view.started.mode,
        curves=[_curve(view, each, points) for each in chosen],
        left_out=len(order) - len(chosen),
    )


def _curve(view: RunView, trial: TrialView, points: int) -> r.Curve:
    assert trial.best_value is not None
    every = [
        (float(report.iteration), value)
        for report in trial.reports
        if (value := view.metric_of(report.metrics)) is not None
    ]
    shown = thin(every, points, _second)
    return r.Curve(trial=trial.id, status=trial.status, best_value=trial.best_value, points=shown)


def _trial(found: TrialView, view: RunView, number: int) -> dict[str, Any]:
    spans = {(busy.from_s, busy.to_s) for busy in found.segments}
    if found.slots:
        spans.add((found.held_from_s, view.at_s))
    return {
        "trial": found.id,
        "number": number,
        "status": found.status,
        "reason": found.reason,
        "iteration": found.iteration,
        "value": found.value,
        "best_value": found.best_value,
        "best_iteration": found.best_iteration,
        "why": found.verdict or None,
        "params": found.best_config or found.config,
        "seconds": sum(to_s - from_s for from_s, to_s in spans),
        "attempts": found.attempts,
        "failures": len(found.failures),
        "error": found.failures[-1].error if found.failures else None,
    }


def _note(note: Note) -> r.NoteModel:
    return r.NoteModel(level=note.level, text=note.text)


def _second(point: r.Point) -> float:
    return point[1]
