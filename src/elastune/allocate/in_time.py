"""Spot machines with a deadline: the whole run is one job for a policy of `market/late.py`, which says when to hold
spot machines, when to wait, and when only on-demand machines are in time for certain.

Work is how long the rest of the run takes on all its machines on demand. It is played through: who trains goes on, the
others follow in the order in which they came, and a stage begins when the one before it is done. How long a step takes
is measured. Until the first one is, nothing can be promised: spot machines are tried once, then on-demand machines are
taken.

Machines of both markets are in pools of their own. Trials move when the others are ready: until then they train on,
where they are.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, nsmallest

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.market.cloud import PlayedCloud
from elastune.market.late import Held, LateJob, LatePolicy, Situation
from elastune.market.never_late import NeverLate
from elastune.messages import Offer
from elastune.spec import Stage, Terms, Width, require_number

SPOT, ON_DEMAND = 1, 2
"""The pools."""
MARGIN = 1.05
"""Steps are thought to take so much longer than they did."""
CHECKS = 200
"""How often the market is looked at until the deadline, unless that would be more often than every minute."""
RECKONED = 4
"""How often between two checks what is left may be reckoned anew."""
RECENT = 0.1
"""What a new step counts for at least in the mean of a trial's."""
OTHER_PRICE = 2.0
"""Spot machines must cost so many times as much or as little as was thought before choices are weighed anew."""
WAITED = 1e-6
"""A deadline is over that is so near."""


@dataclass(frozen=True, slots=True)
class _Step:
    """How long a step of a trial takes, as the mean of so many; or what the first ones took with the start before."""

    seconds: float
    number: int
    first: bool = True


