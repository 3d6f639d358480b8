"""In time for certain, and as cheap as the market is believed to allow: the policy that looks ahead."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from elastune.market.late import Choice, LateJob, LatePolicy, Situation
from elastune.market.late_program import Act, Floats, Market, Program, regimes, solve

DURATIONS_S = (900.0, 5400.0, 32400.0)
"""Mean times for which spot machines can be had, or cannot: each pair of these is a regime that a market may be in."""
SWITCH_S = 86400.0
"""How long a market stays in a regime on average."""


@lru_cache(maxsize=1)
def usual_market() -> Market:
    """What is believed of every market before it is seen: nothing but orders of magnitude."""
    return regimes([(up_s, down_s) for up_s in DURATIONS_S for down_s in DURATIONS_S], SWITCH_S)


@lru_cache(maxsize=16)
def _program(job: LateJob) -> Program:
    return solve(job, usual_market())


class NeverLate(LatePolicy):
    """Weighs every choice by the dollars that it will have cost in the end, over all regimes the market may be in.

    Without changeovers it would be best to wait for spot until the last moment. With them slack is worth money: it is
    what going back to a spot machine is paid with. So the on-demand machine comes early where an outage looks long, and
    late where spot is about to come back; a spot machine that seems about to go again is not even started; and the
    on-demand machine is given up for spot while enough work is left for that to pay.

    The dynamic program (`late_program`) is solved once for a job and is no part of the state of a policy, which is how
    likely each regime is: what was seen of the market moves that. The regimes are so few and so coarse because finer
    ones, and weights or rates fitted to traces, made hardly a difference.
    """

    def __init__(self, job: LateJob) -> None:
        super().__init__(job)
        self._belief: Floats | None = None
        self._seen_s = 0.0

    def observe(self, at_s: float, spot_available: bool) -> None:
        self._belief = usual_market().observed(self._belief, at_s - self._seen_s, spot_available)
        self._seen_s = at_s

    def prefer(self, state: Situation) -> Choice:
        dollars = self.dollars(state)
        return min(dollars, key=lambda choice: dollars[choice])

    def dollars(self, state: Situation) -> dict[Choice, float]:
        """What every choice is expected to have cost when the job is done, from now on."""
        if self._belief is None or state.spot_available != self._sees_spot:
            self.observe(state.at_s, state.spot_available)
        fresh = self._costs(state, 0.0)
        found: dict[Choice, float] = {"wait": fresh[Act.WAIT], "on-demand": fresh[Act.START_ON_DEMAND]}
        if state.spot_available:
            found["spot"] = fresh[Act.START_SPOT]
        started = self._costs(state, state.starting_s) if state.starting_s else fresh
        hours = state.starting_s / 3600
        if state.held == "on-demand":
            found["on-demand"] = started[Act.STAY_ON_DEMAND] + hours * self.job.on_demand_usd_per_hour
        if state.held == "spot" and state.spot_available:
            found["spot"] = started[Act.STAY_SPOT] + hours * self.job.spot_usd_per_hour
        return found

    @property
    def _sees_spot(self) -> bool:
        assert self._belief is not None
        return bool(np.any(self._belief[: usual_market().up] > 0))

    def _costs(self, state: Situation, later_s: float) -> list[float]:
        assert self._belief is not None
        costs = _program(self.job).costs(self._belief, state.slack_s - later_s, state.work_left_s)
        return [float(each) for each in costs]
