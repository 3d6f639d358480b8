"""The LCBench surrogate (YAHPO Gym) as a workload: accuracy and time per epoch of networks on 34 tables of data.

Reads the published folder: model.onnx and encoding.json. Needs onnxruntime (`pip install "elastune[surrogate]"`).
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from elastune.cluster.workload import Curve, Workload
from elastune.errors import SpecError, did_you_mean
from elastune.messages import Config
from elastune.space import Space, lograndint, loguniform, randint, uniform

EPOCHS = 52
INPUTS = ("batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout")
OUTPUTS = (
    "time",
    "val_accuracy",
    "val_cross_entropy",
    "val_balanced_accuracy",
    "test_cross_entropy",
    "test_balanced_accuracy",
)
SPACE = Space(
    {
        "batch_size": lograndint(16, 513),
        "learning_rate": loguniform(1e-4, 1e-1),
        "momentum": uniform(0.1, 0.99),
        "weight_decay": loguniform(1e-5, 1e-1),
        "num_layers": randint(1, 6),
        "max_units": lograndint(64, 1025),
        "max_dropout": uniform(0.0, 1.0),
    }
)


class LCBench(Workload):
    """One of its tasks, by OpenML id. A trial trains 52 epochs at most."""

    def __init__(self, folder: Path, task: str, metric: str = "val_accuracy") -> None:
        if metric not in OUTPUTS[1:]:
            raise SpecError(f"metric={metric!r}: LCBench has no such metric; {did_you_mean(metric, OUTPUTS[1:])}")
        try:
            tasks = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpecError(f"LCBench folder {folder}: encoding.json cannot be read: {error}") from None
        if task not in tasks:
            raise SpecError(f"task={task!r}: LCBench has no such task; {did_you_mean(task, set(tasks) - {'#na#'})}")
        self._model, self._task, self._column = folder / "model.onnx", int(tasks[task]), OUTPUTS.index(metric)
        if not self._model.is_file():
            raise SpecError(f"LCBench folder {folder}: model.onnx is not there; download the whole folder")
        self._metric = metric
        self._tables: dict[tuple[float, ...], Any] = {}

    @cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
        except ImportError:
            raise SpecError('the LCBench surrogate needs onnxruntime: pip install "elastune[surrogate]"') from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(str(self._model), options, providers=["CPUExecutionProvider"])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def _table(self, config: Config) -> Any:
        """All epochs of a configuration: a row per epoch, a column per output."""
        import numpy as np

        missing = [name for name in INPUTS if name not in config]
        if missing:
            raise SpecError(
                f"configuration {config!r}: LCBench needs {', '.join(INPUTS)}; missing: {', '.join(missing)}"
            )
        key = tuple(float(config[name]) for name in INPUTS)
        if key not in self._tables:
            continuous = np.array([(epoch, *key) for epoch in range(1, EPOCHS + 1)], dtype=np.float32)
            categories = np.full((EPOCHS, 1), self._task, dtype=np.int32)
            names = [given.name for given in self._session.get_inputs()]
            inputs = dict(zip(sorted(names), (categories, continuous), strict=True))
            self._tables[key] = self._session.run(None, inputs)[0].astype(float)
        return self._tables[key]

    def curve(self, config: Config) -> Curve:
        values = self._table(config)[:, self._column].tolist()
        return lambda iteration: {self._metric: values[iteration - 1]} if iteration <= EPOCHS else None

    def step_s(self, config: Config, iteration: int) -> float:
        times = self._table(config)[:, 0]
        before = times[iteration - 2] if iteration > 1 else 0.0
        return max(float(times[min(iteration, EPOCHS) - 1] - before), 1e-3)
