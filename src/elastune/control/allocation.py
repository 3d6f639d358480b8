"""Brings machines and trials to what the allocator wants, and ends the run when there is nothing left to do."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import islice

from elastune import messages as m
from elastune.allocate.base import Allocator, Target, View
from elastune.control.answer import Answer
from elastune.control.course import Course
from elastune.control.fleet import Fleet
from elastune.control.party import Party, in_turn
from elastune.control.schedule import Schedule
from elastune.control.state import Trial
from elastune.control.trial_runs import TrialRuns
from elastune.spec import require_int, to_width

GROUP = 1000
"""So many new trials an allocator sees at once, where it wants to see a group whole and that may be without end."""


class Allocation:
    """Asks algorithms for as many trials as there is room for, and the allocator what each of them shall have."""

    def __init__(
        self,
        allocator: Allocator,
        trials: Mapping[str, Trial],
        fleet: Fleet,
        schedule: Schedule,
        runs: TrialRuns,
        course: Course,
        answer: Answer,
    ) -> None:
        self.ask_again_s = math.inf
        """When the allocator wants to be asked even if nothing happens."""
        self.recorded: deque[m.Planned] = deque()
        """While a journal is replayed: the plans of the present turn."""
        self.recorded_choices: dict[str, m.Chosen] = {}
        """And the machines that were chosen in it, by trial."""
        self._allocator, self._trials, self._fleet, self._schedule = allocator, trials, fleet, schedule
        self._runs, self._course, self._answer = runs, course, answer
        self._priorities = {party.name: party.priority for party in runs.parties}

    def fill(self) -> None:
        if self._answer.at_s < self._course.held_until_s:
            self.ask_again_s = self._course.held_until_s
        elif self._course.outcome is None:
            self._bring_to_target()
        if self._course.outcome is not None and not self._schedule.widths and not self._course.done:
            self._course.finish(*self._course.outcome)

    def nothing_left(self) -> bool:
        """Whether what came in with this turn was the last of all."""
        if self._idle and not self._runs.timers.waking:
            self._ask_for_more()
        return self._idle and not self._runs.timers.waking

    @property
    def _idle(self) -> bool:
        """Nothing runs and nothing waits: if the algorithm has no more, nothing ever will."""
        return not self._schedule.waiting and not self._schedule.widths

    def _bring_to_target(self) -> None:
        self._ask_for_more()
        if self.nothing_left():
            self._course.finish(*self._runs.close())
            return
        target = self._ask_for_target()
        if target.done:
            self._course.end("succeeded", target.done)
            return
        if self._fit_pools(target):
            self._ask_for_more()
            target = self._ask_for_target()
        waiting = len(self._schedule.waiting)
        self._schedule.follow(target)
        if target.again and len(self._schedule.waiting) < waiting:
            self._bring_to_target()
            return
        self._fleet.hold(target.by_pool, target.offers)
        stuck = not self._schedule.widths and self._schedule.waiting and self._runs.timers.next_s == math.inf
        if stuck and self.ask_again_s == math.inf and all(node.devices for node in self._fleet.nodes.values()):
            trial = self._trials[next(iter(self._schedule.waiting))]
            self._runs.give_up(trial.party, _nothing_for(trial, target))
            if self._course.outcome is None:  # the others may have a place
                self._bring_to_target()

    def _ask_for_more(self) -> None:
        """As many trials as there is a place for, at least one if there is nothing else to do; or, where the algorithm
        says how many may be under way, as many as that.
        """
        room = self._fleet.room(to_width("the allocator's width", self._allocator.width)) + self._allocator.extra
        room = max(0, room)
        everything = self._allocator.all_at_once
        if len(self._runs.parties) > 1:
            self._ask_in_turn(room, everything)
            return
        (party,) = self._runs.parties
        most, group = party.algorithm.max_concurrent, self._group(party)
        if most is None and everything and self._learns(party):
            most = self._allocator.places
        while True:
            if most is not None:
                wanted = most - self._runs.under_way(party)
            elif (wanted := room - len(self._schedule.waiting)) > 0 or self._idle or everything:
                wanted = max(wanted, group)
            if wanted <= 0 or not self._runs.ask_for_more(party, wanted):
                break

    def _learns(self, party: Party) -> bool:
        """Whether later trials are better for what was learnt of earlier ones."""
        algorithm = party.algorithm
        return algorithm.one_by_one or (algorithm.whole and party.source.searcher.learns)

    def _group(self, party: Party) -> int:
        """How many trials are asked for at a time: many where they are one group and nothing is learnt before."""
        whole = self._allocator.whole_groups and party.algorithm.whole and not party.source.searcher.learns
        return GROUP if whole else 1

    def _ask_in_turn(self, room: int, everything: bool) -> None:
        """Of each experiment as many as will have their turn when the places are given out one by one, or as many as it
        says. At least one of each, so that the allocator knows who wants devices; an experiment that has none is over.
        """
        for party in [party for party in self._runs.parties if party.outcome is None]:
            while everything and self._runs.ask_for_more(party, max(room, 1)):
                pass
            self._ask_up_to_most(party)
            done = party.idle and not self._runs.timers.waking_for(party) and not self._runs.ask_for_more(party, 1)
            if done:
                self._runs.close_one(party)

        def has_another(party: Party, got: int) -> bool:
            return got < len(party.waiting) or self._runs.ask_for_more(party, self._group(party))

        running = [party for party in self._runs.parties if party.outcome is None]
        deque(islice(in_turn(running, has_another), room), maxlen=0)

    def _ask_up_to_most(self, party: Party) -> None:
        """Where its algorithm says how many trials may be under way."""
        if (most := party.algorithm.max_concurrent) is not None:
            while self._runs.ask_for_more(party, most):
                pass

    def _ask_for_target(self) -> Target:
        at_s, trials, schedule, pools = self._answer.at_s, self._trials, self._schedule, self._fleet.pools
        view = View(
            self._fleet.free,
            schedule.widths,
            schedule.waiting,
            lambda trial: trials[trial].run.stage,
            lambda pool: pools[pool].ready_machines(),
            lambda pool: pools[pool].awaited(),
            lambda: self._fleet.spent_usd(at_s),
            self.recorded.popleft if self.recorded else None,
            self.recorded_choices.get,
            lambda: (trial for trial in self._runs.timers.retried if not trials[trial].over),
            lambda trial: trials[trial].run.width,
            lambda: (trial for trial in schedule.widths if trials[trial].leaving),
            lambda trial: trials[trial].left,
            lambda trial: trials[trial].config,
            lambda trial: trials[trial].party.algorithm.one_by_one,
            lambda trial: schedule.mates(trials[trial]),
            lambda trial: schedule.sharing(trials[trial]),
            lambda: self._fleet.idle,
            unserved=lambda pool: pools[pool].unserved(),
            saved=lambda trial: trials[trial].checkpoints[-1].path if trials[trial].checkpoints else "",
            experiment=lambda trial: trials[trial].party.name,
            priorities=self._priorities,
            used_s={party.name: party.used_s for party in self._runs.parties},
        )
        target = self._allocator.allocate(view, at_s)
        for machines in target.by_pool.values():
            require_int("the allocator's machines", machines, 0)
        self.ask_again_s = math.inf if target.wake_s is None else target.wake_s
        if target.plan is not None:
            self._answer.decisions.append(target.plan)
        self._answer.decisions.extend(target.chosen)
        return target

    def _fit_pools(self, target: Target) -> bool:
        """Give machines up where there are too many. Says whether some are kept after all that were to be given up."""
        kept = False
        unwanted = dict.fromkeys(self._fleet.pools.keys() - target.by_pool.keys(), 0)
        for number, wanted in (*target.by_pool.items(), *sorted(unwanted.items())):
            pool = self._fleet.pools[number]
            surplus = pool.surplus(wanted)
            if surplus > 0:
                pool.give_up(surplus, *self._schedule.places(number, target))
            elif surplus < 0:
                kept = pool.keep_again(-surplus) or kept
        return kept


def _nothing_for(trial: Trial, target: Target) -> str:
    width = target.widths.get(trial.id, trial.run.width)
    if width is None:
        return f"trial {trial.id} waits, nothing else runs, and the allocator gives it no devices"
    return f"trial {trial.id} waits for {width} devices that no set of machines here can offer"
