"""More for trials where machines that are paid for would stand half empty, and for what is left of the budget.

SEER counts devices, and rounds down what it gives to each bracket; machines are rented whole. What is over goes to more
trials in the first round, to more survivors in those between, and in the last to wider trials, the best first; in the
first too, if there are no more configurations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from elastune.algorithm.timed import Bracket, TimedStage, Window
from elastune.place import machines_needed

PART = 64
"""A round of many machines gets this part of them more at once."""


def fill(window: Window, stages: Sequence[TimedStage], p_max: float) -> tuple[TimedStage, ...]:
    """First what is there for nothing; then machine by machine for the round that has cost least so far, so that all
    rounds cost about the same, as they do without.
    """
    ends_s = [stage.until_s for stage in stages]
    lengths_s = [end_s - begin_s for begin_s, end_s in zip([0.0, *ends_s], ends_s, strict=False)]
    machines = [stage.machines for stage in stages]
    trials = [+Counter({bracket.width: bracket.trials for bracket in stage.brackets}) for stage in stages]
    narrowest, devices = min(trials[0]), window.terms.devices

    def grow(place: int) -> bool:
        """Use the machines of a round as far as they go."""
        wanted = trials[place]
        if 0 < place == len(stages) - 1:
            wanted = _widened(window, wanted, machines[place], p_max)
        elif wanted.total() == window.most_trials:  # all alike, or they could not be compared
            wanted = _widened(window, wanted, machines[place], p_max, together=True)
        most = window.most_trials
        if place:  # half of them at least are given up, or it would be no round
            most = (trials[place - 1].total() + 1) // 2
        wanted = _more(wanted, narrowest, most - wanted.total(), machines[place], devices)
        grown, trials[place] = wanted != trials[place], wanted
        return grown

    def take(place: int, more: int) -> bool:
        """So many machines more, if they can be paid and all are of use."""
        before = trials[place]
        machines[place] += more
        held = [(until_s, max(machines[later:])) for later, until_s in enumerate(ends_s)]
        affordable = held[0][1] <= window.terms.machines and window.cost(held) <= window.budget
        if affordable and grow(place) and (more == 1 or machines_needed(trials[place], devices) == machines[place]):
            return True
        machines[place], trials[place] = machines[place] - more, before
        return False

    for place in range(len(stages)):
        grow(place)
    growing = set(range(len(stages)))
    while growing:
        place = min(growing, key=lambda place: (machines[place] * lengths_s[place], place))
        if not any(take(place, more) for more in _halvings(max(1, machines[place] // PART))):
            growing.discard(place)
    if trials[0].total() == window.most_trials:  # what a later round needs is there from the beginning
        machines[0] = max(machines)
        grow(0)
    begins_s = [window.begin_s, *ends_s]
    keeps = [later.total() for later in trials[1:]] + [trials[-1].total()]
    return tuple(map(_stage, begins_s, ends_s, trials, keeps, machines))


def _widened(window: Window, trials: Counter[int], machines: int, p_max: float, together: bool = False) -> Counter[int]:
    """Each has twice the devices, and twice that, as long as it fits; the widest first. `together`: all of a width, or
    none.
    """

    def tried(width: int, wider: int, many: int) -> Counter[int]:
        return trials - Counter({width: many}) + Counter({wider: many})

    def fits(width: int, wider: int, many: int) -> bool:
        return machines_needed(tried(width, wider, many), window.terms.devices) <= machines

    for width in sorted(trials, reverse=True):
        while trials[width]:
            widest, least = width, trials[width] if together else 1
            while (wider := window.usable(min(2 * widest, p_max))) > widest and fits(width, wider, least):
                widest = wider
            if widest == width:
                break
            others = range(least + 1, trials[width] + 1)
            many = least + bisect_left(others, True, key=lambda many: not fits(width, widest, many))
            trials = tried(width, widest, many)
    return trials


def _more(trials: Counter[int], width: int, most: float, machines: int, devices: int) -> Counter[int]:
    """With as many of this width more as fit, at most so many."""
    free = machines * devices - sum(width * many for width, many in trials.items())
    added = range(1, int(min(most, free // width)) + 1)

    def fits(more: int) -> bool:
        return machines_needed(trials + Counter({width: more}), devices) <= machines

    return trials + Counter({width: bisect_left(added, True, key=lambda more: not fits(more))})


def _halvings(number: int) -> Iterator[int]:
    while number:
        yield number
        number //= 2


def _stage(begin_s: float, until_s: float, trials: Counter[int], keep: int, machines: int) -> TimedStage:
    """The brackets, each of which keeps its part of those that go on; what is left over goes to the largest rests."""
    parts = {width: trials[width] * keep / trials.total() for width in sorted(trials)}
    kept = {width: int(part) for width, part in parts.items()}
    for width in sorted(parts, key=lambda width: (kept[width] - parts[width], width))[: keep - sum(kept.values())]:
        kept[width] += 1
    brackets = tuple(Bracket(trials[width], width, kept[width]) for width in parts)
    return TimedStage(begin_s, until_s, brackets, machines)
