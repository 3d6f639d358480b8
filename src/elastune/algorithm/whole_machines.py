"""More for trials where machines that are paid for would stand half empty, and for what is left of the budget.

SEER counts devices, and rounds down what it gives to each bracket; machines are rented whole. What is over goes to more
trials in the first round, to more survivors in those between, and in the last to wider trials, the best first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from elastune.algorithm.timed import Bracket, TimedStage, Window
from elastune.place import machines_needed
from elastune.spec import Width


def fill(window: Window, stages: Sequence[TimedStage], p_max: float) -> tuple[TimedStage, ...]:
    """First what is there for nothing; then machine by machine for the round that has cost least so far, so that all
    rounds cost about the same, as they do without.
    """
    ends_s = [stage.until_s for stage in stages]
    lengths_s = [end_s - begin_s for begin_s, end_s in zip([0.0, *ends_s], ends_s, strict=False)]
    machines = [stage.machines for stage in stages]
    widths = [
        sorted((bracket.width for bracket in stage.brackets for _ in range(bracket.trials)), reverse=True)
        for stage in stages
    ]
    narrowest = widths[0][-1]

    def fits(place: int, wanted: Sequence[int], more: int = 0) -> bool:
        trials: Counter[Width] = Counter(wanted)
        trials[narrowest] += more
        return machines_needed(trials, window.terms.devices) <= machines[place]

    def grow(place: int) -> bool:
        """Use the machines of a round as far as they go."""
        wanted = list(widths[place])
        if 0 < place == len(stages) - 1:
            for rank in range(len(wanted)):
                while (wider := window.usable(min(2 * wanted[rank], p_max))) > wanted[rank]:
                    tried = [*wanted[:rank], wider, *wanted[rank + 1 :]]
                    if not fits(place, tried):
                        break
                    wanted = tried
        most = machines[place] * window.terms.devices // narrowest
        if place:  # half of them at least are given up, or it would be no round
            most = min(most, max(0, (len(widths[place - 1]) + 1) // 2 - len(wanted)))
        more = bisect_left(range(1, most + 1), True, key=lambda more: not fits(place, wanted, more))
        wanted += [narrowest] * more
        grown, widths[place] = wanted != widths[place], wanted
        return grown

    for place in range(len(stages)):
        grow(place)
    growing = set(range(len(stages)))
    while growing:
        place = min(growing, key=lambda place: (machines[place] * lengths_s[place], place))
        machines[place] += 1
        held = [(until_s, max(machines[later:])) for later, until_s in enumerate(ends_s)]
        affordable = held[0][1] <= window.terms.machines and window.cost(held) <= window.budget
        if not affordable or not grow(place):
            machines[place] -= 1
            growing.discard(place)
    begins_s = [window.begin_s, *ends_s]
    keeps = [len(later) for later in widths[1:]] + [len(widths[-1])]
    return tuple(map(_stage, begins_s, ends_s, widths, keeps, machines))


def _stage(begin_s: float, until_s: float, widths: Sequence[int], keep: int, machines: int) -> TimedStage:
    """The brackets, each of which keeps its part of those that go on; what is left over goes to the largest rests."""
    trials = dict(sorted(Counter(widths).items()))
    parts = {width: count * keep / len(widths) for width, count in trials.items()}
    kept = {width: int(part) for width, part in parts.items()}
    for width in sorted(parts, key=lambda width: (kept[width] - parts[width], width))[: keep - sum(kept.values())]:
        kept[width] += 1
    brackets = tuple(Bracket(count, width, kept[width]) for width, count in trials.items())
    return TimedStage(begin_s, until_s, brackets, machines)
