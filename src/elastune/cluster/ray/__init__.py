"""The cluster on Ray."""

from elastune.cluster.ray.cluster import RayCluster

__all__ = ["RayCluster"]
