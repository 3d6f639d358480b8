"""Algorithms 2 and 3 of SEER: how many trials begin, with how many devices each, and how long the first round takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
