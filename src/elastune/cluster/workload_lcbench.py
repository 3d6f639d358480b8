"""The LCBench surrogate (YAHPO Gym) as a workload: accuracy and time per epoch of networks on 34 tables of data.

Reads the published folder: model.onnx and encoding.json. Needs onnxruntime (`pip install "elastune[surrogate]"`).
"""

from __future__ import annotations

import json
from functools import cache
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

    names = INPUTS

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
        self._known: dict[tuple[float, ...], tuple[list[float], list[float]]] = {}

    def _epochs(self, config: Config) -> tuple[list[float], list[float]]:
        """Of all epochs of a configuration: the metric, and the seconds until the end of each."""
        try:
            key = tuple([float(config[name]) for name in INPUTS])
        except KeyError:
            missing = ", ".join(name for name in INPUTS if name not in config)
            raise SpecError(
                f"configuration {config!r}: LCBench needs {', '.join(INPUTS)}; missing: {missing}"
            ) from None
        if key not in self._known:
            table = self._ask(key)
            self._known[key] = table[:, self._column].tolist(), table[:, 0].tolist()
        return self._known[key]

    def _ask(self, inputs: tuple[float, ...]) -> Any:
        """A row per epoch, a column per output."""
        import numpy as np

        session = _session(self._model)
        continuous = np.array([(epoch, *inputs) for epoch in range(1, EPOCHS + 1)], dtype=np.float32)
        categories = np.full((EPOCHS, 1), self._task, dtype=np.int32)
        names = sorted(given.name for given in session.get_inputs())
        return session.run(None, dict(zip(names, (categories, continuous), strict=True)))[0].astype(float)

    def curve(self, config: Config) -> Curve:
        values, metric = self._epochs(config)[0], self._metric
        return lambda iteration: {metric: values[iteration - 1]} if iteration <= EPOCHS else None

    def step_s(self, config: Config, iteration: int) -> float:
        ends_s = self._epochs(config)[1]
        before_s = ends_s[iteration - 2] if iteration > 1 else 0.0
        return max(ends_s[min(iteration, EPOCHS) - 1] - before_s, 1e-3)


@cache
def _session(model: Path) -> Any:
    """One for all tasks of this process."""
    try:
        import onnxruntime
    except ImportError:
        raise SpecError('the LCBench surrogate needs onnxruntime: pip install "elastune[surrogate]"') from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
