"""What every choice between spot and on-demand machines will have cost in the end, if the market is as believed.

The market, as it is modelled: it is in one of some regimes, each with its own mean time for which spot machines can be
had and mean time for which they cannot, both from minutes to most of a day. Now and then it changes to another regime.
A market like that has what real ones have and a chain of two states lacks: short gaps and long outages, each of them
more likely where it was seen before. Nobody sees the regime; `observed` keeps how likely each is, by what was seen.

The program, solved once for a job: let σ be the slack beyond what has to be kept in reserve, w the work left. While a
machine computes w falls and σ stays; while none does σ falls and w stays. So every choice leads from σ + w to a smaller
sum, and the expected dollars to the end follow backwards, one sum after the other, for all w and regimes at once. At
σ = 0 only two choices are left: an on-demand machine to the end, or the spot machine that is held until it is lost.
A machine that is held when w ends costs no more, but whoever has a last bit to do and none must still start one; so
w = 0 in the tables means such a last bit.

The choice is made as if the regime were known from the next moment on: the dollars of each choice, averaged over the
regimes as they are believed now. With one regime this is the optimum for a two-state Markov chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from elastune.market.late import LateJob

Floats = NDArray[np.float64]

STEPS = 250
"""A grid has no more steps in time than this, unless a start of a machine would take less than one of them."""
PARTS = 2
"""Steps of the grid in a start of a machine, if the grid is as fine as that."""
SQUARINGS = 20


class Act(IntEnum):
    """What can be done, as rows of the tables."""

    WAIT = 0
    START_ON_DEMAND = 1
    STAY_ON_DEMAND = 2
    START_SPOT = 3
    STAY_SPOT = 4


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """A Markov chain in continuous time whose first `up` states have spot machines. The others have none."""

    rates: Floats
    """From row to column, per second; rows add up to 0."""
    up: int
    start: Floats
    """How likely each state is before anything was seen."""

    def moves(self, seconds: float) -> tuple[Floats, Floats, Floats]:
        """From which state to which, with what probability, in this time: in all, and for the states with spot machines
        with the machine that was there at the beginning still there, or lost.
        """
        move, kept = _exponential(self.rates, seconds), _exponential(self.rates[: self.up, : self.up], seconds)
        lost = move[: self.up].copy()
        lost[:, : self.up] -= kept
        return move, kept, lost

    def observed(self, belief: Floats | None, passed_s: float, available: bool) -> Floats:
        """How likely each state is, after one more look at the market; two looks are never less than a second apart."""
        moved = self.start if belief is None else belief @ _after(self, max(passed_s, 1.0))
        seen = np.zeros_like(moved)
        part = slice(None, self.up) if available else slice(self.up, None)
        seen[part] = moved[part]
        normal: Floats = seen / seen.sum()
        return normal


def regimes(durations_s: list[tuple[float, float]], switch_s: float) -> Market:
    """Regimes with these mean durations of (up, down), all equally likely; each lasts for `switch_s` on average."""
    number = len(durations_s)
    rates = np.zeros((2 * number, 2 * number))
    rates[:number, :number] = rates[number:, number:] = 1.0 / (switch_s * number)
    for regime, (up_s, down_s) in enumerate(durations_s):
        rates[regime, number + regime] = 1.0 / up_s
        rates[number + regime, regime] = 1.0 / down_s
    np.fill_diagonal(rates, 0.0)
    np.fill_diagonal(rates, -rates.sum(axis=1))
    up = np.array([up_s / (up_s + down_s) for up_s, down_s in durations_s])
    return Market(rates, number, np.concatenate([up, 1.0 - up]) / number)


@lru_cache(maxsize=64)
def _after(market: Market, seconds: float) -> Floats:
    """Looks at the market come in regular intervals, nearly always."""
    return _exponential(market.rates, seconds)


def _exponential(rates: Floats, seconds: float) -> Floats:
    """Of the matrix of rates times seconds: by squaring, from a step so short that nothing happens twice in it."""
    power: Floats = np.eye(len(rates)) + rates * (seconds / 2**SQUARINGS)
    for _ in range(SQUARINGS):
        power = power @ power
    return power


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Expected dollars to the end, by σ + w, what is done now, the state of the market, and w; in steps of the grid."""

    job: LateJob
    step_s: float
    dollars: NDArray[np.float32]

    def costs(self, belief: Floats, slack_s: float, work_left_s: float) -> Floats:
        """What each of `Act` will have cost in the end, between the points of the grid by straight lines."""
        most_work = self.dollars.shape[-1] - 1
        most_spare = len(self.dollars) - 1 - most_work
        spare, spare_part = _cell((slack_s - self.job.reserve_s) / self.step_s, most_spare)
        work, work_part = _cell(work_left_s / self.step_s, most_work)
        at = self.dollars[spare + work, ..., work] * ((1 - spare_part) * (1 - work_part))
        for more_spare, more_work, weight in (
            (1, 0, spare_part * (1 - work_part)),
            (0, 1, (1 - spare_part) * work_part),
            (1, 1, spare_part * work_part),
        ):
            if weight > 0:
                at = at + self.dollars[spare + more_spare + work + more_work, ..., work + more_work] * weight
        expected: Floats = at @ belief
        return expected


