"""Who may import whom, and who may touch the world: the rules that keep the deciding code pure.

Pure code gets time from turns and randomness from a generator it is given; only then does a simulation repeat to the
byte, and only then can a journal be replayed. The source is parsed, never imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "elastune"

# Each row: its folders and modules, and what they may import. A row may import itself, and everyone EVERYONE.
BASE = {"spec", "space", "messages"}
MODELS = {"cost", "place", "curve"}
SOURCES = {"search", "profile", "market"}
DECIDERS = {"algorithm", "allocate"}
WORLD = {"cluster", "provider", "worker", "record", "data"}
EVERYONE = {"errors", "saving", "units"}
ROWS: list[tuple[set[str], set[str]]] = [
    (EVERYONE, set()),
    (BASE, set()),
    (MODELS, {"spec", "messages"}),
    ({"yaml_file"}, set()),
    (SOURCES, {"spec", "space", "cost", "messages", "yaml_file"}),
    ({"plan"}, BASE | MODELS | SOURCES),
    (DECIDERS, BASE | MODELS | SOURCES | {"plan"}),
    ({"control"}, BASE | MODELS | SOURCES | DECIDERS | {"plan", "cluster.base", "record"}),
    (WORLD, {"spec", "messages", "cost"}),
    ({"reporting"}, {"spec", "messages", "cost", "record", "market"}),
]
WIRING = {
    *(
        "__init__",
        "__main__",
        "bench",
        "cli",
        "cli_common",
        "cli_jobs",
        "cli_market",
        "cli_runs",
        "cli_service",
        "config_file",
        "driver",
        "experiment",
    ),
    *("forecast", "forecasts", "held_forecast", "joint", "market_forecast", "planning", "pricing", "profiling"),
    *("reproducible", "rerun", "results", "run_folder"),
    *("service", "signals", "simulation", "spot", "timed_forecast", "together", "tuner", "ultron_spec"),
}
SIMULATED = ("cluster/simulated*", "cluster/workload*", "provider/played*")
SIMULATED_ALSO = {"profile", "market", "curve", "space"}
BASE_LIBRARIES = {"msgspec"}

RAY = ("cluster/ray/*", "worker/*", "provider/*", "service/*")
CLOCK = (*RAY, "cli.py", "cli_jobs.py", "cli_market.py", "cli_runs.py", "cli_service.py", "signals.py", "record/lease*")
GLOBAL_RANDOM = ("worker/*",)  # it seeds the generators of the user's code

CLOCK_READERS = {
    *(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *(f"time.{name}_ns" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *(f"time.{name}" for name in ("localtime", "gmtime", "ctime", "strftime", "clock_gettime", "clock_gettime_ns")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
}
OWN_GENERATORS = {
    *(f"random.{name}" for name in ("Random", "SystemRandom")),
    *(f"numpy.random.{name}" for name in ("default_rng", "Generator", "RandomState", "SeedSequence", "BitGenerator")),
    *(f"numpy.random.{name}" for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")),
}
NEED_SEED = {"random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.SeedSequence"}


def violations(path: str, source: str) -> list[str]:
    """What the file at `path` (relative to the package) does against the rules."""
    tree = ast.parse(source)
    imports = list(_imports(path, tree))
    names = [(node.lineno, name) for node, name in _qualified_names(tree, _aliases(path, tree))]
    found = [
        *_forbidden_imports(path, imports),
        *_world(path, [*names, *imports]),
        *_unseeded(path, tree),
    ]
    return [f"{path}:{line}: {text}" for line, text in sorted(set(found))]


def _imports(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every import as (line, dotted name), relative ones made absolute; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{_source(path, node)}.{alias.name}") for alias in node.names)


def _source(path: str, node: ast.ImportFrom) -> str:
    """The absolute name of the module that a `from` import reads."""
    if node.level == 0:
        return node.module or ""
    parents = ["elastune", *Path(path).parts[:-1]]
    parents = parents[: len(parents) - node.level + 1]
    return ".".join([*parents, *filter(None, [node.module])])


def _aliases(path: str, tree: ast.AST) -> dict[str, str]:
    """What a bare name stands for, by the imports of the file."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                aliases[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{_source(path, node)}.{alias.name}"
    return aliases


