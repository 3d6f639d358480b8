"""Fluid (Yu, Liu and Chowdhury, MLSys 2021): no idle device, whatever the algorithm. Small trials are packed, long ones
spread.

    a TrialGroup arrives       StaticFluid (Algorithm 1) on the devices that are idle
    trials leave, machines     DynamicFluid (Algorithm 2) on all devices, once nobody waits
      come or go, or an
      estimate changes
    h_{i,1}                    `_Share.times`: what is left of a trial, from its own steps or its configuration
    alpha, beta, c, d          `Pace.overheads`: measured while trials run
    epsilon                    `Pace.resize_s`

Trials with a part of a device are put on the most idle one: who is alone there has all of it. Ours: where trials are
few, the widths of all of them are searched for (`moldable`), and what has the earliest forecast is taken.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.allocate.concurrency import Concurrency
from elastune.allocate.makespan import forecast, list_schedule
from elastune.allocate.moldable import ORDERS, Order, best_plan
from elastune.allocate.overheads import Overheads
from elastune.allocate.pace import Pace
from elastune.allocate.water_filling import dynamic_fluid, static_fluid
from elastune.place import machines_needed
from elastune.profile.scaling import Scaling
from elastune.spec import Terms, Width, require_int

MOST_PACKED = 4
"""So many trials are packed at most, unless told otherwise: each has its model and its data in memory."""
WINDOW = 64
"""So many trials are searched for widths for, and so many of those that wait are looked at: the others come later."""
GAIN = 0.02
"""Widths of trials that run are changed only for a forecast that is so much earlier."""
WORTH_TRYING = 2
"""So many steps a trial must have before it, so that others are packed with it to see what that costs."""
WORTH_S = 10.0
"""So much must wait for each device: to pack for the first time, processes must be started."""


class Fluid(Allocator):
    """At most `most_packed` trials on one device (None: as many as pay, up to 4), and at most `widest` devices for one
    (None: as many as pay). `scaling` is what is known before the run: {0.5: 0.7, 1: 1, 2: 1.9}: each of two trials on a
    device trains 0.7 times as fast as alone, one on two devices 1.9 times. It counts until it has been measured.

    With `as_published` only what the paper has: its two algorithms, and no telling apart of configurations.
    """

    whole_groups = True
    apart = True

    def __init__(
        self,
        most_packed: int | None = None,
        widest: int | None = None,
        scaling: Mapping[float, float] | None = None,
        as_published: bool = False,
    ) -> None:
        for name, given in (("most_packed", most_packed), ("widest", widest)):
            if given is not None:
                require_int(name, given, 1)
        self.most_packed, self.widest, self.as_published = most_packed, widest, as_published
        self.scaling = None if scaling is None else Scaling(scaling)
        self._known: dict[str, Pace] = {}
        """The trials that were there when devices were last shared out."""
        self._n, self._widest = 1, 1
        """Devices, and the most that any trial is on."""
        self._tried: set[str] = set()
        """Those that are packed on one device to see what that costs."""
        self._one_by_one: dict[str, Concurrency] = {}
        """Of the experiments whose trials come one by one, and not in groups that are to be done together."""

    def setup(self, terms: Terms) -> None:
        self.machines, self._devices = terms.machines, terms.devices
        most = MOST_PACKED if self.most_packed is None else self.most_packed
        widest = min(terms.machines * terms.devices, self.widest or terms.machines * terms.devices)
        self._usable = [w for w in range(1, widest + 1) if w <= terms.devices or w % terms.devices == 0]
        before: dict[int, float] = {}
        if self.scaling is not None:
            packed, spread = min(self.scaling.speedups), max(self.scaling.speedups)
            before |= {-k: self.scaling(1 / k) for k in range(2, most + 1) if 1 / k >= packed}
            before |= {w: self.scaling(w) for w in self._usable if 1 < w <= spread}
        self._new_pace = Pace(most, max(self._usable), before, by_config=not self.as_published)
        self._paces: dict[str, Pace] = {}
        """Of every experiment: what its trials are like, others need not be."""

    @property
    def width(self) -> Width:  # type: ignore[override]
        """Where the algorithm begins trials one by one, it is asked for as many as have a place with it."""
        return min(
            (each.width for each in self._one_by_one.values()),
            default=_part(max((pace.overheads.c for pace in self._paces.values()), default=1)),
        )

    @property
    def extra(self) -> int:  # type: ignore[override]
        """Some fewer, so that a trial can be tried on more devices, or one more, to try packing with."""
        for name, concurrency in self._one_by_one.items():
            pace, n = self._paces[name], self._n
            wider, narrower = pace.next_wider, pace.to_try
            if wider is not None and not self.as_published and concurrency.may_help(wider, n, pace.overheads):
                return 0 if self._widest >= wider else -(wider // 2)
            if narrower is not None and concurrency.may_help(narrower, n, pace.overheads):
                return int(len(self._tried) < narrower.denominator)
        return 0

    def improved(self, trial: str, trained_s: float, at_s: float) -> None:
        for name, concurrency in self._one_by_one.items():
            if trial in self._known and self._known[trial] is self._paces[name]:
                concurrency.improved(trained_s, self._paces[name].overheads)

    def stepped(self, steps: Steps) -> bool:
        pace = self._known.get(steps.trial)
        return pace is not None and pace.stepped(steps)

    # ------------------------------------------------------------------------------------------------------ allocating

    def allocate(self, view: View, at_s: float) -> Target:
        widths, n = dict(view.widths), sum(machine.devices for machine in view.machines(0))
        if not n:
            return Target(self.machines, widths)
        self._n = n
        shares = self._shares(view, n)
        idle = view.idle()
        if not self.as_published:
            for name, concurrency in self._one_by_one.items():
                concurrency.choose(at_s, n, self._paces[name].overheads, self._usable)
        for share in shares:
            share.idle = max(0, min(share.idle, idle))
            self._share_out(share, widths)
            idle -= sum(math.ceil(widths[trial]) for trial in share.waiting if trial in widths)
        self._fit(widths, view)
        self._widest = max((int(width) for width in widths.values()), default=1)
        return Target(self.machines, widths)

    def _shares(self, view: View, n: int) -> list[_Share]:
        """Of each experiment, as its priority says: who cannot use its part leaves it to the others."""
        leaving = set(view.leaving())
        running = [trial for trial in view.widths if trial not in leaving]
        waiting = list(islice(view.waiting, max(WINDOW, 2 * n * self._new_pace.most)))
        self._meet({*view.widths, *waiting}, view)
        found: dict[str, _Share] = {}
        for trials, wait in ((running, False), (waiting, True)):
            for trial in trials:
                name = view.experiment(trial)
                if name not in found:
                    found[name] = _Share(view, self._paces[name], self._usable, view.one_by_one(trial))
                    if view.one_by_one(trial) and name not in self._one_by_one:
                        self._one_by_one[name] = Concurrency()
                (found[name].waiting if wait else found[name].running).append(trial)
        quotas = divide(n, {name: (view.priorities.get(name, 1.0), share.most) for name, share in found.items()})
        for name, share in found.items():
            share.n = quotas[name]
            share.idle = share.n - share.held
        return list(found.values())

    def _meet(self, there: set[str], view: View) -> None:
        for trial in self._known.keys() - there:
            self._known.pop(trial).leave(trial)
        for trial in there - self._known.keys():
            name = view.experiment(trial)
            if name not in self._paces:
                self._paces[name] = copy.deepcopy(self._new_pace)
            self._known[trial] = self._paces[name]
            self._paces[name].meet(trial, view.config(trial))

    def _share_out(self, share: _Share, widths: dict[str, Width]) -> None:
        if share.held > share.n:
            widths |= share.shrunk()
            for trial in share.surplus():
                del widths[trial]
            return
        found: dict[str, Width] | None = None
        wanted = share.waiting if share.waiting and not share.one_by_one else share.idle and not share.waiting
        if not self.as_published and share.few and wanted and not self._saved_for_a_try(share):
            found = share.search()
        if found is not None:
            widths |= found
        elif share.waiting:
            widths |= share.static()
        elif share.idle and not self._saved_for_a_try(share):
            widths |= share.dynamic()
        still = [trial for trial in share.waiting if trial not in widths]
        if (still and found is None) or share.one_by_one:
            self._narrow(share, widths, still)
        self._try_packing(share, widths, still)
        if share.one_by_one:
            self._try_spreading(share, widths)

    def _saved_for_a_try(self, share: _Share) -> bool:
        """Whether devices are only idle so that one trial can be tried on more of them."""
        return share.one_by_one and not share.waiting and self.extra < 0

    def _narrow(self, share: _Share, widths: dict[str, Width], still: Sequence[str]) -> None:
        """There is no place for some. Who has more than the formula gives to it with them makes room, and who has a
        device to itself lets others join.
        """
        part = _part(share.overheads.c) if still or not share.one_by_one else min(1, self.width)
        for trial in share.running:
            if widths[trial] == 1 and part < 1:
                widths[trial] = part
        if still and any(widths[trial] > 1 for trial in share.running):
            for trial, width in share.formula().items():
                if trial in widths and width < widths[trial]:
                    widths[trial] = width

    def _try_packing(self, share: _Share, widths: dict[str, Width], still: Sequence[str]) -> None:
        """While trials wait, pack one more than is known to pay on a single device: what it costs is measured."""
        view, c = share.view, share.overheads.c
        self._tried &= view.widths.keys()
        to_try = share.pace.to_try
        if to_try is None or not still:
            if to_try is None:
                self._tried.clear()
            return
        if not self._tried:
            if not share.one_by_one and sum(share.times(still)) < WORTH_S * share.n:
                return
            able = (
                t for t in share.running if widths[t] == _part(c) and (view.left(t) or WORTH_TRYING) >= WORTH_TRYING
            )
            known = [trial for trial in able if share.pace.knows(trial)]
            if not known:
                return
            self._tried = set(view.mates(max(known, key=lambda trial: share.times([trial]))))
        for trial in self._tried:
            widths[trial] = to_try
        if len(self._tried) <= c:
            widths[still[0]] = to_try
            self._tried.add(still[0])

    def _try_spreading(self, share: _Share, widths: dict[str, Width]) -> None:
        """Where devices are only idle because one trial fewer was asked for: the longest gets them."""
        wider, idle = share.pace.next_wider, share.idle - sum(math.ceil(widths.get(t, 0)) for t in share.waiting)
        if wider is None or idle < 1 or self.as_published:
            return
        able = [t for t in share.running if widths[t] == share.view.widths[t] >= 1 and share.pace.knows(t)]
        able = [t for t in able if widths[t] + idle >= wider > widths[t] and (share.view.left(t) or 0) >= WORTH_TRYING]
        if able:
            widths[max(able, key=lambda trial: share.times([trial]))] = wider

    def _fit(self, widths: dict[str, Width], view: View) -> None:
        """A trial is on one machine or on whole ones: where that leaves no place for all, the widest are made narrower,
        but for those that have it already.
        """
        machines = len(view.machines(0))
        counts = Counter(widths.values())
        while machines_needed(counts, self._devices) > machines:
            changed = [trial for trial, width in widths.items() if width > max(1, view.widths.get(trial, 0))]
            if not changed:
                return
            trial = max(changed, key=lambda trial: widths[trial])
            narrower = max((w for w in self._usable if w < widths[trial]), default=1)
            counts -= Counter({widths[trial]: 1})
            counts += Counter({narrower: 1})
            widths[trial] = narrower


@dataclass(slots=True)
class _Share:
    """Devices and the trials that they are for: `n` of them, of which `idle` are not used."""

    view: View
    pace: Pace
    usable: list[int]
    one_by_one: bool
    running: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    n: int = 0
    idle: int = 0

    @property
    def held(self) -> int:
        """Devices that its trials are on; what others have of them too counts in part."""
        widths = self.view.widths
        parts = sum(Fraction(1, len(self.view.mates(trial))) for trial in self.running if widths[trial] < 1)
        return math.ceil(parts) + sum(int(widths[trial]) for trial in self.running)

    @property
    def most(self) -> int:
        """Devices that could be of use."""
        return (len(self.running) + len(self.waiting)) * self.overheads.d

    def shrunk(self) -> dict[str, Width]:
        """What those that run get on fewer devices than they have."""
        found = static_fluid(self.times(self.running), self.n, self.overheads, self.usable)
        return {
            trial: width
            for trial, width in zip(self.running, found, strict=True)
            if width < self.view.widths[trial] and self.view.width(trial) is None
        }

    def surplus(self) -> list[str]:
        """Those for which there is no place: they were started last, and go on later."""
        return self.running[self.n * self.overheads.c :]

    @property
    def overheads(self) -> Overheads:
        return self.pace.overheads

    @property
    def few(self) -> bool:
        """So few that looking at all widths of all of them costs little, and may help."""
        return len(self.running) + len(self.waiting) <= min(WINDOW, 2 * self.n * self.overheads.c)

    def times(self, trials: Sequence[str]) -> list[float]:
        """h: what is left of each on one device. A trial that ends by itself is taken to have as many steps left as the
        others.
        """
        lefts = [self.view.left(trial) for trial in trials]
        known = [left for left in lefts if left is not None]
        usual = sum(known) / len(known) if known else 1.0
        return [
            self.pace.step_s(trial) * (usual if left is None else left)
            for trial, left in zip(trials, lefts, strict=True)
        ]

    def formula(self) -> dict[str, Width]:
        """What Algorithm 1 gives to all, on all devices."""
        trials = [*self.running, *self.waiting]
        found = static_fluid(self.times(trials), self.n, self.overheads, self.usable)
        return dict(zip(trials, found, strict=True))

    def static(self) -> dict[str, Width]:
        """Algorithm 1: those that wait, on the devices that are idle, the widest first and the longest of these."""
        idle, part = self.idle, _part(self.overheads.c)
        times = self.times(self.waiting)
        wanted = static_fluid(times, idle, self.overheads, self.usable) if idle else [part] * len(times)
        lanes = (self.view.free - self.view.idle()) // part if part < 1 else 0
        started: dict[str, Width] = {}
        for _, _, trial, width in sorted(
            ((-width, -time, trial, width) for trial, width, time in zip(self.waiting, wanted, times, strict=True)),
            key=lambda entry: entry[:2],
        ):
            asked = self.view.width(trial)
            width = width if asked is None else asked
            if width <= idle or (width < 1 <= idle):
                idle -= max(1, int(width))
                lanes += 0 if width >= 1 else part.denominator - 1
            elif width < 1 <= lanes:
                lanes -= 1
            else:
                break
            started[trial] = width
        return started

    def dynamic(self) -> dict[str, Width]:
        """Algorithm 2: all that run, on all devices."""
        trials = [trial for trial in self.running if self._can_change(trial)]
        if not trials:
            return {}
        others = sum(self.view.widths[trial] for trial in self.running if trial not in trials)
        present = [self._effective(trial) for trial in trials]
        n = self.n - int(-(-others // 1))
        found = dynamic_fluid(self.times(trials), present, n, self.overheads, self.pace.resize_s, self.usable)
        return {trial: new for trial, old, new in zip(trials, present, found, strict=True) if old != new}

    def search(self) -> dict[str, Width] | None:
        """Widths for all, running and waiting: those by which all are done soonest, or those of the paper if they are
        not clearly later. None if that leaves too many waiting to plan for them now.
        """
        trials = [*self.running, *self.waiting]
        times = self.times(trials)
        current = [self._effective(trial) for trial in self.running] + [None] * len(self.waiting)
        resize_s = self.pace.resize_s + GAIN * sum(times) / self.n
        plan = best_plan(times, self.n, self.overheads, self.usable, current, resize_s, self._running_first())
        otherwise = self.static() if self.waiting else self.dynamic()
        widths = [otherwise.get(t, old or _part(self.overheads.c)) for t, old in zip(trials, current, strict=True)]
        many = len(trials) > self.n
        if plan.done_s > forecast(times, widths, self.n, self.overheads) * (1 - GAIN):
            return None if many and any(trial not in otherwise for trial in self.waiting) else otherwise
        placed = list_schedule(
            [time * self.overheads.factor(width) for time, width in zip(times, plan.widths, strict=True)],
            plan.widths,
            self.n,
            plan.order,
        )
        now = [place.start_s == 0 for place in placed]
        full = {device for place, runs in zip(placed, now, strict=True) if runs for device in place.devices}
        if not all(now[: len(self.running)]) or (not all(now) and (many or len(full) < self.n)):
            return None  # nobody waits for others beside idle devices, and of many who comes later is better seen later
        found: dict[str, Width] = {}
        for trial, old, new, runs in zip(trials, current, plan.widths, now, strict=True):
            if runs and (old is None or (new != old and self._can_change(trial))):
                found[trial] = new
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))  # the widest are placed first

    def _running_first(self) -> list[Order]:
        count = len(self.running)

        def first(order: Order) -> Order:
            return lambda durations, widths: sorted(order(durations, widths), key=lambda trial: trial >= count)

        return [first(order) for order in ORDERS]

    def _effective(self, trial: str) -> Width:
        """What it has of its device at the moment: who is alone there has all of it."""
        width = self.view.widths[trial]
        return width if width >= 1 else _part(len(self.view.mates(trial)))

    def _can_change(self, trial: str) -> bool:
        """A change comes with the next report: who leaves then keeps what it has."""
        left = self.view.left(trial)
        return self.view.width(trial) is None and (left is None or left > 1)


def divide(n: int, claims: Mapping[str, tuple[float, int]]) -> dict[str, int]:
    """So many devices among claims of a weight and of the most that is of use: in proportion to the weights, but what
    one cannot use goes to the others, and everybody gets one device if there are enough.
    """
    if len(claims) < 2:
        return dict.fromkeys(claims, n)
    given = dict.fromkeys(claims, 0)
    for _ in range(n):
        # The next device goes to whoever has least for its weight.
        able = [name for name, (_, most) in claims.items() if given[name] < most]
        if not able:
            break
        given[min(able, key=lambda name: (given[name] / claims[name][0], -claims[name][0]))] += 1
    return given


def _part(k: int) -> Width:
    return Fraction(1, k) if k > 1 else 1
