"""The seam that says how many devices each trial gets, and which machines to hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from elastune.messages import Chosen, Config, Offer, Planned, experiment_of
from elastune.spec import Terms, Width


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine that can be used: since when it is paid for, the trials on it, how many devices it has, and what was
    asked for, where machines differ.
    """

    billed_from_s: float
    trials: Collection[str]
    devices: int = 1
    offer: Offer | None = None


class Steps(NamedTuple):
    """Iterations that a trial has reported: how many since its last report, and how long they took. `sharing` trials
    were on its device. The first since it was started or resized have that in them too.
    """

    trial: str
    width: Width
    number: int
    seconds: float
    first: bool
    sharing: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """What an allocator sees. `widths` has the trials that hold devices, `waiting` those that want some, in order.

    `free` is what nobody holds: whole devices, and what is left of those that trials share. `stage` says which stage
    of the algorithm's schedule a trial is in, `machines` which of a pool are ready and kept, the oldest first,
    `awaited` when those were asked for that are not there yet, `unserved` of which of them nothing was heard, and
    `spent_usd` what has been paid so far for all others; they are asked for, because most allocators do without. While
    a journal is replayed, `recorded` gives the plan that was made at this point, and `chosen` the machine that was
    chosen for a trial, to be taken instead of new ones. `failed` has the trials that will be tried again in a while,
    and `width` says what the algorithm wants a trial to have; None: what the allocator sees fit. `leaving` has those
    that hold devices and were told to leave them. `saved` names the state that a trial would go on from. `left` says
    how many iterations a trial has until the end of its run, if that is known, `config` what it trains, `one_by_one`
    whether its algorithm begins trials one by one and not in groups, `mates` the trials on its device, with itself,
    and `sharing` how many they are. `idle` is how many devices nobody is on. `experiment` says whose a trial is where
    several share the run, each with the priority that `priorities` has for it, and with the device-seconds that its
    trials have had, `used_s`; `waiting` is in an order that goes by them.
    """

    free: Width
    widths: Mapping[str, Width]
    waiting: Iterable[str]
    stage: Callable[[str], int] = lambda trial: 0
    machines: Callable[[int], Sequence[MachineView]] = lambda pool: ()
    awaited: Callable[[int], Sequence[float]] = lambda pool: ()
    spent_usd: Callable[[], float] = lambda: 0.0
    recorded: Callable[[], Planned] | None = None
    chosen: Callable[[str], Chosen | None] = lambda trial: None
    failed: Callable[[], Iterable[str]] = lambda: ()
    width: Callable[[str], Width | None] = lambda trial: None
    leaving: Callable[[], Iterable[str]] = lambda: ()
    left: Callable[[str], int | None] = lambda trial: None
    config: Callable[[str], Config] = lambda trial: {}
    one_by_one: Callable[[str], bool] = lambda trial: False
    mates: Callable[[str], Collection[str]] = lambda trial: (trial,)
    sharing: Callable[[str], int] = lambda trial: 1
    idle: Callable[[], int] = lambda: 0
    experiment: Callable[[str], str] = experiment_of
    priorities: Mapping[str, float] = field(default_factory=dict)
    unserved: Callable[[int], Sequence[float]] = lambda pool: ()
    saved: Callable[[str], str] = lambda trial: ""
    used_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted state: how many machines to hold, and the width of every trial that shall run.

    A width is a number of devices, or Fraction(1, k) of one. A running trial that is not named is paused. Controller
    and `place` turn the difference into commands; a trial that there is no place for yet keeps what it has, or waits.
    With `wake_s` the allocator is asked again by then, and `plan`, if there is a new one, goes into the journal. With
    `done`, a reason, the run is over. With `again` the allocator wants to be asked once more when some that waited have
    been started.

    Where machines shall not be shared by all, they are given by pool; `pools` says where a trial is started that does
    not run yet (0 if not), and there it stays while it runs. Of a pool that is not named no machine is wanted. Where
    machines differ, `offers` says which to ask for in each pool, and `chosen` are the reasons, for the journal.
    """

    machines: int | Mapping[int, int]
    widths: Mapping[str, Width]
    wake_s: float | None = None
    plan: Planned | None = None
    done: str = ""
    again: bool = False
    pools: Mapping[str, int] = field(default_factory=dict)
    offers: Mapping[int, Offer] = field(default_factory=dict)
    chosen: tuple[Chosen, ...] = ()

    @property
    def by_pool(self) -> Mapping[int, int]:
        return self.machines if isinstance(self.machines, Mapping) else {0: self.machines}


class Allocator(ABC):
    """Pure: no clock, no global randomness, picklable at any moment."""

    width: Width = 1
    """What a new trial gets: the algorithm is asked for as many as there is a place for."""
    extra: int = 0
    """How many more than there is a place for."""
    all_at_once: bool = False
    """Whether the algorithm is asked for everything it has from the beginning: machines follow the trials."""
    places: int | None = None
    """With `all_at_once`, where later trials are better for what was learnt of earlier ones: so many at a time. Such an
    algorithm may have no end."""
    whole_groups: bool = False
    """Whether it wants to see a group whole before it has a place for all of it."""

    apart: bool = False
    """Whether trials with a part of a device are put where the fewest are, and not together."""

    def setup(self, terms: Terms) -> None:  # noqa: B027  most are told all in their constructor
        """Called once, before anything else, with the machines that can be had and what is known of the training."""

    @abstractmethod
    def allocate(self, view: View, at_s: float) -> Target:
        """Asked whenever a trial came or went, or a machine did."""

    def failed(self, trial: str, width: Width) -> str:
        """Told when the code of a trial has failed. What it does otherwise from now on, if anything: then the trial is
        tried again.
        """
        return ""

    def improved(self, trial: str, trained_s: float, at_s: float) -> None:  # noqa: B027  most do not care
        """Told when a trial is better than all before, and how long it has trained for that."""

    def stepped(self, steps: Steps) -> bool:
        """Told how long iterations took. Says whether it wants to be asked at once, because it thinks otherwise now."""
        return False