def _cell(place: float, most: int) -> tuple[int, float]:
    """The point of the grid below, and how far to the next one."""
    inside = min(max(place, 0.0), float(most))
    return int(inside), inside - int(inside)


def solve(job: LateJob, market: Market) -> Program:
    """The program of a job, for all work and slack that it may ever have."""
    step_s, start_steps = _grid(job)
    most_work = ceil((job.work_s + job.rework_s) / step_s)
    sums = most_work + ceil(max(job.deadline_s - job.work_s - job.reserve_s, 0.0) / step_s)
    up, states = market.up, len(market.rates)
    spot_usd, on_demand_usd = job.spot_usd_per_hour / 3600, job.on_demand_usd_per_hour / 3600
    spot_start_usd, start_usd = spot_usd * job.changeover_s, on_demand_usd * job.changeover_s
    move, kept, lost = market.moves(step_s)
    begin, begin_kept, begin_lost = market.moves(start_steps * step_s)

    # The best that can be had, by what is held. At first it is what has to be paid if there is no slack; where w is
    # more than the sum, σ is below 0, and it stays that.
    work_usd = on_demand_usd * step_s * np.arange(most_work + 1)
    on_demand = np.tile(work_usd, (sums + 1, states, 1))
    none = on_demand + start_usd
    spot = none[:, :up].copy()
    dollars = np.zeros((sums + 1, len(Act), states, most_work + 1), dtype=np.float32)
    for total in range(sums + 1):
        before, begun = max(total - 1, 0), max(total - start_steps, 0)
        after_loss = _with_rework(none[before], job.rework_s / 2 / step_s)
        wait = move @ none[before]
        stay = _worked(move @ on_demand[before], on_demand_usd * step_s)
        stay_spot = _worked(kept @ spot[before] + lost @ after_loss, spot_usd * step_s)
        stay_spot[:, total + 1 :] = spot[total, :, total + 1 :]
        on_demand[total], spot[total] = stay, stay_spot
        start = begin @ on_demand[begun] + start_usd
        start_spot = begin_kept @ spot[begun] + begin_lost @ none[begun] + spot_start_usd

        none[total] = np.minimum(wait, start)
        spot[total] = np.minimum(stay_spot, none[total, :up])
        on_demand[total] = np.minimum(stay, wait)
        none[total, :up] = np.minimum(none[total, :up], start_spot)
        on_demand[total, :up] = np.minimum(on_demand[total, :up], start_spot)
        dollars[total, [Act.WAIT, Act.START_ON_DEMAND, Act.STAY_ON_DEMAND]] = wait, start, stay
        dollars[total, [Act.START_SPOT, Act.STAY_SPOT], :up] = start_spot, stay_spot
    return Program(job, step_s, dollars)


def _grid(job: LateJob) -> tuple[float, int]:
    """The length of a step, and how many of them a start of a machine takes: 0 if it is much shorter than a step."""
    step_s = max(job.changeover_s / PARTS, max(job.deadline_s, job.work_s) / STEPS)
    steps = int(job.changeover_s / step_s)
    return (job.changeover_s / steps, steps) if steps else (step_s, 0)


def _worked(after: Floats, usd: float) -> Floats:
    """Dollars before a step in which a machine computes, from those after it; whoever has done all pays no more."""
    before = np.zeros_like(after)
    before[:, 1:] = after[:, :-1] + usd
    return before


def _with_rework(none: Floats, steps: float) -> Floats:
    """What is left to pay by those who lost their machine, and so much work with it; who is done loses nothing."""
    whole, part = int(steps), steps % 1.0
    last = none.shape[1] - 1
    at = np.arange(last + 1)
    more = (1 - part) * none[:, np.minimum(at + whole, last)] + part * none[:, np.minimum(at + whole + 1, last)]
    more[:, 0] = 0.0
    return more
