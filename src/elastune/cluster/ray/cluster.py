"""The real cluster: warm workers placed and watched by Ray, driven over one connection each.

The driver's side is a single thread around one selector. It sleeps until a worker says something, a limit is due, or
it is woken; there is no polling interval.
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

import ray

from elastune import messages as m
from elastune.errors import SpecError
from elastune.worker import wire
from elastune.worker.process import WorkerSetup, work

STARTING_CHECK_S = 0.5
"""How often Ray is asked about workers that have not called yet: one that dies before it connects is silent
otherwise.
"""
IDLE_CHECK_S = 3600.0


@dataclass(slots=True)
class _Host:
    """A slot with its warm worker: first started, then connected, then perhaps busy with a trial."""

    slot: m.Slot
    actor: Any
    life: Any
    """The actor and the long call that is its life; Ray's types for them change from version to version."""
    wire: wire.Wire | None = None
    trial: m.StartTrial | None = None
    killed_for: str = ""


@dataclass(slots=True)
class _Machine:
    hosts: dict[int, _Host] = field(default_factory=dict)
    asked_s: float = 0.0
    ready: bool = False


class RayCluster:
    """Machines are groups of worker processes on this computer; a device is a CPU slot."""

    def __init__(self, setup: WorkerSetup, devices: int, machines: int, started_unix_s: float | None = None) -> None:
        now = time.time()
        self.started_unix_s = now if started_unix_s is None else started_unix_s
        self._clock_offset_s = now - self.started_unix_s - time.monotonic()
        self._devices = devices
        self._machines: dict[str, _Machine] = {}
        self._events: list[m.AnyEvent] = []
        self._kills: list[tuple[float, int, _Host, m.StartTrial, str]] = []
        self._last_id = 0
        self._secret = secrets.token_bytes(32)
        self._checkpoints = setup.checkpoints
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096))
        self._owns_ray = self._start_ray(devices * machines)
        self._setup = ray.put(setup)
        self._actor_class: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_WorkerActor)

    @staticmethod
    def _start_ray(slots: int) -> bool:
        """A Ray of our own, unless the user has connected to one. Returns whether it is ours to shut down."""
        if ray.is_initialized():
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            there = int(resources.get("CPU", 0))
            if there < slots:
                raise SpecError(f"machines x devices = {slots}: the Ray cluster you connected to has {there} CPUs")
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

    # ------------------------------------------------------------------------------------------------ the Cluster seam

    def poll(self, until_s: float | None) -> m.Turn:
        woken = False
        while True:
            due_s = min(
                until_s if until_s is not None else float("inf"), self._kills[0][0] if self._kills else float("inf")
            )
            wait_s = min(max(0.0, due_s - self._now_s()), STARTING_CHECK_S if self._any_starting() else IDLE_CHECK_S)
            for key, _ in self._selector.select(wait_s if not self._events else 0.0):
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
                case m.PauseTrial() | m.StopTrial():
                    self._ask(command)
                case m.AddNode():
                    self._add(command.node)
                case m.ReleaseNode():
                    self._remove(command.node)
                case m.DropCheckpoint():
                    self._checkpoints.drop(command.checkpoint)

    def inventory(self) -> m.Inventory:
        hosts = [host for machine in self._machines.values() for host in machine.hosts.values()]
        return m.Inventory(
            frozenset(self._machines), {h.trial.trial: h.trial.attempt for h in hosts if h.trial is not None}
        )

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

    # ------------------------------------------------------------------------------------------------------- machines

    def _add(self, node: str) -> None:
        machine = self._machines[node] = _Machine(asked_s=self._now_s())
        for device in range(self._devices):
            self._launch(machine, m.Slot(node, device))

    def _launch(self, machine: _Machine, slot: m.Slot) -> _Host:
        actor = self._actor_class.remote()
        address = self._listener.getsockname()
        life = actor.work.remote(address, self._secret, slot.node, slot.device, self._setup)
        host = machine.hosts[slot.device] = _Host(slot, actor, life)
        return host

    def _remove(self, node: str) -> None:
        machine = self._machines.pop(node, None)
        for host in machine.hosts.values() if machine is not None else ():
            ray.kill(host.actor)
            self._hang_up(host)

    def _hang_up(self, host: _Host) -> None:
        if host.wire is not None:
            self._selector.unregister(host.wire)
            host.wire.close()
            host.wire = None

    def _any_starting(self) -> bool:
        return any(host.wire is None for machine in self._machines.values() for host in machine.hosts.values())

    def _check_starting(self) -> None:
        """A worker whose long call has ended before it connected will never call: the machine is no good."""
        starting = {
            host.life: host
            for machine in self._machines.values()
            for host in machine.hosts.values()
            if host.wire is None
        }
        ended = ray.wait(list(starting), num_returns=len(starting), timeout=0)[0] if starting else []
        for life in ended:
            self._lose_machine(starting[life].slot.node, _why(life))

    def _lose_machine(self, node: str, reason: str) -> None:
        if node in self._machines:
            self._remove(node)
            self._events.append(m.NodeLost(node, reason))

    # ---------------------------------------------------------------------------------------------------- connections

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        connection, nonce = wire.Wire(sock), secrets.token_bytes(wire.NONCE_BYTES)
        sock.sendall(nonce)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._greet(connection, nonce))

    def _greet(self, connection: wire.Wire, nonce: bytes) -> None:
        """The first frame must prove that the caller is one of our workers; anybody else is cut off."""
        self._selector.unregister(connection)
        try:
            hello = wire.decode_hello(connection.receive(wait=True)[0])
            known = secrets.compare_digest(hello.proof, wire.proof(self._secret, nonce))
        except (EOFError, ValueError):
            known = False
        host = self._machines[hello.node].hosts.get(hello.device) if known and hello.node in self._machines else None
        if host is None or host.wire is not None:
            connection.close()
        elif hello.error:
            connection.close()
            self._lose_machine(hello.node, hello.error)
        else:
            host.wire = connection
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(host))
            self._welcome(host)

    def _welcome(self, host: _Host) -> None:
        machine = self._machines[host.slot.node]
        if host.trial is not None:
            self._send(host, host.trial)
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
            self._events.extend(events)
            if not isinstance(events[-1], m.TrialReported | m.TrialCheckpointed | m.TrialWarned):
                host.trial = None

    def _replace(self, host: _Host) -> None:
        """The worker died: its trial is lost, and a new one takes its place."""
        self._hang_up(host)
        if host.trial is not None:
            reason = host.killed_for or "its worker process died"
            self._events.append(m.TrialLost(host.trial.trial, host.trial.attempt, reason))
        ray.kill(host.actor)
        self._launch(self._machines[host.slot.node], host.slot)

    # --------------------------------------------------------------------------------------------------------- trials

    def _host_of(self, command: m.StartTrial) -> _Host | None:
        machine = self._machines.get(command.slots[0].node)
        return None if machine is None else machine.hosts[command.slots[0].device]

    def _start(self, command: m.StartTrial) -> None:
        host = self._host_of(command)
        if host is not None:
            host.trial = command
            if host.wire is not None:
                self._send(host, command)

    def _ask(self, command: m.PauseTrial | m.StopTrial) -> None:
        hosts = (host for machine in self._machines.values() for host in machine.hosts.values())
        host = next((h for h in hosts if h.trial is not None and h.trial.trial == command.trial), None)
        if host is None or host.trial is None or host.trial.attempt != command.attempt:
            return
        if host.wire is not None:
            self._send(host, command)
        if command.within_s is not None:
            reason = f"killed: no report within {command.within_s:g} s of being told to leave"
            heappush(self._kills, (self._now_s() + command.within_s, command.id, host, host.trial, reason))

    def _kill_what_is_due(self) -> None:
        while self._kills and self._kills[0][0] <= self._now_s():
            _, _, host, trial, reason = heappop(self._kills)
            if host.trial is trial and not host.killed_for:
                host.killed_for = reason
                if host.wire is None:
                    self._replace(host)
                else:
                    ray.kill(host.actor)

    def _send(self, host: _Host, command: wire.ToWorker) -> None:
        assert host.wire is not None
        with suppress(OSError):  # the worker is gone: its end of the connection tells, and the trial counts as lost
            host.wire.send(wire.encode(command))


class _WorkerActor:
    """What Ray runs: one long call owns the main thread, so that the user's code may use signals."""

    def work(self, address: tuple[str, int], secret: bytes, node: str, device: int, setup: WorkerSetup) -> None:
        work(address, secret, node, device, setup)


def _why(life: Any) -> str:
    try:
        ray.get(life)
    except Exception as error:
        return f"a worker could not be started: {str(error).strip().splitlines()[0]}"
    return "a worker ended before it was ready"
