"""Spot machines with a deadline: the whole run is one job for a policy of `market/late.py`, which says when to hold
spot machines, when to wait, and when only on-demand machines are in time for certain.

Work is what the run still takes on all its machines on demand: the rest of the trials that are there, and the stages
that come. How long a step takes is measured; until the first one is, there is nothing that a promise could rest on.

Machines of both markets are in pools of their own. Trials move when the others are ready: until then they train on,
where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.market.cloud import PlayedCloud
from elastune.market.late import Choice, LateJob, LatePolicy, Situation
from elastune.market.never_late import NeverLate
from elastune.messages import Offer
from elastune.spec import Stage, Terms, Width, require_number

SPOT, ON_DEMAND = 1, 2
"""The pools."""
MARGIN = 1.05
"""Steps are thought to take so much longer than they did."""
CHECKS = 200
"""How often the market is looked at until the deadline, unless that would be more often than every minute."""
RECENT = 0.3


class InTime(Allocator):
    """`stages` is all that will be trained, `deadline_s` when it must be done. `start_s` is what a trial takes to go on
    elsewhere, besides the boot of the machine."""

    all_at_once = True

    def __init__(
        self,
        cloud: PlayedCloud,
        stages: Sequence[Stage],
        deadline_s: float,
        start_s: float = 5.0,
        policy: type[LatePolicy] = NeverLate,
    ) -> None:
        require_number("deadline_s", deadline_s)
        require_number("start_s", start_s, zero=True)
        self.cloud, self.stages, self.deadline_s, self.start_s = cloud, tuple(stages), deadline_s, start_s
        self._policy_class = policy
        self._policy: LatePolicy | None = None
        self._step_s: dict[str, float] = {}
        self._pool: dict[str, int] = {}
        """Of the trials that were started."""
        self._begun: dict[int, int] = {}
        """The last stage of each bracket that has begun."""
        self._forced = False
        self._most = 1

    def setup(self, terms: Terms) -> None:
        self._most = terms.machines

    @property
    def check_s(self) -> float:
        return max(60.0 / self.cloud.pace, self.deadline_s / CHECKS)

    def stepped(self, steps: Steps) -> bool:
        step_s = steps.seconds / steps.number
        known = self._step_s.get(steps.trial)
        if known is None:
            self._step_s[steps.trial] = step_s
            return len(self._step_s) == 1
        if not steps.first:
            self._step_s[steps.trial] = known + RECENT * (step_s - known)
        return False

    # ------------------------------------------------------------------------------------------------------ allocating

    def allocate(self, view: View, at_s: float) -> Target:
        self._pool = {trial: pool for trial, pool in self._pool.items() if trial in view.widths}
        needed = min(
            self._most, max(1, sum(1 for _ in view.waiting) + len(view.widths) + sum(1 for _ in view.failed()))
        )
        spot, on_demand = self._machines(self._choose(view, at_s, needed), view, needed)
        widths, pools = self._places(view, {SPOT: spot, ON_DEMAND: on_demand})
        offers = {SPOT: self._cheapest(at_s), ON_DEMAND: Offer(self._cheapest(at_s).type)}
        done = at_s >= self.deadline_s
        return Target(
            {SPOT: spot, ON_DEMAND: on_demand},
            widths,
            None if done else min(at_s + self.check_s, self.deadline_s),
            pools=pools,
            offers=offers,
        )

    def _machines(self, choice: Choice, view: View, needed: int) -> tuple[int, int]:
        """How many of both are held. Those that are ready stay until others are."""
        spot, on_demand = len(view.machines(SPOT)), len(view.machines(ON_DEMAND))
        if choice == "wait":
            return 0, 0
        if choice == "spot":
            return needed, min(on_demand, max(0, needed - spot))
        if self._forced:
            return min(spot, max(0, needed - on_demand)), needed
        return min(spot, needed), needed - min(spot, needed)

    def _places(self, view: View, held: dict[int, int]) -> tuple[dict[str, Width], dict[str, int]]:
        """Trials stay where they are while there is a machine for them; those that wait go where one is free."""
        leaving = set(view.leaving())
        free = {pool: min(held[pool], len(view.machines(pool))) for pool in (SPOT, ON_DEMAND)}
        widths: dict[str, Width] = {}
        for trial in view.widths:
            pool = self._pool.get(trial, SPOT)
            if trial not in leaving and free[pool] > 0:
                free[pool] -= 1
                widths[trial] = 1
        for trial in view.waiting:
            pool = ON_DEMAND if free[ON_DEMAND] > 0 else SPOT
            if free[pool] <= 0:
                break
            free[pool] -= 1
            widths[trial], self._pool[trial] = 1, pool
        return widths, dict(self._pool)

    # -------------------------------------------------------------------------------------------------------- choosing

    def _choose(self, view: View, at_s: float, needed: int) -> Choice:
        available = self._available(at_s)
        for index in {view.stage(trial) for trial in (*view.widths, *view.waiting)}:
            bracket = self.stages[index].bracket
            self._begun[bracket] = max(index, self._begun.get(bracket, -1))
        if not self._step_s:
            return "spot" if available else "on-demand"
        work_s = self._work_s(view)
        policy = self._policy_for(work_s, at_s)
        policy.observe(at_s, available)
        spot, on_demand = view.machines(SPOT), view.machines(ON_DEMAND)
        held = view.machines(ON_DEMAND) or view.awaited(ON_DEMAND)
        state = Situation(
            at_s,
            work_s,
            max(0.0, self.deadline_s - at_s),
            "on-demand" if held else "spot" if spot else None,
            available or bool(spot),
            0.0 if spot or on_demand or not held else self._changeover_s,
        )
        choice = policy.choose(state)
        self._forced = choice == "on-demand" and policy.prefer(state) != "on-demand"
        return choice

    def _policy_for(self, work_s: float, at_s: float) -> LatePolicy:
        if self._policy is None:
            offer = self._cheapest(at_s)
            self._policy = self._policy_class(
                LateJob(
                    max(work_s, 1e-6),
                    self.deadline_s,
                    self._changeover_s,
                    self.cloud.mean_price(offer.type, at_s) * self.cloud.pace,
                    self.cloud.price(Offer(offer.type), at_s),
                    rework_s=max(self._step_s.values()),
                    check_s=self.check_s,
                )
            )
        return self._policy

    @property
    def _changeover_s(self) -> float:
        return self.cloud.boot_s / self.cloud.pace + self.start_s

    def _work_s(self, view: View) -> float:
        """How long the rest takes at most on all machines: those that are there share them, the longest last, and the
        stages that come are done in rounds.
        """
        usual_s = fmean(self._step_s.values())
        times_s = [
            (view.left(trial) or 0) * self._step_s.get(trial, usual_s)
            for trial in (*view.widths, *view.waiting, *view.failed())
        ]
        work_s = sum(times_s) / self._most + max(times_s, default=0.0) * (1 - 1 / self._most)
        longest_s = max(self._step_s.values())
        later = [stage for index, stage in enumerate(self.stages) if index > self._begun.get(stage.bracket, -1)]
        work_s += sum(math.ceil(stage.trials / self._most) * stage.iterations * longest_s for stage in later)
        return MARGIN * work_s

    def _available(self, at_s: float) -> bool:
        """Spot machines that cost no more than on-demand ones."""
        offer = self._cheapest(at_s)
        price = self.cloud.price(offer, at_s)
        return self.cloud.available(offer.type, at_s) > 0 and price <= self.cloud.price(Offer(offer.type), at_s)

    def _cheapest(self, at_s: float) -> Offer:
        """The market where a machine costs least at the moment. More than it costs on demand is never paid."""
        kinds = self.cloud.kinds

        def rank(market: str) -> tuple[bool, float]:
            price = self.cloud.price(Offer(market, "spot"), at_s)
            return not self.cloud.available(market, at_s), price / kinds[market].speed

        market = min(kinds, key=rank)
        return Offer(market, "spot", kinds[market].on_demand_usd_per_hour)
