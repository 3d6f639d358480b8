"""What a worker is told once for life."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastune.messages import experiment_of, trial_number
from elastune.record.checkpoints import CheckpointStore
from elastune.saving import SavingRule


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The user's code travels here, not with every trial."""

    trainable: bytes
    paths: tuple[str, ...]
    """Where the driver finds modules: the user's code may import its neighbours."""
    checkpoints: CheckpointStore
    logs: Path
    checkpoint_every_s: float | SavingRule
    seed: int
    threads: int = 1
    """How many a device offers; trials that share one get their part."""
    fresh_process: bool = False
    leak_bytes: float = float("inf")
    """By how much a process may grow from its first trial on before another takes its place."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Of experiments that share the workers, by name."""
    reproducible: bool = False
    """Whether libraries shall compute in one order only, or refuse."""
    known_scores: bool = True
    """Whether a score that is known is taken instead of computed."""

    @property
    def saving(self) -> SavingRule:
        every = self.checkpoint_every_s
        return every if isinstance(every, SavingRule) else SavingRule(every)

    def experiment_seed(self, trial: str) -> int:
        """Of the experiment that a trial belongs to."""
        return self.seeds.get(experiment_of(trial), self.seed)

    def seed_of(self, trial: str) -> int:
        """Of a trial's own, and the same for the same trial of a run with another name."""
        return zlib.crc32(f"{self.experiment_seed(trial)} {trial_number(trial)}".encode())


FIXED = {"PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""What the environment of a reproducible worker must say when its process begins."""


def add_paths(paths: Iterable[str]) -> None:
    sys.path.extend(path for path in paths if path not in sys.path)
