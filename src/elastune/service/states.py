"""The life of a job, and which step may follow which."""

from __future__ import annotations

from typing import Literal

State = Literal["accepted", "building", "queued", "running", "finishing", "succeeded", "failed", "cancelled"]
Outcome = Literal["succeeded", "failed", "cancelled"]

FOLLOWS: dict[State, frozenset[State]] = {
    "accepted": frozenset({"building", "finishing"}),
    "building": frozenset({"accepted", "queued", "finishing"}),
    "queued": frozenset({"running", "finishing"}),
    "running": frozenset({"queued", "finishing"}),
    "finishing": frozenset({"succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""Back to `accepted` goes a job whose builder died, back to `queued` one whose machines went. Every end leads through
`finishing`: there devices and quota are given back, and nothing goes around it."""

ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})
OPEN: frozenset[State] = frozenset(FOLLOWS) - ENDED
