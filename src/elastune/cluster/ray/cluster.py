"""The real cluster: warm workers placed and watched by Ray, driven over one connection each.

The driver's side is a single thread around one selector. It sleeps until a worker says something, a limit is due, or it
is woken; there is no polling interval.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import msgspec
import ray

from elastune import messages as m
from elastune.errors import SpecError, StorageError
from elastune.worker import wire
from elastune.worker.process import WorkerSetup, work

STARTING_CHECK_S = 0.5
"""How often Ray is asked about workers that have not called yet: one that dies before it connects is silent."""
STARTING_LIMIT_S = 600.0
"""A worker that has not called by then hangs, most likely in an import of the user's code."""
LAUNCHES = 3
"""How often a worker of a machine that works is started before the machine is given up."""
IDLE_CHECK_S = 3600.0

log = logging.getLogger("elastune")


@dataclass(slots=True)
class _Host:
    """A slot with its warm worker: first started, then connected, then perhaps busy with a trial."""

    slot: m.Slot
    launch: int
    started_s: float
    actor: Any
    life: Any
    """The actor and the long call that is its life; Ray's types for them change from version to version."""
    failures: int
    wire: wire.Wire | None = None
    port: int = 0
    gang: _Gang | None = None


@dataclass(slots=True)
class _Gang:
    """A trial and the workers that run it, in the order of their ranks. Rank 0 speaks for all and is spoken to."""

    trial: m.StartTrial
    hosts: list[_Host]
    asked: list[wire.ToWorker] = field(default_factory=list)
    """What the trial was told and has not done yet: said again when it begins, here or elsewhere."""
    begun: bool = False


@dataclass(slots=True)
class _Machine:
    hosts: dict[int, _Host] = field(default_factory=dict)
    asked_s: float = 0.0
    ready: bool = False


