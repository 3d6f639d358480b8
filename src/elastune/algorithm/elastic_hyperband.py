"""Elastic Hyperband (a baseline of SEER's authors): all brackets of Hyperband side by side, by the clock.

What Hyperband calls a resource is time here. With R seconds for the longest, bracket s begins with R / eta^s seconds
for each trial, so all brackets are done after R seconds, one device per trial. R is the deadline, or as much of it as
the budget has room for; if it has room for more, each bracket begins with more trials. Where machines or money are
short, fewer brackets take longer, and make more of both.

Stages of several brackets end at the same time. Those that follow wait until all of them are over, and trials with the
longest first stage are placed first: then machines become empty one after the other, and nobody is in the way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended, TrialSource, Woken
from elastune.algorithm.timed import TimedStage, TimedStages, Window, largest, least_time_s, staged
from elastune.allocate.asked import AsAsked
from elastune.allocate.base import Allocator
from elastune.errors import Infeasible
from elastune.place import machines_needed
from elastune.spec import Terms, TrialGroup, require_int
from elastune.units import format_duration, parse_duration

NEARLY = 0.75
"""More brackets are worth more than the rest of the budget, if they spend this part of what fewer of them do."""
Brackets = list[tuple[TimedStage, ...]]


class ElasticHyperband(Algorithm):
    """`t_min` is the least time that a trial trains, as SEER's."""

    def __init__(self, eta: int = 4, t_min: str | float | None = None) -> None:
        require_int("eta", eta, 2)
        self.eta, self.t_min = eta, t_min
        self._t_min_s = None if t_min is None else parse_duration(t_min, "t_min")
        self.brackets: tuple[TimedStages, ...] = ()
        self._begun = False
        self._bracket_of: dict[str, TimedStages] = {}
        self._until_s: dict[str, float] = {}
        self._at_once: Counter[float] = Counter()
        """How many runs that have not ended yet end when."""
        self._next: list[Actions] = []
        """What follows when all stages are over that end at the same time."""

    def prepare(self, terms: Terms) -> Allocator:
        window = Window.of(terms, "ElasticHyperband")
        t_min_s = least_time_s(self._t_min_s, terms)
        least_s = t_min_s + terms.start_s
        if least_s > window.seconds:
            raise Infeasible(
                f"t_min={format_duration(t_min_s)} does not fit into the "
                f"{format_duration(max(0.0, window.seconds - terms.start_s))} that there are for training until the "
                "deadline: give a smaller t_min, or a later deadline"
            )
        s_max = math.floor(math.log(window.seconds / least_s, self.eta) + 1e-9)
        plans = [plan for s in range(s_max, -1, -1) if (plan := self._with_brackets(window, s, least_s)) is not None]
        if not plans:
            needed = window.cost([(window.begin_s + least_s, 1)])
            raise Infeasible(
                f"the budget of {window.say(window.budget)} is too small for one trial of "
                f"t_min={format_duration(t_min_s)}: it takes {window.say(needed)} on a machine of "
                f"{terms.devices}, which is paid from when it boots. Give a larger budget, or a smaller t_min"
            )
        costs = [window.cost(machines_held(plan, terms.devices)) for plan in plans]
        stages = next(plan for plan, cost in zip(plans, costs, strict=True) if cost >= NEARLY * max(costs))
        held = machines_held(stages, terms.devices)
        self.brackets = tuple(TimedStages(bracket, first=len(held) - len(bracket)) for bracket in stages)
        return AsAsked(terms.devices, [machines for _, machines in held])

    def _with_brackets(self, window: Window, s_max: int, least_s: float) -> Brackets | None:
        """As long as can be paid; or to the deadline, and then with as many trials as can be paid."""
        shortest_s = min(least_s * self.eta**s_max, window.seconds)
        R = largest(shortest_s, window.seconds, lambda R: self._affords(window, self._stages(window, s_max, R, 1.0)))
        if R is None:
            return None
        most = max(1.0, window.device_s / least_s) if window.seconds == R else 1.0
        more = largest(1.0, most, lambda more: self._affords(window, self._stages(window, s_max, R, more)))
        return self._stages(window, s_max, R, more or 1.0)

    def _affords(self, window: Window, brackets: Brackets) -> bool:
        held = machines_held(brackets, window.terms.devices)
        possible = max(machines for _, machines in held) <= window.terms.machines
        possible = possible and sum(bracket[0].trials for bracket in brackets) <= window.most_trials
        return possible and window.cost(held) <= window.budget

    def _stages(self, window: Window, s_max: int, R: float, more: float) -> Brackets:
        brackets = []
        for s in range(s_max, -1, -1):
            trials = math.ceil((s_max + 1) / (s + 1) * self.eta**s * more - 1e-9)
            ends_s = [window.begin_s + R * self.eta ** (i - s) for i in range(s + 1)]
            counts = [[max(1, trials // self.eta**i)] for i in range(s + 1)]
            brackets.append(staged(window, ends_s, counts, [1]))
        return brackets

    def setup(self, source: TrialSource) -> None:
        super().setup(source)
        for bracket in self.brackets:
            bracket.setup(source)

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._begun:
            return []
        self._begun = True
        groups: list[TrialGroup] = []
        for bracket in reversed(self.brackets):
            begun = bracket.more(free, at_s)
            self._bracket_of.update((run.trial, bracket) for group in begun for run in group)
            groups.extend(begun)
        self._follow(groups)
        return groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Woken):
            return NOTHING
        actions = self._bracket_of[event.trial].on(event, at_s)
        if not isinstance(event, Ended):
            return actions
        self._next.append(actions)
        over_s = self._until_s.pop(event.trial)
        self._at_once[over_s] -= 1
        if self._at_once[over_s]:
            return NOTHING
        groups = [group for actions in self._next for group in actions.groups]
        stops = [trial for actions in self._next for trial in actions.stops]
        self._next = []
        self._follow(groups)
        return Actions(tuple(groups), tuple(stops))

    def _follow(self, groups: Sequence[TrialGroup]) -> None:
        ends_s = {run.trial: run.until_s for group in groups for run in group if run.until_s is not None}
        self._until_s |= ends_s
        self._at_once.update(ends_s.values())


ByTheClock = TimedStages | ElasticHyperband
"""Those whose rounds, machines and cost are known before the run."""


def machines_held(brackets: Sequence[tuple[TimedStage, ...]], devices: int) -> list[tuple[float, int]]:
    """How many machines all brackets together hold until when."""
    stages = [stage for bracket in brackets for stage in bracket]
    held = []
    for until_s in sorted({stage.until_s for stage in stages}):
        trials = sum(stage.trials for stage in stages if stage.begin_s < until_s <= stage.until_s)
        held.append((until_s, machines_needed({1: trials}, devices)))
    return held
