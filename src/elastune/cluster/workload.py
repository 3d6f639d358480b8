"""What simulated trials do: the metrics of every iteration, and how long it takes.

A workload is deterministic: the same trial gives the same curve however often and in whatever order it is asked, so
that a trial that starts again after a failure learns the same.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import reprlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastune.errors import SpecError
from elastune.messages import Config, Metrics, trial_number
from elastune.profile.latency import Latency
from elastune.spec import require_number

Curve = Callable[[int], Metrics | None]
"""Metrics after iteration 1, 2, ...; None: the function returned before that iteration."""


class Workload(ABC):
    names: Sequence[str] | None = None
    """The parameters that it knows; None: any."""

    @abstractmethod
    def curve(self, config: Config) -> Curve:
        """How a configuration learns."""

    @abstractmethod
    def step_s(self, config: Config, iteration: int) -> float:
        """How long an iteration takes on one device."""


def hash_unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts only, and not on the process."""
    return zlib.crc32(repr(parts).encode()) / 2**32


class Synthetic(Workload):
    """Loss curves that fall by a power law to a level that depends smoothly on the hyperparameters.

    Good and bad regions and the noise come from the seed. For mode "max" the metric is exp(-loss), which rises
    towards 1.
    """

    def __init__(
        self, metric: str, mode: str, *, step_s: float = 1.0, noise: float = 0.01, decay: float = 0.7, seed: int = 0
    ) -> None:
        require_number("step_s", step_s)
        require_number("decay", decay)
        require_number("noise", noise, zero=True)
        self._metric, self._rising = metric, mode == "max"
        self._step_s, self._noise, self._decay, self._seed = step_s, noise, decay, seed

    def level(self, config: Config) -> float:
        """Where the curve ends, from 0 (best) to 1."""
        parts = [self._badness(name, value) for name, value in _flat("", config)]
        return sum(parts) / len(parts) if parts else 0.5

    def curve(self, config: Config) -> Curve:
        level, offset = self.level(config), int(hash_unit(self._seed, config) * len(_NORMAL))
        metric, rising, noise, decay = self._metric, self._rising, self._noise, self._decay

        def metrics(iteration: int) -> Metrics:
            loss = (
                level + (1.0 + level) * (1 + iteration) ** -decay + noise * _NORMAL[(offset + iteration) % len(_NORMAL)]
            )
            return {metric: math.exp(-loss) if rising else loss}

        return metrics

    def step_s(self, config: Config, iteration: int) -> float:
        return self._step_s

    def _badness(self, name: str, value: object) -> float:
        phase = hash_unit(self._seed, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return hash_unit(self._seed, name, value)
        scale = math.copysign(math.log1p(abs(value) * 1e4), value) / 10.0
        return (1.0 - math.cos(2.0 * math.pi * (scale + phase))) / 2.0


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [leaf for name, inner in value.items() for leaf in _flat(f"{prefix}.{name}", inner)]


class Table(Workload):
    """Recorded curves, and the seconds that each iteration took. A configuration gets the curve of the recorded
    configuration that is nearest to it.
    """

    def __init__(
        self,
        metric: str,
        configs: Sequence[Config],
        curves: Sequence[Sequence[float]],
        seconds: Sequence[Sequence[float]],
    ) -> None:
        for config, steps in zip(configs, seconds, strict=True):
            if (number := _no_step(steps)) is not None:
                raise SpecError(
                    f"seconds={reprlib.repr(steps)} of configuration {config!r}: iteration {number} must take more "
                    "than 0 seconds"
                )
        self._metric, self._curves, self._seconds = metric, curves, seconds
        self.names: list[str] = list(configs[0])
        columns = [[float(config[name]) for config in configs] for name in self.names]
        self.ranges = {name: (min(column), max(column)) for name, column in zip(self.names, columns, strict=True)}
        self._points = [self._point(config) for config in configs]
        self._nearest: dict[tuple[float, ...], int] = {}

    def _point(self, config: Config) -> tuple[float, ...]:
        try:
            return tuple(
                (float(config[name]) - low) / ((high - low) or 1.0) for name, (low, high) in self.ranges.items()
            )
        except (KeyError, TypeError, ValueError):
            raise SpecError(f"configuration {config!r}: the table needs numbers for {', '.join(self.names)}") from None

    def row(self, config: Config) -> int:
        point = self._point(config)
        if point not in self._nearest:
            distances = [math.dist(point, other) for other in self._points]
            self._nearest[point] = distances.index(min(distances))
        return self._nearest[point]

    def curve(self, config: Config) -> Curve:
        values, metric = self._curves[self.row(config)], self._metric
        return lambda iteration: {metric: values[iteration - 1]} if iteration <= len(values) else None

    def step_s(self, config: Config, iteration: int) -> float:
        seconds = self._seconds[self.row(config)]
        return seconds[min(iteration, len(seconds)) - 1]


def _no_step(seconds: Sequence[float]) -> int | None:
    """The first iteration that takes no time, or one that cannot be."""
    return next((number for number, step_s in enumerate(seconds, 1) if not 0.0 < step_s < math.inf), None)


_LINE = '{"config": {"lr": 0.1}, "learning_curve": [0.9, 0.7], "time_steps": [10.0, 20.5]}'


def table_from_file(path: Path, metric: str) -> Table:
    """Curves from a file of JSON lines, gzipped or not: each has `config`, `learning_curve` and `time_steps`
    (cumulative seconds).
    """
    rows: list[tuple[Config, list[float], list[float]]] = []
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    rows.append(_row(line))
                    _same_names(rows[-1][0], rows[0][0])
                except (ValueError, OverflowError, RecursionError) as error:
                    raise SpecError(f"table file {path}, line {number}: {error}; a line is such as {_LINE}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"table file {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise SpecError(f"table file {path}: has no curves; a line is such as {_LINE}")
    configs, curves, seconds = zip(*rows, strict=True)
    return Table(metric, configs, curves, seconds)


def _row(line: bytes) -> tuple[Config, list[float], list[float]]:
    """Raises ValueError, with what is wrong."""
    try:
        row = json.loads(line.decode("utf-8-sig").rstrip())
    except UnicodeDecodeError:
        raise ValueError("is not text; the name of a gzipped file must end in .gz") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(row, dict):
        raise ValueError(f"{reprlib.repr(row)} must be an object")
    for name, kind, said in (
        ("config", dict, "an object of numbers"),
        ("learning_curve", list, "a list of numbers"),
        ("time_steps", list, "a list of numbers"),
    ):
        if name not in row:
            raise ValueError(f"{name} is missing")
        if not isinstance(row[name], kind) or not row[name]:
            raise ValueError(f"{name}={reprlib.repr(row[name])} must be {said}, and not empty")
    config = {name: _number(f"config.{name}", value) for name, value in row["config"].items()}
    for name, value in config.items():
        if not math.isfinite(value):
            raise ValueError(f"config.{name}={value} must be finite")
    curve, ends_s = ([_number(name, value) for value in row[name]] for name in ("learning_curve", "time_steps"))
    seconds = [end_s - start_s for start_s, end_s in pairwise([0.0, *ends_s])]
    if len(seconds) != len(curve):
        raise ValueError(f"learning_curve has {len(curve)} values and time_steps {len(seconds)}: must have as many")
    if (number := _no_step(seconds)) is not None:
        before_s = f"{ends_s[number - 2]:g}" if number > 1 else "the start"
        raise ValueError(
            f"time_steps go from {before_s} to {ends_s[number - 1]:g} in iteration {number}: they are seconds since "
            "the start, and must rise with every iteration"
        )
    return config, curve, seconds


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise ValueError(f"{name}: {reprlib.repr(value)} must be a number")
    return float(value)


def _same_names(config: Config, first: Config) -> None:
    if config.keys() != first.keys():
        raise ValueError(f"config has {', '.join(config)}, and that of the first line {', '.join(first)}")


def _pool(make: Callable[[random.Random], float]) -> list[float]:
    rng = random.Random(20210426)
    return [make(rng) for _ in range(1 << 14)]


_NORMAL = _pool(lambda rng: rng.gauss(0.0, 1.0))


class Stragglers:
    """Random factors on step times with mean 1: log-normal with the given sigma, or as a latency is spread. A pool,
    because a draw must be cheap.
    """

    def __init__(self, sigma: float | Latency = 0.0, seed: int = 0) -> None:
        self._seed = seed
        if isinstance(sigma, Latency):
            self._factors = sigma.factors(len(_NORMAL))
        else:
            require_number("sigma", sigma, zero=True)
            self._factors = [math.exp(sigma * normal - sigma * sigma / 2) for normal in _NORMAL] if sigma else [1.0]

    def offset(self, trial: str, attempt: int) -> int:
        return int(hash_unit(self._seed, trial_number(trial), attempt) * len(self._factors))

    def factor(self, offset: int, iteration: int) -> float:
        return self._factors[(offset + iteration * 7919) % len(self._factors)]
