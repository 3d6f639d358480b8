"""The trials that run: each is a gang of workers, by rank. Rank 0 speaks for all and is spoken to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from elastune import messages as m
from elastune.cluster.ray.hosts import Host, Hosts
from elastune.worker import wire

DEAF_S = 30.0
"""A worker that has not begun by then what it was told to begin is still busy with something else."""

LATE_S = 0.05
"""What it may take to hear that a trial has left in time."""

Asked = m.ResizeTrial | m.PauseTrial | m.StopTrial | wire.Hurry


@dataclass(slots=True, eq=False)
class Gang:
    trial: m.StartTrial
    number: int
    after: int
    state: bytes
    asked: list[Asked]
    """What the trial was told and has not done yet: said when it begins, here or elsewhere."""
    members: list[Host] = field(default_factory=list)
    """None until it has begun."""
    heard_s: float = 0.0


class World(Protocol):
    """What the gangs need of the cluster around them."""

    def now_s(self) -> float: ...

    def at(self, at_s: float, act: Callable[[], None]) -> None: ...

    def happened(self, *events: m.AnyEvent) -> None: ...

    def replace(self, host: Host) -> None: ...

    def has(self, node: str) -> bool: ...


class Gangs:
    def __init__(self, world: World, hosts: Hosts, silence_s: float | None) -> None:
        self._world, self._hosts, self._silence_s = world, hosts, silence_s
        self._gangs: dict[str, Gang] = {}
        self._at: dict[m.Slot, Gang] = {}
        self._gatherings = 0
        self._last: dict[str, int] = {}
        """The last gathering of every trial that may go on."""
        self._held_back: list[m.ResizeTrial] = []
        self._unanswered: deque[tuple[float, Host, Gang]] = deque()
        self._advised = False

    def attempts(self) -> dict[str, int]:
        return {name: gang.trial.attempt for name, gang in self._gangs.items()}

    def slots_on(self, node: str) -> list[m.Slot]:
        return [slot for slot in self._at if slot.node == node]

    # ------------------------------------------------------------------------------------------------------ beginning

    def start(self, trial: m.StartTrial, asked: Sequence[Asked] = (), state: bytes = b"") -> None:
        self._gatherings += 1
        gang = Gang(trial, self._gatherings, self._last.get(trial.trial, 0), state, list(asked))
        self._gangs[trial.trial] = gang
        self._last[trial.trial] = gang.number
        for slot in trial.slots:
            self._at[slot] = gang
        if trial.until_s is not None:
            self._world.at(trial.until_s + LATE_S, lambda: self._check_time(gang))
        self._begin(gang)

    def connected(self, host: Host) -> None:
        if (gang := self._at.get(host.slot)) is not None and not gang.members:
            self._begin(gang)
        again, self._held_back = self._held_back, []
        for command in again:
            gang = self._gangs.get(command.trial)
            if gang is not None and command in gang.asked:
                self._tell(gang, command)

    def _begin(self, gang: Gang) -> None:
        """Once all its workers are there."""
        if not all(map(self._is_warm, gang.trial.slots)):
            return
        members = [host for slot in gang.trial.slots if (host := self._hosts.get(slot)) is not None]
        gang.members, gang.heard_s = members, self._world.now_s()
        until_s = gang.trial.until_s
        until_unix_s = None if until_s is None else time.time() + until_s - gang.heard_s
        for rank, host in enumerate(members):
            host.answered = False
            self._unanswered.append((gang.heard_s + DEAF_S, host, gang))
            begin = wire.Begin(gang.trial, rank, members[0].address, gang.number, gang.after, gang.state, until_unix_s)
            self._hosts.send(host, begin)
        for command in gang.asked:
            self._tell(gang, command)
        if self._silence_s is not None:
            self._world.at(gang.heard_s + self._silence_s, lambda: self._check_silence(gang))

    # --------------------------------------------------------------------------------------------------------- hearing

    def said(self, host: Host, said: wire.Said) -> None:
        host.answered = True
        gang = self._at.get(host.slot)
        if gang is not None and said.gathering == gang.number:
            host.begun = gang.trial
        if gang is None and said.worn:
            self._world.replace(host)
        if gang is None or said.gathering != gang.number:
            # What is left of a trial that is over. Of a checkpoint that was still on its way somebody must know.
            self._world.happened(*(event for event in said.events if isinstance(event, m.TrialCheckpointed)))
            return
        if not said.events:
            return  # it has begun
        last = said.events[-1]
        gang.heard_s = self._world.now_s()
        self._world.happened(*said.events)
        match last:
            case m.TrialPaused() | m.TrialReturned():
                self._disband(gang, last=gang.trial.final)
                self._replace(gang.members if said.worn else [])
            case m.TrialFailed() | m.CheckpointDamaged() if len(gang.members) == 1 and not said.worn:
                self._disband(gang)  # it has unwound, and can run another
            case m.TrialFailed() | m.CheckpointDamaged() | m.TrialLost():
                self._break_up(gang)
            case m.TrialResized():
                self._move(gang, last, said.state)

    def _move(self, gang: Gang, event: m.TrialResized, state: bytes) -> None:
        """The trial has stopped at a report and goes on from there where it was told to."""
        told = next(c for c in reversed(gang.asked) if isinstance(c, m.ResizeTrial) and c.slots == event.slots)
        gang.asked = [command for command in gang.asked if not isinstance(command, m.ResizeTrial)]
        if event.slots == gang.trial.slots:  # only its share of them has changed, and it has not stopped
            gang.trial = msgspec.structs.replace(gang.trial, share=told.share)
            return
        self._disband(gang)
        if not all(self._world.has(slot.node) for slot in event.slots):
            gone = "the machine it should move to is gone"
            self._world.happened(m.TrialLost(event.trial, event.attempt, gone, fault=False))
            return
        iteration = event.iteration if state or event.checkpoint is not None else 0
        trial = msgspec.structs.replace(
            gang.trial, slots=event.slots, share=told.share, iteration=iteration, checkpoint=event.checkpoint
        )
        self.start(trial, gang.asked, state)

    # ------------------------------------------------------------------------------------------------------- speaking

    def ask(self, command: m.ResizeTrial | m.PauseTrial | m.StopTrial) -> None:
        gang = self._gangs.get(command.trial)
        if gang is None or gang.trial.attempt != command.attempt:
            return
        within_s = None if isinstance(command, m.ResizeTrial) else command.within_s
        if within_s is not None and isinstance(command, m.PauseTrial):
            hurry = wire.Hurry(command.trial, command.attempt, time.time() + within_s)
            gang.asked.append(hurry)
            self._tell(gang, hurry)
        gang.asked.append(command)
        self._tell(gang, command)
        if within_s is not None:
            self._world.at(self._world.now_s() + within_s, lambda: self._overdue(command))

    def _tell(self, gang: Gang, command: Asked) -> None:
        """A trial trains on until there are workers where it shall go."""
        if isinstance(command, m.ResizeTrial) and not all(map(self._is_warm, command.slots)):
            self._held_back.append(command)
        elif gang.members:
            self._hosts.send(gang.members[0], command)

    def _is_warm(self, slot: m.Slot) -> bool:
        return (host := self._hosts.get(slot)) is not None and host.wire is not None

    # --------------------------------------------------------------------------------------------------------- endings

    def broken(self, host: Host) -> None:
        """A worker has died. One that has not answered may have died of the trial before, if there was one."""
        gang = self._at.get(host.slot)
        if gang is not None and host in gang.members:
            self._lose(gang, "its worker process died", fault=host.answered or host.begun is None)
        else:
            self._world.replace(host)

    def forget(self, node: str) -> None:
        """The machine goes; a gang that reaches to others falls with it."""
        for slot in self.slots_on(node):
            if (gang := self._at.get(slot)) is not None:
                self._break_up(gang)

    def check_answers(self) -> None:
        """A worker that is deaf to a new trial has not left the one before."""
        while self._unanswered and (self._unanswered[0][1].answered or self._unanswered[0][0] <= self._world.now_s()):
            _, host, gang = self._unanswered.popleft()
            if not host.answered and self._gangs.get(gang.trial.trial) is gang:
                self._advise(host)
                self._lose(gang, f"its worker was still busy with another trial after {DEAF_S:g} s", fault=False)

    def _advise(self, host: Host) -> None:
        """Once: the code is the same in all trials."""
        if host.begun is not None and not self._advised:
            self._advised = True
            text = (
                f"trial {host.begun.trial} did not leave when it was told to, and its worker was replaced after "
                f"{DEAF_S:g} s: does its code catch BaseException around report(), or clean up for so long? Catch "
                "Exception instead"
            )
            self._world.happened(m.TrialWarned(host.begun.trial, host.begun.attempt, text))

    def _overdue(self, command: m.ResizeTrial | m.PauseTrial | m.StopTrial) -> None:
        gang = self._gangs.get(command.trial)
        if gang is not None and gang.trial.attempt == command.attempt:
            self._lose(gang, "killed: no report in time after being told to leave")

    def _check_time(self, gang: Gang) -> None:
        """Who has not left by the end of its time is in the middle of a step, which is given up."""
        if self._gangs.get(gang.trial.trial) is gang:
            self._lose(gang, "its time is over", fault=False)

    def _check_silence(self, gang: Gang) -> None:
        if self._gangs.get(gang.trial.trial) is not gang:
            return
        assert self._silence_s is not None
        due_s = gang.heard_s + self._silence_s
        if due_s <= self._world.now_s():
            self._lose(gang, f"killed: no report within {self._silence_s:g} s")
        else:
            self._world.at(due_s, lambda: self._check_silence(gang))

    def _lose(self, gang: Gang, reason: str, fault: bool = True) -> None:
        self._break_up(gang)
        self._world.happened(m.TrialLost(gang.trial.trial, gang.trial.attempt, reason, fault))

    def _disband(self, gang: Gang, last: bool = False) -> None:
        """All its workers stop by themselves; what they are told next waits until they have."""
        del self._gangs[gang.trial.trial]
        if last:
            del self._last[gang.trial.trial]
        for slot in gang.trial.slots:
            del self._at[slot]

    def _break_up(self, gang: Gang) -> None:
        """One of the workers is out of step: the others may wait for it for ever, and all are replaced."""
        self._disband(gang)
        self._replace(gang.members)

    def _replace(self, members: list[Host]) -> None:
        for host in members:
            self._world.replace(host)
