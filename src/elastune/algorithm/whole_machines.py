"""More trials where machines that are paid for would stand half empty, and for what is left of the budget."""

from __future__ import annotations

from collections.abc import Sequence

from elastune.algorithm.timed import TimedStage, Window, staged
from elastune.place import machines_needed


def fill(window: Window, stages: Sequence[TimedStage]) -> tuple[TimedStage, ...]:
    """First what is there for nothing, then machine by machine for the stage that has cost least so far, so that all
    stages cost about the same, as they do without: a stage of more trials or of more survivors.
    """
    ends_s = [stage.until_s for stage in stages]
    widths = [bracket.width for bracket in stages[0].brackets]
    counts = [[bracket.trials for bracket in stage.brackets] for stage in stages]
    machines = [stage.machines for stage in stages]
    begins_s = [0.0, *ends_s[:-1]]

    def grow(place: int) -> bool:
        """As many narrow trials as the machines of a stage have room for, and the stage before has trials for."""
        grown = False
        for bracket in sorted(range(len(widths)), key=widths.__getitem__):
            while place == 0 or counts[place][bracket] < counts[place - 1][bracket]:
                counts[place][bracket] += 1
                if (
                    machines_needed(dict(zip(widths, counts[place], strict=True)), window.terms.devices)
                    > machines[place]
                ):
                    counts[place][bracket] -= 1
                    break
                grown = True
        return grown

    for place in range(len(stages)):
        grow(place)
    open_stages = set(range(len(stages)))
    while open_stages:
        place = min(open_stages, key=lambda place: (machines[place] * (ends_s[place] - begins_s[place]), place))
        machines[place] += 1
        held = [(until_s, max(machines[later:])) for later, until_s in enumerate(ends_s)]
        affordable = held[0][1] <= window.terms.machines and window.cost(held) <= window.budget
        if not affordable or not grow(place):
            machines[place] -= 1
            open_stages.discard(place)
    return staged(window, ends_s, counts, widths)
