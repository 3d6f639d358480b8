"""SEER (Dunlap et al., SoCC 2021): the best model that a deadline and a budget buy.

Many trials begin, in brackets of different parallelism. All brackets have the same rounds, eta times longer each, which
end by the clock; at the end of a round each bracket keeps its best 1/eta, and the survivors of all brackets are ranked
together: the best get the most devices. Where training converges fast the many narrow trials find the best
configuration, where it converges slowly the few wide ones are trained far enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

from elastune.algorithm.timed import TimedStage, TimedStages, Window, largest, staged
from elastune.algorithm.whole_machines import fill
from elastune.allocate import Allocator
from elastune.errors import SpecError
from elastune.spec import Terms, require_int, require_number
from elastune.units import format_duration, parse_duration

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Brackets:
    """Rounds of successive halving, the first of which takes `first_s`; each bracket begins so many trials with so many
    devices each.
    """

    rounds: int
    first_s: float
    trials: tuple[int, ...]
    widths: tuple[int, ...]


def compute_bracket_parameters(
    T: float, B: float, eta: float, nu: float, p_min: int, p_max: float, t_min: float
) -> Brackets:
    """Algorithm 2: K, t1, N and P. Time and budget in one unit, such as minutes and device-minutes."""
    R, K = _largest_R(T / t_min, B / t_min / p_min, eta)
    t1 = t_min * R * eta ** -(K - 1)
    B0 = p_min * t_min * R * K
    budgets = compute_bracket_budgets(B, B0, nu, p_min, p_max)
    trials = {p: math.floor(b / (K * t1 * p) + ROUNDING) for p, b in budgets.items()}
    trials = {p: n for p, n in trials.items() if n > 0}
    return Brackets(K, t1, tuple(trials.values()), tuple(trials))


def _largest_R(time: float, budget: float, eta: float) -> tuple[float, int]:
    """The largest R with R eta / (eta - 1) (1 - eta^-K) <= time and R K <= budget, where K = ceil(log_eta R).

    For each K the conditions are linear in R, and both become harder as K grows: the first K for which no R between
    eta^(K-1) and eta^K is left ends the search.
    """
    found = (0.0, 1)
    K = 1
    while True:
        R = min(eta**K, time * (eta - 1) / eta / (1 - eta**-K), budget / K)
        if K > 1 and eta ** (K - 1) * (1 + ROUNDING) >= R:
            return found
        found = (R, K)
        K += 1


def compute_bracket_budgets(B: float, B0: float, nu: float, p_min: int, p_max: float) -> dict[int, float]:
    """Algorithm 3: the devices per trial of each bracket, and what it may spend. Devices are whole: brackets that come
    to the same number are one.
    """
    q = 1
    while nu > 1 and (q + 1) * nu**q <= B / B0 * (1 + ROUNDING):
        q += 1
    widths: list[float]
    if nu == 1 or p_min >= p_max:
        widths, budgets = [p_min], [B]
    elif p_min * nu ** (q - 1) < p_max:
        widths = [p_min * nu**i for i in range(q)] + [min(p_max, p_min * nu**q)]
        each = B0 * nu ** (q - 1)
        budgets = [each] * q + [B - each * q]
    else:
        widths = []
        while p_min * nu ** len(widths) < p_max:
            widths.append(p_min * nu ** len(widths))
        widths.append(p_max)
        budgets = [B / len(widths)] * len(widths)
    merged: dict[int, float] = {}
    for width, budget in zip(widths, budgets, strict=True):
        whole = math.floor(width + ROUNDING)
        merged[whole] = merged.get(whole, 0.0) + budget
    return merged


class SEER(TimedStages):
    """Needs a deadline and a budget, and nothing else. A round keeps 1/`eta` of its trials; brackets have `p_min`, then
    `nu` times as many devices per trial each, up to `p_max` (None: no limit). `t_min` is the least time that a trial
    trains before it may be given up, which should be one or two reports; None: two steps as they were profiled, or a
    minute.

    Machines are rented whole: with `fill` what would stand idle on them, and what is left of the budget, goes to more
    trials.
    """

    def __init__(
        self,
        eta: float = 4,
        nu: float = 2,
        p_min: int = 1,
        p_max: int | None = None,
        t_min: str | float | None = None,
        fill: bool = True,
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
        if not isinstance(fill, bool):
            raise SpecError(f"fill={fill!r}: must be true or false")
        self.eta, self.nu, self.p_min, self.p_max, self.fill = eta, nu, p_min, p_max, fill
        self.t_min = t_min
        self._t_min_s = None if t_min is None else parse_duration(t_min, "t_min")

    def prepare(self, terms: Terms) -> Allocator:
        self.plan = self._plan(Window.of(terms, "SEER"), self._least_s(terms))
        return self.allocator(terms.devices)

    def _least_s(self, terms: Terms) -> float:
        if self._t_min_s is not None:
            return self._t_min_s
        return 60.0 if terms.step_s is None else 2 * terms.step_s

    def _plan(self, window: Window, t_min_s: float) -> tuple[TimedStage, ...]:
        least_s = t_min_s + window.terms.start_s
        narrowest = self._check(window, t_min_s, least_s)
        found = largest(
            narrowest * least_s, window.device_s, lambda budget: window.affords(self._stages(window, budget, least_s))
        )
        assert found is not None  # one trial alone is affordable, as was checked
        stages = self._stages(window, found, least_s)
        return fill(window, stages) if self.fill else stages

    def _stages(self, window: Window, device_s: float, least_s: float) -> tuple[TimedStage, ...]:
        """As the paper has them, with whole devices."""
        p_max = math.inf if self.p_max is None else self.p_max
        p_min, p_max = window.at_least(self.p_min), min(p_max, self._most(window))
        found = compute_bracket_parameters(window.seconds, device_s, self.eta, self.nu, p_min, p_max, least_s)
        widths: dict[int, int] = {}
        for trials, width in zip(found.trials, found.widths, strict=True):
            usable = window.usable(width)
            widths[usable] = widths.get(usable, 0) + trials * width // usable
        counts = [
            [math.floor(trials / self.eta**k + ROUNDING) for trials in widths.values()] for k in range(found.rounds)
        ]
        for left in counts:
            if not any(left):  # brackets that are all too small for so many rounds: the best of all goes on
                left[0] = 1
        ends = accumulate(found.first_s * self.eta**k for k in range(found.rounds))
        return staged(window, [window.begin_s + end_s for end_s in ends], counts, list(widths))

    def _most(self, window: Window) -> int:
        return window.terms.machines * window.terms.devices

    def _check(self, window: Window, t_min_s: float, least_s: float) -> int:
        """One trial for `t_min` must be possible; if not, say what would be. The devices of the narrowest trials."""
        overhead_s = window.begin_s + window.closing_s + window.terms.start_s
        deadline_s = window.terms.limits.deadline_s
        if least_s > window.seconds:
            possible_s = window.seconds - window.terms.start_s
            instead = (
                f"t_min of at most {format_duration(possible_s)}, or a deadline"
                if possible_s > 0
                else f"a deadline: machines need {format_duration(overhead_s)} to come, to begin and to go"
            )
            raise SpecError(
                f"t_min={format_duration(t_min_s)} does not fit into the deadline of "
                f"{format_duration(deadline_s or 0)}: give {instead} of at least "
                f"{format_duration(t_min_s + overhead_s)}"
            )
        narrowest, devices = window.at_least(self.p_min), window.terms.devices
        if self.p_max is not None and narrowest > self.p_max:
            raise SpecError(
                f"p_min={self.p_min}, p_max={self.p_max}: a trial is on one machine of {devices} devices or on whole "
                f"ones, which makes p_min {narrowest}: give a p_max of at least that, or a p_min of at most "
                f"{window.usable(self.p_max)}"
            )
        if narrowest > self._most(window):
            raise SpecError(
                f"p_min={self.p_min}: there are {self._most(window)} devices on all machines together: give a smaller "
                "p_min, or more machines"
            )
        machines = -(-narrowest // devices)
        needed = window.cost([(window.begin_s + least_s, machines)])
        if needed > window.budget:
            raise SpecError(
                f"the budget of {window.say(window.budget)} is too small for one trial of "
                f"t_min={format_duration(t_min_s)} on {narrowest} device{'s' * (narrowest != 1)}: it takes "
                f"{window.say(needed)} on machines of {devices}, which are paid from when they boot. Give a larger "
                "budget, or a smaller t_min"
            )
        return narrowest
