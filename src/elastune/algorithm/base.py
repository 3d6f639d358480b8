"""The seam that says which trials train next, and until when."""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from elastune.allocate.base import Allocator
from elastune.errors import SpecError
from elastune.messages import AnyDecision, Config, Suggested
from elastune.search.base import Result, Searcher
from elastune.space import Space
from elastune.spec import Run, Stage, Terms, TrialGroup


class Reported(msgspec.Struct, frozen=True, gc=False):
    """A trial has trained one iteration more. The loss is the metric, turned so that less is better. `trained_s` is how
    long it has trained in all, without what was lost.
    """

    trial: str
    iteration: int
    loss: float
    trained_s: float = 0.0


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A run has come to its end. Without a loss the trial has failed. With `over` it cannot go on."""

    trial: str
    iteration: int
    loss: float | None
    over: bool = False


class Woken(msgspec.Struct, frozen=True, gc=False):
    """The time an algorithm wanted to be woken at has come."""


AlgorithmEvent = Reported | Ended | Woken


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Which trial is the best from now on, whatever trials report: what it is worth at which iteration, and what that
    is.
    """

    trial: str
    iteration: int
    loss: float
    why: str


class Actions(msgspec.Struct, frozen=True, gc=False):
    """What an algorithm answers: groups to train, trials that shall never train again, when to be woken, and trials
    whose run shall end with their next report, as if it had been asked for only until there. Where the best is not who
    has reported the best value, a `verdict` says who. `gives_up` is why nothing will come of it any more.
    """

    groups: tuple[TrialGroup, ...] = ()
    stops: tuple[str, ...] = ()
    wake_s: float | None = None
    pauses: tuple[str, ...] = ()
    verdict: Verdict | None = None
    gives_up: str | None = None


NOTHING = Actions()
DEEPEST = 100
"""So deep a configuration may be nested: nobody writes more, and one that holds itself has no end."""


@dataclass(slots=True)
class TrialSource:
    """Numbers new trials and asks the searcher for their configurations. An algorithm that changes configurations by
    itself finds the space and the seed here.

    A suggestion is not a pure function of the events (a library makes it), so each one is handed to the journal as a
    decision, and a replay takes them from there.
    """

    name: str
    searcher: Searcher
    space: Space
    seed: int = 0
    count: int = 0
    exhausted: bool = False
    decisions: list[AnyDecision] = field(default_factory=list)
    recorded: deque[Suggested] | None = None
    given: deque[Config] = field(default_factory=deque)
    """What the user wants to be tried first. The searcher is told that it has suggested that."""
    _numbers: dict[str, int] = field(default_factory=dict)

    def ready(self, wanted: int) -> int:
        """How many of the wanted trials the searcher is ready for; in a replay, how many it was."""
        if self.recorded is not None:
            return min(wanted, len(self.recorded))
        most = self.searcher.ready()
        return wanted if most is None else min(wanted, most)

    def next(self) -> tuple[str, Config] | None:
        """A new trial, or None when the searcher has no more."""
        if self.exhausted:
            return None
        trial = f"{self.name}-{self.count:05d}"
        given = self.given.popleft() if self.given else None
        if self.recorded:
            suggested = self.recorded.popleft()
            self.searcher.resuggest(suggested.config)
        elif given is not None:
            suggested = Suggested(trial, given)
            self.searcher.resuggest(given)
        else:
            suggested = Suggested(trial, self._suggest())
        self.decisions.append(suggested)
        if suggested.config is None:
            self.exhausted = True
            return None
        self._numbers[trial] = len(self._numbers)
        self.count += 1
        return trial, suggested.config

    def add(self, config: Config) -> str:
        """A new trial with a configuration that the algorithm has made: the searcher is neither asked nor told."""
        trial = f"{self.name}-{self.count:05d}"
        if self.recorded:
            self.recorded.popleft()
        self.decisions.append(Suggested(trial, config))
        self.count += 1
        return trial

    def _suggest(self) -> Config | None:
        suggested = self.searcher.suggest()
        if suggested is None:
            return None
        if not isinstance(suggested, dict):
            raise self._refused(suggested, "")
        config: Config = self._plain(suggested, "")
        return config

    def _plain(self, value: object, name: str, depth: int = 0) -> Any:
        """A copy of what JSON holds as it is: what is recorded must be what a trial trains with."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and _is_text(value):
            return str.__str__(value)
        if isinstance(value, int) and -(2**63) <= value < 2**64:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, list | tuple) and depth < DEEPEST:
            return [self._plain(item, f"{name}.{i}", depth + 1) for i, item in enumerate(value)]
        if isinstance(value, dict) and depth < DEEPEST and all(isinstance(key, str) and _is_text(key) for key in value):
            return {key: self._plain(item, f"{name}.{key}", depth + 1) for key, item in value.items()}
        raise self._refused(value, name)

    def _refused(self, value: object, name: str) -> SpecError:
        place = f" as {name[1:81]!r}" if name else ""
        return SpecError(
            f"searcher {type(self.searcher).__name__} suggested {_shown(value)}{place}: a configuration is a dict "
            "whose names are texts, and it holds None, bool, int of 64 bits, finite float, str, list and dict, at most "
            f"{DEEPEST} deep"
        )

    def observe(
        self, trial: str, config: Config, iteration: int, value: float | None, final: bool, trains: bool = False
    ) -> None:
        if trial in self._numbers:
            self.searcher.observe(Result(self._numbers[trial], config, iteration, value, final, trains))


def _is_text(value: str) -> bool:
    """Half of a surrogate pair is none, and cannot be written down."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # a number with too many digits, or code of the user
        return f"a {type(value).__name__}"


