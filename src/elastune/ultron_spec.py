"""Ultron's JSON as an experiment: the same fields as in our YAML.

What a worker pod is there, is a machine of one trial here: `parallelism_fact` machines, each with as many devices as
a pod has GPUs (or, with `compute: cpu`, CPUs), and each trial has all devices of one. So a job takes as many devices
as in Ultron. Memory is not limited here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from elastune.errors import SpecError, did_you_mean
from elastune.spec import require_int

STRATEGIES = {"RANDOM": "random", "TPE": "tpe", "REINFORCE": "remaade"}
REQUIRED = ("model_classname", "module_name", "package_name", "hp_ranges", "num_iterations", "jobname")
OPTIONAL = (
    *("strategy", "hpo_classname", "hpo_module_name", "parallelism_fact", "compute", "file_name", "cpu_per_pod"),
    *("memory_per_pod", "gpu_per_pod", "mode", "seed"),
)
LONGEST_NAME = 60
_QUANTITY = re.compile(r"\d{1,15}(\.\d+)?m?")
_MEMORY = re.compile(r"\d+(\.\d+)?([kMGTPE]|[KMGTPE]i)?")


def is_ultron(fields: Mapping[str, Any]) -> bool:
    return "model_classname" in fields


def from_ultron(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment that a job of Ultron stands for. What is refused says name, value and what is allowed."""
    _check_names(spec)
    given = {"parallelism_fact": 1, "compute": "cpu", "mode": "max", "seed": 0, "cpu_per_pod": 1, "gpu_per_pod": 1}
    job = given | dict(spec)
    require_int("num_iterations", job["num_iterations"], 1)
    require_int("parallelism_fact", job["parallelism_fact"], 1)
    require_int("seed", job["seed"], 0)
    _require("mode", job["mode"], job["mode"] in ("min", "max"), "'max' (more is better) or 'min'")
    devices = _devices(job)
    return {
        "name": _run_name(job["jobname"]),
        "trainable": _object(job, "module_name", "model_classname"),
        "space": _space(job["hp_ranges"]),
        "metric": "score",
        "mode": job["mode"],
        "algorithm": {"FIFO": {"n": job["num_iterations"], "R": 1}},
        "searcher": _searcher(job),
        "seed": job["seed"],
        "cluster": {"machines": job["parallelism_fact"], "devices": devices, "devices_per_trial": devices},
    }


def _check_names(spec: Mapping[str, Any]) -> None:
    known = {*REQUIRED, *OPTIONAL}
    for name in spec:
        if name not in known:
            raise SpecError(f"unknown field {name!r}; {did_you_mean(str(name), known)}")
    for name in REQUIRED:
        if name not in spec:
            raise SpecError(f"{name} is missing; a job of Ultron has {', '.join(REQUIRED)}, and strategy")


def _require(name: str, value: object, is_right: bool, allowed: str) -> None:
    if not is_right:
        raise SpecError(f"{name}={value!r}: must be {allowed}")


def _run_name(jobname: object) -> str:
    """With a '-' for what the name of a run cannot have."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", jobname).strip("-._")[:LONGEST_NAME] if isinstance(jobname, str) else ""
    _require("jobname", jobname, bool(name), "a text with letters or digits (A-Z, a-z, 0-9)")
    return name


def _object(job: Mapping[str, Any], module: str, classname: str) -> str:
    """A class of the user's package, as in `trainable: package.module:Class`."""
    package = job["package_name"]
    _require("package_name", package, package == "" or _is_dotted(package), "the name of a package, or '' for none")
    _require(module, job[module], _is_dotted(job[module]), "the name of a module, such as 'train'")
    name = job[classname]
    _require(classname, name, isinstance(name, str) and name.isidentifier(), "the name of a class, such as 'Model'")
    return f"{package}{'.' if package else ''}{job[module]}:{name}"


def _is_dotted(name: object) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _space(ranges: object) -> dict[str, Any]:
    is_right = isinstance(ranges, Mapping) and bool(ranges)
    _require("hp_ranges", ranges, is_right, "a mapping of hyperparameters to lists of values, such as {'lr': [0.1]}")
    assert isinstance(ranges, Mapping)
    for name, values in ranges.items():
        _require(f"hp_ranges[{name!r}]", values, isinstance(values, list) and bool(values), "a list of values")
    return {name: {"choice": list(values)} for name, values in ranges.items()}


def _searcher(job: Mapping[str, Any]) -> str:
    """By name, or the user's own: a class with sample_hyperparameter_candidates and update_state."""
    own = [name for name in ("hpo_classname", "hpo_module_name") if name in job]
    strategy = job.get("strategy")
    if own and strategy is not None:
        raise SpecError(f"strategy={strategy!r} and {own[0]}={job[own[0]]!r}: give one of them")
    if len(own) == 1:
        raise SpecError(f"{own[0]}={job[own[0]]!r}: hpo_classname and hpo_module_name go together: give both")
    if own:
        return _object(job, "hpo_module_name", "hpo_classname")
    if strategy is None:
        raise SpecError(f"strategy is missing; allowed: {', '.join(STRATEGIES)}; or give hpo_classname of your own")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise SpecError(f"strategy={strategy!r}: {did_you_mean(str(strategy), STRATEGIES)}")
    return STRATEGIES[strategy]


def _devices(job: Mapping[str, Any]) -> int:
    """Of a pod. A part of a CPU counts as one: a device cannot be less than a process."""
    compute = job["compute"]
    _require("compute", compute, compute in ("cpu", "gpu"), "'cpu' or 'gpu'")
    counts = {kind: _quantity(f"{kind}_per_pod", job[f"{kind}_per_pod"]) for kind in ("cpu", "gpu")}
    name, count = f"{compute}_per_pod", math.ceil(counts[compute])
    _require(name, job[name], count >= 1, f"at least 1 with compute={compute!r}")
    if "memory_per_pod" in job:
        _text("memory_per_pod", job["memory_per_pod"], _MEMORY.fullmatch, "an amount such as '4Gi' or '100000Mi'")
    if "file_name" in job:
        _text("file_name", job["file_name"], bool, "the name of an archive, such as 'model.tar.gz'")
    return count


def _quantity(name: str, value: object) -> float:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    _text(name, text, _QUANTITY.fullmatch, "a number, or a text such as '5' or '500m'")
    return float(str(text).removesuffix("m")) / (1000 if str(text).endswith("m") else 1)


def _text(name: str, value: object, is_right: Callable[[str], object], allowed: str) -> None:
    _require(name, value, isinstance(value, str) and bool(is_right(value)), allowed)
