"""How many devices each trial gets, and which machines to hold."""

from elastune.allocate.base import Allocator, Target, View
from elastune.allocate.fifo import FirstComeFirstServed
from elastune.allocate.fluid import Fluid

__all__ = ["Allocator", "FirstComeFirstServed", "Fluid", "Target", "View"]
