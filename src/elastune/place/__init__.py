"""Which trial runs on which machine."""

from elastune.place.free import FreeSlots
from elastune.place.give_up import to_give_up
from elastune.place.packing import machines_needed
from elastune.place.repack import repack

__all__ = ["FreeSlots", "machines_needed", "repack", "to_give_up"]
