"""A job to plan, and a plan for it: how many devices each stage gets, and how many machines are held for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, sqrt

import numpy as np

from elastune.cost import SECONDS_PER_HOUR, life_usd
from elastune.errors import SpecError
from elastune.messages import PlannedStage
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import Floats, Latency
from elastune.spec import Stage, require_int

MOST_TRIALS = 20_000
"""In a stage: trying how to share devices among more would take minutes."""
MANY_ITERATIONS = 10_000
"""The sum of more is drawn as a whole: it is normally distributed."""
MOST_SHARED = 64
"""Of more ways to share devices, which are very many trials' only, these are tried, from the fewest to the most."""
DECIMALS = 9
"""Amounts that differ only in how their floats were added up count as equal."""


@dataclass(frozen=True, slots=True)
class Plan:
    """With `early_release` a machine whose trials are done, and that the next stage does without, is given back at once
    instead of at the end of the stage.
    """

    stages: tuple[PlannedStage, ...]
    early_release: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its expected time and cost."""

    time_s: float
    cost_usd: float
    plan: Plan


def cheapest(candidates: Iterable[Candidate], deadline_s: float) -> Candidate | None:
    """The least expected cost by a deadline, and of those that cost the same the soonest."""
    in_time = (candidate for candidate in candidates if candidate.time_s <= deadline_s)
    return min(in_time, key=lambda candidate: (round(candidate.cost_usd, DECIMALS), candidate.time_s), default=None)


@dataclass(frozen=True)
class Job:
    """Stages that follow one another on machines of one type, at most `machines` of them. `held_s` has the ages of
    those that are there already, the oldest first; what was paid for them is not counted again. `asked_s` says how long
    ago others were asked for that are not there yet, the longest first; all that is paid for them is counted, also for
    those that a plan does without.

    The same draws serve every plan, so that two plans differ by what they do and not by luck.
    """

    stages: tuple[Stage, ...]
    profile: JobProfile
    cloud: Cloud
    machines: int
    held_s: tuple[float, ...] = ()
    asked_s: tuple[float, ...] = ()
    samples: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        require_int("machines", self.machines, 1)
        require_int("samples", self.samples, 1)
        if not self.stages:
            raise SpecError("there is no stage to plan")
        for number, stage in enumerate(self.stages):
            require_int(f"trials of stage {number}", stage.trials, 1)
            require_int(f"iterations of stage {number}", stage.iterations, 1)
            if stage.trials > MOST_TRIALS:
                raise SpecError(f"stage {number} has {stage.trials} trials: at most {MOST_TRIALS} can be planned for")
            if number and stage.trials > self.stages[number - 1].trials:
                raise SpecError(
                    f"stage {number} has {stage.trials} trials, the one before {self.stages[number - 1].trials}: "
                    "a stage trains those that are left of the one before, so it must not have more"
                )

    @cached_property
    def varies(self) -> bool:
        profile, cloud = self.profile, self.cloud
        latencies = (profile.step, profile.start, profile.cold_start, cloud.request, cloud.boot)
        return any(latency.varies for latency in latencies)

    @cached_property
    def draws(self) -> int:
        """How many samples are drawn: without variance one says all."""
        return self.samples if self.varies else 1

    @cached_property
    def work_s(self) -> tuple[Floats, ...]:
        """Of each stage and trial (in columns): the seconds of its iterations on one device, drawn one by one."""
        return tuple(
            np.column_stack(
                [_total_s(self.profile.step, rng, self.draws, stage.iterations) for _ in range(stage.trials)]
            )
            for stage, rng in zip(self.stages, self._generators(1), strict=True)
        )

    @cached_property
    def start_s(self) -> tuple[Floats, ...]:
        """Of each stage and trial: the seconds before its first iteration."""
        return tuple(
            self.profile.start.sample(rng, (self.draws, stage.trials))
            for stage, rng in zip(self.stages, self._generators(2), strict=True)
        )

    @cached_property
    def request_s(self) -> tuple[Floats, ...]:
        """Until a request for machines is served, should there be one before a stage."""
        return tuple(self.cloud.request.sample(rng, (self.draws,)) for rng in self._generators(3))

    @cached_property
    def boot_s(self) -> tuple[Floats, ...]:
        """From then on, before a stage, until 1, 2, 3, ... machines (in columns) are all ready to train."""
        shape = (self.draws, self.machines)
        return tuple(
            np.maximum.accumulate(
                self.cloud.boot.sample(rng, shape) + self.profile.cold_start.sample(rng, shape), axis=1
            )
            for rng in self._generators(4)
        )

    def awaited(self, count: int) -> tuple[Floats, Floats]:
        """When so many of those are there that were asked for before, and from when each of them (in columns) is paid
        for.
        """
        ago_s = np.array(self.asked_s[:count])
        there_s = self.request_s[0] + self.boot_s[0][:, count - 1] - ago_s[-1]
        return np.maximum(0.0, there_s), self.request_s[0][:, None] - ago_s

    def done_without_usd(self, count: int) -> Floats:
        """What those cost that were asked for before, if all but so many of them are given back at once: where the
        request was served, they are paid for.
        """
        boots_s = np.array(self.asked_s[count:]) - self.request_s[0][:, None]
        cloud, price = self.cloud, self.cloud.price_usd_per_hour if self.cloud.billing == "instance" else 0.0
        lives_usd = life_usd(boots_s, price, cloud.minimum_s, np.maximum) + cloud.data_usd
        paid_usd: Floats = np.where(boots_s > 0, lives_usd, 0.0).sum(axis=1)
        return paid_usd

    def seconds(self, number: int, width: int) -> Floats:
        """How long each trial of a stage holds its devices."""
        return self.start_s[number] + self.work_s[number] / self.profile.scaling(width)

    def ends_s(self, number: int, devices: int) -> Floats:
        """When each machine of a stage has nothing left to do, in seconds from its beginning, the soonest first."""
        ends = self._ends.get((number, devices))
        if ends is None:
            ends = self._ends[number, devices] = _ends(
                self.seconds(number, width_of(self.stages[number].trials, devices)), devices, self.cloud.devices
            )
        return ends

    @cached_property
    def _ends(self) -> dict[tuple[int, int], Floats]:
        return {}

    def busy_usd(self, number: int, width: int) -> Floats:
        """What the trials of a stage cost where only busy devices are paid for."""
        busy_s: Floats = self.seconds(number, width).sum(axis=1) * width
        return busy_s * self.cloud.price_usd_per_hour / self.cloud.devices / SECONDS_PER_HOUR

    def _generators(self, purpose: int) -> Iterator[np.random.Generator]:
        return (np.random.default_rng((self.seed, purpose, number)) for number in range(len(self.stages)))


def _total_s(step: Latency, rng: np.random.Generator, draws: int, iterations: int) -> Floats:
    if not step.varies:
        return np.full(draws, iterations * step.expected_s)
    drawn = min(iterations, MANY_ITERATIONS)
    off_s: Floats = step.sample(rng, (draws, drawn)).sum(axis=1) - drawn * step.expected_s
    return iterations * step.expected_s + off_s * sqrt(iterations / drawn)


def width_of(trials: int, devices: int) -> int:
    """Devices of each trial: with fewer than trials each has one, and the rest queue."""
    return max(1, devices // trials)


def machines_for(trials: int, devices: int, on_machine: int) -> int:
    """How many machines an allocation needs: a trial that is narrower than a machine never straddles two, a wider one
    gets whole ones.
    """
    width = width_of(trials, devices)
    if width > on_machine:
        return trials * ceil(width / on_machine)
    return ceil(min(trials, devices) / (on_machine // width))


@lru_cache(maxsize=10_000)
def allocations(trials: int, on_machine: int, machines: int) -> tuple[int, ...]:
    """The devices that a stage may get: a multiple of its trials, or the fewest that serve them in 2, 3, ... rounds (in
    the paper only factors of their number), if they have a place on so many machines. A trial wider than a machine gets
    a multiple of its devices.
    """
    rounds = sorted({ceil(trials / number) for number in range(2, trials + 1)})
    shared = [devices for devices in rounds if devices <= machines * on_machine]
    if len(shared) > MOST_SHARED:
        spread = np.geomspace(1, len(shared), MOST_SHARED).round().astype(int)
        shared = [shared[place - 1] for place in sorted({*spread.tolist()})]
    widths = [*range(1, on_machine + 1), *range(2 * on_machine, machines * on_machine + 1, on_machine)]
    whole = [trials * width for width in widths if trials * width <= machines * on_machine]
    return tuple(a for a in shared + whole if machines_for(trials, a, on_machine) <= machines)


def _ends(seconds: Floats, devices: int, on_machine: int) -> Floats:
    samples, trials = seconds.shape
    width = width_of(trials, devices)
    if width > on_machine:
        ends = np.repeat(seconds, width // on_machine, axis=1)
    else:
        slots = _serve(seconds, devices) if devices < trials else seconds
        machines, side_by_side = machines_for(trials, devices, on_machine), on_machine // width
        padded = np.zeros((samples, machines * side_by_side))
        padded[:, : slots.shape[1]] = slots
        ends = padded.reshape(samples, machines, side_by_side).max(axis=2)
    ends.sort(axis=1)
    return ends


def _serve(seconds: Floats, devices: int) -> Floats:
    """When each device is done with its part of the queue: who is next takes the one that is first free."""
    free_s, rows = seconds[:, :devices].copy(), np.arange(len(seconds))
    for trial in range(devices, seconds.shape[1]):
        free_s[rows, free_s.argmin(axis=1)] += seconds[:, trial]
    return free_s
