"""The warm workers of all machines: started where they belong, greeted when they call, heard when they speak."""

from __future__ import annotations

import secrets
import selectors
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elastune.messages import Slot, StartTrial
from elastune.worker import wire
from elastune.worker.process import work
from elastune.worker.setup import FIXED, WorkerSetup

STARTING_CHECK_S = 0.5
"""How often Ray is asked about workers that have not called yet: one that dies before it connects is silent."""
STARTING_LIMIT_S = 600.0
"""A worker that has not called by then hangs, most likely in an import of the user's code."""
SMALL_BYTES = 64 << 10
"""Ray sends arguments up to 100 kB with the call, larger ones it puts into its store."""


@dataclass(slots=True, eq=False)
class Host:
    """A slot with its warm worker: first started, then connected."""

    slot: Slot
    launch: int
    started_s: float
    actor: Any
    life: Any
    """The actor and the long call that is its life; Ray's types for them change from version to version."""
    failures: int
    """How often a worker in this slot has failed to start, in a row."""
    wire: wire.Wire | None = None
    address: tuple[str, int] = ("", 0)
    """Where it listens for the other members of a gang that it leads."""
    answered: bool = True
    """Whether it has begun what it was last told to begin."""
    begun: StartTrial | None = None
    """What it has begun last."""


class Audience(Protocol):
    """Who wants to know what becomes of the workers."""

    def now_s(self) -> float: ...

    def connected(self, host: Host) -> None: ...

    def said(self, host: Host, said: wire.Said) -> None: ...

    def hung_up(self, host: Host) -> None: ...

    def not_started(self, host: Host, reason: str, hopeless: bool) -> None: ...


class Hosts:
    def __init__(self, audience: Audience, setup: WorkerSetup, selector: selectors.BaseSelector) -> None:
        self._audience, self._selector = audience, selector
        self._secret = secrets.token_bytes(32)
        # What is in the store is fetched from any machine that has it, and one that has just died is waited for ten
        # seconds long: only code that is too large to go with every call is put there.
        self._setup = setup if len(setup.trainable) < SMALL_BYTES else ray.put(setup)
        # What runs where is decided by the controller: Ray is told the machine and need not count.
        environment: dict[str, Any] = {"runtime_env": {"env_vars": FIXED}} if setup.reproducible else {}
        actor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, **environment)
        self._actor_class: Any = actor(_WorkerActor)
        here: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._listener = socket.create_server((here, 0), backlog=512)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._launches = 0
        self._check_s = 0.0
        self._starting: dict[int, Host] = {}
        self._at: dict[Slot, Host] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Where workers call."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def waiting(self) -> bool:
        return bool(self._starting)

    def get(self, slot: Slot) -> Host | None:
        return self._at.get(slot)

    def launch(self, slot: Slot, ray_node: str, share: float, gpu: int | None, failures: int = 0) -> None:
        self._launches += 1
        there = NodeAffinitySchedulingStrategy(ray_node, soft=False)
        actor = self._actor_class.options(scheduling_strategy=there).remote()
        life = actor.work.remote(self.address, self._secret, self._launches, self._setup, share, gpu)
        host = Host(slot, self._launches, self._audience.now_s(), actor, life, failures)
        self._at[slot] = self._starting[host.launch] = host

    def end(self, host: Host) -> None:
        """The process goes, whatever it is doing."""
        self._starting.pop(host.launch, None)
        if self._at.get(host.slot) is host:
            del self._at[host.slot]
        ray.kill(host.actor)
        self._hang_up(host)

    def _hang_up(self, host: Host) -> None:
        if host.wire is not None:
            self._selector.unregister(host.wire)
            host.wire.close()
            host.wire = None

    def end_all(self, node: str) -> None:
        for host in [host for slot, host in self._at.items() if slot.node == node]:
            self.end(host)

    def send(self, host: Host, command: wire.ToWorker) -> None:
        if host.wire is not None:
            with suppress(OSError):  # the worker is gone: its end of the connection tells, and the trial counts as lost
                host.wire.send(wire.encode(command))

    def check_starting(self) -> None:
        """A worker whose long call has ended before it connected, or that takes for ever, will never call."""
        if not self._starting or self._audience.now_s() < self._check_s:
            return
        self._check_s = self._audience.now_s() + STARTING_CHECK_S
        starting = {host.life: host for host in self._starting.values()}
        for life in ray.wait(list(starting), num_returns=len(starting), timeout=0)[0]:
            self._audience.not_started(starting[life], _why(life), hopeless=False)
        for host in list(self._starting.values()):
            if self._audience.now_s() - host.started_s > STARTING_LIMIT_S:
                late = f"a worker has not started within {STARTING_LIMIT_S:g} s"
                self._audience.not_started(host, late, hopeless=True)

    def close(self) -> None:
        for host in list(self._at.values()):
            self.end(host)
        self._selector.unregister(self._listener)
        self._listener.close()

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
            self._audience.not_started(host, hello.error, hopeless=True)
        else:
            connection.longest, host.wire = 1 << 31, connection
            host.address = (connection.sock.getpeername()[0], hello.port)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(host))
            del self._starting[host.launch]
            self._audience.connected(host)

    def _hear(self, host: Host) -> None:
        if host.wire is None:
            return  # ended by what another worker said just before
        try:
            frames = host.wire.receive(wait=False)
        except EOFError:
            self._hang_up(host)
            self._audience.hung_up(host)
            return
        for frame in frames:
            if host.wire is not None:
                self._audience.said(host, wire.decode_said(frame))


class _WorkerActor:
    """What Ray runs: one long call owns the main thread, so that the user's code may use signals."""

    def work(self, *arguments: Any) -> None:
        work(*arguments)


def _why(life: Any) -> str:
    try:
        ray.get(life)
    except Exception as error:
        return f"a worker could not be started: {str(error).strip().splitlines()[0]}"
    return "a worker ended before it was ready"
