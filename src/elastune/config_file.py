"""An experiment as YAML, with the same names as in Python."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from elastune import algorithm as algorithms
from elastune.allocate import Fluid
from elastune.bench import Contest, Entry
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic, Workload, table_from_file
from elastune.cluster.workload_lcbench import LCBench
from elastune.errors import Infeasible, SpecError, did_you_mean
from elastune.planning import Planning
from elastune.profile import load_profile
from elastune.simulation import Simulation
from elastune.spec import Retention, Workers, require_int
from elastune.spot import Spot
from elastune.together import Together
from elastune.tuner import Tuner
from elastune.ultron_spec import from_ultron, is_ultron
from elastune.units import parse_duration
from elastune.yaml_file import checked, read_yaml

ALGORITHMS: dict[str, Callable[..., Any]] = {
    name: cls
    for name, cls in vars(algorithms).items()
    if isinstance(cls, type) and issubclass(cls, algorithms.Algorithm) and cls is not algorithms.Algorithm
}
SECONDS = ("request", "boot", "lifetime", "notice", "start", "resize")
"""Durations of the simulation section, which its fields in Python give in seconds."""
CLUSTER = {"machines", "devices", "devices_per_trial", "allocator", "provider", "boot", "market"}
SHARED = set(inspect.signature(Tuner).parameters) & set(inspect.signature(Together).parameters) - {"name"}
"""What is one for all experiments that share a run."""


def load_experiment(
    path: Path,
    with_trainable: bool,
    storage: Path | None = None,
    journal: str | None = None,
    planned: bool = True,
) -> tuple[Tuner, Simulation]:
    """The tuner and the simulation that a file describes. What the command line says goes before what the file says.

    With `planned` false all that needs a plan or a profile is left out, which are the algorithm, the allocator and the
    limits too: what they rest on is yet to be measured.
    """
    fields, simulation = _read(path, set(inspect.signature(Tuner).parameters), "algorithm")
    left_out = () if planned else ("allocator", "planning", "deadline", "budget")
    fields = _with_allocator({name: given for name, given in fields.items() if name not in left_out}, path)
    fields["algorithm"] = _one_of(ALGORITHMS, fields["algorithm"], f"{path}: algorithm")
    fields = _with_searcher(fields, path)
    if not planned:
        fields["algorithm"] = algorithms.FIFO(1)
    fields |= {name: given for name, given in (("storage", storage), ("journal", journal)) if given is not None}
    trainable = fields.pop("trainable", None)
    loaded = _load_code("trainable", trainable, path) if with_trainable else None
    made = _said_of(path, _simulation, simulation, fields, path)
    fields = fields if with_trainable else _as_simulated(fields, made)
    return _said_of(path, Tuner, loaded, **fields), made


def load_together(
    paths: Sequence[Path],
    with_trainable: bool,
    storage: Path | None,
    journal: str | None,
    priorities: Mapping[str, float],
) -> tuple[Together, Simulation]:
    """The experiments of several files on the same machines. What is one for all comes from the first."""
    known = set(inspect.signature(Tuner).parameters)
    files = {path: _read(path, known, "algorithm") for path in paths}
    if len(files) < len(paths):
        raise SpecError(f"{', '.join(map(str, paths))}: the same file twice: give each once")
    fields, section = files[paths[0]]
    shared = {name: given for name, given in fields.items() if name in SHARED}
    for path, (its_fields, its_section) in files.items():
        _check_same(path, paths[0], {name: its_fields[name] for name in SHARED & its_fields.keys()}, shared)
        _check_same(path, paths[0], _without_workload(its_section), _without_workload(section), "simulation.")
    shared |= {name: given for name, given in (("storage", storage), ("journal", journal)) if given is not None}
    simulations = {path: _said_of(path, _simulation, its, fields, path) for path, (fields, its) in files.items()}
    if not with_trainable:
        shared = _as_simulated(shared, simulations[paths[0]])
    tuners, workloads = [], {}
    for path, (fields, _) in files.items():
        trainable, algorithm = fields.pop("trainable", None), fields["algorithm"]
        loaded = _load_code("trainable", trainable, path) if with_trainable else None
        own = {name: given for name, given in fields.items() if name not in SHARED}
        own["algorithm"] = _one_of(ALGORITHMS, algorithm, f"{path}: algorithm")
        own = _with_searcher(own, path)
        tuners.append(_said_of(path, Tuner, loaded, **own, **{**shared, "allocator": None}))
        workloads[own["name"]] = simulations[path].workload
    together = Together(tuners, priorities=priorities, **_with_allocator(shared, paths[0]))
    given = {name: workload for name, workload in workloads.items() if isinstance(workload, Workload)}
    return together, replace(simulations[paths[0]], workload=given)


def _with_allocator(fields: dict[str, Any], path: Path) -> dict[str, Any]:
    if fields.get("allocator") is None:
        return fields

    def fluid(
        most_packed: int | None = None,
        widest: int | None = None,
        scaling: Mapping[float, float] | None = None,
        profile: str | None = None,
        as_published: bool = False,
    ) -> Fluid:
        if profile is None:
            return Fluid(most_packed, widest, scaling, as_published)
        if scaling is not None:
            raise SpecError(f"profile={profile!r} and scaling={scaling!r}: give one of them")
        if not isinstance(profile, str) or not profile:
            raise SpecError(f"profile={profile!r}: must be a file that 'elastune profile' wrote")
        known, _ = load_profile(path.parent / profile)
        return Fluid(most_packed, widest, known.with_parts, as_published)

    return fields | {"allocator": _one_of({"Fluid": fluid}, fields["allocator"], f"{path}: allocator")}


def _with_searcher(fields: dict[str, Any], path: Path) -> dict[str, Any]:
    """A name as it is; `file.py:Class` or `package.module:Class` is loaded."""
    given = fields.get("searcher")
    return fields | {"searcher": _load_code("searcher", given, path)} if is_code(given) else fields


def _check_same(path: Path, first: Path, given: object, shared: object, section: str = "") -> None:
    """Refuse what a file says of the whole run unless the first says the same."""
    if not isinstance(given, Mapping) or not isinstance(shared, Mapping):
        return  # it is refused for that
    for name, value in given.items():
        if name not in shared or shared[name] != value:
            theirs = f"{shared[name]!r}" if name in shared else "nothing of it"
            raise SpecError(
                f"{path}: {section}{name}={value!r}: {first} says {theirs}, and the first file says it for all that "
                "share the run: leave it out here, or say the same"
            )


def _without_workload(section: object) -> object:
    return {name: given for name, given in section.items() if name != "workload"} if isinstance(section, dict) else {}


def _said_of(path: Path, make: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What is refused, is refused with the name of the file."""
    try:
        return make(*arguments, **more)
    except (SpecError, Infeasible) as error:
        raise type(error)(f"{path}: {error}") from None