def _qualified_names(tree: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[ast.expr, str]]:
    """Every use of something imported, by its full name: also where it is passed on instead of called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := _qualified(node, aliases)):
            yield node, name


def _qualified(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _qualified(node.value, aliases)):
        return f"{owner}.{node.attr}"
    return None


def _forbidden_imports(path: str, imports: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    unit = Path(path).parts[0].removesuffix(".py")
    if unit in WIRING:
        return
    row = next((row for row in ROWS if unit in row[0]), None)
    if row is None:
        yield 1, f"{unit} is in no row of the table of import rules: add it there"
        return
    allowed = row[0] | row[1] | EVERYONE
    if _matches(path, SIMULATED):
        allowed = allowed | SIMULATED_ALSO
    for line, name in imports:
        library, _, inside = name.partition(".")
        if library == "elastune":
            if not any(f"{inside}.".startswith(f"{prefix}.") for prefix in allowed):
                yield line, f"imports {name}; {unit} may import {', '.join(sorted(allowed))}"
        elif unit in BASE | EVERYONE and library not in sys.stdlib_module_names | BASE_LIBRARIES:
            yield line, f"imports {name}; {unit} may import the standard library, {', '.join(sorted(BASE_LIBRARIES))}"


def _world(path: str, uses: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for line, name in uses:
        if name.split(".")[0] == "ray" and not _matches(path, RAY):
            yield line, f"uses {name}; Ray belongs in {', '.join(RAY)}"
        if (name in CLOCK_READERS or name == "time.*") and not _matches(path, CLOCK):
            yield line, f"reads the clock with {name}; take the time of the turn"
        if _is_global_random(name) and not _matches(path, GLOBAL_RANDOM):
            yield line, f"uses the global random state with {name}; take a generator as an argument"


def _is_global_random(name: str) -> bool:
    if name == "torch.manual_seed":
        return True
    module = next((module for module in ("random", "numpy.random") if name.startswith(f"{module}.")), None)
    return module is not None and not any(f"{name}.".startswith(f"{own}.") for own in OWN_GENERATORS)


def _unseeded(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if _matches(path, GLOBAL_RANDOM):
        return
    aliases = _aliases(path, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            name = _qualified(node.func, aliases)
            if name in NEED_SEED:
                yield node.lineno, f"{name}() is different at every run: give it a seed"


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def test_the_package_keeps_the_rules() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source in {PACKAGE}"
    found = [
        line for file in files for line in violations(file.relative_to(PACKAGE).as_posix(), file.read_text("utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("spec.py", "import numpy"),
        ("messages.py", "from elastune.cost import cost_usd"),
        ("errors.py", "from elastune import spec"),
        ("cost.py", "from elastune.space import choice"),
        ("search/random.py", "from elastune.plan.greedy import plan"),
        ("plan/greedy.py", "from elastune.control import controller"),
        ("algorithm/asha.py", "from elastune.record.journal import Journal"),
        ("allocate/fifo.py", "import elastune.cluster.base"),
        ("control/controller.py", "from elastune.cluster import simulated"),
        ("control/controller.py", "from elastune.cluster.ray.driver import RayCluster"),
        ("control/run.py", "from ..worker import report"),
        ("cluster/base.py", "from elastune.curve import power"),
        ("record/journal.py", "from elastune.control.controller import Controller"),
        ("reporting/ledger.py", "from ..tuner import Tuner"),
        ("worker/session.py", "import elastune"),
        ("algorithm/asha.py", "from elastune import Tuner"),
        ("algorithm/asha.py", "def later():\n    from elastune.tuner import Tuner"),
        ("novelty.py", "import math"),
    ],
)
def test_an_import_against_the_table_is_caught(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("messages.py", "import math\nimport msgspec"),
        ("spec.py", "import msgspec\nfrom elastune.space import choice\nfrom elastune.units import seconds"),
        ("cost.py", "from .messages import Turn\nfrom .errors import SpecError"),
        ("search/tpe.py", "import optuna\nfrom elastune.space import choice\nfrom . import random\nrandom.Searcher()"),
        (
            "control/run.py",
            "from elastune.cluster.base import Cluster\nfrom ..cluster import base\nimport elastune.record",
        ),
        ("cluster/simulated.py", "from elastune.curve.power import fit\nfrom elastune.space import choice"),
        ("cluster/workload_table.py", "from elastune.profile import scaling"),
        ("cluster/ray/driver.py", "from elastune.worker.main import serve\nfrom ..base import Cluster"),
        ("tuner.py", "from elastune.cluster.ray import driver"),
    ],
)
def test_an_import_within_the_table_is_allowed(path: str, source: str) -> None:
    assert violations(path, source) == []


@pytest.mark.parametrize(
    "source", ["import ray", "import ray.util as util", "from ray import get", "from ray.util.queue import Queue"]
)
def test_ray_is_allowed_only_where_the_world_is(source: str) -> None:
    for path in (
        "control/run.py",
        "cluster/base.py",
        "cluster/simulated.py",
        "tuner.py",
        "cli.py",
        "record/journal.py",
    ):
        assert violations(path, source), path
    for path in ("cluster/ray/driver.py", "worker/main.py", "provider/local.py", "service/app.py"):
        assert violations(path, source) == [], path


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as clock\nclock.monotonic()",
        "import time\nfield(default_factory=time.perf_counter)",
        "from time import monotonic_ns",
        "from time import *",
        "import datetime\ndatetime.datetime.now()",
        "import datetime as dt\ndt.date.today()",
        "from datetime import datetime as moment\nmoment.now(tz)",
        "from datetime import datetime\ndatetime.utcnow()",
    ],
)
def test_the_clock_is_read_only_at_the_edge(source: str) -> None:
    for path in ("control/controller.py", "cluster/simulated.py", "record/journal.py", "tuner.py"):
        assert violations(path, source), path
    for path in ("cluster/ray/driver.py", "worker/main.py", "cli.py", "record/leases.py"):
        assert violations(path, source) == [], path


@pytest.mark.parametrize(
    "source",
    [
        "import random\nrandom.random()",
        "import random\nrandom.seed(0)",
        "import random as r\nr.shuffle(items)",
        "from random import choice",
        "from random import *",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nnp.random.rand(3)",
        "import numpy\nnumpy.random.normal()",
        "from numpy import random as npr\nnpr.uniform()",
        "from numpy.random import randint",
        "import torch\ntorch.manual_seed(0)",
        "import random\nrandom.Random()",
        "from numpy.random import default_rng\ndefault_rng()",
    ],
)
def test_randomness_without_a_seeded_generator_is_caught(source: str) -> None:
    assert violations("search/random.py", source)
    assert violations("tuner.py", source)
    assert violations("worker/seeding.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import random\ngenerator: random.Random = random.Random(seed)\ngenerator.random()",
        "import numpy as np\ndef f(rng: np.random.Generator): return rng.normal()\nf(np.random.default_rng(3))",
        "from random import Random\nRandom(0).choice([1])",
        "def at(time, random):\n    return time.time(), random.random()",
        "import time\nfrom datetime import datetime\ntime.sleep(0)\ndatetime.fromtimestamp(0)",
    ],
)
def test_time_and_generators_that_are_given_are_allowed(source: str) -> None:
    assert violations("search/random.py", source) == []
