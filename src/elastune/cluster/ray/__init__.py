"""The cluster on Ray."""

import os

# Ray looks at these when it is imported: nothing is sent home, and on one computer all stays on its loopback address.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

from elastune.cluster.ray.cluster import RayCluster

__all__ = ["RayCluster"]
