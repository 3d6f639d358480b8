"""SEER (Dunlap et al., SoCC 2021): the best model that a deadline and a budget buy.

Many trials begin, in brackets of different parallelism. All brackets have the same rounds, eta times longer each, which
end by the clock; at the end of a round each bracket keeps its best 1/eta, and the survivors of all brackets are ranked
together: the best get the most devices. Where training converges fast the many narrow trials find the best
configuration, where it converges slowly the few wide ones are trained far enough.

Algorithm 1 of the paper is here, carried out by `timed.py`; 2 and 3 are in `seer_brackets.py`. What is added to them,
unless it is left out: whole machines are filled (`whole_machines.py`), and the first round, narrow then, is a race
(`race.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import ClassVar

from elastune.algorithm.base import Actions, AlgorithmEvent, Reported, Woken
from elastune.algorithm.outlook import Outlook
from elastune.algorithm.race import Race
from elastune.algorithm.seer_brackets import ROUNDING, compute_bracket_parameters
from elastune.algorithm.timed import Bracket, TimedStage, TimedStages, Window, largest, least_time_s, staged
from elastune.algorithm.whole_machines import fill
from elastune.allocate import Allocator
from elastune.curve import Extrapolator, LastValue, make_extrapolator
from elastune.errors import Infeasible, SpecError
from elastune.place import machines_needed
from elastune.spec import Run, Terms, TrialGroup, require_int, require_number
from elastune.units import format_duration, parse_duration

LONGER, NEARLY = 1.5, 0.9
"""By how much longer first rounds are tried, and which part of the largest cost is nearly as much."""
LATE = 0.25
"""The part of the budget for the second half, where there are no more than two halves."""


class SEER(TimedStages):
    """Needs a deadline and a budget, and nothing else. A round keeps 1/`eta` of its trials; brackets have `p_min`, then
    `nu` times as many devices per trial each, up to `p_max` (None: no limit). `t_min` is the least time that a trial
    needs to show something, which should be one or two reports; None: two steps as they were profiled, or a minute.

    Two additions to the paper can be left out. With `fill` what would stand idle on whole machines, and what is left of
    the budget, goes to more and wider trials. With `race` devices do not wait for the end of a round: where a trial has
    come to its own end, or in the first round is behind or has trained long enough to be compared, a new one begins.
    The first round is longer for that, half of the time if the deadline is short, its trials are narrow, and a searcher
    that learns has something to learn from: that of BOHB, unless another is given.

    `rank` says what trials are ranked by at the end of a round: "last", their last value, or "power", where it will be
    at the end of the run by a power law, or an `Extrapolator`.
    """

    searcher: ClassVar[str] = "bohb"

    def __init__(
        self,
        eta: float = 4,
        nu: float = 2,
        p_min: int = 1,
        p_max: int | None = None,
        t_min: str | float | None = None,
        fill: bool = True,
        race: bool = True,
        rank: str | Extrapolator = "last",
    ) -> None:
        super().__init__()
        for name, value in (("eta", eta), ("nu", nu)):
            require_number(name, value)
        if eta <= 1:
            raise SpecError(f"eta={eta!r}: must be above 1: each round keeps 1/eta of its trials")
        if nu < 1:
            raise SpecError(f"nu={nu!r}: must be at least 1: each bracket has nu times the devices of the one before")
        require_int("p_min", p_min, 1)
        if p_max is not None:
            require_int("p_max", p_max, 1)
            if p_min > p_max:
                raise SpecError(
                    f"p_min={p_min}, p_max={p_max}: trials have p_min to p_max devices: give p_min <= p_max"
                )
        for name, given in (("fill", fill), ("race", race)):
            if not isinstance(given, bool):
                raise SpecError(f"{name}={given!r}: must be true or false")
        self.eta, self.nu, self.p_min, self.p_max, self.fill, self.race = eta, nu, p_min, p_max, fill, race
        self.t_min = t_min
        self._t_min_s = None if t_min is None else parse_duration(t_min, "t_min")
        self.rank = rank
        self._extrapolator = make_extrapolator(rank)
        self._outlook: Outlook | None = None
        self._race = Race(eta, math.inf)
        self._had_turns: set[str] = set()
        """Of the first round: a new trial waits for their place, or has it."""

    # -------------------------------------------------------------------------------------------------------- planning

    def prepare(self, terms: Terms) -> Allocator:
        t_min_s = least_time_s(self._t_min_s, terms)
        window = Window.of(terms, "SEER")
        self._check(window, t_min_s)
        first_s = next(t_min_s * many for many in self._first_rounds() if self._is_possible(window, t_min_s * many))
        self._race = Race(self.eta, min(2 * t_min_s, first_s) / 2)
        self.plan = self._best_plan(window, first_s + terms.start_s)
        if not isinstance(self._extrapolator, LastValue):
            widest = max(bracket.width for stage in self.plan for bracket in stage.brackets)
            self._outlook = Outlook(self._extrapolator, terms.speedup or float, widest, self.plan[-1].until_s)
        return self.allocator(terms.devices)

    def _best_plan(self, window: Window, least_s: float) -> tuple[TimedStage, ...]:
        """Where there are too few machines for a first round of many short trials, a longer one of fewer trials makes
        more of them: the first that spends nearly as much as any.
        """
        plans = [self._make_plan(window, least_s)]
        if (self.fill or self.race) and plans[0][0].machines == window.terms.machines:
            while (least_s := least_s * LONGER) < window.seconds and self._is_possible(window, least_s):
                plans.append(self._make_plan(window, least_s))
        costs = [window.cost([(stage.until_s, stage.machines) for stage in plan]) for plan in plans]
        found = next(plan for plan, cost in zip(plans, costs, strict=True) if cost >= NEARLY * max(costs))
        if not self.race or found[0].machines > found[-1].machines:
            return found
        shorter = replace(window, end_s=found[-1].until_s)  # where the budget ends before the time does
        return self._halves(window) or self._halves(shorter) or found

    def _halves(self, window: Window) -> tuple[TimedStage, ...] | None:
        """Where there is time for one round only, or no money for more machines in the first: explore until half-time,
        then train the best of all on as many devices each as can be had for a part of the budget. None: that is too
        short, or too expensive.
        """
        if window.seconds / 2 < 2 * self._race.t_min_s + window.terms.start_s:
            return None
        narrow = window.at_least(self.p_min)
        wide = max(narrow, window.usable(min(self.p_max or window.terms.devices, window.most_devices)))
        while (plan := self._halved(window, narrow, wide)) is None and wide > narrow:
            wide = max(narrow, window.usable(wide / 2))
        return plan

    def _halved(self, window: Window, narrow: int, wide: int) -> tuple[TimedStage, ...] | None:
        middle_s = window.begin_s + window.seconds / 2
        best = LATE * window.device_s / (window.seconds / 2 * wide)
        best = int(max(1, min(best, window.most_devices // wide)))

        def halves(trials: float) -> tuple[TimedStage, ...]:
            many, few = int(trials), min(best, int(trials))
            devices = window.terms.devices
            return (
                TimedStage(
                    window.begin_s, middle_s, (Bracket(many, narrow, few),), machines_needed({narrow: many}, devices)
                ),
                TimedStage(middle_s, window.end_s, (Bracket(few, wide, few),), machines_needed({wide: few}, devices)),
            )

        most = window.device_s / (window.seconds / 2 * narrow) + 1
        trials = largest(1, most, lambda trials: window.affords(halves(trials)))
        if trials is None:
            return None
        plan = halves(trials)
        return fill(window, plan, self._p_max(window)) if self.fill and int(trials) == window.most_trials else plan

    def _make_plan(self, window: Window, least_s: float) -> tuple[TimedStage, ...]:
        plan = self._affordable(window, least_s)
        if self.race:
            plan = _narrow_at_first(window, plan, window.at_least(self.p_min))
        return fill(window, plan, self._p_max(window)) if self.fill else plan

    def _affordable(self, window: Window, least_s: float) -> tuple[TimedStage, ...]:
        """For as much of the budget as whole machines and their boots leave for training."""
        lowest = window.at_least(self.p_min) * least_s
        budget = largest(lowest, window.device_s, lambda budget: window.affords(self._stages(window, budget, least_s)))
        assert budget is not None  # one trial alone is affordable, as was checked
        return self._stages(window, budget, least_s)

    def _first_rounds(self) -> tuple[int, ...]:
        """How many t_min the first round takes at least. Those that race have two to show what they are worth, and
        those that come in their place two more.
        """
        return (4, 2, 1) if self.race else (1,)

    def _stages(self, window: Window, device_s: float, least_s: float) -> tuple[TimedStage, ...]:
        """As the paper has them, with devices that a trial can have."""
        p_min, p_max = window.at_least(self.p_min), self._p_max(window)
        found = compute_bracket_parameters(window.seconds, device_s, self.eta, self.nu, p_min, p_max, least_s)
        widths: dict[int, int] = {}
        for trials, width in zip(found.trials, found.widths, strict=True):
            usable = window.usable(width)
            widths[usable] = widths.get(usable, 0) + trials * width // usable
        widths = _possible(widths, window.most_trials)
        counts = [
            [math.floor(trials / self.eta**k + ROUNDING) for trials in widths.values()] for k in range(found.rounds)
        ]
        for left in counts:
            if not any(left):  # brackets that are all too small for so many rounds: the best of all goes on
                left[0] = 1
        ends = accumulate(found.first_s * self.eta**k for k in range(found.rounds))
        return staged(window, [window.begin_s + end_s for end_s in ends], counts, list(widths))

    def _p_max(self, window: Window) -> float:
        return min(math.inf if self.p_max is None else self.p_max, window.most_devices)

    def _is_possible(self, window: Window, first_s: float) -> bool:
        """Whether one trial can train for so long."""
        least_s = first_s + window.terms.start_s
        machines = -(-window.at_least(self.p_min) // window.terms.devices)
        return least_s <= window.seconds and window.cost([(window.begin_s + least_s, machines)]) <= window.budget

    def _check(self, window: Window, t_min_s: float) -> None:
        """One trial for `t_min` must be possible; if not, say what would be."""
        start_s, devices = window.terms.start_s, window.terms.devices
        if t_min_s + start_s > window.seconds:
            deadline_s = window.terms.limits.deadline_s or 0.0
            overhead_s = deadline_s - window.seconds + start_s
            possible_s = window.seconds - start_s
            instead = f"t_min of at most {format_duration(possible_s)}, or a " if possible_s > 0 else "a later "
            raise Infeasible(
                f"t_min={format_duration(t_min_s)} does not fit into the deadline of {format_duration(deadline_s)}, of "
                f"which machines take {format_duration(overhead_s)} to come, to begin and to go: give {instead}"
                f"deadline of at least {format_duration(t_min_s + overhead_s)}"
            )
        narrowest = window.narrowest(self.p_min, math.inf if self.p_max is None else self.p_max)
        if not self._is_possible(window, t_min_s):
            machines = -(-narrowest // devices)
            needed = window.cost([(window.begin_s + t_min_s + start_s, machines)])
            raise Infeasible(
                f"the budget of {window.say(window.budget)} is too small for one trial of "
                f"t_min={format_duration(t_min_s)} on {narrowest} device{'s' * (narrowest != 1)}: it takes "
                f"{window.say(needed)} on machines of {devices}, which are paid from when they boot. Give a larger "
                "budget, or a smaller t_min"
            )

    # --------------------------------------------------------------------------------------------------------- running

    def score(self, trial: str) -> float:
        return super().score(trial) if self._outlook is None else self._outlook.loss(trial)

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        groups = super().more(free, at_s)
        self._follow(groups)
        return groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if self._outlook is not None and isinstance(event, Reported):
            self._outlook.report(event, at_s)
        actions = self._raced(event, at_s) if self.race else super().on(event, at_s)
        self._follow(actions.groups)
        return actions

    def _follow(self, groups: Sequence[TrialGroup]) -> None:
        if self._outlook is not None:
            for run in (run for group in groups for run in group):
                self._outlook.begin(run.trial, float(run.width or 1))

    def _raced(self, event: AlgorithmEvent, at_s: float) -> Actions:
        """A trial that is behind, is done or has had its turn gives its place to a new one, once."""
        if isinstance(event, Woken) or event.trial not in self._pending:
            return super().on(event, at_s)
        has_given = self._stage == 0 and event.trial in self._had_turns
        if isinstance(event, Reported):
            if self._stage > 0 or has_given:
                return super().on(event, at_s)
            if self._race.is_behind(event) and (run := self._in_place_of(event.trial, at_s)) is not None:
                self.leave(event.trial)
                return Actions(((run,),), stops=(event.trial,))
            actions = super().on(event, at_s)
            enough = len(self.plan) > 1 and self._race.is_enough(event, self.plan[0].until_s - at_s)
            if enough and (run := self._in_place_of(event.trial, at_s)) is not None:
                self._had_turns.add(event.trial)
                return Actions(((run,),), pauses=(event.trial,))
            return actions
        can_give = not has_given and (event.over or self._stage == 0)  # if not over, no step of it fits any more
        if not can_give or (run := self._in_place_of(event.trial, at_s)) is None:
            return super().on(event, at_s)
        super().on(event, at_s)  # the new one is pending: the round goes on
        if event.over:
            self.leave(event.trial)
        return Actions(((run,),))

    def _in_place_of(self, trial: str, at_s: float) -> Run | None:
        """A new trial for what is left of the round, if that is enough to show what it is worth."""
        left_s = self.plan[self._stage].until_s - at_s
        if left_s < self._race.t_min_s or (new := self.new_trial()) is None:
            return None
        return self.join(*new, place=self._bracket_of[trial])

    def _newcomers(self, vacant: int, at_s: float) -> list[str]:
        trials: list[str] = []
        enough = self.plan[self._stage + 1].until_s - at_s >= self._race.t_min_s
        while self.race and enough and len(trials) < vacant and (new := self.new_trial()) is not None:
            trials.append(new[0])
            self._configs[new[0]] = new[1]
        return trials


def _possible(trials: dict[int, int], most: float) -> dict[int, int]:
    """By width, the widest of them: there is less to explore."""
    found: dict[int, int] = {}
    for width in sorted(trials, reverse=True):
        found[width] = int(min(trials[width], most - sum(found.values())))
    return {width: found[width] for width in trials if found[width]}


def _narrow_at_first(window: Window, stages: tuple[TimedStage, ...], width: int) -> tuple[TimedStage, ...]:
    """Exploring is cheapest with few devices per trial; the best are wide in the rounds that follow."""
    first, later = stages[0], stages[1:]
    if not later:
        return stages
    trials, machines = first.devices // width, first.machines
    if trials > window.most_trials:
        trials = int(window.most_trials)
        machines = machines_needed({width: trials}, window.terms.devices)
    bracket = Bracket(trials, width, sum(bracket.keep for bracket in first.brackets))
    return (replace(first, brackets=(bracket,), machines=machines), *later)
