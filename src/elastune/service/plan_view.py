"""The plan of a run next to what came of it."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from elastune.cost import MachineUse
from elastune.messages import PlannedRound, PlannedStage
from elastune.record.projection import RunView
from elastune.service import read_schema as r


def plan_of(view: RunView) -> r.Plan | None:
    if (clock := view.started.plan) is not None:
        newest = clock.finish_s, clock.cost_usd
        return _plan(newest, True, 1, newest, [_round(each) for each in clock.rounds])
    if not view.plans:
        return None
    (_, first), (_, last) = view.plans[0], view.plans[-1]
    stages = [_stage(number, each) for number, bracket in enumerate(first.brackets) for each in bracket]
    if len(first.brackets) == 1:  # of several, the iteration of a trial does not tell which stage it is in
        _add_actual(view, stages, first.brackets[0])
    forecast, newest = (first.finish_s, first.cost_usd), (last.finish_s, last.cost_usd)
    return _plan(forecast, False, len(view.plans), newest, stages)


def _plan(
    forecast: tuple[float, float], at_most: bool, plans: int, newest: tuple[float, float], stages: list[r.StageModel]
) -> r.Plan:
    return r.Plan(
        finish_s=forecast[0],
        cost_usd=forecast[1],
        at_most=at_most,
        plans=plans,
        newest_finish_s=newest[0],
        newest_cost_usd=newest[1],
        stages=stages,
    )


def _round(planned: PlannedRound) -> r.StageModel:
    return r.StageModel(
        bracket=planned.bracket,
        trials=planned.trials,
        iterations=None,
        devices=planned.trials * planned.devices_per_trial,
        machines=planned.machines,
        begin_s=planned.begin_s,
        end_s=planned.end_s,
    )


def _stage(bracket: int, planned: PlannedStage) -> r.StageModel:
    return r.StageModel(
        bracket=bracket,
        trials=planned.trials,
        iterations=planned.iterations,
        devices=planned.devices,
        machines=planned.machines,
    )


def _add_actual(view: RunView, stages: list[r.StageModel], planned: tuple[PlannedStage, ...]) -> None:
    """A stage is the reports between two iterations. Its time goes from the last report of the stage before to the last
    one of its own.
    """
    ends, begin_s, machines = list(accumulate(each.iterations for each in planned)), 0.0, view.machines
    for stage, from_iteration, until in zip(stages, [0, *ends], ends, strict=False):
        last_s = []
        for trial in view.trials.values():
            first = bisect_left(trial.reports, from_iteration + 1, key=lambda report: report.iteration)
            after = bisect_left(trial.reports, until + 1, key=lambda report: report.iteration)
            if first < after:
                last_s.append(trial.reports[after - 1].at_s)
        if not last_s:
            return
        end_s = max(last_s)
        stage.actual_trials, stage.actual_begin_s, stage.actual_end_s = len(last_s), begin_s, end_s
        stage.actual_machines = _most_at_once(machines, begin_s, end_s)
        begin_s = end_s


def _most_at_once(machines: list[MachineUse], begin_s: float, end_s: float) -> int:
    inside = [(max(use.from_s, begin_s), min(use.to_s, end_s)) for use in machines]
    changes = sorted(change for since, to in inside if to > since for change in ((since, 1), (to, -1)))
    return max(accumulate((change for _, change in changes), initial=0))
