"""How fast trials train, measured while they do: what a step takes on one device, and what packing and spreading cost.

Trials differ, so widths are compared within a trial: what its steps took at one width and at another tells by how much
the second is slower, whatever the trial is. All that was seen is brought together by least squares; what was known
before counts like a few steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from elastune.allocate.base import Steps
from elastune.allocate.overheads import Overheads, most_packed, widest
from elastune.messages import Config
from elastune.profile.run_times import FEW, RunTimes
from elastune.profile.scaling import Scaling
from elastune.spec import Width

TELLING, SURE = 2.0, 0.1
"""So many steps at a width tell what it is worth, if that is known so well then, as a logarithm: where steps vary it
takes more of them."""
USUAL_NOISE = 0.05
"""How much steps of a trial are thought to vary before it is seen."""
USUAL_ERROR = 0.25
"""How far what widths are worth is from what is guessed, as a logarithm: the guess counts against steps that vary."""
FIRST = 0.25
"""What a first step counts for, which has the beginning in it."""
BEFORE = 2.0
"""For how many steps what was known before the run counts, if they vary little."""
RECENT = 0.9
"""What earlier steps count against a new one: a machine gets hot, data get longer."""
DRIFT = 0.2
"""A trial whose steps take so much more or less, as a logarithm, than when devices were last shared out is news."""
FADING = 0.98
"""What trials that have left count for, trial by trial."""
PACKING, SPREADING = 0.05, 0.1
"""The marginal benefit that one more trial on a device must have (O_th in the paper), and one more device for one."""
GROWTH = 1.25
"""Configurations are looked at again when there are so many times as many trials: all fits together cost few."""
MANY_RESIZES = 10
"""What a resize takes is the mean of the first so many; of those that come later each counts as one of so many."""
MOST_AWAY = 100
"""So many trials that have left are remembered one by one."""
MOST_TRIALS = 2_000
"""So many configurations tell how long steps take; more tell nothing new."""
ALONE = 0.3
"""The part of a step that is thought to be no faster on more devices, until it is tried."""


@dataclass(slots=True)
class _Mean:
    weight: float = 0.0
    log_s: float = 0.0
    known_s: float | None = None
    """What it was when it was last news."""

    def add(self, weight: float, log_s: float) -> None:
        """A first step, which may have begun before the others came, only counts as long as there is no other."""
        old = self.weight * RECENT if weight < 1 or self.weight >= 1 else 0.0
        self.weight = old + weight
        self.log_s = (old * self.log_s + weight * log_s) / self.weight


@dataclass(slots=True)
class _Trial:
    config: Config
    sharing: int = 1
    usual: tuple[int, float] = (-1, 0.0)
    """What its configuration tells, and by the how many-th fit."""
    means: dict[int, _Mean] = field(default_factory=dict)
    """By mode."""
    starts: bool = True
    """Whether its next first step comes after a start, which may take longer than a resize: processes begin."""
    resized: Steps | None = None
    """The first step after a resize: the next one at that width tells how much of it was the resize."""


_Pair = tuple[int, int]
"""Two modes: w on so many devices, -k where k trials were on one."""


@dataclass(slots=True)
class Pace:
    """At most `most` trials are packed, none is spread over more than `widest` devices. `before` has the speed-ups that
    were known before the run: on w devices, and at -k with k trials on one. Without `by_config` trials that were not
    measured take as long as the others.
    """

    most: int
    widest: int
    before: Mapping[int, float] = field(default_factory=dict)
    by_config: bool = True
    resize_s: float = 0.1
    """What being resized takes besides the steps: measured too."""
    _resizes: int = 0
    _extra_s: float = 0.0
    """The mean of what first steps after a resize took more than others: below zero where steps happened to vary so."""
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _away: dict[str, None] = field(default_factory=dict)
    """Those that have left, the first of them first."""
    _suspects: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Those that have failed where nobody had worked, and made no step since: `most` and `widest` before that."""
    _left: dict[_Pair, tuple[float, float]] = field(default_factory=dict)
    """Of trials that are gone: the weight and the mean of the difference between two widths."""
    _logs: dict[int, float] = field(default_factory=dict)
    """By mode: the logarithm of how many times as long a step takes as on one device."""
    _weights: dict[int, float] = field(default_factory=dict)
    _enough: float = TELLING
    """The weight at which a mode is known, as steps varied when they were last brought together."""
    _noise: tuple[float, float] = (2.0, 2.0 * USUAL_NOISE**2)
    """Of the logarithms of steps within a trial: how many, and the sum of their squared distances from its mean."""
    _changed: bool = True
    _overheads: Overheads | None = None
    _alone: list[tuple[Config, float]] = field(default_factory=list)
    """Configurations of trials that were alone on a device, with the logarithm of the seconds of their steps there."""
    _converted: list[tuple[Config, float]] = field(default_factory=list)
    """The same of others, converted by what is known of the modes: no evidence of these."""
    _model: RunTimes = field(default_factory=RunTimes)
    _fitted: int = 0
    """Of how many trials it was learnt; `_fits` counts how often."""
    _fits: int = 0

    # -------------------------------------------------------------------------------------------------------- measuring

    def stepped(self, steps: Steps) -> bool:
        """Says whether this is news: a width is known now, or a trial is not as fast as it was."""
        trial = self._trials.get(steps.trial)
        if trial is None or steps.seconds <= 0:
            return False
        self._suspects.pop(steps.trial, None)
        same, trial.sharing = steps.sharing == trial.sharing or steps.first, steps.sharing
        if not same:  # others came or went in the middle of the step
            return False
        mode = _mode(steps)
        mean = trial.means.setdefault(mode, _Mean())
        before = mean.weight
        step_s = steps.seconds / steps.number
        if steps.first:
            trial.starts, trial.resized = False, None if trial.starts else steps
            if before >= TELLING:
                return self._learn_resize(trial, mode)
        if before >= 1 and not steps.first:
            square = (math.log(step_s) - mean.log_s) ** 2 * before / (before + 1)
            self._noise = (self._noise[0] + 1, self._noise[1] + square)
        mean.add(FIRST if steps.first else steps.number, math.log(step_s))
        known = not steps.first and self._learn_resize(trial, mode)
        drifted = mean.known_s is not None and abs(mean.log_s - mean.known_s) > DRIFT
        if not drifted and not before < TELLING <= mean.weight:
            return known
        mean.known_s = mean.log_s
        self._changed = True
        return True

    def _learn_resize(self, trial: _Trial, mode: int) -> bool:
        """By what its usual steps take at the width that it has now. Says whether it is the first time."""
        first, trial.resized = trial.resized, None
        if first is None or _mode(first) != mode:  # others came or went since
            return False
        self._resizes = min(self._resizes + 1, MANY_RESIZES)
        extra_s = first.seconds - math.exp(trial.means[mode].log_s) * first.number
        self._extra_s += (extra_s - self._extra_s) / self._resizes
        self.resize_s = max(0.0, self._extra_s)
        return self._resizes == 1

    def failed(self, trial: str, width: Width) -> str:
        """Code that has never worked at a width is not tried there again, unless who failed there fails alone, too."""
        mode = -width.denominator if width < 1 else int(width)
        worked = any(mode in pair for pair in self._left) or any(mode in each.means for each in self._trials.values())
        before = self._suspects.pop(trial, (self.most, self.widest))
        self._changed = True
        if mode == 1 or worked:  # the trial is to blame, and not the width at which it failed before
            self.most, self.widest = max(self.most, before[0]), max(self.widest, before[1])
            return ""
        self._suspects[trial] = before
        if mode < 0:
            self.most = min(self.most, -mode - 1)
            otherwise = f"{-mode} trials on a device: no more than {self.most} from now on"
            return f"{otherwise}, unless it fails so, too. Give most_packed={self.most}"
        self.widest = min(self.widest, max(1, mode // 2))
        otherwise = f"a trial on {mode} devices: on no more than {self.widest} from now on"
        return f"{otherwise}, unless it fails so, too. Give widest={self.widest}"

    def meet(self, trial: str, config: Config, waits: bool = False) -> None:
        self._away.pop(trial, None)
        known = self._trials.get(trial)
        if known is None or (known.config is not config and known.config != config):
            self._trials[trial] = _Trial(config)
        elif waits:
            known.starts = True

    def leave(self, trial: str) -> None:
        """It has left its devices, and may come back. Of those that have been away for long only what they told is
        kept.
        """
        self._away[trial] = None
        self._trials[trial].starts = True
        self._changed = True
        if len(self._away) > MOST_AWAY:
            self._forget(next(iter(self._away)))

    def _forget(self, trial: str) -> None:
        del self._away[trial]
        gone = self._trials.pop(trial)
        told = self._alone if 1 in gone.means else self._converted
        if (log_s := self._base(gone)) is not None and len(told) < MOST_TRIALS:
            told.append((gone.config, log_s))
        for pair, weight, difference in _told_by(gone):
            old, mean = self._left.get(pair, (0.0, 0.0))
            old *= FADING
            self._left[pair] = (old + weight, (old * mean + weight * difference) / (old + weight))

    # ----------------------------------------------------------------------------------------------------- what we know

    def step_s(self, trial: str) -> float:
        """On one device."""
        self._refresh()
        known = self._trials[trial]
        log_s = self._base(known)
        return math.exp(self._usual(known) if log_s is None else log_s)

    @property
    def overheads(self) -> Overheads:
        """As far as it is known, and one step further: that is how the next width is tried."""
        self._refresh()
        if self._overheads is None:
            self._overheads = self._made()
        return self._overheads

    def _made(self) -> Overheads:
        slowdowns = [1.0]
        for k in range(2, self.most + 1):
            if not self._knows(-k):
                break
            slowdowns.append(math.exp(self._logs[-k]))
        slowdowns = slowdowns[: most_packed(slowdowns, PACKING)]
        speedups = {1: 1.0} | {
            w: min(w, math.exp(-log_s)) for w, log_s in self._logs.items() if w > 1 and self._knows(w)
        }
        speedups = {w: speedups[w] for w in sorted(speedups)}
        d = widest(speedups, SPREADING)
        if d == max(speedups) and d < self.widest:  # nothing has stopped it yet
            alone = ALONE if d == 1 else max(0.0, (d / speedups[d] - 1) / (d - 1))
            wider = min(2 * d, self.widest)
            speedups[wider] = self._so_far(wider, max(_amdahl(wider, alone), speedups[d]))
            d = widest(speedups, SPREADING)
        return Overheads(tuple(slowdowns), Scaling(speedups), min(d, self.widest))

    def hoped(self, width: Width, hoped: float) -> float:
        """How fast a trial may be at a width that is not known yet, by what was seen of it: a step counts as much as
        what is hoped for, so that where steps vary and nothing is ever certain, what helps little is let be.
        """
        self._refresh()
        return self._so_far(-width.denominator if width < 1 else int(width), hoped)

    def _so_far(self, mode: int, hoped: float) -> float:
        seen = self._weights.get(mode, 0.0)
        return math.exp(-(seen * self._log(mode) - math.log(hoped)) / (seen + 1))

    @property
    def next_wider(self) -> int | None:
        """The number of devices that a trial should be tried on, if more than were tried may pay."""
        d = self.overheads.d
        return d if d > 1 and not self._knows(d) else None

    @property
    def to_try(self) -> Width | None:
        """The width at which one more is packed than pays for certain, if that was never tried."""
        c = self.overheads.c
        return Fraction(1, c + 1) if c < self.most and not self._knows(-c - 1) else None

    def knows(self, trial: str) -> bool:
        """Whether there are steps of a trial with which those after a change can be compared."""
        means = self._trials[trial].means.values() if trial in self._trials else ()
        return any(mean.weight >= 1 for mean in means)

    def tries_resize(self, trial: str, width: Width) -> bool:
        """Whether it is among the first that were ever resized, and has no steps yet that tell what that took."""
        known = self._trials.get(trial)
        if self._resizes or known is None or known.starts:
            return False
        return known.resized is not None or (width >= 1 and int(width) not in known.means)

    def _knows(self, mode: int) -> bool:
        return self._weights.get(mode, 0.0) >= self._enough

    def _base(self, trial: _Trial) -> float | None:
        """The logarithm of the seconds of its steps as they would be on one device."""
        total = sum(mean.weight for mean in trial.means.values())
        if not total:
            return None
        return sum(mean.weight * (mean.log_s - self._log(mode)) for mode, mean in trial.means.items()) / total

    def _log(self, mode: int) -> float:
        if mode == 1:
            return 0.0
        return self._logs[mode] if mode in self._logs else _guess(mode)

    # ------------------------------------------------------------------------------------------------ bringing together

    def _refresh(self) -> None:
        if not self._changed:
            return
        self._changed, self._overheads = False, None
        self._learn_configs()
        self._solve()

    def _learn_configs(self) -> None:
        now = [(trial.config, trial.means[1].log_s) for trial in self._trials.values() if 1 in trial.means]
        rows = self._alone + now
        if len(rows) < FEW:
            rows += self._converted
        if rows and (len(rows) >= GROWTH * self._fitted or self._fitted < FEW):
            self._fitted, self._fits = len(rows), self._fits + 1
            configs, logs = zip(*rows, strict=True)
            self._model = RunTimes.fit(configs if self.by_config else [{}] * len(rows), logs)

    def _solve(self) -> None:
        """b minimises the sum of w (b_x - b_y - difference)^2 over pairs of widths, with b = 0 for one device."""
        import numpy as np  # takes a while, and most who import this package do without

        pairs = [(pair, weight, mean) for pair, (weight, mean) in self._left.items()]
        for trial in self._trials.values():
            pairs += _told_by(trial)
        noise = self._noise[1] / self._noise[0]
        enough = 2 * noise / SURE**2
        self._enough, before = max(TELLING, enough), max(BEFORE, enough)
        pairs += [((mode, 1), before, -math.log(speed)) for mode, speed in self.before.items()]
        seen = {mode for trial in self._trials.values() for mode in trial.means}
        modes = sorted(seen.union(mode for pair, _, _ in pairs for mode in pair) - {1})
        place = {mode: index for index, mode in enumerate(modes)}
        trust = [1e-6 if mode in self.before else noise / USUAL_ERROR**2 for mode in modes]
        matrix, right = np.diag(trust), np.array([each * _guess(mode) for each, mode in zip(trust, modes, strict=True)])
        self._weights = {mode: sum(self._begun_at(mode)) for mode in modes}
        for (x, y), weight, difference in pairs:
            for one, other, sign in ((x, y, 1.0), (y, x, -1.0)):
                if one == 1:
                    continue
                self._weights[one] += weight
                matrix[place[one], place[one]] += weight
                right[place[one]] += sign * weight * difference
                if other != 1:
                    matrix[place[one], place[other]] -= weight
        self._logs = dict(zip(modes, map(float, np.linalg.solve(matrix, right)), strict=True)) if modes else {}

    def _usual(self, trial: _Trial) -> float:
        if trial.usual[0] != self._fits:
            trial.usual = (self._fits, self._model.log_s(trial.config))
        return trial.usual[1]

    def _begun_at(self, mode: int) -> list[float]:
        """The steps of trials that began on so many devices, which may go on to more: if that is slower, it shows."""
        if mode < 1:
            return []
        return [t.means[mode].weight for t in self._trials.values() if mode in t.means and 1 not in t.means]


def _mode(steps: Steps) -> int:
    return -steps.sharing if steps.sharing > 1 else math.ceil(steps.width)


def _told_by(trial: _Trial) -> list[tuple[_Pair, float, float]]:
    """The differences between all modes that a trial has been in, with their weights."""
    return [
        ((x, y), min(one.weight, other.weight), one.log_s - other.log_s)
        for (x, one), (y, other) in combinations(sorted(trial.means.items()), 2)
        if _comparable(one, other)
    ]


def _comparable(one: _Mean, other: _Mean) -> bool:
    """First steps, which have the beginning in them, are like first steps, and at least as long as others: those that
    take longer still are slower for certain.
    """
    if (one.weight < 1) == (other.weight < 1):
        return True
    first, usual = (one, other) if one.weight < 1 else (other, one)
    return usual.log_s > first.log_s


def _guess(mode: int) -> float:
    """Until it is measured: trials on one device take turns, and spreading costs what it usually does."""
    return math.log(-mode) if mode < 0 else -math.log(_amdahl(mode, ALONE))


def _amdahl(width: int, alone: float) -> float:
    return width / (1 + (width - 1) * alone)
