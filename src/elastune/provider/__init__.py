"""Where machines come from."""

from elastune.provider.base import Machine, Provider
from elastune.provider.here import Here

__all__ = ["Here", "Machine", "Provider"]
