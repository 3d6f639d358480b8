"""Spot machines with a deadline: which machine to hold, so that the deadline is kept whatever the market does.

A job needs `work_s` seconds of computation on one machine before its deadline. At any moment it holds a spot machine,
an on-demand machine, or none. Every start of a machine costs `changeover_s`, in which it is paid for but makes no
progress. Spot machines are cheap, are not always to be had, and may be taken away at any moment without notice; then up
to `rework_s` of computation is lost as well. A policy is asked again at least every `check_s`, and at once when a
machine is lost.

The guarantee. The slack is the time left less the work left. It stays as it is while a machine computes, and shrinks as
time passes without progress. Whoever holds no on-demand machine can still be in time as long as the slack is at least
one changeover, whatever happens until the next check; so `LatePolicy.choose` asks every policy's preference, and
follows it only where that is so:

- without a machine: wait only if `slack >= changeover + check`;
- on a spot machine: stay only if `slack >= changeover + check + rework`;
- start a spot machine only if that is still so when it has started; otherwise it would be left before it is of use;
- otherwise the on-demand machine, which then is kept to the end, because slack never grows.

A job that could be done on demand when it began is therefore never late, under every policy and in every market.

`LastMoment` is greedy; `UniformProgress` is the policy of "Can't Be Late" (Wu et al., NSDI 2024); `NeverLate`, in a
file of its own, weighs what each choice will have cost in the end, in dollars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from elastune.spec import require_number

Held = Literal["spot", "on-demand"] | None
Choice = Literal["spot", "on-demand", "wait"]


@dataclass(frozen=True, slots=True)
class LateJob:
    """What has to be done, until when, and what machines cost."""

    work_s: float
    deadline_s: float
    """Seconds from the start of the job."""
    changeover_s: float
    """From the start of a machine, which is when it begins to be paid for, to the first progress on it."""
    spot_usd_per_hour: float
    on_demand_usd_per_hour: float
    rework_s: float = 0.0
    """The most computation that is lost with a spot machine that is taken away."""
    check_s: float = 60.0
    """The policy is asked at least so often."""

    def __post_init__(self) -> None:
        require_number("work_s", self.work_s)
        require_number("deadline_s", self.deadline_s)
        require_number("changeover_s", self.changeover_s, zero=True)
        require_number("spot_usd_per_hour", self.spot_usd_per_hour, zero=True)
        require_number("on_demand_usd_per_hour", self.on_demand_usd_per_hour)
        require_number("rework_s", self.rework_s, zero=True)
        require_number("check_s", self.check_s)

    @property
    def reserve_s(self) -> float:
        """The slack without which nobody may stay on a spot machine."""
        return self.changeover_s + self.check_s + self.rework_s


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a job is when its policy is asked."""

    at_s: float
    work_left_s: float
    """Includes what was lost with a machine."""
    time_left_s: float
    held: Held
    spot_available: bool
    """A spot machine can be had, or the one that is held is still there."""
    starting_s: float = 0.0
    """The part of its changeover that the held machine has still to go through."""

    @property
    def slack_s(self) -> float:
        return self.time_left_s - self.work_left_s


class LatePolicy(ABC):
    """Chooses machines for one job. Subclasses say what they prefer; the deadline is kept here."""

    def __init__(self, job: LateJob) -> None:
        self.job = job

    def observe(self, at_s: float, spot_available: bool) -> None:  # noqa: B027 - most policies learn nothing
        """Tell what the market is like; at every check, and before the job begins if it is known. Times never fall."""

    def choose(self, state: Situation) -> Choice:
        """The machine to hold from now on; `wait` is to hold none. A machine that is held and chosen is kept."""
        if state.work_left_s <= 0:
            return "wait"
        choice = self.prefer(state)
        return choice if self.allows(state, choice) else "on-demand"

    def allows(self, state: Situation, choice: Choice) -> bool:
        """Whether the job is in time for certain after this choice."""
        job = self.job
        if choice == "on-demand":
            return True
        if choice == "wait":
            return state.slack_s >= job.changeover_s + job.check_s
        if state.held == "spot" and state.spot_available:
            return state.slack_s - state.starting_s >= job.reserve_s
        return state.spot_available and state.slack_s - job.changeover_s >= job.reserve_s

    @abstractmethod
    def prefer(self, state: Situation) -> Choice:
        """What to hold if the deadline allows it; asked as long as there is work left."""


class LastMoment(LatePolicy):
    """Spot whenever it is there, else wait; at the last moment on demand, until the end."""

    def prefer(self, state: Situation) -> Choice:
        return "spot" if self.allows(state, "spot") else "wait"


class UniformProgress(LatePolicy):
    """Progress in proportion to time, as in "Can't Be Late": it needs to know nothing about the market.

    Spot is taken whenever it is there (taking risks), and held until it is lost (exploitation). Without it, a job that
    is behind the straight line from the start to the deadline goes on demand, and stays there until it is ahead of
    where the line will be in two changeovers (hysteresis); a job that is ahead waits.
    """

    def prefer(self, state: Situation) -> Choice:
        if self.allows(state, "spot"):
            return "spot"
        job = self.job
        ahead_s = 2 * job.changeover_s if state.held == "on-demand" else 0.0
        passed_s = job.deadline_s - state.time_left_s + ahead_s
        done_s = job.work_s - state.work_left_s
        return "on-demand" if done_s * job.deadline_s < job.work_s * passed_s else "wait"
