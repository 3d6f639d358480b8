"""The real cluster: machines from a provider, warm workers placed and watched by Ray, trials in gangs of them.

The driver's side is a single thread around one selector. It sleeps until a worker says something, a limit is due, a
machine should be looked at, or it is woken; no report waits for it.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import ray

from elastune import messages as m
from elastune.cluster.ray.gangs import Gangs
from elastune.cluster.ray.hosts import STARTING_CHECK_S, Host, Hosts
from elastune.cluster.ray.session import check_ray, start_ray, stop_ray
from elastune.errors import StorageError
from elastune.provider import Machine, Provider
from elastune.worker import wire
from elastune.worker.setup import WorkerSetup

LAUNCHES = 3
"""How often a worker is started again before its machine is given up."""
VERDICT_S = 0.3
"""Workers notice the end of their machine before the provider does."""
BOOTING_LOOK_S, LOOK_S = 0.1, 0.5
"""How often the provider is asked about its machines, while some boot and otherwise."""

log = logging.getLogger("elastune")


@dataclass(slots=True)
class _Machine:
    here: Machine | None = None
    """As the provider has it, once Ray can place workers there."""
    gpus: bool = False
    billed: bool = False
    """Whether the provider was seen to have it."""
    ready: bool = False
    """Whether every device has had its warm workers."""
    missing: set[m.Slot] = field(default_factory=set)
    noticed: bool = False
    adopted: bool = False
    """A driver before this one had it: its price may be another by now."""
    price_usd_per_hour: float | None = None


class RayCluster:
    """`head_cpus` is how much of the driver's own computer is for workers, `lanes` how many workers a device gets from
    the beginning; a trial may be silent for `silence_s`. A machine is billed for `minimum_s` at least, and `data_usd`.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        provider: Provider,
        head_cpus: int = 0,
        lanes: int = 1,
        silence_s: float | None = None,
        started_unix_s: float | None = None,
        at_s: float = 0.0,
        minimum_s: float = 0.0,
        data_usd: float = 0.0,
    ) -> None:
        self._provider, self._lanes = provider, lanes
        self._minimum_s, self._data_usd = minimum_s, data_usd
        self._checkpoints, self._run = setup.checkpoints, setup.logs.parent
        self._machines: dict[str, _Machine] = {}
        self._events: list[m.AnyEvent] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._dues = 0
        self._last_id = 0
        self._look_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096))
        self._owns_ray = start_ray(head_cpus)
        now_unix_s = time.time()
        self.started_unix_s = now_unix_s if started_unix_s is None else started_unix_s
        # A wall clock may be set back between two drivers; the time of a run never goes back.
        self._clock_offset_s = max(now_unix_s - self.started_unix_s, at_s) - time.monotonic()
        provider.run_began(self.started_unix_s)
        self.hosts = Hosts(self, setup, self._selector)
        self._gangs = Gangs(self, self.hosts, silence_s)
        for machine in provider.list():  # of a driver before this one
            self._machines[machine.name] = _Machine(adopted=True)

    # ------------------------------------------------------------------------------------------------ the Cluster seam

    def poll(self, until_s: float | None) -> m.Turn:
        woken = False
        while True:
            for key, _ in self._selector.select(0.0 if self._events else self._wait_s(until_s)):
                woken = woken or key.fileobj is self._woken
                key.data()
            self.hosts.check_starting()
            self._gangs.check_answers()
            while self._due and self._due[0][0] <= self.now_s():
                heappop(self._due)[2]()
            if self.now_s() >= self._look_s:
                self._look()
            now_s = self.now_s()
            if self._events or woken or (until_s is not None and now_s >= until_s):
                events = tuple(self._events)
                self._events.clear()
                return m.Turn(now_s, events)

    def _wait_s(self, until_s: float | None) -> float:
        due_s = min(self._look_s, self._due[0][0] if self._due else self._look_s)
        due_s = due_s if until_s is None else min(due_s, until_s)
        wait_s = max(0.0, due_s - self.now_s())
        return min(wait_s, STARTING_CHECK_S) if self.hosts.waiting else wait_s

    def submit(self, commands: Sequence[m.AnyCommand]) -> None:
        for command in commands:
            if command.id <= self._last_id:
                continue
            self._last_id = command.id
            match command:
                case m.StartTrial():
                    self._start(command)
                case m.ResizeTrial():
                    self._warm(command.slots)
                    self._gangs.ask(command)
                case m.PauseTrial() | m.StopTrial():
                    self._gangs.ask(command)
                case m.AddNode():
                    self._machines[command.node] = _Machine()
                    self._provider.request(command.node, command.offer if isinstance(command.offer, m.Offer) else None)
                    self._look_s = 0.0
                case m.ReleaseNode():
                    self._remove(command.node)
                case m.DropCheckpoint():
                    self._drop(command.checkpoint)

    def inventory(self) -> m.Inventory:
        return m.Inventory(frozenset(self._machines), self._gangs.attempts())

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of wake-ups already
            self._waker.send(b"!")

    def close(self) -> None:
        for node in list(self._machines):
            self._remove(node)
        self.hosts.close()
        self._selector.close()
        for sock in (self._woken, self._waker):
            sock.close()
        self._provider.close()
        if self._owns_ray:
            stop_ray()

    def _start(self, command: m.StartTrial) -> None:
        if all(self.has(slot.node) for slot in command.slots):
            self._warm(command.slots)
            self._gangs.start(command)

    def _drop(self, checkpoint: m.Checkpoint) -> None:
        try:
            self._checkpoints.drop(checkpoint)
        except StorageError as error:  # it costs room, not the run
            log.warning(str(error))

    # ------------------------------------------------------------------------------------------------------- machines

    def _look(self) -> None:
        """Compare what the provider has with what we know of it."""
        if self._owns_ray:
            check_ray(self._run)
        there = {machine.name: machine for machine in self._provider.list()}
        for node, known in list(self._machines.items()):
            machine = there.get(node)
            if machine is None:
                self._lose(node, self._provider.why_gone(node), self._provider.was_taken(node))
                continue
            if not machine.served:
                continue
            price = machine.price_usd_per_hour
            if not known.billed:
                known.billed, known.price_usd_per_hour = True, None if known.adopted else price
                self._events.append(m.NodeBilled(node, *self._paid(machine)))
            if price is not None and price != known.price_usd_per_hour:
                known.price_usd_per_hour = price
                self._events.append(m.NodePriced(node, price))
            if machine.ray_node is not None and known.here is None:
                self._equip(known, machine)
            if machine.gone_at_unix_s is not None and not known.noticed:
                known.noticed = True
                self._events.append(m.NodeNotice(node, machine.gone_at_unix_s - self.started_unix_s))
        booting = any(not known.ready for known in self._machines.values())
        self._look_s = self.now_s() + (BOOTING_LOOK_S if booting else LOOK_S)

    def _equip(self, known: _Machine, machine: Machine) -> None:
        """Ray can place workers there now: every device gets its warm ones."""
        known.here, known.gpus = machine, _gpus(machine.ray_node) >= machine.devices
        slots = [m.Slot(machine.name, d, lane) for d in range(machine.devices) for lane in range(self._lanes)]
        known.missing.update(slots)
        self._warm(slots)
        self._warm(self._gangs.slots_on(machine.name))

    def _warm(self, slots: Iterable[m.Slot]) -> None:
        """See to it that there is a worker, or will be."""
        for slot in slots:
            known = self._machines.get(slot.node)
            if known is not None and known.here is not None and not known.noticed and self.hosts.get(slot) is None:
                self._launch(known, slot, failures=0)

    def _launch(self, known: _Machine, slot: m.Slot, failures: int) -> None:
        assert known.here is not None and known.here.ray_node is not None
        share = 1.0 / max(self._lanes, slot.lane + 1)
        self.hosts.launch(slot, known.here.ray_node, share, slot.device if known.gpus else None, failures)

    def _lose(self, node: str, reason: str, revoked: bool = False) -> None:
        if node in self._machines:
            self._remove(node)
            self._events.append(m.NodeLost(node, reason, revoked=revoked))

    def _remove(self, node: str) -> None:
        if self._machines.pop(node, None) is not None:
            self._gangs.forget(node)
            self.hosts.end_all(node)
            self._provider.release(node)

    # ---------------------------------------------------------------------------------- what becomes of the workers

    def connected(self, host: Host) -> None:
        self._gangs.connected(host)
        known = self._machines[host.slot.node]
        known.missing.discard(host.slot)
        if not known.missing and not known.ready:
            assert known.here is not None
            boots_s = max(0.0, known.here.ready_from_unix_s - time.time())
            self.at(self.now_s() + boots_s, lambda: self._ready(known))

    def _ready(self, known: _Machine) -> None:
        here = known.here
        assert here is not None
        if self._machines.get(here.name) is known and not known.ready:
            known.ready = True
            self._events.append(m.NodeReady(here.name, *self._paid(here)))

    def _paid(self, machine: Machine) -> tuple[int, float, float, float, float, float]:
        billed_from_s = max(0.0, machine.billed_from_unix_s - self.started_unix_s)
        price = self._provider.price() if machine.price_usd_per_hour is None else machine.price_usd_per_hour
        return machine.devices, billed_from_s, price, self._minimum_s, self._data_usd, machine.refund_s

    def said(self, host: Host, said: wire.Said) -> None:
        self._gangs.said(host, said)

    def hung_up(self, host: Host) -> None:
        """The worker died, perhaps with its whole machine: that shows in a moment."""
        self.at(self.now_s() + VERDICT_S, lambda: self._died(host))

    def _died(self, host: Host) -> None:
        self._look()
        if self.hosts.get(host.slot) is host:
            self._gangs.broken(host)

    def not_started(self, host: Host, reason: str, hopeless: bool) -> None:
        """Another try is worth it, unless the code itself is at fault; a machine where all fail is no good."""
        if self.hosts.get(host.slot) is not host:
            return
        known = self._machines[host.slot.node]
        if known.noticed:  # nothing new is started on a machine that will be taken away
            self.hosts.end(host)
        elif host.failures < LAUNCHES and not hopeless:
            self.hosts.end(host)
            self._launch(known, host.slot, host.failures + 1)
        else:
            self._lose(host.slot.node, reason)

    # ------------------------------------------------------------------------------------------- for hosts and gangs

    def now_s(self) -> float:
        return time.monotonic() + self._clock_offset_s

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        self._dues += 1
        heappush(self._due, (at_s, self._dues, act))

    def happened(self, *events: m.AnyEvent) -> None:
        self._events.extend(events)

    def has(self, node: str) -> bool:
        return node in self._machines

    def replace(self, host: Host) -> None:
        """End a worker and start another in its place, if the machine is still there."""
        self.hosts.end(host)
        self._warm([host.slot])


def _gpus(ray_node: str | None) -> float:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return max((node["Resources"].get("GPU", 0) for node in nodes if node["NodeID"] == ray_node), default=0)
