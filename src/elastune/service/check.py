"""What is submitted, checked before it is accepted: nothing of the user's code is run for that."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastune.config_file import is_code, load_experiment
from elastune.errors import Infeasible, SpecError
from elastune.service.archive import Limits, unpack
from elastune.service.drive import SPEC
from elastune.service.jobs import Submission
from elastune.ultron_spec import from_ultron, is_ultron
from elastune.yaml_file import write_yaml

OURS = {
    "storage": "the service keeps runs itself",
    "journal": "the service keeps journals itself",
    "checkpoints": "the service keeps checkpoints itself",
}
"""Fields of an experiment that the service decides on."""
ELSEWHERE = ("provider", "market", "boot")
"""Fields of machines that are not the service's."""
DEEPEST = 50
LONGEST_GRACE_S = 30.0
"""A driver that is told to leave is ended after a minute: by then its trials must have left."""
LONGEST_FILE_BYTES = 255
"""File systems know no longer names."""
MOST_STAGES = 10_000
"""An algorithm is made in this process, when a job is submitted and whenever its run is looked at."""
MOST_TRIALS = 1_000_000
"""A stage begins all of its trials at once: more of them would take the memory that others need."""


def check_text(spec: Mapping[str, Any]) -> None:
    """What no file and no database can hold, or what is nested so deep that nobody can have written it."""
    todo: list[tuple[object, int]] = [(spec, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > DEEPEST:
            raise SpecError(f"the experiment is nested more than {DEEPEST} deep")
        if isinstance(value, Mapping):
            todo += [(each, depth + 1) for pair in value.items() for each in pair]
        elif isinstance(value, list):
            todo += [(each, depth + 1) for each in value]
        elif isinstance(value, str) and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
            raise SpecError(f"{value[:50]!a}: has a character that cannot be stored (NUL, or half of a pair)")


def check(
    given: Mapping[str, Any], code: bytes | None, code_hash: str | None, priority: int, price_usd_per_hour: float = 0.0
) -> Submission:
    """A submission, from an experiment as in YAML or from Ultron's JSON. What is refused says why. The price is that of
    the service's devices, where they have one.
    """
    spec = dict(given)
    if is_ultron(spec):
        spec = from_ultron(spec)
    _refuse(spec)
    _check_size(spec)
    spec.pop("simulation", None)  # of no use to a run on machines, and it may name files
    trainable = spec.get("trainable")
    if not isinstance(trainable, str) or not all(trainable.partition(":")):
        raise SpecError(
            f"trainable={trainable!r}: must be 'file.py:function' or 'package.module:function' of your code"
        )
    file = trainable.partition(":")[0]
    if len(file.encode()) > LONGEST_FILE_BYTES:
        raise SpecError(f"trainable={trainable[:60]!r}...: what is before the ':' must have at most 255 bytes")
    if code is None and file.endswith(".py"):
        raise SpecError(f"trainable={trainable!r}: there is no code with it: submit the folder it is in")
    with tempfile.TemporaryDirectory(prefix="elastune-check-") as folder:
        place = Path(folder) / "code"
        if code is not None:
            unpack(code, place, Limits())
            for field in ("trainable", "searcher"):
                _check_code(field, spec.get(field), place)
            if (place / SPEC).is_dir():
                raise SpecError(f"the code has a folder {SPEC}: give it another name: the experiment is put there")
        place.mkdir(exist_ok=True)
        _check_inside(spec, place)
        spec = _with_price(_with_devices(spec), price_usd_per_hour)
        # A searcher of the user's own is code: it shows when the job is begun whether it can be used.
        write_yaml(place / SPEC, {**spec, "searcher": None} if is_code(spec.get("searcher")) else spec, "")
        try:
            tuner, _ = load_experiment(place / SPEC, with_trainable=False)
        except (SpecError, Infeasible) as error:
            raise SpecError(str(error).replace(f"{place / SPEC}: ", "").replace(f"{place}/", "")) from None
        except ArithmeticError as error:
            raise SpecError(f"a number of the experiment is too large to compute with: {error}") from None
    experiment = tuner.experiment
    if experiment.settings.grace_s > LONGEST_GRACE_S:
        raise SpecError(
            f"grace={spec.get('grace')!r}: must be at most {LONGEST_GRACE_S:g}s: others wait for the devices"
        )
    if (trials := max((stage.trials for stage in experiment.algorithm.stages() or ()), default=0)) > MOST_TRIALS:
        raise SpecError(
            f"the algorithm has a stage of {trials:,} trials, and no more than {MOST_TRIALS:,} are allowed here: "
            "give it smaller numbers"
        )
    quantum, machines = experiment.devices, experiment.machines
    name = experiment.settings.name if "name" in spec else "job"
    return Submission(name, spec, code_hash, priority, quantum, quantum * machines, quantum)


def _refuse(spec: Mapping[str, Any]) -> None:
    for name, why in OURS.items():
        if name in spec:
            raise SpecError(f"{name}={spec[name]!r}: leave it out: {why}")
    cluster = spec.get("cluster")
    for name in ELSEWHERE:
        if name in spec or (isinstance(cluster, Mapping) and name in cluster):
            raise SpecError(f"{name}: leave it out: jobs run on the devices of the service")


def _check_size(spec: Mapping[str, Any]) -> None:
    """PBT has a stage for every interval; all others have few, however large their numbers are."""
    algorithm = spec.get("algorithm")
    pbt = algorithm.get("PBT") if isinstance(algorithm, Mapping) else None
    R, interval = (pbt.get(name) if isinstance(pbt, Mapping) else None for name in ("R", "perturbation_interval"))
    if isinstance(R, int) and isinstance(interval, int) and R // max(1, interval) > MOST_STAGES:
        raise SpecError(
            f"perturbation_interval={interval:,}: R has more than {MOST_STAGES:,} such intervals, and no more are "
            "allowed here: give a longer one"
        )


def _check_code(field: str, given: object, place: Path) -> None:
    """A file of the code that is named must be there. Whether a module is shows when the job is begun."""
    file = given.partition(":")[0] if isinstance(given, str) and is_code(given) else ""
    if file.endswith(".py") and not (_is_inside(file, place) and (place / file).is_file()):
        raise SpecError(f"{field}={given!r}: there is no {file} in the code")


def _is_inside(file: str, place: Path) -> bool:
    return (place / file).resolve().is_relative_to(place.resolve())


def _check_inside(spec: Mapping[str, Any], place: Path) -> None:
    """A file that the experiment names is one of its code, and not one of the service's computer."""
    sections = {"planning": spec.get("planning")}
    for given in (spec, spec.get("cluster")):
        allocator = given.get("allocator") if isinstance(given, Mapping) else None
        if isinstance(allocator, Mapping):
            sections |= {f"allocator.{name}": arguments for name, arguments in allocator.items()}
    for where, section in sections.items():
        profile = section.get("profile") if isinstance(section, Mapping) else None
        if isinstance(profile, str) and not _is_inside(profile, place):
            raise SpecError(f"{where}.profile={profile!r}: must be a file in the folder of the code")


def _with_devices(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Where nothing is said of it a machine is one device, and not the whole computer of the service."""
    cluster = spec.get("cluster") or {}
    if "devices" in spec or "planning" in spec or not isinstance(cluster, Mapping) or "devices" in cluster:
        return dict(spec)
    return {**spec, "cluster": {**cluster, "devices": 1}}


def _with_price(spec: Mapping[str, Any], usd_per_hour: float) -> dict[str, Any]:
    """A budget is planned by what the devices will be billed at. With `planning` the price is that of its cloud."""
    if not usd_per_hour or spec.get("budget") is None or spec.get("planning") is not None:
        return dict(spec)
    return {**spec, "price": usd_per_hour}
