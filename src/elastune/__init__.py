"""Elastune: hyperparameter tuning on an elastic cluster, to a deadline and a budget.

import elastune as et

def train(config):
    for epoch in range(50):
        et.report({"loss": ...}, checkpoint=lambda: ...)

tuner = et.Tuner(train, space={"lr": et.loguniform(1e-4, 1e-1)}, metric="loss", mode="min",
                 algorithm=et.ASHA(n=32, r=1, R=50), deadline="20m")
result = tuner.fit()
"""

from typing import TYPE_CHECKING, Any

from elastune.algorithm import (
    ASHA,
    BOHB,
    FIFO,
    PBT,
    SEER,
    Algorithm,
    ElasticGrid,
    ElasticHyperband,
    Hyperband,
    HyperSched,
    KFold,
    SingleTrial,
    SpotTune,
    Stages,
    SuccessiveHalving,
    SyncBOHB,
)
from elastune.allocate import Allocator, Fluid, Target, View
from elastune.allocate.overheads import paleo
from elastune.errors import ElastuneError, Infeasible, RunFailed, SpecError, StorageError
from elastune.search.base import Searcher
from elastune.space import choice, grid_search, lograndint, loguniform, quniform, randint, uniform
from elastune.spec import Retention, Workers
from elastune.worker import (
    Context,
    PreemptionInfo,
    Trainable,
    get_checkpoint,
    get_context,
    get_preemption_info,
    leave_if_preempted,
    report,
)

if TYPE_CHECKING:
    from elastune import data as data
    from elastune.cluster.simulated import Fault
    from elastune.cluster.workload import Synthetic, Table
    from elastune.planning import Planning
    from elastune.results import Result
    from elastune.search.optuna import OptunaSearcher
    from elastune.simulation import Simulation
    from elastune.spot import Spot
    from elastune.together import Together
    from elastune.tuner import Tuner, load
    from elastune.worker import torch as torch

__version__ = "0.1.0"

_LAZY = {
    "Together": "elastune.together",
    "Tuner": "elastune.tuner",
    "load": "elastune.tuner",
    "Result": "elastune.results",
    "Simulation": "elastune.simulation",
    "Fault": "elastune.cluster.simulated",
    "Planning": "elastune.planning",
    "Spot": "elastune.spot",
    "Synthetic": "elastune.cluster.workload",
    "Table": "elastune.cluster.workload",
    "OptunaSearcher": "elastune.search.optuna",
    "data": "elastune.data",
    "torch": "elastune.worker.torch",
}
"""What only the driver needs is imported when it is asked for: `import elastune` in a worker should cost next to
nothing.
"""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        module = importlib.import_module(_LAZY[name])
        return module if name in ("data", "torch") else getattr(module, name)
    raise AttributeError(f"module 'elastune' has no attribute {name!r}")


__all__ = [
    "ASHA",
    "BOHB",
    "FIFO",
    "PBT",
    "SEER",
    "Algorithm",
    "Allocator",
    "Context",
    "ElasticGrid",
    "ElasticHyperband",
    "ElastuneError",
    "Fault",
    "Fluid",
    "HyperSched",
    "Hyperband",
    "Infeasible",
    "KFold",
    "OptunaSearcher",
    "Planning",
    "PreemptionInfo",
    "Result",
    "Retention",
    "RunFailed",
    "Searcher",
    "Simulation",
    "SingleTrial",
    "SpecError",
    "Spot",
    "SpotTune",
    "Stages",
    "StorageError",
    "SuccessiveHalving",
    "SyncBOHB",
    "Synthetic",
    "Table",
    "Target",
    "Together",
    "Trainable",
    "Tuner",
    "View",
    "Workers",
    "choice",
    "get_checkpoint",
    "get_context",
    "get_preemption_info",
    "grid_search",
    "leave_if_preempted",
    "load",
    "lograndint",
    "loguniform",
    "paleo",
    "quniform",
    "randint",
    "report",
    "uniform",
]