class Algorithm(ABC):
    """Decides which trials train next and until when. Pure: no clock, no global randomness, picklable at any moment.

    A subclass writes `more` (asked when devices are free), `on` (told what happened), or both. New trials come from
    `self.new_trial()`.
    """

    searcher: ClassVar[str] = "random"
    """The searcher it is meant to be used with, by name: taken where the user gives none."""
    one_by_one: ClassVar[bool] = False
    """Whether trials begin one by one, whenever there is a place, and not in groups that are done together."""
    whole: ClassVar[bool] = False
    """Whether all its new trials are one group: where the searcher does not learn and the allocator wants to see groups
    whole, it is asked for many more than there is a place for."""
    max_concurrent: int | None = None
    """How many of its trials may be under way (running, waiting, or to be tried again) at once, whatever the number of
    devices: `more` is never asked for what would be beyond. None: as many as there is a place for."""
    adds: ClassVar[tuple[str, ...]] = ()
    """What it adds to configurations itself: names that a space must not have."""
    _source: TrialSource

    def setup(self, source: TrialSource) -> None:
        """Called once, before anything else."""
        self._source = source

    def prepare(self, terms: Terms) -> Allocator | None:
        """Called before anything is started or written, with what the run may take: to plan, or to refuse. The
        allocator it brings along, if any will not do.
        """
        return None

    def new_trial(self) -> tuple[str, Config] | None:
        """The id and the configuration of a new trial, or None when the searcher has no more."""
        return self._source.next()

    def own_trial(self, config: Config) -> str:
        """The id of a new trial with a configuration that the algorithm has made itself."""
        return self._source.add(config)

    def new_runs(self, count: int, until: int | None, final: bool, stage: int = 0) -> TrialGroup:
        """A group of new trials; fewer than `count` when the searcher runs out."""
        runs: list[Run] = []
        while len(runs) < count and (new := self.new_trial()) is not None:
            runs.append(Run(*new, until=until, final=final, stage=stage))
        return tuple(runs)

    def stages(self) -> tuple[Stage, ...] | None:
        """The schedule, where it is known before the run; None where it is not."""
        return None

    def configurations(self) -> int | None:
        """How many it asks the searcher for, where that is known before the run."""
        stages = self.stages()
        return sum(stage.trials for stage in stages if stage.start == 0) if stages else None

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        """Told of every report, of every end of a run, and of its own wake-ups."""
        return NOTHING

    @abstractmethod
    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        """Asked when devices are free and nothing waits for them."""