class InTime(Allocator):
    """`stages` is all that will be trained, `deadline_s` when it must be done. `start_s` is what a trial takes to go on
    elsewhere, besides the boot of the machine, and `unsaved_s` the most that it has trained since its last checkpoint
    when it reports.
    """

    all_at_once = True

    def __init__(
        self,
        cloud: PlayedCloud,
        stages: Sequence[Stage],
        deadline_s: float,
        start_s: float = 5.0,
        policy: type[LatePolicy] = NeverLate,
        unsaved_s: float = 60.0,
    ) -> None:
        require_number("deadline_s", deadline_s)
        require_number("start_s", start_s, zero=True)
        require_number("unsaved_s", unsaved_s, zero=True)
        self.cloud, self.stages, self.deadline_s = cloud, tuple(stages), deadline_s
        self.start_s, self.unsaved_s = start_s, unsaved_s
        self.type = _cheapest_on_demand(cloud)
        """What is taken on demand. Spot machines are of any market with machines that are as fast."""
        self._policy_class = policy
        self._policy: LatePolicy | None = None
        self._steps: dict[str, _Step] = {}
        self._started_s = math.inf
        """What a start took at least, of those that could be told from the step after it."""
        self._seen: dict[str, int] = {}
        """All trials, numbered as they came."""
        self._begun_with: Counter[int] = Counter()
        """How many trials were seen of each stage."""
        self._begun: dict[int, int] = {}
        """The last stage of each bracket that has begun."""
        self._since: dict[str, tuple[int, float]] = {}
        """Of the trials that train: the iterations that are left, and since when."""
        self._pool: dict[str, int] = {}
        self._asked = (0, 0.0)
        """How many spot machines were held after the last allocation, and when that was."""
        self._lost_s = -math.inf
        """When the last one was lost."""
        self._shunned_s = -math.inf
        """Until then no more are asked for, because they go as soon as they have come."""
        self._longest = 0.0
        """The longest step of a trial, as it was then."""
        self._work = (-math.inf, 0.0, 0)
        """When it was reckoned how long the rest takes, what that was, and how many brackets had begun."""
        self._most = 1

    def setup(self, terms: Terms) -> None:
        self._most = self.places = terms.machines

    @property
    def check_s(self) -> float:
        return max(60.0 / self.cloud.pace, self.deadline_s / CHECKS)

    @property
    def _boot_s(self) -> float:
        return self.cloud.boot_s / self.cloud.pace

    @property
    def changeover_s(self) -> float:
        return self._boot_s + self.start_s

    def stepped(self, steps: Steps) -> bool:
        known = self._steps.get(steps.trial)
        if steps.first:
            if known is None:
                self._steps[steps.trial] = _Step(steps.seconds, steps.number)
            return len(self._steps) == 1 and known is None
        step_s = steps.seconds / steps.number
        if known is None or known.first:
            if known is not None:
                self._started_s = min(self._started_s, max(0.0, known.seconds - known.number * step_s))
            self._steps[steps.trial] = _Step(step_s, 1, first=False)
        else:
            weight = max(1 / (known.number + 1), RECENT)
            mean_s = known.seconds + weight * (step_s - known.seconds)
            self._steps[steps.trial] = _Step(mean_s, known.number + 1, first=False)
        return False

    # ------------------------------------------------------------------------------------------------------ allocating

    def allocate(self, view: View, at_s: float) -> Target:
        self._note(view, at_s)
        present = [*view.widths, *view.waiting, *view.failed()]
        needed = self._needed(view, present)
        spot, on_demand = self._machines(view, present, needed, at_s)
        self._asked = spot, at_s
        held = {SPOT: spot, ON_DEMAND: on_demand}
        widths = self._places(view, held, needed, at_s)
        return Target(
            held,
            widths,
            None if at_s >= self.deadline_s - WAITED else min(at_s + self.check_s, self.deadline_s),
            pools=dict(self._pool),
            offers={SPOT: self._cheapest(at_s), ON_DEMAND: Offer(self.type)},
        )

    def _note(self, view: View, at_s: float) -> None:
        """Which stages have begun, and who has come how far."""
        for trial in (*view.widths, *view.waiting):
            index = view.stage(trial)
            if trial not in self._seen:
                self._seen[trial] = len(self._seen)
                self._begun_with[index] += 1
            bracket = self.stages[index].bracket
            self._begun[bracket] = max(index, self._begun.get(bracket, -1))
        self._pool = {trial: pool for trial, pool in self._pool.items() if trial in view.widths}
        self._since = {trial: since for trial, since in self._since.items() if trial in view.widths}
        for trial in view.widths:
            left = view.left(trial) or 0
            if trial not in self._since or self._since[trial][0] != left:
                self._since[trial] = left, at_s

    def _needed(self, view: View, present: Sequence[str]) -> int:
        """As many machines as there are trials. Those that the next stages will have use for are kept until then: a
        machine that has to be started again costs more.
        """
        now = Counter(self.stages[view.stage(trial)].bracket for trial in present)
        later = Counter[int]()
        for stage in self._later():
            later[stage.bracket] = max(later[stage.bracket], stage.trials)
        return min(self._most, max(1, (now | later).total()))

    def _machines(self, view: View, present: Sequence[str], needed: int, at_s: float) -> tuple[int, int]:
        """How many of both are held. Those that are ready stay until others are."""
        spot, on_demand = len(view.machines(SPOT)), len(view.machines(ON_DEMAND))
        if at_s + self._boot_s >= self.deadline_s and not on_demand and not view.awaited(ON_DEMAND):
            return min(needed, spot + len(view.awaited(SPOT))), 0  # no other would be there before all is over
        choice = self._choose(view, present, at_s)
        if choice == "spot":
            wanted = needed if at_s >= self._shunned_s else min(needed, spot + len(view.awaited(SPOT)))
            return wanted, min(on_demand, max(0, needed - spot))
        if choice == "only on-demand":
            return min(spot, max(0, needed - on_demand)), needed
        kept = min(spot, needed)
        return kept, needed - kept if choice == "on-demand" else 0

    def _places(self, view: View, held: dict[int, int], needed: int, at_s: float) -> dict[str, Width]:
        """Trials stay where they are while there is a machine for them; those that wait go where one is free,
        always in the order in which they came: then how long all takes does not depend on who was lost when. Who has to
        leave its machine has a place elsewhere: nobody else begins there.
        """
        leaving, machines = set(view.leaving()), {pool: view.machines(pool) for pool in held}
        room = {pool: min(held[pool], len(machines[pool])) for pool in held}
        width = self.cloud.kind(self.type).devices
        widths: dict[str, Width] = {}
        for trial in view.widths:
            pool = self._pool[trial]
            if trial not in leaving and room[pool] > 0:
                room[pool] -= 1
                widths[trial] = width
        free = {pool: min(room[pool], sum(not machine.trials for machine in machines[pool])) for pool in held}
        for trial in nsmallest(max(0, needed - len(view.widths)), view.waiting, key=self._seen.__getitem__):
            pool = ON_DEMAND if free[ON_DEMAND] > 0 else SPOT
            if free[pool] <= 0:
                break
            free[pool] -= 1
            widths[trial], self._pool[trial] = width, pool
            self._since[trial] = view.left(trial) or 0, at_s + self.start_s
        return widths

    # -------------------------------------------------------------------------------------------------------- choosing

    def _choose(self, view: View, present: Sequence[str], at_s: float) -> str:
        """What the policy chooses; or only on-demand machines, where nothing else is in time for certain."""
        spot, on_demand = view.machines(SPOT), view.machines(ON_DEMAND)
        lost = self._lost(view, at_s)
        available = self._available(at_s) and at_s >= self._shunned_s
        if not self._steps:
            in_vain = any(asked_s + self.check_s <= at_s for asked_s in view.unserved(SPOT))
            tried = in_vain or self._lost_s > -math.inf or on_demand or view.awaited(ON_DEMAND)
            return "spot" if available and not tried else "only on-demand"
        if lost or at_s >= self._work[0] + self.check_s / RECKONED or len(self._begun) != self._work[2]:
            # Not at every report: of thousands of trials it would take too long. What is left meanwhile is less.
            self._longest = self._longest_s()
            self._work = at_s, self._work_s(view, present, at_s), len(self._begun)
        work_s = self._work[1]
        policy = self._policy_for(work_s, at_s)
        pace = self.cloud.pace
        if lost:
            policy.observe(at_s * pace, False)
        policy.observe(at_s * pace, available)
        held, starting_s = self._held(view, at_s)
        left_s = max(0.0, self.deadline_s - at_s)
        least_s = policy.job.reserve_s / pace
        if held == "on-demand":
            # What steps are thought to take changes a little all the time: not for that a machine is given back.
            least_s += self.changeover_s + (MARGIN - 1) * work_s
        if left_s - work_s < least_s:
            return "only on-demand"
        there = available or bool(spot)
        return policy.choose(Situation(at_s * pace, work_s * pace, left_s * pace, held, there, starting_s * pace))

    def _lost(self, view: View, at_s: float) -> bool:
        """Whether a spot machine was lost since the last time. Where that happens all the time none is asked for until
        the next check: every start is paid for.
        """
        asked, asked_s = self._asked
        if at_s <= asked_s or len(view.machines(SPOT)) + len(view.awaited(SPOT)) >= asked:
            return False
        if at_s - self._lost_s < self.changeover_s + self.check_s:
            self._shunned_s = at_s + self.check_s
        self._lost_s = at_s
        return True

    def _held(self, view: View, at_s: float) -> tuple[Held, float]:
        """What is there or about to be, and in how long it is of use."""
        asked_s = [*view.awaited(SPOT), *view.awaited(ON_DEMAND)]
        ready = view.machines(SPOT) or view.machines(ON_DEMAND)
        starting_s = 0.0 if ready or not asked_s else max(0.0, max(asked_s) + self.changeover_s - at_s)
        if view.machines(ON_DEMAND) or view.awaited(ON_DEMAND):
            return "on-demand", starting_s
        return ("spot", starting_s) if view.machines(SPOT) or view.awaited(SPOT) else (None, 0.0)

    def _policy_for(self, work_s: float, at_s: float) -> LatePolicy:
        """It reckons in the time of the market, for what it believes of markets is not played faster."""
        pace = self.cloud.pace
        rework_s, spot_usd = pace * (MARGIN * self._longest + self.unsaved_s), self._spot_usd(at_s)
        if self._policy is None:
            self._policy = self._policy_class(
                LateJob(
                    max(pace * work_s, 1e-6),
                    pace * self.deadline_s,
                    pace * self.changeover_s,
                    spot_usd,
                    self.cloud.price(Offer(self.type), at_s) / pace,
                    rework_s=rework_s,
                    check_s=pace * self.check_s,
                )
            )
            return self._policy
        job = self._policy.job
        if rework_s > job.rework_s:
            # A slower trial was seen: losing its machine costs more. A little more is held back, not to do this often.
            self._policy.job = job = replace(job, rework_s=MARGIN * rework_s)
        if not job.spot_usd_per_hour / OTHER_PRICE <= spot_usd <= job.spot_usd_per_hour * OTHER_PRICE:
            self._policy.job = replace(job, spot_usd_per_hour=spot_usd)
        return self._policy

    # ------------------------------------------------------------------------------------------------------------ work

    def _work_s(self, view: View, present: Sequence[str], at_s: float) -> float:
        """How long the rest takes on all machines. A trial that was not measured is as slow as the slowest."""
        longest_s = self._longest

        def part(trial: str) -> tuple[int, float]:
            step_s, left = self._step_s(trial, longest_s), view.left(trial) or 0
            done_s = min(max(0.0, at_s - self._since[trial][1]), step_s) if trial in self._since else 0.0
            start_s = 0.0 if trial in view.widths else self.start_s
            return self.stages[view.stage(trial)].bracket, start_s + left * step_s - (done_s if left else 0.0)

        running = [part(trial) for trial in view.widths]
        waiting = [part(trial) for trial in sorted(present[len(running) :], key=self._seen.__getitem__)]
        machines, to_come = self._most, self._to_come()
        if to_come:  # the algorithm has no more than these at once
            machines = min(machines, max(1, len(present)))
            waiting += [(stage.bracket, self._run_s(stage, longest_s)) for stage in to_come]
        return MARGIN * self._play(running, waiting, longest_s, machines)

    def _play(
        self, running: list[tuple[int, float]], waiting: list[tuple[int, float]], longest_s: float, machines: int
    ) -> float:
        """When the last of these is done, by bracket and seconds, and of all stages that follow them."""
        unfinished = Counter(bracket for bracket, _ in (*running, *waiting))
        stages = {bracket: deque[Stage]() for bracket in self._begun}
        for stage in self._later():
            stages.setdefault(stage.bracket, deque()).append(stage)
        queue = [(bracket, number, rest_s) for number, (bracket, rest_s) in enumerate(waiting)]
        ends_s, now_s = [(rest_s, bracket) for bracket, rest_s in running], 0.0
        heapify(queue)
        heapify(ends_s)

        def go_on(bracket: int) -> None:
            if not unfinished[bracket] and stages[bracket]:
                stage = stages[bracket].popleft()
                unfinished[bracket] = stage.trials
                for number in range(stage.trials):
                    heappush(queue, (bracket, number, self._run_s(stage, longest_s)))

        for bracket in stages:
            go_on(bracket)
        while ends_s or queue:
            while queue and len(ends_s) < machines:
                bracket, _, rest_s = heappop(queue)
                heappush(ends_s, (now_s + rest_s, bracket))
            now_s, bracket = heappop(ends_s)
            unfinished[bracket] -= 1
            go_on(bracket)
        return now_s

    def _run_s(self, stage: Stage, step_s: float) -> float:
        return self.start_s + stage.iterations * step_s

    def _later(self) -> list[Stage]:
        """The stages that have not begun."""
        return [stage for index, stage in enumerate(self.stages) if index > self._begun.get(stage.bracket, -1)]

    def _to_come(self) -> list[Stage]:
        """For every trial of a first stage that the algorithm has not begun with the others, that stage."""
        return [
            stage
            for index, stage in enumerate(self.stages)
            if stage.start == 0 and self._begun.get(stage.bracket, -1) == index
            for _ in range(stage.trials - self._begun_with[index])
        ]

    def _step_s(self, trial: str, otherwise_s: float = 0.0) -> float:
        """Of a trial that has made but the first step after a start nobody knows how much of it was the start: no more
        than the least that was seen of others is taken off.
        """
        step = self._steps.get(trial)
        if step is None:
            return otherwise_s
        if not step.first:
            return step.seconds
        started_s = self._started_s if self._started_s < math.inf else 0.0
        return max(step.seconds - started_s, 0.1 * step.seconds) / step.number

    def _longest_s(self) -> float:
        return max(self._step_s(trial) for trial in self._steps)

    # ---------------------------------------------------------------------------------------------------------- market

    def _available(self, at_s: float) -> bool:
        """Spot machines that cost no more than on-demand ones."""
        offer = self._cheapest(at_s)
        there = self.cloud.available(offer.type, at_s) > 0
        # Without a limit: with one a price never seems to be above it.
        price = self.cloud.price(Offer(offer.type, "spot"), at_s)
        return there and price <= self.cloud.price(Offer(self.type), at_s)

    def _spot_usd(self, at_s: float) -> float:
        """What a spot machine costs: the mean of the last hour, or the present price, which after a spike is less."""
        market = self._cheapest(at_s).type
        now_usd = self.cloud.price(Offer(market, "spot"), at_s) / self.cloud.pace
        return min(self.cloud.mean_price(market, at_s), now_usd)

    def _cheapest(self, at_s: float) -> Offer:
        """The market where a machine costs least at the moment. More than it costs on demand is never paid."""
        kinds = self.cloud.kinds
        usual = kinds[self.type]
        markets = [
            market for market, kind in kinds.items() if (kind.speed, kind.devices) == (usual.speed, usual.devices)
        ]

        def rank(market: str) -> tuple[bool, float]:
            return not self.cloud.available(market, at_s), self.cloud.price(Offer(market, "spot"), at_s)

        return Offer(min(markets, key=rank), "spot", usual.on_demand_usd_per_hour)


def _cheapest_on_demand(cloud: PlayedCloud) -> str:
    """By what work costs; of equal ones the fastest."""
    kinds = cloud.kinds
    return min(
        kinds, key=lambda market: (kinds[market].on_demand_usd_per_hour / kinds[market].speed, -kinds[market].speed)
    )
