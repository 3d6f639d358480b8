"""How training scales, and what a cloud charges: measured, read from a file, or taken from a catalog or a trace."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastune.profile.catalog import MachineType, cloud_for
    from elastune.profile.cloud import Cloud
    from elastune.profile.file import load_profile, save_profile
    from elastune.profile.fit import fit_latency, fit_scaling
    from elastune.profile.job import JobProfile
    from elastune.profile.latency import AT_ONCE, Latency, constant, empirical, lognormal, normal
    from elastune.profile.parse import parse_cloud, parse_latency, parse_profile
    from elastune.profile.scaling import Scaling
    from elastune.profile.traces import from_pollux, from_table, placement_step_s

_LAZY = {
    "AT_ONCE": "latency",
    "Cloud": "cloud",
    "JobProfile": "job",
    "Latency": "latency",
    "MachineType": "catalog",
    "Scaling": "scaling",
    "cloud_for": "catalog",
    "constant": "latency",
    "empirical": "latency",
    "fit_latency": "fit",
    "fit_scaling": "fit",
    "from_pollux": "traces",
    "from_table": "traces",
    "load_profile": "file",
    "lognormal": "latency",
    "normal": "latency",
    "parse_cloud": "parse",
    "parse_latency": "parse",
    "parse_profile": "parse",
    "placement_step_s": "traces",
    "save_profile": "file",
}
"""Imported when it is asked for: whoever simulates needs `Scaling`, but not numpy."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"elastune.profile.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'elastune.profile' has no attribute {name!r}")


__all__ = [
    "AT_ONCE",
    "Cloud",
    "JobProfile",
    "Latency",
    "MachineType",
    "Scaling",
    "cloud_for",
    "constant",
    "empirical",
    "fit_latency",
    "fit_scaling",
    "from_pollux",
    "from_table",
    "load_profile",
    "lognormal",
    "normal",
    "parse_cloud",
    "parse_latency",
    "parse_profile",
    "placement_step_s",
    "save_profile",
]
