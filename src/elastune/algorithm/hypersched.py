"""HyperSched (Liaw et al., SoCC 2019): ASHA on a fixed cluster that has a deadline.

As many machines are held from the beginning to the deadline as the budget buys. Trials begin with one device each, are
compared at rungs, and only the best 1/eta of a rung go on, rounded up: the best of a few need not wait for others to
compare with. Who falls behind later, because better ones have come, is paused as well. As the deadline comes near no
more trials begin, and the devices that become free are shared out among those that are left, the best first.

    paper and code             here
    grace period, max_t        `r`, `R`
    reduction factor           `eta`
    speculation                the best of a rung is rounded up, and judged again when others come
    entrance of new trials     `_is_worth_beginning`
    uniform allocation         `SharedOut`

Two things are different, after trials on curves of LCBench: new trials begin while they can still train as long as the
longest has, or until the last rung, where the authors ask for eta times as long, or until R; and after that paused
trials can still be promoted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended, Reported
from elastune.algorithm.halving import require_halving
from elastune.algorithm.timed import Window
from elastune.allocate.base import Allocator
from elastune.allocate.hypersched import SharedOut, Standing
from elastune.errors import Infeasible
from elastune.messages import Config
from elastune.spec import Run, Terms, TrialGroup
from elastune.units import format_duration

Entry = tuple[float, str]
"""A loss, and the trial that has it: less is better."""


@dataclass(slots=True)
class Rung:
    """The losses of all trials that came here, best first, and those of them that are paused."""

    until: int
    eta: int
    entries: list[Entry] = field(default_factory=list)
    paused: list[Entry] = field(default_factory=list)

    @property
    def places(self) -> int:
        """How many go on."""
        return -(-len(self.entries) // self.eta)

    def add(self, entry: Entry) -> str | None:
        """Says who has lost its place to the new one."""
        before = self.places
        insort(self.entries, entry)
        return self.entries[before][1] if self.places == before and self.is_good(entry) else None

    def is_good(self, entry: Entry) -> bool:
        return entry <= self.entries[self.places - 1]

    def promotable(self, anybody: bool = False) -> str | None:
        """The best that is paused, if it is good by now or `anybody` will do; it counts as promoted."""
        return self.paused.pop(0)[1] if self.paused and (anybody or self.is_good(self.paused[0])) else None


@dataclass(slots=True)
class _Trial:
    config: Config
    to: int = 0
    """The number of the rung that it is on its way to."""
    since_s: float = 0.0
    trained_s: float = 0.0
    entry: Entry | None = None
    """At the last rung that it came to."""
    runs: bool = True
    leaves: bool = False
    """Whether it was told to pause before it comes to a rung."""


def linear(width: float) -> float:
    """What the authors assume of training that was not profiled."""
    return float(width)


class HyperSched(Algorithm):
    """Needs a deadline and a budget. Rungs at r, r*eta, r*eta^2, ... iterations, and at last R."""

    def __init__(self, r: int, R: int, eta: int = 4) -> None:
        require_halving(1, r, R, eta)
        self.r, self.R, self.eta = r, R, eta
        self._rungs = [Rung(r, eta)] if r < R else []
        while self._rungs and self._rungs[-1].until * eta < R:
            self._rungs.append(Rung(self._rungs[-1].until * eta, eta))
        self._trials: dict[str, _Trial] = {}
        self._running = 0
        self._longest_s = 0.0
        self._standing = Standing()
        self._begin_s = self._end_s = 0.0

    def prepare(self, terms: Terms) -> Allocator:
        window = Window.of(terms, "HyperSched")
        self._begin_s, self._end_s = window.begin_s, window.end_s
        machines = self._machines(window)
        speedup = linear if terms.speedup is None else terms.speedup
        return SharedOut(machines, terms.devices, window.end_s, terms.start_s, speedup, self._standing)

    def _machines(self, window: Window) -> int:
        """As many as the budget buys for the whole time."""
        deadline_s = window.end_s + window.closing_s
        if window.seconds <= window.terms.start_s:
            needed_s = window.begin_s + window.terms.start_s + window.closing_s
            raise Infeasible(
                f"the deadline of {format_duration(deadline_s)} is too early: machines need "
                f"{format_duration(needed_s)} to come, to begin and to go. Give a later one"
            )
        one = window.cost([(window.end_s, 1)])
        machines = int(min(window.terms.machines, window.budget // one + 1))
        while machines and window.cost([(window.end_s, machines)]) > window.budget:
            machines -= 1
        if not machines:
            raise Infeasible(
                f"the budget of {window.say(window.budget)} is too small for one machine until the deadline: it takes "
                f"{window.say(one)} for {window.terms.devices} device{'s' * (window.terms.devices != 1)} and "
                f"{format_duration(deadline_s)}. Give a larger budget, or an earlier deadline"
            )
        return machines

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._end_s - at_s <= self._standing.median_step_s:
            return []
        groups: list[TrialGroup] = []
        while len(groups) < free and (run := self._next(at_s)) is not None:
            groups.append((run,))
        return groups

    def _next(self, at_s: float) -> Run | None:
        """Where nobody is left, the best that was paused, rather than nobody: the machines are paid for."""
        return self._promote(at_s) or self._begin(at_s) or (None if self._running else self._promote(at_s, True))

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Reported):
            self._standing.losses[event.trial] = event.loss
            self._count(self._trials[event.trial], at_s)
        elif isinstance(event, Ended):
            return self._ended(event, self._trials[event.trial], at_s)
        return NOTHING

    def _count(self, trial: _Trial, at_s: float) -> None:
        trial.trained_s += max(0.0, at_s - trial.since_s)
        trial.since_s = at_s
        self._longest_s = max(self._longest_s, trial.trained_s)

    def _ended(self, event: Ended, trial: _Trial, at_s: float) -> Actions:
        left, trial.runs, trial.leaves = trial.leaves, False, False
        self._running -= 1
        if event.loss is None or event.over or event.iteration >= self.R:
            return NOTHING
        if event.iteration >= self._until(trial):
            return self._at_rung(self._rungs[trial.to], (event.loss, event.trial), trial, at_s)
        if left:  # if not, its time is over
            assert trial.entry is not None
            insort(self._rungs[trial.to - 1].paused, trial.entry)
        return NOTHING

    def _at_rung(self, rung: Rung, entry: Entry, trial: _Trial, at_s: float) -> Actions:
        behind = rung.add(entry)
        pauses = (behind,) if behind is not None and self._is_past(behind, trial.to) else ()
        for other in pauses:
            self._trials[other].leaves = True
        trial.entry, trial.to = entry, trial.to + 1
        if rung.is_good(entry):
            return Actions(((self._run(entry[1], at_s),),), pauses=pauses)
        insort(rung.paused, entry)
        return Actions(pauses=pauses)

    def _is_past(self, trial_id: str, rung: int) -> bool:
        """Whether it trains, and has come to no rung since that one."""
        trial = self._trials[trial_id]
        return trial.runs and not trial.leaves and trial.to == rung + 1

    def _promote(self, at_s: float, anybody: bool = False) -> Run | None:
        for rung in reversed(self._rungs):
            if (trial := rung.promotable(anybody)) is not None:
                return self._run(trial, at_s)
        return None

    def _begin(self, at_s: float) -> Run | None:
        if not self._is_worth_beginning(at_s) or (new := self.new_trial()) is None:
            return None
        trial, config = new
        self._trials[trial] = _Trial(config)
        return self._run(trial, at_s)

    def _is_worth_beginning(self, at_s: float) -> bool:
        """Whether a new trial on one device can still train as long as the longest has, or until the last rung."""
        last = self._rungs[-1].until if self._rungs else self.R
        enough_s = last * self._standing.median_step_s
        return self._end_s - at_s >= (min(self._longest_s, enough_s) if enough_s else self._longest_s)

    def _run(self, trial_id: str, at_s: float) -> Run:
        trial = self._trials[trial_id]
        trial.runs, trial.since_s = True, max(at_s, self._begin_s)
        self._running += 1
        until = self._until(trial)
        return Run(trial_id, trial.config, until, final=until == self.R, until_s=self._end_s)

    def _until(self, trial: _Trial) -> int:
        return self._rungs[trial.to].until if trial.to < len(self._rungs) else self.R