def load_contest(path: Path) -> tuple[Contest, int]:
    """The algorithms that a file compares on its simulation, and the seed to begin with."""
    known = set(inspect.signature(Tuner).parameters) - {"algorithm"}
    fields, simulation = _read(path, known | {"algorithms"}, "algorithms")
    fields = _with_allocator(fields, path)
    given = fields.pop("algorithms")
    if not isinstance(given, Mapping) or not given:
        raise SpecError(
            f"{path}: algorithms={given!r}: must map names to algorithms, such as {{ASHA: {{n: null, r: 1, R: 27}}}}"
        )
    if "deadline" not in fields:
        raise SpecError(f"{path}: deadline is missing: algorithms are compared by what they find until then")
    entries = {str(label): _entry(str(label), entry, f"{path}: algorithms") for label, entry in given.items()}
    seed = fields.pop("seed", 0)
    fields.pop("trainable", None)
    if isinstance(simulation, Mapping) and simulation.get("workload") is None:
        simulation = {**simulation, "workload": "synthetic"}  # one landscape for all seeds
    try:
        require_int("seed", seed, 0)
        workload = _simulation(simulation, {**fields, "seed": seed}, path)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    return Contest(str(fields["name"]), _as_simulated(fields, workload), workload, entries), seed


def _read(path: Path, known: set[str], algorithm: str) -> tuple[dict[str, Any], Any]:
    """The fields of a file as arguments of a Tuner, and its simulation section. `algorithm` is the name of the field
    that has the algorithm or the algorithms, which are yet to be made.
    """
    fields = read_yaml(path, f"space, metric and {algorithm}")
    if is_ultron(fields):
        fields = _said_of(path, from_ultron, fields)
    simulation, cluster = fields.pop("simulation", None), fields.pop("cluster", None)
    simulation, cluster = ({} if section is None else section for section in (simulation, cluster))
    fields = checked(fields, known, str(path), extra={"cluster", "simulation"})
    cluster = checked(cluster, CLUSTER, f"{path}: cluster")
    for name in cluster:
        if name in fields:
            raise SpecError(f"{path}: {name} and cluster.{name} are the same: give one of them, best in cluster")
    fields |= cluster
    for name in ("space", "metric", algorithm):
        if name not in fields:
            raise SpecError(f"{path}: {name} is missing")
    for name, make in (("retention", Retention), ("workers", Workers)):
        if name in fields:
            fields[name] = _build(make, fields[name], f"{path}: {name}")
    if "planning" in fields:
        fields["planning"] = _planning(fields["planning"], path)
    if "market" in fields:
        fields["market"] = _market(fields["market"], path)
        if fields["market"] is not None and fields.get("provider") == "here":
            raise SpecError(
                f"{path}: cluster: provider='here' and market: machines of a market are always 'local': leave it out"
            )
    fields.setdefault("name", path.stem)
    return fields, simulation


