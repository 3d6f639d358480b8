"""Fluid (Yu, Liu and Chowdhury, MLSys 2021): no idle device, whatever the algorithm. Small trials are packed, long ones
spread.

    a TrialGroup arrives       StaticFluid (Algorithm 1) on the devices that are idle
    trials leave, machines     DynamicFluid (Algorithm 2) on all devices, once nobody waits
      come or go, or an
      estimate changes
    h_{i,1}                    `Share.times`: what is left of a trial, from its own steps or its configuration
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
from itertools import islice

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.allocate.concurrency import Concurrency
from elastune.allocate.pace import Pace
from elastune.allocate.share import TURN_S, WINDOW, Share, divide, part_of
from elastune.errors import SpecError
from elastune.place import machines_needed
from elastune.profile.scaling import Scaling
from elastune.spec import Terms, Width, require_int

MOST_PACKED = 4
"""So many trials are packed at most, unless told otherwise: each has its model and its data in memory."""
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
        scaling: Mapping[float, float] | Scaling | None = None,
        as_published: bool = False,
    ) -> None:
        for name, given in (("most_packed", most_packed), ("widest", widest)):
            if given is not None:
                require_int(name, given, 1)
        if not isinstance(as_published, bool):
            raise SpecError(f"as_published={as_published!r}: must be true or false")
        self.most_packed, self.widest, self.as_published = most_packed, widest, as_published
        self.scaling = scaling if scaling is None or isinstance(scaling, Scaling) else Scaling(scaling)
        alone = 1.0 if self.scaling is None else self.scaling(1)
        if not math.isclose(alone, 1.0):
            raise SpecError(
                f"scaling[1]={alone:g}: must be 1, since speeds are compared with a trial that has a device to itself: "
                f"divide all by {alone:g}"
            )
        for width, speed in () if self.scaling is None else self.scaling.speedups.items():
            if width < 1 and speed > 1:
                raise SpecError(
                    f"scaling[{width}]={speed}: each of {1 / width:g} trials on a device is at most as fast as alone: "
                    "give a number up to 1"
                )
        self._known: dict[str, Pace] = {}
        """The trials that were there when devices were last shared out."""
        self._n, self._widest = 1, 1
        """Devices, and the most that any trial is on."""
        self._tried: dict[str, set[str]] = {}
        """Of every experiment those that are packed on one device to see what that costs."""
        self._able: set[str] = set()
        """The experiments with a trial that can be tried on more devices: it has steps to compare with."""
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
            default=part_of(max((pace.overheads.c for pace in self._paces.values()), default=1)),
        )

    @property
    def extra(self) -> int:  # type: ignore[override]
        """Some fewer, so that a trial can be tried on more devices, or one more, to try packing with."""
        for name, concurrency in self._one_by_one.items():
            pace, n = self._paces[name], self._n
            wider, narrower = pace.next_wider, pace.to_try
            if wider is not None and not self.as_published and concurrency.may_help(wider, n, pace):
                return -(wider // 2) if self._widest < wider and name in self._able else 0
            if narrower is not None and concurrency.may_help(narrower, n, pace):
                return int(len(self._tried.get(name, ())) < narrower.denominator)
        return 0

    def improved(self, trial: str, trained_s: float, at_s: float) -> None:
        for name, concurrency in self._one_by_one.items():
            if trial in self._known and self._known[trial] is self._paces[name]:
                concurrency.improved(trained_s, self._paces[name].overheads)

    def failed(self, trial: str, width: Width) -> str:
        pace = self._known.get(trial)
        return "" if pace is None else pace.failed(trial, width)

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
        for trial in widths:
            if (asked := view.width(trial)) is not None:
                widths[trial] = asked
        self._fit(widths, view)
        self._widest = max((int(width) for width in widths.values()), default=1)
        turns = any(not share.n for share in shares)
        return Target(self.machines, widths, at_s + TURN_S if turns and view.widths else None, again=turns)

    def _shares(self, view: View, n: int) -> list[Share]:
        """Of each experiment, as its priority says: who cannot use its part leaves it to the others."""
        leaving = set(view.leaving())
        running = [trial for trial in view.widths if trial not in leaving]
        waiting = list(islice(view.waiting, max(WINDOW, 2 * n * self._new_pace.most)))
        self._meet(dict.fromkeys((*view.widths, *waiting)), view)
        found: dict[str, Share] = {}
        for trials, wait in ((running, False), (waiting, True)):
            for trial in trials:
                name = view.experiment(trial)
                if name not in found:
                    found[name] = Share(name, view, self._paces[name], self._usable, view.one_by_one(trial))
                    if view.one_by_one(trial) and name not in self._one_by_one:
                        self._one_by_one[name] = Concurrency()
                (found[name].waiting if wait else found[name].running).append(trial)
        self._one_by_one = {name: each for name, each in self._one_by_one.items() if name in found}
        quotas = divide(n, {name: share.claim(n) for name, share in found.items()})
        for name, share in found.items():
            share.take_stock(quotas[name])
        return list(found.values())

    def _meet(self, there: Mapping[str, None], view: View) -> None:
        """One by one and in order: sums of what they tell are the same in every process."""
        for trial in [trial for trial in self._known if trial not in there]:
            self._known.pop(trial).leave(trial)
        for trial in there:
            if trial not in self._known:
                name = view.experiment(trial)
                if name not in self._paces:
                    self._paces[name] = copy.deepcopy(self._new_pace)
                self._known[trial] = self._paces[name]
            self._known[trial].meet(trial, view.config(trial), trial not in view.widths)

    def _share_out(self, share: Share, widths: dict[str, Width]) -> None:
        if share.held > share.n:
            widths |= share.shrunk()
            for trial in share.surplus(widths):
                del widths[trial]
            return
        if not share.n:  # it is the turn of others, and what they have not packed full is theirs, too
            return
        found: dict[str, Width] | None = None
        wanted = share.waiting if share.waiting and not share.one_by_one else share.idle and not share.waiting
        there = share.idle == share.n - share.held  # if not, others have yet to hand them back, or to make room on them
        if not self.as_published and share.few and wanted and there and not self._saved_for_a_try(share):
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

    def _saved_for_a_try(self, share: Share) -> bool:
        """Whether devices are only idle so that one trial can be tried on more of them."""
        return share.one_by_one and not share.waiting and self.extra < 0

    def _narrow(self, share: Share, widths: dict[str, Width], still: Sequence[str]) -> None:
        """There is no place for some. Who has a device to itself lets others join, and, which the paper does not have,
        who has more than the formula gives to it with them makes room.
        """
        part = part_of(share.overheads.c) if still or not share.one_by_one else min(1, self.width)
        for trial in share.running:
            if widths[trial] == 1 and part < 1:
                widths[trial] = part
        if still and not self.as_published:
            widths |= share.narrowed()

    def _try_packing(self, share: Share, widths: dict[str, Width], still: Sequence[str]) -> None:
        """While trials wait, pack one more than is known to pay on a single device: what it costs is measured."""
        view, c = share.view, share.overheads.c
        unasked = {trial for trial in (*share.running, *still) if view.width(trial) is None}
        still = [trial for trial in still if trial in unasked]
        tried = self._tried.setdefault(share.name, set())
        tried &= view.widths.keys()
        to_try = share.pace.to_try
        if to_try is None or not still:
            if to_try is None:
                tried.clear()
            return
        if not tried:
            if not share.one_by_one and sum(share.times(still)) < WORTH_S * share.n:
                return
            able = (
                t
                for t in share.running
                if t in unasked and widths[t] == part_of(c) and (view.left(t) or WORTH_TRYING) >= WORTH_TRYING
            )
            known = [trial for trial in able if share.pace.knows(trial)]
            if not known:
                return
            tried |= set(view.mates(max(known, key=lambda trial: share.times([trial]))))
        for trial in tried:
            widths[trial] = to_try
        if len(tried) <= c:
            widths[still[0]] = to_try
            tried.add(still[0])

    def _try_spreading(self, share: Share, widths: dict[str, Width]) -> None:
        """Where devices are only idle because one trial fewer was asked for, the longest gets them. Who begins is not
        begun wider for that: there would be nothing to compare with.
        """
        self._able.discard(share.name)
        wider = share.pace.next_wider
        if wider is None or self.as_published:
            return
        left = {trial: share.view.left(trial) or 0 for trial in share.running}
        able = [t for t in share.running if 1 <= widths[t] == share.view.widths[t] < wider and share.pace.knows(t)]
        able = [t for t in able if left[t] >= WORTH_TRYING]
        if able:
            self._able.add(share.name)
        if able and self.extra < 0 and share.idle <= len(share.waiting) + wider // 2:
            widths |= {trial: min(widths[trial], 1) for trial in share.waiting if trial in widths}
        idle = share.idle - sum(math.ceil(widths.get(t, 0)) for t in share.waiting)
        able = [t for t in able if widths[t] + idle >= wider]
        if idle >= 1 and able:
            widths[max(able, key=lambda trial: share.times([trial]))] = wider

    def _fit(self, widths: dict[str, Width], view: View) -> None:
        """A trial is on one machine or on whole ones: where that leaves no place for all, the widest are made narrower,
        but for those that have it already.
        """
        if all(width <= 1 or view.widths.get(trial) == width for trial, width in widths.items()):
            return
        machines = len(view.machines(0))
        counts = Counter(widths.values())
        while machines_needed(counts, self._devices) > machines:
            changed = [
                trial
                for trial, width in widths.items()
                if width > max(1, view.widths.get(trial, 0)) and view.width(trial) is None
            ]
            if not changed:
                return
            trial = max(changed, key=lambda trial: widths[trial])
            narrower = max((w for w in self._usable if w < widths[trial]), default=1)
            counts -= Counter({widths[trial]: 1})
            counts += Counter({narrower: 1})
            widths[trial] = narrower
