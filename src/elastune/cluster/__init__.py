"""Where trials run: simulated or on Ray."""

from elastune.cluster.base import Cluster

__all__ = ["Cluster"]