def _entry(label: str, given: object, where: str) -> Entry:
    """`label: {algorithm: ..., searcher: ..., machines: ...}`, `label: {Name: {its arguments}}`, or just `Name: {its
    arguments}`.
    """
    if isinstance(given, Mapping) and "algorithm" in given:
        fields = checked(given, {"algorithm", "searcher", "machines"}, f"{where}.{label}")
        algorithm = _one_of(ALGORITHMS, fields.pop("algorithm", None), f"{where}.{label}.algorithm")
        return Entry(algorithm, **fields)
    names_one = isinstance(given, str) or (isinstance(given, Mapping) and any(name in ALGORITHMS for name in given))
    if label in ALGORITHMS and not names_one:
        return Entry(_one_of(ALGORITHMS, {label: given}, where))
    # {random: {FIFI: {n: 1}}} names one, if a wrong one; {FIFI: {n: 1}} does not.
    inner = given.values() if isinstance(given, Mapping) else ()
    if not names_one and isinstance(given, Mapping | None) and not any(isinstance(each, Mapping) for each in inner):
        raise SpecError(
            f"{where}: unknown algorithm {label!r}; {did_you_mean(label, ALGORITHMS)}; "
            f"with a name of your own say which it is: {label}: {{ASHA: {{...}}}}"
        )
    return Entry(_one_of(ALGORITHMS, given, f"{where}.{label}"))


def _build(make: Callable[..., Any], given: object, where: str) -> Any:
    """Call a constructor with a mapping of its own arguments."""
    parameters = inspect.signature(make).parameters
    given = {} if given is None else given
    arguments = checked(given, set(parameters), where)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            if not isinstance(given, Mapping) or name not in given:
                raise SpecError(f"{where}: {name} is missing")
            arguments[name] = None  # as in ASHA: {n: null}
    try:
        return make(**arguments)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except TypeError as error:
        raise SpecError(f"{where}: {given!r} cannot be used: {error}") from None


def _planning(given: object, path: Path) -> Planning:
    planning: Planning = _build(Planning, given, f"{path}: planning")
    if isinstance(planning.profile, str):
        return replace(planning, profile=path.parent / planning.profile)
    if planning.profile is None:
        return planning
    raise SpecError(f"{path}: planning.profile={planning.profile!r}: must be a file that 'elastune profile' wrote")


def _market(given: object, path: Path) -> Spot | None:
    """`spot`, or a mapping of what is different from the usual."""
    if given == "on-demand":
        return None
    if isinstance(given, str) and given != "spot":
        raise SpecError(f"{path}: market={given!r}: {did_you_mean(given, ('spot', 'on-demand'))}, or a mapping")
    spot: Spot = _build(Spot, {} if given == "spot" else given, f"{path}: market")
    if isinstance(given, Mapping) and given.get("revocation", "") is None:
        spot = replace(spot, revocation=None)  # here null is not the default: no model is asked
    if isinstance(spot.prices, str):
        spot = replace(spot, prices=path.parent / spot.prices)
    if isinstance(spot.revocation, str) and (path.parent / spot.revocation).is_file():
        spot = replace(spot, revocation=path.parent / spot.revocation)
    return spot


