"""Groups of trials for tests: as long as they are told to be, all at once or one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from tests.worlds import Session

from elastune import messages as m
from elastune.algorithm import Actions, Algorithm, Woken
from elastune.algorithm.base import NOTHING, AlgorithmEvent, Ended
from elastune.cluster.workload import Curve, Synthetic, Workload
from elastune.messages import Config, experiment_of
from elastune.spec import Run, TrialGroup


class Group(Algorithm):
    """One TrialGroup; `lengths` has the iterations of its trials."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = tuple(lengths)
        self._begun = False

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._begun:
            return []
        self._begun = True
        new = [self.new_trial() for _ in self.lengths]
        return [tuple(Run(*each, until, True) for each, until in zip(new, self.lengths, strict=True) if each)]


class OneByOne(Group):
    """A TrialGroup for every trial, when there is a place for it."""

    one_by_one = True

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        groups: list[TrialGroup] = []
        while self.lengths and len(groups) < free and (new := self.new_trial()) is not None:
            groups.append((Run(*new, self.lengths[0], True),))
            self.lengths = self.lengths[1:]
        return groups


class Late(Group):
    """One step at once, and the TrialGroup when all devices have long been taken by others."""

    def __init__(self, lengths: Sequence[int], at_s: float) -> None:
        super().__init__([1])
        self.later, self.at_s = tuple(lengths), at_s

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Woken):
            self.lengths, self._begun = self.later, False
            return Actions(tuple(self.more(1, at_s)))
        return Actions(wake_s=self.at_s) if isinstance(event, Ended) and at_s < self.at_s else NOTHING


class FixedWidth(Group):
    """Each trial is to have two devices."""

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        return [tuple(msgspec.structs.replace(each, width=2) for each in group) for group in super().more(free, at_s)]


class TwoGroups(Group):
    """The second comes when a trial of the first has ended."""

    def __init__(self, first: Sequence[int], second: Sequence[int]) -> None:
        super().__init__(first)
        self.second = tuple(second)

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if isinstance(event, Ended) and self.second:
            self.lengths, self.second, self._begun = self.second, (), False
            return Actions(tuple(self.more(1, at_s)))
        return super().on(event, at_s)


class ByMomentum(Workload):
    """A step takes from 1 to 10 seconds: the more momentum, the longer."""

    def curve(self, config: Config) -> Curve:
        return Synthetic("loss", "min").curve(config)

    def step_s(self, config: Config, iteration: int) -> float:
        return float(10 ** config["momentum"])


def starts(session: Session) -> dict[str, tuple[int, float]]:
    """What trials had when they were first started: how many slots, and which part of each."""
    found: dict[str, tuple[int, float]] = {}
    for command in session.commands:
        if isinstance(command, m.StartTrial):
            found.setdefault(command.trial, (len(command.slots), command.share))
    return found


def resizes(session: Session) -> list[tuple[str, int, float]]:
    return [(c.trial, len(c.slots), c.share) for c in session.commands if isinstance(c, m.ResizeTrial)]


def devices_over_time(session: Session) -> Iterator[tuple[float, dict[str, int]]]:
    """After every turn: how many devices the trials of each experiment are on."""
    on: dict[str, set[tuple[str, int]]] = {}
    for record in session.records:
        for event in record.events:
            if isinstance(event, m.TrialResized):
                on[event.trial] = {(slot.node, slot.device) for slot in event.slots}
            elif isinstance(event, m.TrialPaused | m.TrialReturned | m.TrialLost | m.TrialFailed):
                on.pop(event.trial, None)
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                on[command.trial] = {(slot.node, slot.device) for slot in command.slots}
        counts: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for trial, places in on.items():
            counts[experiment_of(trial)] |= places
        yield record.at_s, {name: len(places) for name, places in counts.items()}
