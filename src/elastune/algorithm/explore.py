"""How population based training changes a configuration: a little of everything, now and then something new.

Each hyperparameter is drawn anew with some probability. Otherwise a number is multiplied by one of the factors and kept
in its domain, on its steps where it has some; where that would leave it on the same step it goes to the next. Zero,
which no factor moves, goes by a step, or by that part of the range by which the factor differs from 1. Of a choice the
option beside the present one is taken. What belongs to an option that was not chosen before is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from elastune.messages import Config
from elastune.space import Choice, Domain, Float, Integer, Space


def explore(
    space: Space, config: Config, rng: random.Random, resample_probability: float, factors: Sequence[float]
) -> Config:
    """A configuration near this one. One that the space does not hold, by a searcher of the user's own, stays."""
    answers = space.answers(config)
    if answers is None:
        return config

    def choose(name: str, domain: Domain) -> Any:
        if rng.random() < resample_probability or name not in answers:
            return domain.sample(rng)
        if isinstance(domain, Choice):
            return _clipped(answers[name] + rng.choice((-1, 1)), 0, len(domain.options) - 1)
        return perturbed(domain, answers[name], rng.choice(factors))

    return space.resolve(choose)


def perturbed(domain: Float | Integer, value: float, factor: float) -> float:
    wanted = value * factor
    if value == 0:
        wanted = (factor - 1) * (1 if isinstance(domain, Integer) else domain.high - domain.low)
    if isinstance(domain, Integer):
        return domain.low + _step(wanted - domain.low, value - domain.low, domain.high - 1 - domain.low)
    if domain.q is None:
        return float(min(max(wanted, domain.low), domain.high))
    return domain.step(_step((wanted - domain.low) / domain.q, (value - domain.low) / domain.q, domain.steps))


def _step(wanted: float, present: float, last: int) -> int:
    """The step nearest to where it is wanted, but another one than at present if there is one that way."""
    before, after = round(present), round(min(max(wanted, 0), last))
    if after == before and wanted != present:
        after += 1 if wanted > present else -1
    return _clipped(after, 0, last)


def _clipped(number: int, low: int, high: int) -> int:
    return min(max(number, low), high)
