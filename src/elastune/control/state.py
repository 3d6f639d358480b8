"""What the controller knows about trials and machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from elastune.control.party import Party
from elastune.messages import Checkpoint, Config, Offer, Slot, TrialStatus
from elastune.spec import Run, Width

OVER: frozenset[TrialStatus] = frozenset({"completed", "stopped", "failed"})


@dataclass(slots=True)
class Trial:
    """One configuration and how far it got. It holds slots from StartTrial until it is known to have left them."""

    id: str
    config: Config
    run: Run
    party: Party
    status: TrialStatus = "waiting"
    attempt: int = 0
    lineage: int = 0
    """Grows when it takes over from another trial, or gets another configuration."""
    iteration: int = 0
    observed: int = 0
    """The iteration up to which the searcher knows it, after a run."""
    loss: float | None = None
    best_loss: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    """Of its own checkpoints, by path: what keep-best goes by."""
    reported: dict[tuple[int, int], float] = field(default_factory=dict)
    """The losses of late, by lineage and iteration: a checkpoint may arrive after later reports."""
    failures: int = 0
    """In a row, without a new iteration in between."""
    began_s: float = 0.0
    """When it was last started or resized."""
    reported_s: float | None = None
    """When the last report came of those since it began or was resized."""
    midway: bool = False
    """Whether it goes on from the middle of a step: what its next report took says nothing of a whole one."""
    trained_s: float = 0.0
    """Until its last report, without what was lost."""
    slots: tuple[Slot, ...] = ()
    pool: int = 0
    """Of the machines that it is on, or is to be started on."""
    width: Width = 1
    """What it has of the devices of its slots: as many as there are, or a part of one."""
    next_slots: tuple[Slot, ...] = ()
    """Where it was told to go on, until it has."""
    leaving: bool = False
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """The newest last. One that it has taken over comes after all that it had before."""

    @property
    def since_s(self) -> float:
        """When it was last heard of where it is."""
        return self.began_s if self.reported_s is None else self.reported_s

    @property
    def left(self) -> int | None:
        """Iterations until the end of its run, if that is known."""
        return None if self.run.until is None else self.run.until - self.iteration

    @property
    def over(self) -> bool:
        return self.status in OVER


@dataclass(slots=True)
class Node:
    """A machine that was asked for. It is ready once it has devices, draining after a revocation notice, and closing
    when there are more than are wanted: who is on it moves as soon as there is a place, then it is given back.
    """

    id: str
    asked_s: float = 0.0
    offer: Offer | None = None
    devices: int = 0
    billed: bool = False
    """Whether it was heard of: before, nobody knows whether there will be such a machine."""
    billed_from_s: float = 0.0
    refund_s: float = 0.0
    draining: bool = False
    gone_at_s: float = math.inf
    """When it will be taken away, as it was told."""
    free_of_charge: bool = False
    """Being taken away so soon that it costs nothing, unless we give it back ourselves."""
    closing: bool = False
    trials: set[str] = field(default_factory=set)