class RayCluster:
    """Machines are groups of worker processes on this computer; a device is a CPU slot."""

    def __init__(
        self, setup: WorkerSetup, devices: int, machines: int, started_unix_s: float | None = None, at_s: float = 0.0
    ) -> None:
        now_unix_s = time.time()
        self.started_unix_s = now_unix_s if started_unix_s is None else started_unix_s
        # A wall clock may be set back between two drivers; the time of a run never goes back.
        self._clock_offset_s = max(now_unix_s - self.started_unix_s, at_s) - time.monotonic()
        self._devices = devices
        self._machines: dict[str, _Machine] = {}
        self._starting: dict[int, _Host] = {}
        self._gangs: dict[str, _Gang] = {}
        self._events: list[m.AnyEvent] = []
        self._kills: list[tuple[float, int, str, int]] = []
        self._launches = 0
        self._last_id = 0
        self._checkpoints = setup.checkpoints
        self._secret = secrets.token_bytes(32)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096))
        self._owns_ray = _start_ray(devices * machines)
        self._setup = ray.put(setup)
        self._actor_class: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_WorkerActor)

    # ------------------------------------------------------------------------------------------------ the Cluster seam

    def poll(self, until_s: float | None) -> m.Turn:
        woken = False
        while True:
            due_s = min([float("inf") if until_s is None else until_s, *(kill[0] for kill in self._kills[:1])])
            wait_s = min(max(0.0, due_s - self._now_s()), STARTING_CHECK_S if self._starting else IDLE_CHECK_S)
            for key, _ in self._selector.select(0.0 if self._events else wait_s):
                woken = woken or key.fileobj is self._woken
                key.data()
            self._check_starting()
            self._kill_what_is_due()
            now_s = self._now_s()
            if self._events or woken or (until_s is not None and now_s >= until_s):
                events, self._events = tuple(self._events), []
                return m.Turn(now_s, events)

    def submit(self, commands: Sequence[m.AnyCommand]) -> None:
        for command in commands:
            if command.id <= self._last_id:
                continue
            self._last_id = command.id
            match command:
                case m.StartTrial():
                    self._start(command)
                case m.ResizeTrial() | m.PauseTrial() | m.StopTrial():
                    self._ask(command)
                case m.AddNode():
                    self._add(command.node)
                case m.ReleaseNode():
                    self._remove(command.node)
                case m.DropCheckpoint():
                    self._drop(command.checkpoint)

    def inventory(self) -> m.Inventory:
        return m.Inventory(frozenset(self._machines), {name: gang.trial.attempt for name, gang in self._gangs.items()})

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of wake-ups already
            self._waker.send(b"!")

    def close(self) -> None:
        for node in list(self._machines):
            self._remove(node)
        self._selector.close()
        for sock in (self._listener, self._woken, self._waker):
            sock.close()
        if self._owns_ray:
            ray.shutdown()

    def _now_s(self) -> float:
        return time.monotonic() + self._clock_offset_s

    def _drop(self, checkpoint: m.Checkpoint) -> None:
        try:
            self._checkpoints.drop(checkpoint)
        except StorageError as error:  # it costs room, not the run
            log.warning(str(error))

    # ------------------------------------------------------------------------------------------------------- machines

    def _add(self, node: str) -> None:
        machine = self._machines[node] = _Machine(asked_s=self._now_s())
        for device in range(self._devices):
            self._launch(machine, m.Slot(node, device), failures=0)

    def _launch(self, machine: _Machine, slot: m.Slot, failures: int) -> _Host:
        self._launches += 1
        actor = self._actor_class.remote()
        life = actor.work.remote(self._listener.getsockname(), self._secret, self._launches, self._setup)
        host = _Host(slot, self._launches, self._now_s(), actor, life, failures)
        machine.hosts[slot.device] = self._starting[host.launch] = host
        return host

    def _remove(self, node: str) -> None:
        """The machine goes; a gang that reaches to others falls with it, and its other workers are replaced."""
        machine = self._machines.pop(node, None)
        for host in machine.hosts.values() if machine is not None else ():
            if host.gang is not None:
                self._break_up(host.gang, spare=None)
            self._end(host)

    def _end(self, host: _Host) -> None:
        self._starting.pop(host.launch, None)
        ray.kill(host.actor)
        if host.wire is not None:
            self._selector.unregister(host.wire)
            host.wire.close()
            host.wire = None

    def _check_starting(self) -> None:
        """A worker whose long call has ended before it connected, or that takes for ever, will never call."""
        if not self._starting:
            return
        starting = {host.life: host for host in self._starting.values()}
        for life in ray.wait(list(starting), num_returns=len(starting), timeout=0)[0]:
            self._start_failed(starting[life], _why(life))
        for host in list(self._starting.values()):
            if self._now_s() - host.started_s > STARTING_LIMIT_S:
                self._start_failed(host, f"a worker has not started within {STARTING_LIMIT_S:g} s")

    def _start_failed(self, host: _Host, reason: str) -> None:
        """Where the machine has worked before, another try is worth it; otherwise it is no good."""
        machine = self._machines.get(host.slot.node)
        if machine is None or machine.hosts.get(host.slot.device) is not host:
            return
        if machine.ready and host.failures < LAUNCHES:
            self._end(host)
            again = self._launch(machine, host.slot, host.failures + 1)
            if host.gang is not None:
                again.gang = host.gang
                again.gang.hosts[again.gang.hosts.index(host)] = again
        else:
            self._remove(host.slot.node)
            self._events.append(m.NodeLost(host.slot.node, reason))

    # ---------------------------------------------------------------------------------------------------- connections

    def _accept(self) -> None:
        with suppress(OSError):  # whoever called has hung up already
            sock, _ = self._listener.accept()
            connection, nonce = wire.Wire(sock, wire.LONGEST_HELLO), secrets.token_bytes(wire.NONCE_BYTES)
            sock.sendall(nonce)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._greet(connection, nonce))

    def _greet(self, connection: wire.Wire, nonce: bytes) -> None:
        """The first frame must prove that the caller is a worker that we wait for; anybody else is cut off."""
        try:
            frames = connection.receive(wait=False)
            if not frames:
                return
            hello = wire.decode_hello(frames[0])
            known = secrets.compare_digest(hello.proof, wire.proof(self._secret, nonce))
            host = self._starting.get(hello.launch) if known else None
        except (EOFError, ValueError):
            host = None
        self._selector.unregister(connection)
        if host is None:
            connection.close()
        elif hello.error:
            connection.close()
            self._start_failed(host, hello.error)
        else:
            connection.longest, host.port = 1 << 31, hello.port
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(host))
            self._welcome(host, connection)

    def _welcome(self, host: _Host, connection: wire.Wire) -> None:
        host.wire = connection
        del self._starting[host.launch]
        if host.gang is not None:
            self._begin(host.gang)
        machine = self._machines[host.slot.node]
        if not machine.ready and all(other.wire is not None for other in machine.hosts.values()):
            machine.ready = True
            self._events.append(m.NodeReady(host.slot.node, self._devices, machine.asked_s))

    def _hear(self, host: _Host) -> None:
        assert host.wire is not None
        try:
            frames = host.wire.receive(wait=False)
        except EOFError:
            self._replace(host)
            return
        for frame in frames:
            events = wire.decode_events(frame)
            gang, last = host.gang, events[-1]
            if gang is None or not isinstance(last, m.TrialEvent) or last.attempt != gang.trial.attempt:
                continue  # what is left of a trial that is over
            self._events.extend(events)
            match last:
                case m.TrialPaused() | m.TrialReturned():
                    self._disband(gang)
                case m.TrialFailed() | m.CheckpointDamaged():
                    self._break_up(gang, spare=host)
                case m.TrialResized():
                    self._move(gang, last)

    def _replace(self, host: _Host) -> None:
        """The worker died: its trial is lost, and a new one takes its place."""
        if host.gang is not None:
            self._lose(host.gang, "its worker process died")
        else:
            self._renew(host)

    def _renew(self, host: _Host) -> None:
        self._end(host)
        machine = self._machines.get(host.slot.node)
        if machine is not None and machine.hosts.get(host.slot.device) is host:
            self._launch(machine, host.slot, failures=0)

    # ---------------------------------------------------------------------------------------------------------- gangs

    def _start(self, command: m.StartTrial, asked: Sequence[wire.ToWorker] = ()) -> None:
        if all(slot.node in self._machines for slot in command.slots):
            hosts = [self._machines[slot.node].hosts[slot.device] for slot in command.slots]
            gang = self._gangs[command.trial] = _Gang(command, hosts, list(asked))
            for host in hosts:
                host.gang = gang
            self._begin(gang)

    def _begin(self, gang: _Gang) -> None:
        """Once all its workers are there."""
        if gang.begun or any(host.wire is None for host in gang.hosts):
            return
        gang.begun = True
        leader = gang.hosts[0]
        assert leader.wire is not None
        address = (leader.wire.sock.getpeername()[0], leader.port)
        for rank, host in enumerate(gang.hosts):
            self._send(host, wire.Begin(gang.trial, rank, address))
        for command in gang.asked:
            self._send(leader, command)

    def _move(self, gang: _Gang, event: m.TrialResized) -> None:
        """The trial has left at a report and starts again, with its checkpoint, where it was told to."""
        self._disband(gang)
        if any(slot.node not in self._machines for slot in event.slots):
            self._events.append(m.TrialLost(event.trial, event.attempt, "the machine it should move to is gone"))
            return
        iteration = event.iteration if event.checkpoint is not None else 0
        trial = msgspec.structs.replace(gang.trial, slots=event.slots, iteration=iteration, checkpoint=event.checkpoint)
        self._start(trial, gang.asked)

    def _disband(self, gang: _Gang) -> None:
        """All its workers leave by themselves; what they are told next waits until they have."""
        del self._gangs[gang.trial.trial]
        for host in gang.hosts:
            host.gang = None

    def _break_up(self, gang: _Gang, spare: _Host | None) -> None:
        """One of the workers is out of step: the others may wait for it for ever, and are replaced."""
        self._disband(gang)
        for host in gang.hosts:
            if host is not spare:
                self._renew(host)

    def _lose(self, gang: _Gang, reason: str) -> None:
        self._break_up(gang, spare=None)
        self._events.append(m.TrialLost(gang.trial.trial, gang.trial.attempt, reason))

    def _ask(self, command: m.ResizeTrial | m.PauseTrial | m.StopTrial) -> None:
        gang = self._gangs.get(command.trial)
        if gang is None or gang.trial.attempt != command.attempt:
            return
        if not isinstance(command, m.ResizeTrial) or not gang.begun:
            gang.asked.append(command)
        if gang.begun:
            self._send(gang.hosts[0], command)
        if not isinstance(command, m.ResizeTrial) and command.within_s is not None:
            heappush(self._kills, (self._now_s() + command.within_s, command.id, command.trial, command.attempt))

    def _kill_what_is_due(self) -> None:
        while self._kills and self._kills[0][0] <= self._now_s():
            _, _, trial, attempt = heappop(self._kills)
            gang = self._gangs.get(trial)
            if gang is not None and gang.trial.attempt == attempt:
                self._lose(gang, "killed: no report in time after being told to leave")

    def _send(self, host: _Host, command: wire.ToWorker) -> None:
        if host.wire is not None:
            with suppress(OSError):  # the worker is gone: its end of the connection tells, and the trial counts as lost
                host.wire.send(wire.encode(command))


class _WorkerActor:
    """What Ray runs: one long call owns the main thread, so that the user's code may use signals."""

    def work(self, address: tuple[str, int], secret: bytes, launch: int, setup: WorkerSetup) -> None:
        work(address, secret, launch, setup)


def _start_ray(slots: int) -> bool:
    """A Ray of our own, unless the user has connected to one. Returns whether it is ours to shut down."""
    if ray.is_initialized():
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        if resources.get("CPU", 0) < slots:
            raise SpecError(
                f"machines x devices = {slots}: the Ray cluster you connected to has {resources.get('CPU', 0):g} CPUs"
            )
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        if sum(node["Alive"] for node in nodes) > 1:
            raise SpecError("the Ray cluster you connected to has several machines: use one that has only this one")
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray.init(
        address="local",
        num_cpus=slots,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100_000_000,
    )
    return True


def _why(life: Any) -> str:
    try:
        ray.get(life)
    except Exception as error:
        return f"a worker could not be started: {str(error).strip().splitlines()[0]}"
    return "a worker ended before it was ready"
