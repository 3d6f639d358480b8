"""Where machines come from."""

from elastune.provider.base import Machine, Provider
from elastune.provider.here import Here
from elastune.provider.local import Local, release_all

__all__ = ["Here", "Local", "Machine", "Provider", "release_all"]
