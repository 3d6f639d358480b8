"""RubberBand's executor: machines and widths stage by stage as planned, and planned anew at every barrier.

A stage begins when all its machines are there. Trials that have no device yet queue. Machines for the next stage are
asked for ahead of time, and those it does without are given back as soon as their trials are done, where the plan says
so. At a barrier what is left is planned again, with the steps measured so far and the time and money that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.cost import SECONDS_PER_HOUR
from elastune.errors import Infeasible
from elastune.messages import Planned as PlanMade
from elastune.messages import PlannedStage
from elastune.plan.exact import frontier
from elastune.plan.goal import Goal, choose
from elastune.plan.model import Candidate, Job
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.scaling import Scaling
from elastune.spec import Stage, Width

TELLING = 0.1
"""First steps tell how long steps take only where beginning, as it was profiled, is no larger a part of them."""
PRIOR_STEPS = 2
"""What was measured of a width counts against what was measured of all as if that stood for so many steps."""
ROUNDING_S = 1e-6


@dataclass(slots=True)
class _Bracket:
    """Stages that follow one another: their places in the schedule, and how far they have come. It has machines of its
    own, the pool of its number: so it takes and costs what it would alone.
    """

    number: int
    places: dict[int, int]
    """The number of a stage within the bracket, by its place in the whole schedule."""
    stages: tuple[Stage, ...]
    at: int = -1
    planned: tuple[PlannedStage, ...] = ()
    """From the stage it is in to the last."""
    finish_s: float = 0.0
    began_s: float | None = None
    """When all machines of the present stage were there."""
    held: int = 0
    """The machines that it has or waits for."""
    running: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    failed: bool = False
    """Whether some trial will be tried again in a while."""


class Planned(Allocator):
    """`machines` is the most that may be held at once. With `replan` the plan is made anew at every barrier."""

    all_at_once = True

    def __init__(
        self,
        stages: Sequence[Stage],
        profile: JobProfile,
        cloud: Cloud,
        machines: int,
        goal: Goal,
        replan: bool = True,
        seed: int = 0,
    ) -> None:
        self.profile, self.cloud, self.machines, self.goal, self.replan = profile, cloud, machines, goal, replan
        self._seed = seed
        self._brackets = _brackets(stages)
        self._measured: dict[Width, tuple[int, float]] = {}
        self._new_plan = False
        self._cost_usd = 0.0
        self._prepared: list[Candidate] | None = None

    def prepare(self) -> list[Candidate]:
        """The plan to begin with, for each bracket. Raises Infeasible: to be asked before anything is started."""
        if self._prepared is None:
            self._prepared = choose(self.jobs(), self.goal)
        return self._prepared

    def jobs(self) -> list[Job]:
        """What is to be planned before the run begins: a job for each bracket."""
        share = max(1, self.machines // len(self._brackets))
        return [
            Job(bracket.stages, self.profile, self.cloud, share, seed=self._seed + number)
            for number, bracket in enumerate(self._brackets)
        ]

    def stepped(self, steps: Steps) -> bool:
        seconds = steps.seconds
        if steps.first:
            start_s = self.profile.start.expected_s + self.profile.cold_start.expected_s
            if start_s > TELLING * seconds:
                return False
            seconds -= self.profile.start.expected_s
        if seconds > 0:
            before, total_s = self._measured.get(steps.width, (0, 0.0))
            self._measured[steps.width] = (before + steps.number, total_s + seconds)
        return False

    # ------------------------------------------------------------------------------------------------------- executing

    def allocate(self, view: View, at_s: float) -> Target:
        self._new_plan = False
        if not self._brackets[0].planned:
            self._plan_all(view, at_s)
        self._sort_trials(view)
        past_barrier = [bracket for bracket in self._brackets if self._enter_stage(bracket, view)]
        if self.replan and past_barrier:
            self._plan_anew(past_barrier, view, at_s)
        self._begin_stages(view, at_s)
        widths = dict(view.widths)
        pools: dict[str, int] = {}
        queue_empties = False
        for bracket in self._brackets:
            if bracket.began_s is not None and bracket.waiting:
                stage = bracket.planned[0]
                room = max(0, min(stage.trials, stage.devices // stage.width) - len(bracket.running))
                widths.update((trial, stage.width) for trial in bracket.waiting[:room])
                pools.update((trial, bracket.number) for trial in bracket.waiting[:room])
                queue_empties = queue_empties or room >= len(bracket.waiting)
        asks_s = [ask_s for bracket in self._brackets if (ask_s := self._ask_at_s(bracket)) is not None]
        wake_s = min((ask_s for ask_s in asks_s if ask_s > at_s), default=None)
        return Target(
            {bracket.number: bracket.held for bracket in self._brackets},
            widths,
            wake_s,
            self._made() if self._new_plan else None,
            pools=pools,
            # As soon as all are placed some machines may have nothing left to do.
            again=queue_empties and self.goal.early_release,
        )

    def _sort_trials(self, view: View) -> None:
        bracket_of = {place: bracket for bracket in self._brackets for place in bracket.places}
        for bracket in self._brackets:
            bracket.running, bracket.waiting, bracket.failed = [], [], False
        for trial in view.failed():
            bracket_of[view.stage(trial)].failed = True
        for trial in view.widths:
            bracket_of[view.stage(trial)].running.append(trial)
        # One bracket needs no more of a long queue than it has devices for.
        most = None if len(self._brackets) > 1 else max(stage.devices for stage in self._brackets[0].planned)
        for trial in islice(view.waiting, most):
            bracket_of[view.stage(trial)].waiting.append(trial)

    def _enter_stage(self, bracket: _Bracket, view: View) -> bool:
        """All trials of a bracket are in the same stage: the first tells which. Says whether it has left another one
        behind.
        """
        trial = next(iter([*bracket.running[:1], *bracket.waiting[:1]]), None)
        stage = bracket.at if trial is None else bracket.places[view.stage(trial)]
        if stage <= bracket.at:
            return False
        first, bracket.planned = bracket.at < 0, bracket.planned[stage - max(bracket.at, 0) :]
        bracket.at, bracket.began_s = stage, None
        return not first

    def _begin_stages(self, view: View, at_s: float) -> None:
        """A stage begins when its machines are there."""
        for bracket in self._brackets:
            machines = self._needed(bracket, view)
            if bracket.began_s is None and machines <= len(view.machines(bracket.number)):
                bracket.began_s = at_s
            ask_s = self._ask_at_s(bracket)
            ahead = ask_s is not None and at_s >= ask_s
            bracket.held = max(machines, self._after(bracket)) if ahead else machines

    def _needed(self, bracket: _Bracket, view: View) -> int:
        """The machines of the present stage; once it needs no more, those that are busy or that the next one needs."""
        if not bracket.running and not bracket.waiting and not bracket.failed:
            return 0 if bracket.at >= 0 else bracket.planned[0].machines
        now, after = bracket.planned[0].machines, self._after(bracket)
        if bracket.began_s is None or bracket.waiting or bracket.failed or not self.goal.early_release:
            return now
        busy = sum(bool(machine.trials) for machine in view.machines(bracket.number))
        return min(now, max(busy, after))

    def _after(self, bracket: _Bracket) -> int:
        return bracket.planned[1].machines if len(bracket.planned) > 1 else 0

    def _ask_at_s(self, bracket: _Bracket) -> float | None:
        """When the machines of the next stage are asked for, if ahead of it."""
        if bracket.began_s is None or len(bracket.planned) < 2 or bracket.planned[1].ask_s is None:
            return None
        return bracket.began_s + bracket.planned[1].ask_s

    # -------------------------------------------------------------------------------------------------------- planning

    def _plan_all(self, view: View, at_s: float) -> None:
        if view.recorded is not None:
            self._read_back(view.recorded())
            return
        chosen = self.prepare()
        for bracket, candidate in zip(self._brackets, chosen, strict=True):
            bracket.planned, bracket.finish_s = candidate.plan.stages, at_s + candidate.time_s
        self._cost_usd = sum(candidate.cost_usd for candidate in chosen)
        self._new_plan = True

    def _plan_anew(self, brackets: Sequence[_Bracket], view: View, at_s: float) -> None:
        if view.recorded is not None:
            self._read_back(view.recorded())
            return
        for bracket in brackets:
            self._plan_rest(bracket, view, at_s)
        self._new_plan = True

    def _plan_rest(self, bracket: _Bracket, view: View, at_s: float) -> None:
        machines = view.machines(bracket.number)
        held_s = sorted((at_s - machine.billed_from_s for machine in machines), reverse=True)[: bracket.held]
        awaited = max(0, bracket.planned[0].machines - len(held_s))
        job = replace(
            self.jobs()[bracket.number],
            stages=bracket.stages[bracket.at :],
            profile=self._as_measured(),
            held_s=tuple(held_s),
            asked_s=tuple(at_s - asked_s for asked_s in view.awaited(bracket.number)[:awaited]),
        )
        # The rest of a minimum charge is in the bill as soon as it is owed, and the plan counts it too.
        owed_s = sum(max(0.0, self.cloud.minimum_s - age_s) for age_s in held_s)
        owed_usd = owed_s * self.cloud.price_usd_per_hour / SECONDS_PER_HOUR
        spent_usd = view.spent_usd() - (owed_usd if self.cloud.billing == "instance" else 0.0)
        candidate = self._best_now(job, spent_usd, at_s)
        bracket.planned, bracket.finish_s = candidate.plan.stages, at_s + candidate.time_s
        if len(self._brackets) == 1:
            self._cost_usd = spent_usd + candidate.cost_usd

    def _best_now(self, job: Job, spent_usd: float, at_s: float) -> Candidate:
        """What meets the goal from here; if nothing does any more, the soonest, or the cheapest for a budget."""
        goal = self.goal
        deadline_s = None if goal.deadline_s is None else goal.deadline_s - at_s + ROUNDING_S
        if goal.budget_usd is not None and len(self._brackets) > 1 and deadline_s is None:
            # The other brackets need their part of it: none is to be done sooner than the last of them.
            deadline_s = max(bracket.finish_s for bracket in self._brackets) - at_s + ROUNDING_S
        # All brackets must be in time.
        confidence = None if goal.confidence is None else goal.confidence ** (1 / len(self._brackets))
        # With a deadline the budget was checked at the beginning, and the controller keeps it.
        budget_usd = None if goal.budget_usd is None or deadline_s is not None else goal.budget_usd - spent_usd
        try:
            return choose([job], replace(goal, deadline_s=deadline_s, budget_usd=budget_usd, confidence=confidence))[0]
        except Infeasible:
            front = frontier(job, early_release=goal.early_release, boot_ahead=goal.boot_ahead)
            return front[0] if goal.deadline_s is not None else front[-1]

    def _as_measured(self) -> JobProfile:
        """The profile, with each width that was seen as fast as it was, and the others changed by as much on the
        whole.
        """
        if not self._measured:
            return self.profile
        step, scaling = self.profile.step, self.profile.scaling
        expected_s = {width: step.expected_s / scaling(float(width)) for width in self._measured}
        overall = sum(total_s for _, total_s in self._measured.values()) / sum(
            steps * expected_s[width] for width, (steps, _) in self._measured.items()
        )
        factors = {
            float(width): (total_s / expected_s[width] + PRIOR_STEPS * overall) / (steps + PRIOR_STEPS)
            for width, (steps, total_s) in self._measured.items()
        }
        first = factors.get(1.0, overall)
        widths = sorted({*scaling.speedups, *factors})
        speedups = {width: scaling(width) * first / factors.get(width, overall) for width in widths}
        return replace(self.profile, step=step.times(first), scaling=Scaling(speedups))

    def _made(self) -> PlanMade:
        brackets, done_s = zip(*((bracket.planned, bracket.finish_s) for bracket in self._brackets), strict=True)
        return PlanMade(brackets, done_s, self._cost_usd)

    def _read_back(self, made: PlanMade) -> None:
        for bracket, planned, done_s in zip(self._brackets, made.brackets, made.done_s, strict=True):
            bracket.planned, bracket.finish_s = planned, done_s
        self._cost_usd, self._new_plan = made.cost_usd, True


def _brackets(stages: Sequence[Stage]) -> list[_Bracket]:
    found: list[_Bracket] = []
    for bracket in sorted({stage.bracket for stage in stages}):
        places = [place for place, stage in enumerate(stages) if stage.bracket == bracket]
        numbers = {place: within for within, place in enumerate(places)}
        found.append(_Bracket(len(found), numbers, tuple(stages[place] for place in places)))
    return found