def _one_of(makers: Mapping[str, Callable[..., Any]], given: object, where: str) -> Any:
    """`{Name: {its arguments}}` or just a name."""
    if isinstance(given, str):
        given = {given: None}
    if not isinstance(given, Mapping) or len(given) != 1:
        raise SpecError(f"{where}={given!r}: must be one name with its arguments; allowed: {', '.join(sorted(makers))}")
    ((name, arguments),) = given.items()
    if name not in makers:
        raise SpecError(f"{where}={name!r}: {did_you_mean(str(name), makers)}")
    return _build(makers[name], arguments, f"{where} {name}")


def _simulation(given: object, fields: Mapping[str, Any], path: Path) -> Simulation:
    where = "simulation"
    as_given = ("stragglers", "scaling", "midway")
    section = checked(given, {"workload", "faults", *as_given, *SECONDS}, where)
    arguments: dict[str, Any] = {name: section[name] for name in as_given if name in section}
    for name in SECONDS:
        if name in section:
            arguments[f"{name}_s"] = parse_duration(section[name], f"{where}.{name}", zero=name != "lifetime")
    if "faults" in section:
        if not isinstance(section["faults"], list):
            raise SpecError(f"{where}.faults={section['faults']!r}: must be a list")
        arguments["faults"] = tuple(
            _build(_fault, fault, f"{where}.faults[{i}]") for i, fault in enumerate(section["faults"])
        )
    if "workload" in section:
        metric, mode = fields["metric"], fields.get("mode", "min")

        def synthetic(
            step: Any = 1.0, noise: float = 0.01, decay: float = 0.7, seed: int = fields.get("seed", 0)
        ) -> Synthetic:
            require_int("seed", seed, 0)
            return Synthetic(metric, mode, step_s=parse_duration(step, "step"), noise=noise, decay=decay, seed=seed)

        def table(file: str) -> Any:
            return table_from_file(path.parent / file, metric)

        def lcbench(folder: str, task: str) -> LCBench:
            return LCBench(path.parent / folder, str(task), metric)

        makers: dict[str, Callable[..., Any]] = {"synthetic": synthetic, "table": table, "lcbench": lcbench}
        arguments["workload"] = _one_of(makers, section["workload"], f"{where}.workload")
    made: Simulation = _build(Simulation, arguments, where)
    return made


def _as_simulated(fields: dict[str, Any], simulation: Simulation) -> dict[str, Any]:
    """Where nothing else is said of it, machines are expected when they come in the simulation."""
    boot_s = (simulation.request_s or 0.0) + (simulation.boot_s or 0.0)
    if not boot_s or any(fields.get(name) is not None for name in ("boot", "planning", "market")):
        return fields
    provider = fields.get("provider", "here")
    return fields | {"provider": "local" if provider == "here" else provider, "boot": boot_s}


def _fault(at: Any, kind: Any, target: str, notice: Any = 0) -> Fault:
    return Fault(parse_duration(at, "at", zero=True), kind, target, parse_duration(notice, "notice", zero=True))


def is_code(given: object) -> bool:
    """Whether it names something in the user's code."""
    return isinstance(given, str) and ":" in given


def _load_code(field: str, given: object, path: Path) -> Any:
    """`file.py:name`, relative to the YAML file, or `package.module:name`."""
    kind = "function" if field == "trainable" else "Class"
    if not isinstance(given, str) or given.count(":") != 1 or given.startswith(":") or given.endswith(":"):
        raise SpecError(f"{path}: {field}={given!r}: must be 'file.py:{kind}' or 'package.module:{kind}'")
    place, name = given.split(":")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = _load_file(path.parent / place) if place.endswith(".py") else importlib.import_module(place)
    except SystemExit:
        raise SpecError(
            f"{path}: {field}={given!r}: {place} calls sys.exit() when it is loaded: put what a script does below "
            'if __name__ == "__main__":'
        ) from None
    except Exception as error:
        raise SpecError(
            f"{path}: {field}={given!r}: {place} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise SpecError(f"{path}: {field}={given!r}: {place} has no {name!r}; {did_you_mean(name, names)}")
    # The workers get the code itself: they need not find the file.
    cloudpickle.register_pickle_by_value(module)
    return getattr(module, name)


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
