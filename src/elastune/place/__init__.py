"""Which trial runs on which machine."""

from elastune.place.free import FreeSlots

__all__ = ["FreeSlots"]
