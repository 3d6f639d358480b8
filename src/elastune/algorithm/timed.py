"""Stages that end by the clock: all trials of a stage begin together, each with its own number of devices, and at the
end of the stage the best of them go on.

Instances are paid by time, so a stage of a known length costs what was planned, however long a step takes. Trials meet
at the end of the stage, or before, when no step of any of them would still fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended, Reported
from elastune.allocate.asked import AsAsked
from elastune.allocate.base import Allocator
from elastune.cost import MachineUse, cost_usd
from elastune.errors import Infeasible, SpecError
from elastune.messages import Config
from elastune.place import machines_needed
from elastune.spec import Run, Terms, TrialGroup
from elastune.units import format_device_time, format_duration, format_money

CLOSING, SHORTEST_CLOSING_S, LONGEST_CLOSING_S = 0.005, 0.2, 0.5
"""The part of the time, and the least and the most of it, that is kept for giving machines back: whoever is in a step
when its time is over is waited for a moment, and a real machine takes another one to go."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """So many trials with so many devices each, and how many of them are good enough to go on."""

    trials: int
    width: int
    keep: int = 0


@dataclass(frozen=True, slots=True)
class TimedStage:
    begin_s: float
    until_s: float
    brackets: tuple[Bracket, ...]
    machines: int

    @property
    def trials(self) -> int:
        return sum(bracket.trials for bracket in self.brackets)

    @property
    def devices(self) -> int:
        return sum(bracket.trials * bracket.width for bracket in self.brackets)


@dataclass(frozen=True, slots=True)
class Window:
    """The time there is for training, and what it may cost: the limits without what machines take to come and to go."""

    terms: Terms
    begin_s: float
    end_s: float
    closing_s: float
    budget: float
    """Dollars; or hours of devices, where the budget is given so: the same with devices at a dollar an hour."""
    price: float
    data: float

    @classmethod
    def of(cls, terms: Terms, name: str) -> Window:
        limits = terms.limits
        in_time = limits.budget_device_s is not None
        budget = limits.budget_device_s / 3600 if limits.budget_device_s is not None else limits.budget_usd
        if limits.deadline_s is None or budget is None:
            given = (("deadline", limits.deadline_s), ("budget", budget))
            missing = [limit for limit, value in given if value is None]
            raise SpecError(
                f"{name} needs a deadline and a budget: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
                "missing: give deadline='20m', and budget='$20' or '80 device-minutes'"
            )
        price = 1.0 if in_time else terms.price_usd_per_device_hour
        if price <= 0:
            raise SpecError(
                f"{name} needs a price for its budget of {format_money(budget)}: give price='$0.10', per device and "
                "hour, or a cloud that costs something, or the budget as '80 device-minutes'"
            )
        closing_s = min(max(SHORTEST_CLOSING_S, CLOSING * limits.deadline_s), LONGEST_CLOSING_S)
        end_s = limits.deadline_s - closing_s
        if end_s <= terms.ready_s:
            raise Infeasible(
                f"the deadline of {format_duration(limits.deadline_s)} is too early: machines need "
                f"{format_duration(terms.ready_s + closing_s)} to come and to go. Give a later one"
            )
        return cls(terms, terms.ready_s, end_s, closing_s, budget, price, 0.0 if in_time else terms.data_usd)

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @property
    def device_s(self) -> float:
        """What the budget would buy if nothing but training were paid."""
        return self.budget / self.price * 3600

    @property
    def most_devices(self) -> int:
        return self.terms.machines * self.terms.devices

    @property
    def most_trials(self) -> float:
        """How many can begin, if there are only so many configurations."""
        return math.inf if self.terms.configurations is None else self.terms.configurations

    def say(self, amount: float) -> str:
        in_time = self.terms.limits.budget_device_s is not None
        return format_device_time(amount * 3600) if in_time else format_money(amount)

    def narrowest(self, p_min: int, p_max: float) -> int:
        """The fewest devices that a trial can have and may have."""
        devices, narrowest = self.terms.devices, self.at_least(p_min)
        if narrowest > self.most_devices:
            raise SpecError(
                f"p_min={p_min}: there are {self.most_devices} devices on all machines together: give a smaller p_min, "
                "or more machines"
            )
        if narrowest > p_max:
            raise SpecError(
                f"p_min={p_min}, p_max={p_max}: a trial is on one machine of {devices} devices or on whole ones, which "
                f"makes p_min {narrowest}: give a p_max of at least that, or a p_min of at most {self.usable(p_max)}"
            )
        return narrowest

    def at_least(self, width: int) -> int:
        """The fewest devices that a trial can have, and has at least so many."""
        devices = self.terms.devices
        return width if width <= devices else -(-width // devices) * devices

    def usable(self, width: float) -> int:
        """Whole devices, on one machine or on whole ones."""
        devices, whole = self.terms.devices, math.floor(width + 1e-9)
        return whole if whole <= devices else whole // devices * devices

    def cost(self, ends: Sequence[tuple[float, int]]) -> float:
        """What it costs to hold so many machines until each time, all of them from the beginning: in a unit that the
        budget is in.
        """
        uses = []
        for index, (until_s, machines) in enumerate(ends):
            later = ends[index + 1][1] if index + 1 < len(ends) else 0
            if machines > later:
                price = self.price * self.terms.devices
                life_s = until_s + self.closing_s
                use = MachineUse("", self.terms.devices, price, 0.0, life_s, self.terms.minimum_s, self.data)
                uses.append((machines - later) * cost_usd([use]))
        return sum(uses)

    def affords(self, stages: Sequence[TimedStage]) -> bool:
        ends = [(stage.until_s, stage.machines) for stage in stages]
        possible = max(machines for _, machines in ends) <= self.terms.machines
        return possible and stages[0].trials <= self.most_trials and self.cost(ends) <= self.budget


class TimedStages(Algorithm):
    """What a plan of timed stages does while it runs. A subclass makes the plan, in `prepare`. `first` is the number of
    its first stage.
    """

    def __init__(self, plan: tuple[TimedStage, ...] = (), first: int = 0) -> None:
        self.plan, self._first = plan, first
        self._stage = -1
        self._configs: dict[str, Config] = {}
        self._bracket_of: dict[str, int] = {}
        self._losses: dict[str, float] = {}
        self._over: set[str] = set()
        self._pending: set[str] = set()

    def allocator(self, devices: int) -> Allocator:
        """Machines of so many devices, as planned. What a later stage needs is there from the beginning: to ask for it
        again would take another boot.
        """
        return AsAsked(devices, [max(later.machines for later in self.plan[k:]) for k in range(len(self.plan))])

    def score(self, trial: str) -> float:
        """What a trial is ranked by; less is better. Who has nothing comes last."""
        return self._losses.get(trial, math.inf)

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._stage >= 0:
            return []
        places = [place for place, bracket in enumerate(self.plan[0].brackets) for _ in range(bracket.trials)]
        trials = []
        for _ in places:
            if (new := self.new_trial()) is None:
                break
            trials.append(new[0])
            self._configs[new[0]] = new[1]
        return self._begin(dict(zip(trials, places, strict=False)))

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Reported):
            self._losses[event.trial] = event.loss
        if not isinstance(event, Ended):
            return NOTHING
        if event.over:
            self._over.add(event.trial)
        self._pending.discard(event.trial)
        if self._pending or self._stage == len(self.plan) - 1:
            return NOTHING
        return self._next_stage(at_s)

    def leave(self, trial: str) -> None:
        """The trial takes no part any more."""
        self._pending.discard(trial)
        del self._bracket_of[trial]

    def join(self, trial: str, config: Config, place: int) -> Run:
        """A new trial takes part in what is left of the present stage."""
        self._configs[trial], self._bracket_of[trial] = config, place
        self._pending.add(trial)
        return self._run(trial)

    def _run(self, trial: str) -> Run:
        stage, width = self.plan[self._stage], self.plan[self._stage].brackets[self._bracket_of[trial]].width
        final = self._stage == len(self.plan) - 1
        return Run(trial, self._configs[trial], None, final, self._first + self._stage, stage.until_s, width)

    def _begin(self, bracket_of: dict[str, int]) -> list[TrialGroup]:
        self._stage += 1
        self._bracket_of, self._pending = bracket_of, set(bracket_of)
        groups: list[list[Run]] = [[] for _ in self.plan[self._stage].brackets]
        for trial, place in bracket_of.items():
            groups[place].append(self._run(trial))
        return [tuple(group) for group in groups if group]

    def _next_stage(self, at_s: float) -> Actions:
        """The best of each bracket go on; then the best of all of them get the most devices."""
        going: list[str] = []
        for place, bracket in enumerate(self.plan[self._stage].brackets):
            able = [trial for trial, at in self._bracket_of.items() if at == place and trial not in self._over]
            going.extend(sorted(able, key=self._rank)[: bracket.keep])
        gone = self._over.union(going)
        rest = sorted((trial for trial in self._bracket_of if trial not in gone), key=self._rank)
        vacant = self.plan[self._stage + 1].trials - len(going)  # where some have failed, or are done
        going, rest = sorted(going + rest[:vacant], key=self._rank), rest[vacant:]
        going += self._newcomers(self.plan[self._stage + 1].trials - len(going), at_s)
        brackets = self.plan[self._stage + 1].brackets
        widest_first = sorted(range(len(brackets)), key=lambda place: -brackets[place].width)
        places = [place for place in widest_first for _ in range(brackets[place].trials)]
        groups = self._begin(dict(zip(going, places, strict=False)))
        return Actions(tuple(groups), stops=tuple(rest))

    def _newcomers(self, vacant: int, at_s: float) -> list[str]:
        """Trials that begin with the next stage, in places that nobody is left for."""
        return []

    def _rank(self, trial: str) -> tuple[float, str]:
        return self.score(trial), trial


def staged(
    window: Window, ends_s: Sequence[float], counts: Sequence[Sequence[int]], widths: Sequence[int]
) -> tuple[TimedStage, ...]:
    """Stages with so many trials of each width, which they keep from stage to stage."""
    stages = []
    for index, (until_s, trials) in enumerate(zip(ends_s, counts, strict=True)):
        begin_s = ends_s[index - 1] if index else window.begin_s
        keep = counts[index + 1] if index + 1 < len(counts) else trials
        brackets = tuple(map(Bracket, trials, widths, keep))
        machines = machines_needed(dict(zip(widths, trials, strict=True)), window.terms.devices)
        stages.append(TimedStage(begin_s, until_s, brackets, machines))
    return tuple(stages)


def least_time_s(t_min_s: float | None, terms: Terms) -> float:
    """What a trial trains at least, where it is not given: two steps, or a minute where these are not known."""
    if t_min_s is not None:
        return t_min_s
    return 60.0 if terms.step_s is None else 2 * terms.step_s


def largest(low: float, high: float, works: Callable[[float], bool]) -> float | None:
    """The largest number in between with which it works, as far as halving finds it; None: not even the lowest."""
    if works(high):
        return high
    if not works(low):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low
