"""What a journal says about a training job: how long its steps took at each width, and what it cost to begin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import fmean

from elastune import messages as m
from elastune.errors import SpecError
from elastune.profile.cloud import Cloud
from elastune.profile.fit import fit_latency, fit_scaling
from elastune.profile.job import JobProfile
from elastune.profile.latency import Latency, empirical
from elastune.profile.scaling import Scaling

_Device = tuple[str, int]


@dataclass(slots=True)
class _Attempt:
    number: int
    width: int
    sharing: int
    """So many trials are to share its device."""
    device: _Device
    cold: bool
    """Whether it began in a process where nothing has trained yet."""
    began_s: float
    reported_s: float | None = None
    full: bool = False
    """Whether all that are to share its device were there then."""


@dataclass(slots=True)
class Measured:
    """Seconds: of steps by width, of steps by how many trials shared a device, of beginnings (with the width and the
    number of steps until the first news), of leaving, and of machines.
    """

    steps: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    packed: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    firsts: list[tuple[int, int, float]] = field(default_factory=list)
    cold_firsts: list[tuple[int, int, float]] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    boots: list[float] = field(default_factory=list)
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _asked_s: dict[str, float] = field(default_factory=dict)
    _used: set[m.Slot] = field(default_factory=set)
    _shares: dict[str, float] = field(default_factory=dict)
    """Of trials that are resized: the part of a device that they will have."""
    _on: dict[_Device, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, records: Iterable[m.Record]) -> Measured:
        measured = cls()
        for record in records:
            measured.feed(record)
        return measured

    def feed(self, record: m.Record) -> None:
        at_s = record.at_s
        together = Counter(event.trial for event in record.events if isinstance(event, m.TrialReported))
        for event in record.events:
            match event:
                case m.TrialReported():
                    self._reported(event, at_s, together)
                case m.TrialResized():
                    if self._attempt(event):
                        self._begin(event, event.slots, self._shares.pop(event.trial, 1.0), at_s)
                case m.TrialPaused() | m.TrialReturned() | m.TrialFailed() | m.TrialLost():
                    self._left(event, at_s)
                case m.NodeReady():
                    if event.node in self._asked_s:
                        self.requests.append(max(0.0, event.billed_from_s - self._asked_s.pop(event.node)))
                        self.boots.append(at_s - event.billed_from_s)
        for command in record.commands:
            match command:
                case m.StartTrial():
                    self._begin(command, command.slots, command.share, at_s)
                case m.ResizeTrial():
                    self._shares[command.trial] = command.share
                case m.AddNode():
                    self._asked_s[command.node] = at_s

    def _begin(self, of: m.StartTrial | m.TrialResized, slots: tuple[m.Slot, ...], share: float, at_s: float) -> None:
        self._leave(of.trial)
        cold, device = not self._used.issuperset(slots), (slots[0].node, slots[0].device)
        self._used.update(slots)
        self._attempts[of.trial] = _Attempt(of.attempt, len(slots), round(1 / share), device, cold, at_s)
        self._on[device].add(of.trial)

    def _left(self, event: m.TrialEvent, at_s: float) -> None:
        attempt = self._attempt(event)
        if attempt is None:
            return
        if isinstance(event, m.TrialPaused) and attempt.sharing == 1 and attempt.reported_s is not None:
            self.leaves.append(at_s - attempt.reported_s)
        self._leave(event.trial)

    def _leave(self, trial: str) -> None:
        if (attempt := self._attempts.pop(trial, None)) is not None:
            self._on[attempt.device].discard(trial)

    def _attempt(self, event: m.TrialEvent) -> _Attempt | None:
        attempt = self._attempts.get(event.trial)
        return attempt if attempt is not None and attempt.number == event.attempt else None

    def _reported(self, event: m.TrialReported, at_s: float, together: Counter[str]) -> None:
        """Reports that came in one turn share the time since the one before."""
        attempt = self._attempt(event)
        if attempt is None:
            return
        number, full = together[event.trial], len(self._on[attempt.device]) == attempt.sharing
        if attempt.reported_s is None:
            if attempt.sharing == 1:
                firsts = self.cold_firsts if attempt.cold else self.firsts
                firsts.append((attempt.width, number, at_s - attempt.began_s))
            attempt.reported_s, attempt.full = at_s, full
        elif at_s > attempt.reported_s:
            seconds = [(at_s - attempt.reported_s) / number] * number
            if attempt.sharing == 1:
                self.steps[attempt.width] += seconds
            elif full and attempt.full:
                self.packed[attempt.sharing] += seconds
            attempt.reported_s, attempt.full = at_s, full

    def profile(self) -> JobProfile:
        """What fits it."""
        if not self.steps.get(1):
            raise SpecError("nothing was measured at width 1: no trial has reported twice there; measure for longer")
        step, scaling = fit_scaling(self.steps)
        # What a beginning takes more than the steps in it, and the leaving before the next.
        leave_s = fmean(self.leaves) if self.leaves else 0.0
        warm, cold = (
            [
                max(0.0, first_s - steps * step.expected_s / scaling(width))
                for width, steps, first_s in firsts
                if width in self.steps
            ]
            for firsts in (self.firsts, self.cold_firsts)
        )
        warm_s = fmean(warm) if warm else 0.0
        speedups = {width: _rounded(factor) for width, factor in scaling.speedups.items()}
        return JobProfile(
            _short(step),
            Scaling(speedups),
            start=_short(fit_latency([start_s + leave_s for start_s in warm or [0.0]])),
            cold_start=_short(fit_latency([max(0.0, start_s - warm_s) for start_s in cold or [0.0]])),
            packed=self._packed_speeds(step.expected_s),
        )

    def _packed_speeds(self, alone_s: float) -> tuple[float, ...]:
        """Of each of 2, 3, ... trials: no faster than with one fewer, whatever noise says."""
        speeds: list[float] = []
        while seconds := self.packed.get(len(speeds) + 2):
            speeds.append(min([1.0, *speeds[-1:], _rounded(alone_s / fmean(seconds))]))
        return tuple(speeds)

    def cloud(self, name: str, devices: int, price_usd_per_hour: float) -> Cloud:
        """The machines that were used."""
        request, boot = (_short(fit_latency(seconds or [0.0])) for seconds in (self.requests, self.boots))
        return Cloud(name, devices, price_usd_per_hour, request, boot, minimum_s=0.0)


def _short(latency: Latency) -> Latency:
    """As many digits as people read, and more than were measured."""
    values = tuple(map(_rounded, latency.values))
    return (
        empirical(values)
        if values
        else replace(latency, mean_s=_rounded(latency.mean_s), std_s=_rounded(latency.std_s))
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
