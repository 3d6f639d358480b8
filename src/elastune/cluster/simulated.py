"""A cluster with a virtual clock: machines boot, fail and are revoked; trials follow a workload model.

Nothing is random but what a seed says, and every event has its place by (time, counter), so that the same experiment
gives the same journal to the byte.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal

from elastune import messages as m
from elastune.cluster.simulated_spot import SpotMachines
from elastune.cluster.workload import Curve, Stragglers, Workload
from elastune.errors import RunFailed, SpecError, did_you_mean
from elastune.profile.latency import Latency
from elastune.spec import require_int, require_number

if TYPE_CHECKING:
    from elastune.market.cloud import PlayedCloud


def perfect_speedup(width: float) -> float:
    """Two devices train twice as fast as one, and each of two trials that are on one half as fast."""
    return float(width)


FAULTS = ("lose", "kill", "damage")
MIDWAY = "-midway-"
ROUNDING_S = 1e-9
"""What is due at a deadline but for rounding still comes before it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at a time of the script.

    `lose` takes the machine `target` away, after a notice of `notice_s` if that is not 0; `kill` ends the worker of
    the trial `target`; `damage` makes the newest checkpoint of the trial `target` unreadable.
    """

    at_s: float
    kind: Literal["lose", "kill", "damage"]
    target: str
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        require_number("at_s", self.at_s, zero=True)
        require_number("notice_s", self.notice_s, zero=True)
        if not isinstance(self.target, str):
            raise SpecError(f"target={self.target!r}: must be the name of a machine (n0) or of a trial (exp-00000)")
        if self.kind not in FAULTS:
            raise SpecError(f"kind={self.kind!r}: {did_you_mean(str(self.kind), FAULTS)}")


@dataclass(frozen=True, slots=True)
class Machines:
    """What the simulated machines are like. `lifetime_s` is the mean of random lifetimes; None: they live for ever. A
    machine costs the price of all its devices, for at least `minimum_s`, and `data_usd` once.
    """

    devices: int = 1
    request_s: float | Latency = 0.0
    boot_s: float | Latency = 0.0
    lifetime_s: float | None = None
    notice_s: float = 0.0
    price_usd_per_device_hour: float = 0.0
    minimum_s: float = 0.0
    data_usd: float = 0.0

    def __post_init__(self) -> None:
        require_int("devices", self.devices, 1)
        for name in ("request_s", "boot_s"):
            if not isinstance(getattr(self, name), Latency):
                require_number(name, getattr(self, name), zero=True)
        for name in ("notice_s", "price_usd_per_device_hour", "minimum_s", "data_usd"):
            require_number(name, getattr(self, name), zero=True)
        if self.lifetime_s is not None:
            require_number("lifetime_s", self.lifetime_s)


@dataclass(slots=True)
class _Running:
    """A trial on its slots."""

    command: m.StartTrial
    curve: Curve
    offset: int
    iteration: int
    saved_s: float
    slots: tuple[m.Slot, ...]
    shares: bool
    """Whether others may be on its device."""
    done: float = 0.0
    """The part of its next step that it did before, on a machine that was about to go."""
    step_began_s: float = 0.0
    step_ends_s: float = 0.0
    told: m.ResizeTrial | None = None
    asked_to: Literal["go on", "pause", "stop"] = "go on"


@dataclass(slots=True)
class SimulatedCluster:
    workload: Workload
    machines: Machines = Machines()
    stragglers: Stragglers = field(default_factory=Stragglers)
    speedup: Callable[[float], float] = perfect_speedup
    faults: Sequence[Fault] = ()
    start_s: float | Latency = 0.0
    resize_s: float = 0.0
    checkpoint_every_s: float = 60.0
    with_checkpoints: bool = True
    midway: bool = False
    """Whether trials leave a machine that is about to go at once, saved in the middle of a step."""
    seed: int = 0
    now_s: float = 0.0
    started_unix_s: float = 0.0
    cloud: PlayedCloud | None = None
    """Where machines differ and may be taken away as their market says; for those that are asked for by an offer."""
    _spot: SpotMachines | None = None
    _last_id: int = 0
    _heap: list[tuple[float, int, Callable[..., m.AnyEvent | None], tuple[object, ...]]] = field(default_factory=list)
    _counter: int = 0
    _nodes: dict[str, bool] = field(default_factory=dict)
    _trials: dict[str, _Running] = field(default_factory=dict)
    _on: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many of the trials that have a part of a device are on each."""
    _newest: dict[str, m.Checkpoint] = field(default_factory=dict)
    _damaged: set[str] = field(default_factory=set)
    _events: list[m.AnyEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._spot = SpotMachines(self.cloud, self) if self.cloud is not None else None
        for fault in self.faults:
            if fault.at_s >= self.now_s:  # the others have happened before a driver resumed
                self.at(fault.at_s, self._fault, fault)

    # ------------------------------------------------------------------------------------------------ the Cluster seam

    def poll(self, until_s: float | None) -> m.Turn:
        self._events = []
        heap = self._heap
        limit_s = math.inf if until_s is None else until_s + ROUNDING_S
        while heap and heap[0][0] <= limit_s:
            self.now_s = heap[0][0]
            while heap and heap[0][0] == self.now_s:
                _, _, act, arguments = heappop(heap)
                act(*arguments)
            if self._events:
                return m.Turn(self.now_s, tuple(self._events))
        if until_s is None:
            raise RunFailed("the simulation stands still: no machine and no trial will ever do anything again")
        self.now_s = max(self.now_s, until_s)
        return m.Turn(self.now_s, ())

    def submit(self, commands: Sequence[m.AnyCommand]) -> None:
        request_s: float | None = None  # machines that are asked for together come from one request
        starting: list[_Running] = []
        for command in commands:
            if command.id <= self._last_id:
                continue
            self._last_id = command.id
            match command:
                case m.StartTrial():
                    starting += self._start(command)
                case m.ResizeTrial():
                    self._resize(command)
                case m.PauseTrial() | m.StopTrial():
                    self._ask(command)
                case m.AddNode():
                    self._nodes[command.node] = False
                    if isinstance(command.offer, m.Offer):
                        self._ask_market(command.node, command.offer)
                        continue
                    if request_s is None:
                        request_s = self._draw_s(self.machines.request_s, f"request {command.node}")
                    boot_s = self._draw_s(self.machines.boot_s, f"boot {command.node}")
                    self.boot(command.node, boot_s, self.now_s + request_s)
                case m.ReleaseNode():
                    self._remove(command.node)
                case m.DropCheckpoint():
                    self._damaged.discard(command.checkpoint.path)
        for running in starting:  # when all are where they shall be
            start = running.command
            self._next_step(running, self._draw_s(self.start_s, f"start {start.trial} {start.attempt}"))

    def inventory(self) -> m.Inventory:
        running = {trial: running.command.attempt for trial, running in self._trials.items()}
        return m.Inventory(frozenset(self._nodes), running)

    def wake(self) -> None:
        """Simulated time never waits."""

    def close(self) -> None:
        """There is nothing to give back."""

    # ------------------------------------------------------------------------------------------------------- machines

    def at(self, at_s: float, act: Callable[..., None], *arguments: object) -> None:
        self._counter += 1
        heappush(self._heap, (at_s, self._counter, act, arguments))

    def happened(self, event: m.AnyEvent) -> None:
        self._events.append(event)

    def boot(self, node: str, boot_s: float, billed_s: float | None = None) -> None:
        """It is paid for from a time on, by default from now, and ready when it has booted."""
        billed_s = self.now_s if billed_s is None else billed_s
        if boot_s > 0:
            self.at(billed_s, self._boots, node)
        self.at(billed_s + boot_s, self._ready, node, billed_s)

    def take_away(self, node: str, notice_s: float) -> None:
        self._fault(Fault(0.0, "lose", node, notice_s))

    def _ask_market(self, node: str, offer: m.Offer) -> None:
        if self._spot is None:
            raise SpecError(f"machine type {offer.type!r}: the simulation has no cloud that offers it: give `cloud`")
        self._spot.ask(node, offer)

    def _draw_s(self, latency: float | Latency, what: str) -> float:
        return latency.draw_s(f"{self.seed} {what}") if isinstance(latency, Latency) else latency

    def _boots(self, node: str) -> None:
        if node in self._nodes:
            self._events.append(m.NodeBilled(node, *self._paid(node, self.now_s)))

    def _paid(self, node: str, billed_from_s: float) -> tuple[int, float, float, float, float, float]:
        if self._is_of_market(node):
            assert self._spot is not None
            return self._spot.paid(node, billed_from_s)
        machines = self.machines
        price = machines.devices * machines.price_usd_per_device_hour
        return machines.devices, billed_from_s, price, machines.minimum_s, machines.data_usd, 0.0

    def _ready(self, node: str, billed_from_s: float) -> None:
        if node not in self._nodes:
            return
        self._nodes[node] = True
        self._events.append(m.NodeReady(node, *self._paid(node, billed_from_s)))
        if self.machines.lifetime_s is not None and not self._is_of_market(node):
            life_s = random.Random(f"{self.seed} {node}").expovariate(1.0 / self.machines.lifetime_s)
            self.at(self.now_s + life_s, self._fault, Fault(0.0, "lose", node, self.machines.notice_s))

    def _fault(self, fault: Fault) -> None:
        if fault.kind == "lose" and fault.target in self._nodes:
            if fault.notice_s > 0:
                gone_s = self.now_s + fault.notice_s
                self._events.append(m.NodeNotice(fault.target, gone_s))
                self.at(gone_s, self._lose, fault.target)
            else:
                self._lose(fault.target)
        elif fault.kind == "kill" and fault.target in self._trials:
            self._kill(self._trials[fault.target], "the worker process died")
        elif fault.kind == "damage" and fault.target in self._newest:
            self._damaged.add(self._newest[fault.target].path)

    def _lose(self, node: str) -> None:
        if node in self._nodes:
            revoked = self._is_of_market(node)
            self._remove(node)
            self._events.append(m.NodeLost(node, "revoked", revoked=revoked))

    def _is_of_market(self, node: str) -> bool:
        return self._spot is not None and node in self._spot.offers

    def _remove(self, node: str) -> None:
        self._nodes.pop(node, None)
        if self._spot is not None:
            self._spot.forget(node)
        on_node = [t for t, running in self._trials.items() if any(slot.node == node for slot in running.slots)]
        for trial in on_node:
            self._vacate(self._trials.pop(trial))

    # --------------------------------------------------------------------------------------------------------- trials

    def _start(self, command: m.StartTrial) -> list[_Running]:
        if any(slot.node not in self._nodes for slot in command.slots):
            return []
        if command.checkpoint is not None and command.checkpoint.path in self._damaged:
            self.at(self.now_s, self._report_damage, command)
            return []
        curve, offset = self.workload.curve(command.config), self.stragglers.offset(command.trial, command.attempt)
        running = _Running(command, curve, offset, command.iteration, self.now_s, command.slots, command.share < 1)
        running.done = part_done(command.checkpoint)
        self._trials[command.trial] = running
        self._occupy(running)
        if command.until_s is not None:
            self.at(max(self.now_s, command.until_s + ROUNDING_S), self._kill, running, "its time is over", False)
        return [running]

    def _report_damage(self, command: m.StartTrial) -> None:
        assert command.checkpoint is not None
        reason = f"checkpoint {command.checkpoint.path} is damaged"
        self._events.append(m.CheckpointDamaged(command.trial, command.attempt, command.checkpoint, reason))

    def _next_step(self, running: _Running, after_s: float) -> None:
        command, iteration = running.command, running.iteration + 1
        width = len(running.slots) if not running.shares else 1 / self._on[_device(running)]
        step_s = self.workload.step_s(command.config, iteration) / self.speedup(width)
        step_s *= self.stragglers.factor(running.offset, iteration)
        if self._spot is not None and self._is_of_market(running.slots[0].node):
            step_s /= min(self._spot.speed(node) for node in {slot.node for slot in running.slots})
        running.step_began_s = self.now_s + after_s
        running.step_ends_s = running.step_began_s + step_s * (1 - running.done)
        self.at(running.step_ends_s, self._step, running)

    def _step(self, running: _Running) -> None:
        """One iteration is trained: report it, and leave or go on, as a worker does."""
        command = running.command
        if self._trials.get(command.trial) is not running:
            return
        metrics = running.curve(running.iteration + 1)
        if metrics is None:
            self._leave(m.TrialReturned, running)
            return
        running.iteration += 1
        running.done = 0.0
        metrics = {name: m.to_scalar(v) if isinstance(v, float) else v for name, v in metrics.items()}
        self._events.append(m.TrialReported(command.trial, command.attempt, running.iteration, metrics))
        until, step_s = command.until_iteration, self.now_s - running.step_began_s
        left_s = math.inf if command.until_s is None else command.until_s + ROUNDING_S - self.now_s
        if running.asked_to != "go on" or (until is not None and running.iteration >= until) or step_s > left_s:
            self._leave(m.TrialPaused, running)
            return
        if running.told is not None:
            self._move(running, running.told)
            return
        # The next step may be the last, and abandoned if it takes longer than this one.
        due = self.now_s - running.saved_s >= self.checkpoint_every_s or 2 * step_s > left_s
        if due and (saved := self._save(running)) is not None:
            self._events.append(m.TrialCheckpointed(command.trial, command.attempt, saved))
        self._next_step(running, 0.0)

    def _save(self, running: _Running) -> m.Checkpoint | None:
        command = running.command
        if not self.with_checkpoints or running.asked_to == "stop":
            return None
        running.saved_s = self.now_s
        path = f"{command.trial}/{command.lineage}-{running.iteration:08d}-{command.attempt}"
        if running.done:
            path += f"{MIDWAY}{running.done}"
        midway = bool(running.done)
        checkpoint = m.Checkpoint(command.trial, command.lineage, running.iteration, path, "", 0, midway=midway)
        self._newest[command.trial] = checkpoint
        return checkpoint

    def _leave(self, event: type[m.TrialPaused] | type[m.TrialReturned], running: _Running) -> None:
        command = running.command
        self._vacate(self._trials.pop(command.trial))
        self._events.append(event(command.trial, command.attempt, running.iteration, self._save(running)))

    def _leave_midway(self, running: _Running) -> None:
        """What is done of the step is kept; while the trial still starts that is no more than before."""
        if self._trials.get(running.command.trial) is not running:
            return
        began_s, ends_s = running.step_began_s, running.step_ends_s
        if began_s < self.now_s < ends_s:
            running.done += (1 - running.done) * (self.now_s - began_s) / (ends_s - began_s)
        self._leave(m.TrialPaused, running)

    def _resize(self, command: m.ResizeTrial) -> None:
        running = self._trials.get(command.trial)
        if running is not None and running.command.attempt == command.attempt:
            running.told = command

    def _move(self, running: _Running, told: m.ResizeTrial) -> None:
        """At a report: save, take the new slots, go on. On a machine that is gone there is nothing to go on with."""
        command = running.command
        if any(slot.node not in self._nodes for slot in told.slots):
            self._kill(running, "the machine it should move to is gone", fault=False)
            return
        self._vacate(running)
        running.slots, running.shares, running.told = told.slots, told.share < 1, None
        self._occupy(running)
        saved = self._save(running)
        self._events.append(m.TrialResized(command.trial, command.attempt, running.slots, running.iteration, saved))
        self._next_step(running, self.resize_s)

    def _occupy(self, running: _Running) -> None:
        """A trial is as fast as the number on its device lets it be when it begins a step."""
        if running.shares:
            self._on[_device(running)] += 1

    def _vacate(self, running: _Running) -> None:
        if running.shares:
            self._on[_device(running)] -= 1

    def _ask(self, command: m.PauseTrial | m.StopTrial) -> None:
        running = self._trials.get(command.trial)
        if running is None or running.command.attempt != command.attempt:
            return
        running.asked_to = "pause" if isinstance(command, m.PauseTrial) else "stop"
        if self.midway and running.asked_to == "pause" and command.within_s is not None and len(running.slots) == 1:
            self.at(self.now_s, self._leave_midway, running)
        elif command.within_s is not None:
            reason = f"killed: no report within {command.within_s:g} s of being told to leave"
            self.at(self.now_s + command.within_s, self._kill, running, reason)

    def _kill(self, running: _Running, reason: str, fault: bool = True) -> None:
        command = running.command
        if self._trials.get(command.trial) is running:
            self._vacate(self._trials.pop(command.trial))
            self._events.append(m.TrialLost(command.trial, command.attempt, reason, fault))


def part_done(checkpoint: m.Checkpoint | None) -> float:
    """Of the step after it, as the path of a checkpoint says: so that a driver that resumes knows it too."""
    return float(checkpoint.path.rpartition(MIDWAY)[2]) if checkpoint is not None and checkpoint.midway else 0.0


def _device(running: _Running) -> tuple[str, int]:
    return running.slots[0].node, running.slots[0].device
